"""What the loops share: a carry that keeps its types, results, and the progress that is shown."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import numpy as np

from functrans import tree
from functrans._core.array import dtype_of, plain, shape_of, wrap
from functrans._core.bind import Tracer, cast, is_staged
from functrans._ops.declare import General
from functrans._transforms.arguments import describe, hand_out_all, is_value
from functrans._transforms.control import flow
from functrans.errors import ArgumentError, ShapeError, name_of

# ---- What the loops share: a carry that keeps its types, and results as the caller sees them


def handed_out(x: Any) -> Any:
    """``x`` with Arrays for NumPy's arrays; Python scalars stay weak."""
    xs, structure = tree.flatten(x)
    del x
    xs = [v if isinstance(v, np.ndarray) else plain(v) for v in xs]
    return tree.unflatten(structure, hand_out_all(xs, weak=True))


def as_arrays(x: Any) -> Any:
    """``x`` with Arrays for NumPy's arrays, of the same memory: what a step of a loop reads."""
    return tree.map(lambda v: wrap(v) if isinstance(v, np.ndarray) else plain(v), x)


def same_numbers(have: np.dtype, got: np.dtype) -> bool:
    """Whether types differ at most in the order of bytes: operations give that of the machine."""
    return have == got or have.newbyteorder("=") == got.newbyteorder("=")


class Carry:
    """What a step must return: the structure and types of what it was given."""

    __slots__ = ("f", "who")

    def __init__(self, who: str, f: Callable):
        self.who, self.f = who, f

    def checked(self, old: Any, new: Any) -> Any:
        """``new`` as the next step is given it: its ndarrays are Arrays, as those of the first are.
        """
        if type(new) is np.ndarray:
            new = wrap(new)
        if type(old) is type(new) and isinstance(old, np.ndarray | np.generic | float | Tracer):
            self._check_leaf(old, new)
            return new
        (xs, structure), (ys, other) = tree.flatten(old), tree.flatten(new)
        if structure != other:
            raise ArgumentError(
                f"{self.who}: `{name_of(self.f)}` was given a carry of structure {structure!r} and "
                f"returned {other!r}. The carry must not change its structure."
            )
        for x, y in zip(xs, ys, strict=True):
            self._check_leaf(x, y)
        return as_arrays(new) if any(type(y) is np.ndarray for y in ys) else new

    def _check_leaf(self, x: Any, y: Any) -> None:
        if not (is_value(x) and is_value(y)):
            if x is y or type(x) is type(y):
                return
        elif shape_of(x) == shape_of(y):
            have, got = dtype_of(x), dtype_of(y)
            if have == got or (flow.weak(x) and np.result_type(have.type(0).item(), got) == got):
                return
            if same_numbers(have, got):
                return
        instead = "start from one that has them"
        if isinstance(x, Enum) and is_value(y):
            instead = f"a member of an Enum is no number, so start from {x.value!r}"
        raise ShapeError(
            f"{self.who}: `{name_of(self.f)}` was given {describe(x)} and returned {describe(y)} "
            f"in its place. The carry must keep its shapes and dtypes; {instead}."
        )


def staged_scan(
    step: Callable, init: Any, xs: Any, n: int, reverse: bool, name: str
) -> tuple[Any, Any] | None:
    """The outputs of a scan as one equation; None where it must be run step by step."""
    (state, shape), (columns, nest) = tree.flatten(init), tree.flatten(xs)

    def flat(values: Sequence, entries: Sequence) -> tuple[list, list]:
        new, y = step(tree.unflatten(shape, values), tree.unflatten(nest, entries))
        structures.append(tree.structure(y))
        return tree.leaves(new), tree.leaves(y)

    structures: list = []
    outputs = flow.scan(flat, state, columns, n, reverse, name)
    if outputs is None:
        return None
    last, collected = outputs
    return handed_out((tree.unflatten(shape, last), tree.unflatten(structures[-1], collected)))


# ---- How far a loop has come, shown while it runs, compiled or not

# How often a loop shows it, at most: a compiled one is interrupted as often.
TIMES = 50


def shown(state: Any, done: Any, n: int, name: str) -> Any:
    """``state``, after ``done`` of ``n`` steps, which is shown whenever a run has computed it.

    In a program that is an operation, which gives one of the values of ``state`` back: what nobody
    needs is not computed.
    """
    leaves, structure = tree.flatten(state)
    at = next((i for i, x in enumerate(leaves) if is_staged(x)), None)
    if at is None:
        if not is_staged(done):
            _show(name, int(done), n)
        return state
    leaves[at] = _row(name, n)(leaves[at], done)
    return tree.unflatten(structure, leaves)


def _show(name: str, done: int, n: int) -> None:
    full = TIMES * done // n
    end = "\n" if done == n else ""
    sys.stderr.write(f"\r{name} |{'#' * full}{' ' * (TIMES - full)}| {done} of {n}{end}")
    sys.stderr.flush()


@functools.lru_cache(1024)
def _row(name: str, n: int) -> General:
    def show(x: Any, done: Any) -> Any:
        _show(name, int(done), n)
        return np.array(x)

    row = General(
        "progress", show, jvp=lambda ts, y, xs: ts[0],
        vjp=lambda ct, y, xs, wanted: [cast(ct, xs[0].dtype), None],
        batch=lambda size, xs, batched: row(*xs), saves="",
        abstract=lambda x, done: x, doc="A value of a step that is shown.",
    )
    return row
