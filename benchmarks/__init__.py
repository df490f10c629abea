"""Comparisons with NumPy's other automatic differentiators: ``python -m benchmarks --help``."""
