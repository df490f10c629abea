"""Loops that Python wrote out, rolled up again before a program is compiled."""
