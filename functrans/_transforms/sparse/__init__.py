"""Sparse derivative matrices: patterns read off programs, colourings, compressed evaluation."""
