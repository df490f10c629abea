"""The vector spaces of arrays and numbers."""

from __future__ import annotations

from functrans.autograd._names import missing
from functrans.autograd.core import ArrayVSpace, ComplexArrayVSpace, VSpace

__all__ = ["ArrayVSpace", "ComplexArrayVSpace", "VSpace"]
__getattr__ = missing(__name__)
