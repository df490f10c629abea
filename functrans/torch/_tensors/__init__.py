"""Tensors: memory, types, how they are made and how they print."""
