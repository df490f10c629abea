"""``torch._six``: names of the time of Python 2 that older programs import."""

from __future__ import annotations

import collections.abc as container_abcs
import math
from typing import Any

inf, nan = math.inf, math.nan
string_classes = (str, bytes)
int_classes = int


def with_metaclass(meta: Any, *bases: type) -> type:
    """A base class whose subclasses have the metaclass ``meta`` and the bases ``bases``."""
    return meta("temporary_class", bases, {})


def istuple(obj: object) -> bool:
    """Whether ``obj`` is a tuple."""
    return isinstance(obj, tuple)


__all__ = [
    "container_abcs", "inf", "int_classes", "istuple", "nan", "string_classes", "with_metaclass",
]
