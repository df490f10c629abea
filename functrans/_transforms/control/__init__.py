"""Loops and branches: as their user calls them, while they are staged, and under transforms."""
