"""Errors in ``functrans.torch``."""


ERRORS = (
)

__all__ = ["ERRORS"]
