"""What a function of this package does for its caller, whatever it computes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans._core.array import wrap


def public(f: Callable) -> Callable:
    """``f`` with plain results handed out as Arrays."""

    @functools.wraps(f)
    def named(*args: Any, **kwargs: Any) -> Any:
        out = f(*args, **kwargs)
        if isinstance(out, np.ndarray | np.generic):
            return wrap(out)
        if type(out) is tuple or type(out) is list:
            return type(out)(wrap(x) if isinstance(x, np.ndarray | np.generic) else x for x in out)
        return out

    return named
