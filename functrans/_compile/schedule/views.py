"""Views: a value as entries of a buffer, at places affine in its indices, zero outside a window."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from functrans._compile.ir.program import Const, Var

Shape = tuple[int, ...]
Window = tuple[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Entry ``i`` is ``root[offset + sum(strides * i)]`` where all ``lo <= i < hi``, else 0.

    Offsets and strides count entries of the root's buffer, which is C-contiguous. Entries of
    ``index``, a view of the same shape, are added to the places.
    """

    root: Var | Const
    shape: Shape
    offset: int
    strides: Shape
    windows: tuple[Window, ...]
    index: View | None = None

    @property
    def whole(self) -> bool:
        """Whether nothing lies outside the windows."""
        return self.windows == full(self.shape)

    @property
    def empty(self) -> bool:
        """Whether everything lies outside the windows."""
        return any(lo >= hi for lo, hi in self.windows)

    def is_identity(self) -> bool:
        """Whether it is the buffer from its start, in order."""
        if self.offset or self.index is not None:
            return False
        return self.whole and self.strides == c_strides(self.shape)


@lru_cache(maxsize=1024)
def c_strides(shape: Shape) -> Shape:
    """C-contiguous strides in entries; 0 along axes of length 1, where they do not matter."""
    out, step = [], 1
    for n in reversed(shape):
        out.append(step if n != 1 else 0)
        step *= n
    return tuple(reversed(out))


@lru_cache(maxsize=1024)
def full(shape: Shape) -> tuple[Window, ...]:
    return tuple([(0, n) for n in shape])


def identity(root: Var | Const, shape: Shape) -> View:
    return View(root, shape, 0, c_strides(shape), full(shape))


def _of_axes(v: View, axes: list[tuple[int, int, Window]], offset: int) -> View:
    """A view of the same root with these (length, stride, window), cut to the lengths."""
    return View(
        v.root,
        tuple([n for n, _, _ in axes]),
        offset,
        tuple([s if n != 1 else 0 for n, s, _ in axes]),
        tuple([(max(lo, 0), min(hi, n)) for n, _, (lo, hi) in axes]),
    )


def _axes(v: View) -> list[tuple[int, int, Window]]:
    return list(zip(v.shape, v.strides, v.windows, strict=True))


def transpose(v: View, axes: Shape) -> View:
    old = _axes(v)
    return _of_axes(v, [old[a] for a in axes], v.offset)


def broadcast(v: View, shape: Shape) -> View:
    if v.shape == shape:
        return v
    lead = len(shape) - len(v.shape)
    axes: list[tuple[int, int, Window]] = [(n, 0, (0, n)) for n in shape[:lead]]
    for n, (have, stride, window) in zip(shape[lead:], _axes(v), strict=True):
        if have == n:
            axes.append((n, stride, window))
        else:
            axes.append((n, 0, (0, n) if window == (0, 1) else (0, 0)))
    return _of_axes(v, axes, v.offset)


def squeeze(v: View) -> View:
    """Without axes of length 1."""
    if 1 not in v.shape and v.whole:
        return v
    v = nothing(v) if v.empty and 0 not in v.shape else v
    return _of_axes(v, [a for a in _axes(v) if a[0] != 1], v.offset)


def reshape(v: View, shape: Shape) -> View | None:
    """The view in another shape, None where its strides do not allow that."""
    if math.prod(shape) == 0:
        return _of_axes(v, [(n, 0, (0, n)) for n in shape], 0)
    v = nothing(v) if v.empty else v
    if [n for n in v.shape if n != 1] == [n for n in shape if n != 1]:
        long = iter([a for a in _axes(v) if a[0] != 1])
        return _of_axes(v, [next(long) if n != 1 else (1, 0, (0, 1)) for n in shape], v.offset)
    if not v.whole:
        return None
    old = [(n, s) for n, s in zip(v.shape, v.strides, strict=True) if n != 1]
    strides: list[int] = []
    left = 1  # entries of the current old axis not yet covered
    stride = 0
    for n in reversed(shape):
        if n == 1:
            strides.append(0)
            continue
        if left == 1:
            left, stride = old.pop()
        while left % n:  # join with the axis before, if it continues this one
            if not old or old[-1][1] != stride * left:
                return None
            left *= old.pop()[0]
        strides.append(stride)
        left, stride = left // n, stride * n
    return View(v.root, shape, v.offset, tuple(reversed(strides)), full(shape))


def _slots(pattern: tuple, ndim: int) -> list:
    """The pattern with its Ellipsis written out."""
    used = sum(e is not None and e is not Ellipsis for e in pattern)
    rest = [(None, None, None)] * (ndim - used)
    if Ellipsis not in pattern:
        return [*pattern, *rest]
    at = pattern.index(Ellipsis)
    return [*pattern[:at], *rest, *pattern[at + 1 :]]


def indexed(v: View, pattern: tuple) -> View:
    """The view that a basic index takes of it."""
    axes: list[tuple[int, int, Window]] = []
    offset, missed = v.offset, False
    old = iter(_axes(v))
    for e in _slots(pattern, len(v.shape)):
        if e is None:
            axes.append((1, 0, (0, 1)))
            continue
        n, stride, (lo, hi) = next(old)
        if type(e) is tuple:
            start, stop, step = slice(*e).indices(n)
            length = len(range(start, stop, step))
            window = _preimage(lo, hi, start, step)
            offset += start * stride if length else 0
            axes.append((length, stride * step, window))
        else:
            at = e + n if e < 0 else e
            missed |= not lo <= at < hi
            offset += at * stride
    out = _of_axes(v, axes, offset)
    return nothing(out) if missed else out


