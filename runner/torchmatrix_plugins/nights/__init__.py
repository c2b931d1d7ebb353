"""Nights: one after the other, begun by a timer of the user's."""
