"""Floor 2: the table of primitives, a row each. Knows no transform."""