def diagonal(v: View, offset: int) -> View | None:
    """A diagonal of the matrices in the last two axes; None where a window cuts them."""
    *axes, (n, down, rows), (m, along, columns) = _axes(v)
    if rows != (0, n) or columns != (0, m):
        return None
    length = max(min(n + min(offset, 0), m - max(offset, 0)), 0)
    start = max(offset, 0) * along + max(-offset, 0) * down if length else 0
    return _of_axes(v, [*axes, (length, down + along, (0, length))], v.offset + start)


def nothing(v: View) -> View:
    """Zeros of its shape and dtype."""
    zero = Const(np.zeros((), v.root.aval.dtype))
    return View(zero, v.shape, 0, (0,) * len(v.shape), full(v.shape))


def _preimage(lo: int, hi: int, start: int, step: int) -> Window:
    """The i with lo <= start + step * i < hi."""
    if step > 0:
        return -((start - lo) // step), -((start - hi) // step)
    return -((hi - 1 - start) // -step), (start - lo) // -step + 1


def embed(v: View, pattern: tuple, shape: Shape) -> View | None:
    """Zeros of ``shape`` with the view written at a basic index; None where the step is not 1."""
    axes: list[tuple[int, int, Window]] = []
    offset = v.offset
    old = iter(_axes(v))
    for e, n in _with_sizes(_slots(pattern, len(shape)), shape):
        if e is None:
            _, _, window = next(old)
            if window != (0, 1):
                return None
        elif type(e) is tuple:
            _, stride, (lo, hi) = next(old)
            start, stop, step = slice(*e).indices(n)
            length = len(range(start, stop, step))
            if length == 1:
                step = 1
            if abs(step) != 1:
                return None
            # entry j comes from i = (j - start) * step
            window = (start + lo, start + hi) if step == 1 else (start - hi + 1, start - lo + 1)
            offset -= start * step * stride
            axes.append((n, stride * step, window))
        else:
            at = e + n if e < 0 else e
            axes.append((n, 0, (at, at + 1)))
    return _of_axes(v, axes, offset)


def shift(v: View, axis: int, by: int) -> View | None:
    """Entry ``k - by`` at place k along an axis, 0 if there is none; ``by`` is 1 or -1."""
    lead = ((None, None, None),) * axis
    late, early = (*lead, (1, None, None)), (*lead, (None, -1, None))
    source, target = (early, late) if by > 0 else (late, early)
    return embed(indexed(v, source), target, v.shape)


def _with_sizes(slots: list, shape: Shape) -> list[tuple]:
    sizes = iter(shape)
    return [(e, 0 if e is None else next(sizes)) for e in slots]


def extent(offset: int, strides: Shape, windows: tuple[Window, ...]) -> tuple[int, int]:
    """The first and the last place that loops reach inside their windows; (0, -1) for none."""
    if any(lo >= hi for lo, hi in windows):
        return 0, -1
    ends = [(s * lo, s * (hi - 1)) for s, (lo, hi) in zip(strides, windows, strict=True)]
    return offset + sum(map(min, ends)), offset + sum(map(max, ends))


def origin(v: View, space: Shape) -> tuple[list[int], list[tuple[int, int]]] | None:
    """Where the entries of a view lie in a root of shape ``space``, None if no such map exists.

    The index of the first entry inside the windows; for each axis of the view the axis of the root
    that it runs along (-1: none) and its step there.
    """
    steps = c_strides(space)
    ways: list[tuple[int, int]] = []
    at = v.offset
    for s, (lo, hi) in zip(v.strides, v.windows, strict=True):
        if lo >= hi:
            return None
        at += s * lo
        if s == 0 or hi - lo == 1:
            ways.append((-1, 0))
            continue
        way = next(((k, s // step) for k, step in enumerate(steps)
                    if step and s % step == 0 and abs(s // step) < space[k]), None)
        if way is None:
            return None
        ways.append(way)
    first = [at // step % n if step else 0 for step, n in zip(steps, space, strict=True)]
    for k, n in enumerate(space):
        ends = [t * (hi - 1 - lo) for (lo, hi), (axis, t) in zip(v.windows, ways, strict=True)
                if axis == k]
        if first[k] + sum(min(e, 0) for e in ends) < 0 or first[k] + sum(
            max(e, 0) for e in ends
        ) >= n:
            return None
    return first, ways


def compose(u: View, v: View, space: Shape) -> View | None:
    """The view ``u`` of shape ``space`` as ``v`` reads it; 0 outside v's windows.

    None if the places are not affine, or u's windows are not windows in v.
    """
    if v.is_identity() and v.shape == space:
        return u
    way = origin(v, space)
    if way is None:
        return None
    first, ways = way
    offset = u.offset + sum(s * i for s, i in zip(u.strides, first, strict=True))
    strides, windows = [], []
    for (lo, hi), (k, t) in zip(v.windows, ways, strict=True):
        s = u.strides[k] * t if k >= 0 else 0
        offset -= s * lo
        strides.append(s)
        windows.append((lo, hi))
    for k, (window, n) in enumerate(zip(u.windows, space, strict=True)):
        if window == (0, n):
            continue
        along = [d for d, (axis, _) in enumerate(ways) if axis == k]
        if len(along) > 1:
            return None
        if not along:
            if not window[0] <= first[k] < window[1]:
                return _zeros(u, v)
            continue
        d = along[0]
        lo, hi = v.windows[d]
        t = ways[d][1]
        less, more = _preimage(*window, first[k] - t * lo, t)
        windows[d] = max(lo, less), min(hi, more)
        if windows[d][0] >= windows[d][1]:
            return _zeros(u, v)
    return View(u.root, v.shape, offset, tuple(strides), tuple(windows))


def _zeros(u: View, v: View) -> View:
    """Zeros like the entries of u, in the shape of v."""
    return nothing(View(u.root, v.shape, 0, v.strides, v.windows))
