"""Rotations of space as unit quaternions, after ``scipy.spatial.transform``."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from scipy.spatial import transform

from functrans import tree
from functrans._core.bind import AnyArray, known_value
from functrans._ops.calls import stop
from functrans._ops.structure import move_axis
from functrans._transforms.rules.custom import custom_jvp
from functrans.errors import warn
from functrans.numpy.structure import as_operand
from functrans.scipy.public import is_traced

# ---- Functions of unit quaternions (x, y, z, w), of matrices and of angles, for rotations
#
# Functions of an angle alone are written as functions of its square, by their power series where it
# is small: so they have all derivatives at the rotation by nothing, where the angle has none.

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


# ---- Rotations of space as unit quaternions, after ``scipy.spatial.transform``


def _vectors(x: Any, what: str, last: int = 3) -> AnyArray:
    x = as_operand(x)
    if x.dtype.kind == "c":
        raise TypeError(f"Expected `{what}` to be real, got {x.dtype}.")
    x = x if x.dtype == float else x.astype(float)
    if x.shape[-1:] != (last,):
        raise ValueError(f"Expected `{what}` to have shape (..., {last}), got {x.shape}.")
    return x


class Rotation:
    """Rotations of space: ``scipy.spatial.transform.Rotation``, differentiable in all its numbers.

    A container for transforms: functions may take and return rotations. Values are SciPy's to
    rounding; ``magnitude`` has a kink at the rotation by nothing, and Euler's angles have no
    derivative where they are not determined. What SciPy's has beyond, such as ``align_vectors``, is
    left to it: ``scipy.spatial.transform.Rotation.from_quat(r.as_quat())``.

    >>> import functrans as ft, numpy as np
    >>> height = lambda v: Rotation.from_rotvec(v).apply([1.0, 0.0, 0.0])[2]
    >>> ft.grad(height)(np.zeros(3))
    Array([ 0., -1.,  0.])
    """

    __slots__ = ("_quat",)
    _quat: Any
    __array_ufunc__ = None  # an array times a rotation is none

    def __init__(self, quat: Any, normalize: bool = True, copy: bool = True,
                 scalar_first: bool = False):
        quat = _vectors(quat, "quat", 4)
        quat = np.roll(quat, -1, axis=-1) if scalar_first else quat
        size = square(quat)
        if normalize and known_value(size) is not None and not np.all(known_value(size)):
            raise ValueError("Found zero norm quaternions in `quat`.")
        self._quat = quat / np.sqrt(size) if normalize else quat

    # ---- from numbers

    @staticmethod
    def from_quat(quat: Any, *, scalar_first: bool = False) -> Rotation:
        """The rotation of a quaternion (x, y, z, w), which is normalised."""
        return Rotation(quat, scalar_first=scalar_first)

    @staticmethod
    def from_matrix(matrix: Any, *, assume_valid: bool = False) -> Rotation:
        """The rotation closest to a matrix: its orthogonal polar factor."""
        matrix = _vectors(matrix, "matrix")
        if matrix.shape[-2:] != (3, 3):
            raise ValueError(f"Expected `matrix` to have shape (..., 3, 3), got {matrix.shape}.")
        if not assume_valid:
            value = known_value(matrix)
            if value is not None and np.any(np.linalg.det(value) <= 0):
                raise ValueError(
                    "Non-positive determinant (left-handed or null coordinate frame) in rotation "
                    f"matrix: {value}."
                )
            if is_traced(matrix) or not np.allclose(
                    matrix @ matrix.swapaxes(-1, -2), np.eye(3), rtol=0, atol=1e-12):
                # what is not known to be right-handed is NaN where it is not, as in SciPy
                right = stop(np.linalg.det(matrix))[..., None, None] > 0
                matrix = np.where(right, closest(matrix), np.nan)
        return Rotation(of_matrix(matrix))

    @staticmethod
    def from_rotvec(rotvec: Any, degrees: bool = False) -> Rotation:
        """The rotation about an axis, whose length is the angle."""
        rotvec = _vectors(rotvec, "rotvec")
        rotvec = np.deg2rad(rotvec) if degrees else rotvec
        s = square(rotvec)
        sine = of_square(SINE, 1.0, lambda u: np.sin(u / 2) / u, s)
        cosine = of_square(COSINE, 1.0, lambda u: np.cos(u / 2), s)
        return _raw(np.concatenate([rotvec * sine, cosine], axis=-1))

    @staticmethod
    def from_mrp(mrp: Any) -> Rotation:
        """The rotation of modified Rodrigues parameters: its axis times ``tan(angle / 4)``."""
        mrp = _vectors(mrp, "mrp")
        s = square(mrp)
        return _raw(np.concatenate([2 * mrp, 1 - s], axis=-1) / (1 + s))

    @staticmethod
    def from_euler(seq: str, angles: Any, degrees: bool = False) -> Rotation:
        """Rotations about up to three axes in turn: fixed ones, as in "xyz", or, as in "XYZ", ones
        that turn along.
        """
        axes, fixed = axes_of(seq, (1, 2, 3))
        angles = as_operand(angles)
        angles = np.deg2rad(angles) if degrees else angles * 1.0
        angles = angles if angles.ndim else angles[None]
        if angles.shape[-1:] != (len(seq),):
            raise ValueError(
                "Expected last dimension of `angles` to match number of sequence axes specified, "
                f"got {angles.shape[-1:]}."
            )
        total = None
        for i, axis in enumerate(axes):
            half = angles[..., i, None] / 2
            one = np.sin(half) * np.eye(4)[axis] + np.cos(half) * np.eye(4)[3]
            total = one if total is None else product(one, total) if fixed else product(
                total, one)
        return _raw(total)

    @staticmethod
    def identity(num: int | None = None) -> Rotation:
        """The rotation by nothing, or ``num`` of them."""
        return _raw(np.broadcast_to(np.eye(4)[3], (4,) if num is None else (num, 4)))

    @staticmethod
    def random(num: int | None = None, rng: Any = None) -> Rotation:
        """Uniformly distributed rotations, those of SciPy: constants."""
        return _raw(transform.Rotation.random(num, rng).as_quat())

    @staticmethod
    def concatenate(rotations: Any) -> Rotation:
        """All rotations in one sequence."""
        if isinstance(rotations, Rotation):
            return rotations
        return _raw(np.concatenate([r._quat.reshape(-1, 4) for r in rotations]))

    # ---- to numbers

    def as_quat(self, canonical: bool = False, *, scalar_first: bool = False) -> AnyArray:
        """Unit quaternions (x, y, z, w); ``canonical``: of the two, that with w > 0."""
        q = positive(self._quat) if canonical else self._quat
        return np.roll(q, 1, axis=-1) if scalar_first else q

    def as_matrix(self) -> AnyArray:
        """Orthogonal matrices, of shape (..., 3, 3)."""
        x, y, z, w = move_axis(self._quat, -1, 0)
        rows = [
            [x * x - y * y - z * z + w * w, 2 * (x * y - z * w), 2 * (x * z + y * w)],
            [2 * (x * y + z * w), -x * x + y * y - z * z + w * w, 2 * (y * z - x * w)],
            [2 * (x * z - y * w), 2 * (y * z + x * w), -x * x - y * y + z * z + w * w],
        ]
        return np.stack([np.stack(row, axis=-1) for row in rows], axis=-2)

    def as_rotvec(self, degrees: bool = False) -> AnyArray:
        """Axes times angles, which are at most pi."""
        q = positive(self._quat)
        v, w = q[..., :3], q[..., 3:]
        s = square(v)
        flat = 16 * s < w * w
        by_w = 2 / np.where(flat, w, 1.0) * of_square(
            ARC, 1 / 16, lambda u: u, np.where(flat, s / np.where(flat, w * w, 1.0), 0.0))
        length = np.sqrt(np.where(flat, 1.0, s))
        scale = np.where(flat, by_w, 2 * np.arctan2(length, w) / length)
        return np.rad2deg(scale * v) if degrees else scale * v

    def as_mrp(self) -> AnyArray:
        """Modified Rodrigues parameters, of length at most 1."""
        w = self._quat[..., 3:]
        sign = np.where(w < 0, -1.0, 1.0)
        return sign * self._quat[..., :3] / (1 + sign * w)

    def as_euler(self, seq: str, degrees: bool = False, *,
                 suppress_warnings: bool = False) -> AnyArray:
        """The angles of rotations about three axes in turn; see ``from_euler``.

        Where the first and the last turn about the same axis, the third angle is 0, with a warning;
        what has no derivative there.
        """
        axes, fixed = axes_of(seq, (3,))
        angles, locked = euler(self._quat, axes if fixed else axes[::-1], fixed)
        if not suppress_warnings and np.any(known_value(locked)):
            warn("Gimbal lock detected. Setting third angle to zero since it is not possible to "
                 "uniquely determine all angles.")
        return np.rad2deg(angles) if degrees else angles

    def magnitude(self) -> AnyArray:
        """Angles, from 0 to pi."""
        q = self._quat
        return 2 * np.arctan2(np.linalg.norm(q[..., :3], axis=-1), np.abs(q[..., 3]))

    # ---- operations

    def apply(self, vectors: Any, inverse: bool = False) -> AnyArray:
        """Vectors turned, or with ``inverse`` turned back."""
        vectors = _vectors(vectors, "vectors")
        matrix = self.as_matrix()
        matrix = matrix.swapaxes(-1, -2) if inverse else matrix
        return (matrix @ vectors[..., None])[..., 0]

    def inv(self) -> Rotation:
        """Rotations back."""
        return _raw(self._quat * np.array([-1.0, -1.0, -1.0, 1.0]))

    def __mul__(self, other: Any) -> Rotation:
        if not isinstance(other, Rotation):
            return NotImplemented
        return Rotation(product(self._quat, other._quat))

    def __pow__(self, n: Any) -> Rotation:
        return Rotation.from_rotvec(n * self.as_rotvec())

    def approx_equal(self, other: Rotation, atol: float = 1e-8, degrees: bool = False) -> AnyArray:
        """Where the angle between two rotations is less than ``atol``."""
        return (other * self.inv()).magnitude() < (np.deg2rad(atol) if degrees else atol)

    def mean(self, weights: Any = None, axis: Any = None) -> Rotation:
        """The rotation with the least sum of squared distances between matrices, weighted."""
        if not self._quat.size:
            raise ValueError("Mean of an empty rotation set is undefined.")
        n = self._quat.ndim - 1
        axes = range(n) if axis is None else [axis] if isinstance(axis, int) else axis
        squares = self._quat[..., :, None] * self._quat[..., None, :]
        if weights is not None:
            value = known_value(weights)
            if value is not None and np.any(np.asarray(value) < 0):
                raise ValueError("`weights` must be non-negative.")
            squares = as_operand(weights)[..., None, None] * squares
        return _raw(dominant(np.mean(squares, axis=tuple([k % n for k in axes]))))

    # ---- as a sequence

    @property
    def single(self) -> bool:
        """Whether this is one rotation, no sequence."""
        return self._quat.ndim == 1

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the sequence."""
        return self._quat.shape[:-1]

    def __len__(self) -> int:
        if self.single:
            raise TypeError("Single rotation has no len().")
        return len(self._quat)

    def __getitem__(self, index: Any) -> Rotation:
        if self.single:
            raise TypeError("Single rotation is not subscriptable.")
        return _raw(self._quat[index])

    def __iter__(self) -> Iterator[Rotation]:
        return iter([self[i] for i in range(len(self))])

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"Rotation.from_quat({self._quat!r})"


def _raw(quat: Any) -> Rotation:
    """Of unit quaternions, or what a transform puts in their place."""
    r = Rotation.__new__(Rotation)
    r._quat = quat
    return r


tree.register(Rotation, lambda r: ((r._quat,), None), lambda _, parts: _raw(*parts))
