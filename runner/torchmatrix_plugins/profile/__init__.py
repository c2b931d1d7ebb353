"""Looks into a step: its profile, why two cells differ, and the release that changed a level."""
