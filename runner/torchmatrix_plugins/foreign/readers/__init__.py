"""One module for each tool; each has `read`, which an entry point names."""
