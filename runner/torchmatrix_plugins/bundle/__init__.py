"""A matrix, its lock, images and wheels in one archive, for a machine without a network."""
