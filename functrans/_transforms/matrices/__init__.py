"""Derivatives as matrices, and products with them."""
