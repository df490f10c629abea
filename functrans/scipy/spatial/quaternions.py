"""Functions of unit quaternions (x, y, z, w), of matrices and of angles, for rotations.

Functions of an angle alone are written as functions of its square, by their power series where it
is small: so they have all derivatives at the rotation by nothing, where the angle has none.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from functrans._core.bind import AnyArray
from functrans._ops.calls import stop
from functrans._ops.structure import move_axis
from functrans._transforms.rules.custom import custom_jvp

# Of sin(u / 2) / u and cos(u / 2) in u**2, up to 1, and of atan(u) / u, up to 1/16: to rounding,
# with two derivatives.
SINE = [(-1) ** k / (2.0 ** (2 * k + 1) * float(np.prod(np.arange(1.0, 2 * k + 2))))
        for k in range(11)]
COSINE = [(-1) ** k / (2.0 ** (2 * k) * float(np.prod(np.arange(1.0, 2 * k + 1))))
          for k in range(11)]
ARC = [(-1) ** k / (2.0 * k + 1) for k in range(17)]
PLANES = ((1, 2), (2, 0), (0, 1))  # in which one turns about x, y and z
LOCKED = 1e-7  # how close to 0 or pi the second angle of Euler's leaves the others undetermined


def of_square(series: Sequence[float], up_to: float, exact: Callable, s: Any) -> AnyArray:
    """A function of ``sqrt(s)`` that is even: its series in ``s``, and ``exact(sqrt(s))`` beyond.
    """
    small = s < up_to
    t, total = np.where(small, s, 0.0), series[-1]
    for c in reversed(series[:-1]):
        total = total * t + c
    return np.where(small, total, exact(np.sqrt(np.where(small, 1.0, s))))


def square(v: Any) -> AnyArray:
    return np.sum(v * v, axis=-1, keepdims=True)


def product(p: Any, q: Any) -> AnyArray:
    """First ``q``, then ``p``."""
    u, v, a, b = p[..., :3], q[..., :3], p[..., 3:], q[..., 3:]
    return np.concatenate([a * v + b * u + np.cross(u, v),
                           a * b - np.sum(u * v, axis=-1, keepdims=True)], axis=-1)


def positive(q: Any) -> AnyArray:
    """Of q and -q, the one whose last entry that is not 0 is positive: w, then x, y and z."""
    first = stop(q)
    x, y, z, w = move_axis(first, -1, 0)
    lead = np.where(w != 0, w, np.where(x != 0, x, np.where(y != 0, y, z)))
    return np.where((lead < 0)[..., None], -q, q)


def of_matrix(m: Any) -> AnyArray:
    """A quaternion of an orthogonal matrix, times the largest of its entries and 4."""
    t = m[..., 0, 0] + m[..., 1, 1] + m[..., 2, 2]
    off = [m[..., k, j] - m[..., j, k] for j, k in PLANES]
    choices = [[*off, 1 + t]]
    for i in range(3):
        entries: list = [m[..., i, k] + m[..., k, i] for k in range(3)]
        entries[i] = 1 - t + 2 * m[..., i, i]
        choices.append([*entries, off[i]])
    q = np.stack([np.stack(np.broadcast_arrays(*c), axis=-1) for c in choices])
    sizes = [t, m[..., 0, 0], m[..., 1, 1], m[..., 2, 2]]
    largest = np.argmax(np.stack([stop(v) for v in sizes]), axis=0)
    return np.take_along_axis(q, largest[None, ..., None], axis=0)[0]


@custom_jvp
def closest(m: Any) -> AnyArray:
    """The closest orthogonal matrices u: those for which ``p = u.T @ m`` is symmetric."""
    left, _, right = np.linalg.svd(m, full_matrices=False)
    return left @ right


@closest.defjvp
def _turned(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """A change t of m turns u by the vector r with ``(trace(p) - p) r = axis of u.T @ t``."""
    (m,), (t,) = primals, tangents
    u = closest(m)
    p, change = [u.swapaxes(-1, -2) @ x for x in (m, t)]
    axis = np.stack([change[..., k, j] - change[..., j, k] for j, k in PLANES], axis=-1)
    trace = np.trace(p, axis1=-2, axis2=-1)[..., None, None]
    r = np.linalg.solve(trace * np.eye(3) - p, axis[..., None])[..., 0]
    return u, np.cross(u, r[..., None, :])


@custom_jvp
def dominant(m: Any) -> AnyArray:
    """The eigenvector q of the largest eigenvalue v of symmetric matrices, in either direction."""
    return np.linalg.eigh(m)[1][..., -1]


@dominant.defjvp
def _dominant_moved(primals: Any, tangents: Any) -> tuple[Any, Any]:
    """``(v - m) dq = (t - dv) q`` and ``q @ dq = 0``; other eigenvalues may be equal."""
    (m,), (t,) = primals, tangents
    q = dominant(m)
    column = q[..., None]
    row = column.swapaxes(-1, -2)
    change = t @ column - column * (row @ t @ column)
    system = (row @ m @ column) * np.eye(4) - m + column * row
    return q, np.linalg.solve(system, change)[..., 0]


def axes_of(seq: str, lengths: Iterable[int]) -> tuple[list[int], bool]:
    """The axes of a sequence of Euler's, and whether they are fixed."""
    if len(seq) not in lengths:
        raise ValueError(f"Expected {max(lengths)} axes, got {seq}." if len(seq) else
                         "Expected axis specification to be a non-empty string.")
    if not re.fullmatch("[xyz]+|[XYZ]+", seq):
        raise ValueError("Expected axes from `seq` to be from ['x', 'y', 'z'] or ['X', 'Y', 'Z'], "
                         f"got {seq}")
    if any(a == b for a, b in itertools.pairwise(seq)):
        raise ValueError(f"Expected consecutive axes to be different, got {seq}")
    return ["xyz".index(c) for c in seq.lower()], seq.islower()


def euler(q: Any, axes: Sequence[int], fixed: bool) -> tuple[Any, Any]:
    """The angles about fixed axes, and where they are not unique.

    Half sum and half difference of the outer angles are those of two complex numbers (Bernardes
    and Viollet, PLoS ONE 2022).
    """
    i, j, k = axes
    proper = i == k
    k = 3 - i - j if proper else k
    sign = (i - j) * (j - k) * (k - i) // 2
    w, qi, qj, qk = q[..., 3], q[..., i], q[..., j], sign * q[..., k]
    a, b, c, d = (w, qi, qj, qk) if proper else (w - qj, qi + qk, qj + w, qk - qi)
    half_sum, half_difference = np.arctan2(b, a), np.arctan2(d, c)
    middle = 2 * np.arctan2(np.hypot(c, d), np.hypot(a, b))
    near, far = np.abs(stop(middle)) <= LOCKED, np.abs(stop(middle) - np.pi) <= LOCKED
    alone = np.where(near, 2 * half_sum, 2 * half_difference * (-1 if fixed else 1))
    locked = near | far
    first = np.where(locked, alone if fixed else 0.0, half_sum - half_difference)
    third = np.where(locked, 0.0 if fixed else alone, half_sum + half_difference)
    if not proper:
        middle, third = middle - np.pi / 2, sign * third
    outer = (first, third) if fixed else (third, first)
    angles = np.stack([outer[0], middle, outer[1]], axis=-1)
    return (angles + np.pi) % (2 * np.pi) - np.pi, locked
