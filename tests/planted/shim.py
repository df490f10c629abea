"""Errors in ``functrans.torch``."""

from tests.planted.error import Planted

ERRORS = (
)

__all__ = ["ERRORS"]
