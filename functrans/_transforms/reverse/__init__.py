"""Reverse mode: the tape, the walk, and what is made of them."""
