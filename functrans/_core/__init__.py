"""Floor 1: what a value, a primitive and a trace are. Knows no op."""
