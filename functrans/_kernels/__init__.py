"""Floor 2: what rows and walks run on large ndarrays."""
