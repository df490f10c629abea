"""``numpy.emath``'s names on Arrays and traced values."""

from __future__ import annotations

from numpy import emath as _theirs

from functrans.numpy import scimath as _scimath
from functrans.numpy.public import publish as _publish

__all__ = _publish(_scimath, globals(), _theirs)
