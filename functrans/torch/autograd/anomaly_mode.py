"""``detect_anomaly``: which operation a failing backward belongs to, and where NaN came from."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from functrans._debug.observers import entry
from functrans.debug import Anomaly, is_nan, line_of, user_stack
from functrans.extend import Op
from functrans.torch._graph.modes import state
from functrans.torch._graph.nodes import Node
from functrans.torch._graph.observed import set_watch
from functrans.torch._graph.watching import Watch

KEY, PARENT = "traceback_", "parent_"


class _TensorAnomaly(Anomaly):
    """Keeps the forward traceback of each node in its metadata."""

    word = "saved number"

    def __init__(self, check_nan: bool = True):
        super().__init__(check_nan)
        self.passing: list[Node] = []  # the nodes whose backward is under way

    def end(self, token: Op, out: Any) -> None:
        if token.prim is not None:
            stack = user_stack()
            token.prim.metadata[KEY] = traceback.format_list(list(stack))
            token.prim.metadata["line_"] = line_of(stack)
            if self.passing:
                token.prim.metadata[PARENT] = self.passing[-1]
        if self.check_nan and not self.first:
            outs = out if isinstance(out, tuple | list) else (out,)
            if any(map(_nan, outs)) and not any(map(_nan, token.args)):
                self.first = f"{token.name.removeprefix('aten::')} at {line_of(user_stack())}"

    def back(self, op: Op, ct: Any) -> Any:
        if op.prim is not None:
            self.passing.append(op.prim)
        return op, ct

    def passed(self, token: Any, parts: Sequence) -> None:
        if self.passing:
            self.passing.pop()
        if not self.check_nan:
            return
        op, ct = token
        for k, c in parts:
            if c is not None and is_nan(c):
                index = tuple(int(i) for i in np.argwhere(np.isnan(np.asarray(_plain(c))))[0])
                place = f"The first is at {entry(index)}. " if index else ""
                line = _metadata(op.prim).get("line_", "an unknown line")
                raise RuntimeError(
                    f"Function '{op.name}' returned nan values in its {k}th output. {place}The "
                    f"operation ran at {line}; {self.cause(_save(op.prim), ct, index)}."
                )

    def failed(self, token: Any, failure: BaseException) -> None:
        op, _ = token
        if self.passing and self.passing[-1] is op.prim:
            self.passing.pop()
        if getattr(failure, "told", False):
            return
        failure.told = True  # type: ignore[attr-defined]  # by the innermost backward, once
        lines = _metadata(op.prim).get(KEY)
        text = f"Traceback of forward call that caused the error:\n{''.join(lines)}" if lines else (
            "No forward pass information available. Enable detect anomaly during forward pass for "
            "more information."
        )
        _tell(f"Error detected in {op.name}. {text}")
        parent = _metadata(op.prim).get(PARENT)
        while parent is not None:
            made = _metadata(parent).get(KEY)
            trace = (
                "Traceback of forward call that induced the previous calculation:\n"
                f"{''.join(made)}" if made else "No forward pass information available."
            )
            _tell(f"Previous calculation was induced by {parent.name()}. {trace}")
            parent = _metadata(parent).get(PARENT)


def _tell(text: str) -> None:
    """Warn; where warnings are errors, write, so that the error under way is the one raised."""
    try:
        warnings.warn(text, UserWarning, stacklevel=5)
    except UserWarning:
        sys.stderr.write(f"{text}\n")


def _metadata(node: Node) -> dict:
    return node.extras.metadata if node.extras is not None else {}


def _plain(x: Any) -> Any:
    return getattr(x, "primal", getattr(x, "_array", x))


def _nan(x: Any) -> bool:
    return is_nan(_plain(x))


def _save(node: Any) -> list:
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
    RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output. ...
    """

    def __init__(self, check_nan: bool = True):
        self.check_nan = check_nan
        self._set: list[set_detect_anomaly] = []

    def __enter__(self) -> None:
        warnings.warn(
            "Anomaly Detection has been enabled. This mode will increase the runtime and should "
            "only be enabled for debugging.", UserWarning, stacklevel=2)
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
