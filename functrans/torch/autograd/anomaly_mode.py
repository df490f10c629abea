"""``detect_anomaly``: which operation a failing backward belongs to, and where NaN came from."""

from __future__ import annotations

import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans.debug import Anomaly, is_nan, line_of, user_stack
from functrans.extend import Op
from functrans.torch._graph.graph import Node
from functrans.torch._graph.modes import state
from functrans.torch._graph.observed import set_watch
from functrans.torch._graph.watching import Watch

KEY = "traceback_"


class _TensorAnomaly(Anomaly):
    """Keeps the forward traceback of each node in its metadata."""

    word = "saved number"

    def end(self, token: Op, out: Any) -> None:
        if token.prim is not None:
            stack = user_stack()
            token.prim.metadata[KEY] = traceback.format_list(list(stack))
            token.prim.metadata["line_"] = line_of(stack)
        if self.check_nan and not self.first:
            outs = out if isinstance(out, tuple | list) else (out,)
            if any(map(_nan, outs)) and not any(map(_nan, token.args)):
                self.first = f"{token.name.removeprefix('aten::')} at {line_of(user_stack())}"

    def back(self, op: Op, ct: Any) -> Any:
        return op, ct

    def passed(self, token: Any, parts: Sequence) -> None:
        if not self.check_nan:
            return
        op, ct = token
        for k, c in parts:
            if c is not None and is_nan(c):
                index = tuple(int(i) for i in np.argwhere(np.isnan(np.asarray(_plain(c))))[0])
                line = _metadata(op.prim).get("line_", "an unknown line")
                raise RuntimeError(
                    f"Function '{op.name}' returned nan values in its {k}th output{self.at(index)}."
                    f" The operation ran at {line}; {self.cause(_saved(op.prim), ct, index)}."
                )

    def failed(self, token: Any, failure: BaseException) -> None:
        op, _ = token
        if getattr(failure, "told", False):
            return
        failure.told = True  # type: ignore[attr-defined]  # by the innermost backward, once
        lines = _metadata(op.prim).get(KEY)
        text = "".join(lines) if lines else (
            "not known: the operation did not run under detect_anomaly()."
        )
        warnings.warn(
            f"Error detected in {op.name}. Traceback of forward call that caused the error:\n"
            f"{text}", UserWarning, stacklevel=4)


def _metadata(node: Node) -> dict:
    return node.extras.metadata if node.extras is not None else {}


def _plain(x: Any) -> Any:
    return getattr(x, "primal", getattr(x, "_array", x))


def _nan(x: Any) -> bool:
    return is_nan(_plain(x))


def _saved(node: Any) -> list:
    """The arrays that a node has saved, to be shown."""
    xs = getattr(node, "xs", None)
    if xs is None:
        parts = getattr(node, "parts", None) or ()
        xs = [v for part in parts for v in part[2]]
    return [x for x in xs if isinstance(x, np.ndarray)]


class set_detect_anomaly:
    """Turn anomaly mode on or off in this thread: when called, and as a context until its end.

    >>> from functrans import torch
    >>> with torch.autograd.set_detect_anomaly(True):
    ...     torch.autograd.is_anomaly_enabled()
    True
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        self._before = state.watch
        others = tuple([o for o in (self._before.observers if self._before else ())
                        if not isinstance(o, _TensorAnomaly)])
        now = (*others, _TensorAnomaly(check_nan)) if mode else others
        set_watch(Watch(now) if now else None)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *failure: Any) -> None:
        set_watch(self._before)


class detect_anomaly:
    """Inside, operations note where they ran, and a backward that fails or gives NaN says so.

    A failing backward warns with the traceback of the forward call before its error is raised; with
    ``check_nan`` a NaN in a gradient is a RuntimeError that names the node, the entry, the line of
    the operation, and what numbers met there. For debugging: everything is looked at.

    >>> from functrans import torch
    >>> x = torch.tensor([-1.0], requires_grad=True)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     with detect_anomaly():
    ...         x.sqrt().backward()
    Traceback (most recent call last):
    RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output, entry [0]. ...
    """

    def __init__(self, check_nan: bool = True):
        self.check_nan = check_nan
        self._set: list[set_detect_anomaly] = []

    def __enter__(self) -> None:
        warnings.warn(
            "detect_anomaly: every operation and every gradient is looked at, which takes time; "
            "use it for debugging only", UserWarning, stacklevel=2)
        self._set.append(set_detect_anomaly(True, self.check_nan))

    def __exit__(self, *failure: Any) -> None:
        self._set.pop().__exit__()


def is_anomaly_enabled() -> bool:
    """Whether this thread is in anomaly mode."""
    return state.watch is not None and any(
        isinstance(o, _TensorAnomaly) for o in state.watch.observers)


def is_anomaly_check_nan_enabled() -> bool:
    """Whether this thread is in anomaly mode and looks for NaN."""
    return is_anomaly_enabled() and any(
        o.check_nan for o in state.watch.observers if isinstance(o, _TensorAnomaly))


__all__ = [
    "detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_detect_anomaly",
]
