"""Bounds on rounding errors, of values and of derivatives."""
