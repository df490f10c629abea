"""Floor 4: compiled functions for people to read."""
