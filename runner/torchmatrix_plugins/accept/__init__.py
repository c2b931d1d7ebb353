"""Acceptance of a server: is each of its devices as fast as it should be, and if not, why?"""
