"""``ArrayBox``, of which all traced values are."""

from __future__ import annotations

from typing import Any

from functrans._core.bind import Tracer
from functrans.autograd._names import missing
from functrans.autograd.tracer import Box
from functrans.errors import ConcretizationError


class ArrayBox(Box):
    """The class of traced arrays and numbers, for ``isinstance``.

    >>> import functrans.autograd.numpy as np
    >>> from functrans.autograd import grad
    >>> from functrans.autograd.numpy.numpy_boxes import ArrayBox
    >>> seen = []
    >>> g = grad(lambda x: seen.append((isinstance(x, ArrayBox), x._value)) or x * x)(3.0)
    >>> seen, isinstance(3.0, ArrayBox)
    ([(True, 3.0)], False)
    """


def _value(x: Tracer) -> Any:
    """What is inside, of an outer derivative or plain."""
    now = x.current()
    inner = now.inner if isinstance(now, Tracer) else now
    if inner is None:
        raise ConcretizationError(f"{x!r} has no _value of its own under jit or vmap")
    return inner


# With autograd's name for what is inside of a traced value; see ``functrans.numpy.public.attach``.
MEMBERS: dict[type, dict[str, Any]] = {Tracer: {"_value": property(_value)}}
__all__ = ["ArrayBox"]
__getattr__ = missing(__name__)
