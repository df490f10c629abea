"""Forward mode: tangents, and Taylor series."""
