"""Constants on purpose: a value that the differentiating transforms see as fixed."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.bind import Tracer
from functrans._core.writing import handed_to
from functrans._ops.calls import stop
from functrans._transforms.arguments import hand_out


def stop_gradient(x: Any) -> Any:
    """``x`` itself, with derivative zero: ``x -> x``, ``t -> 0``.

    ``x`` may be a container; leaves that are not arrays pass through. Under ``vmap`` it is
    still one value for each entry of the batch.

    Returns ``x``, with the same structure, shapes and dtypes.

    >>> import functrans as ft, numpy as np
    >>> from functrans import stop_gradient
    >>> ft.grad(lambda x: x * stop_gradient(x))(3.0)
    Array(3.)
    """
    return handed_to(sys._getframe(1), tree.map(_stopped, x))


def _stopped(x):
    y = stop(x) if isinstance(x, Tracer) else x
    # read-only, as it may be another value's storage; Python scalars stay weak
    return hand_out(y) if isinstance(y, np.ndarray | np.generic) else y
