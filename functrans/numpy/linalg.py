"""``numpy.linalg``'s names on Arrays and traced values."""

from __future__ import annotations

from numpy import linalg as _theirs
from numpy.linalg import LinAlgError

from functrans.numpy import decompositions as _decompositions
from functrans.numpy import linear_algebra as _linear_algebra
from functrans.numpy.public import publish as _publish

__all__ = ["LinAlgError"]
__all__ += _publish(_linear_algebra, globals(), _theirs)
__all__ += _publish(_decompositions, globals(), _theirs)
