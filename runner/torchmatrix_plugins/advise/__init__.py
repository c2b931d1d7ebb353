"""Recommends a configuration of a model from what was measured."""
