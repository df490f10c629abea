r"""Solutions of equations, differentiated by the implicit function theorem.

Of :math:`F(x(\theta), \theta) = 0` a solver has found the number x. With the fixed matrix
:math:`J = \partial F / \partial x`, each step

.. math:: x \leftarrow x - J^{-1} (F(x, \theta) - \mathrm{stop}(F(x, \theta)))

leaves the number as it is and makes one more order of its derivatives right: its error is
contracted by :math:`1 - J^{-1} \partial F / \partial x`, which is zero at the solution. So there
are as many steps as there are orders, each an evaluation of F and a solution with J or its
transpose, and what F closes over is differentiated as in any function.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
import scipy.linalg
import scipy.sparse
import scipy.sparse.linalg

from functrans import tree
from functrans._core.array import Aval
from functrans._core.bind import AnyArray, Tracer, layers
from functrans._ops.calls import stop
from functrans._ops.declare import Linear
from functrans._transforms.matrices.jacobian import jacobian
from functrans._transforms.reverse.api import linearize, vjp
from functrans._transforms.staging.staging import StagedTracer
from functrans.errors import SolverError, UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.kept import once

T = TypeVar("T")
# Unknowns up to which the Jacobian is a matrix; beyond, products with it are enough for GMRES.
DENSE = 200
# Unknowns up to which a system is factored each time: SciPy's call with its factors takes longer.
SMALL = 32
# Newton's steps that improve what the solver has found, to the last digits.
POLISHING = 12
# The reciprocal condition of a matrix whose units do not matter.
WELL = 1e-3
# Types of values that hold nothing traced.
PLAIN = frozenset([np.ndarray, np.float64, float, int, bool, complex, str, type(None)])
# How far they may lead away, relative to 1 or the size of the solution: farther off is another one.
NEARBY = 1e-2
# The relative step up to which an entry has converged that is small beside others.
FINE = 1e-9


def implicit(who: str, residual: Callable, x: Any, matrix: Callable | None = None,
             plain: Callable | None = None) -> AnyArray:
    """``x``, a root of ``residual`` up to a solver's tolerance, with its derivatives.

    ``matrix(x)``, of flat x, is the Jacobian where there is a shorter way to it, dense or sparse;
    ``plain`` is the residual of numbers, where they are known to be enough for it. The number is
    improved by Newton's method where it can be. Raises SolverError where that does not converge to
    a root nearby, and where the Jacobian is singular; its text names ``who``. So it does where the
    residual carries no derivative: then x is constant if it is determined at all.
    """
    shape = np.shape(x)
    z = np.array(x, np.result_type(np.asarray(x).dtype, np.float32)).reshape(-1)

    def flat(f: Callable) -> Callable[[Any], AnyArray]:
        return lambda z: as_operand(f(z.reshape(shape))).reshape(-1)

    root = keep_root(z, lambda: polished(who, flat(plain or residual), z, matrix),
                     matrix is not None)
    return followed(flat(residual), root).reshape(shape)


def followed(f: Callable, root: Root) -> AnyArray:
    """A root of ``f``, of flat values, with its derivatives."""
    inverse = _inverse(root.solver)
    y: Any = root.z
    r = f(y)
    for left in reversed(range(orders_of(r))):
        y = y - inverse(r - stop(r))
        r = f(y) if left else r
    return y


def orders_of(values: Any) -> int:
    """How many orders of derivatives are taken of what is traced."""
    return max([_orders(x) for x in tree.leaves(values) if isinstance(x, Tracer)], default=0)


def _orders(x: Tracer) -> int:
    return sum([getattr(v.owner, "order", 1) for v in layers(x) if isinstance(v, Tracer)])


def concrete(x: Any) -> Any:
    """``x`` with the plain values of the traced ones in it.

    Raises Numberless where one has no value, or more than one.
    """
    if _is_plain(x):
        return x
    return tree.map(lambda v: _number(v) if isinstance(v, Tracer) else v, x)


def _is_plain(x: Any) -> bool:
    kind = type(x)
    if kind is tuple or kind is list:
        return all([type(v) in PLAIN or _is_plain(v) for v in x])
    return kind in PLAIN or (kind is dict and _is_plain([*x.values()]))


class Numberless(UnsupportedError):
    """A solver of SciPy's met a value that has no number."""


def _number(x: Tracer) -> np.ndarray:
    newer = x.owner.active_trace()
    value = (x if newer is None else newer.operand(x)).concrete_value()
    if value is None:
        staged = any(isinstance(v, StagedTracer) for v in layers(x))
        raise Numberless(
            f"{user_line()}: SciPy's solvers run on numbers, which {x!r} has not: they are not "
            f"known under {'jit' if staged else 'vmap'}. "
            + ("Call the solver outside of jit; the functions that it is given may be jitted."
               if staged else "Call it in a Python loop over the batch, and np.stack the results.")
        )
    return value


def numbers(f: Callable) -> Callable:
    """``f`` as SciPy may call it: what it returns is plain."""

    def plain_f(*args: Any) -> np.ndarray:
        return concrete(f(*args))

    return plain_f


def require_success(who: str, success: bool, message: str) -> None:
    """SolverError with SciPy's message where a solver has failed: it has no derivative."""
    if not success:
        raise SolverError(
            f"{user_line()}: {who} has no derivative, for the solver failed: {message}"
        )


# ---- the linear system


class Root(NamedTuple):
    """A root, the Newton step that was left there, and systems with the Jacobian."""

    z: np.ndarray
    step: np.ndarray
    solver: _Dense | _Sparse | _Products


def polished(who: str, f: Callable, z: np.ndarray, matrix: Callable | None = None,
             units: Any = None, held: int | None = None) -> Root:
    """The root of ``f`` near ``z``. Raises SolverError where Newton's method finds none.

    ``units`` are the sizes that matter for each unknown, by default the largest entry for all.
    The first ``held`` unknowns, by default all, must stay where they are but for little.
    """
    last, before, start, fine = np.inf, np.inf, z, np.full(z.size, np.inf)
    little = 100 * np.sqrt(np.finfo(z.dtype).eps)
    r = numbers(f)(z)
    for _ in range(POLISHING):
        solver = _solver(who, f, z, matrix)
        step = solver.solve(r)
        unit = (np.max(np.abs(z), initial=0.0) or 1.0) if units is None else units
        size = np.max(np.abs(step) / unit, initial=0.0)
        scale = np.max(np.abs(z) / unit, initial=0.0)
        close = size <= 4 * np.finfo(z.dtype).eps * max(scale, 1.0)
        if close or not r.any():
            # entries that are small beside others may have further to go
            last_fine, fine = fine, np.abs(step) / np.maximum(np.abs(z), np.finfo(z.dtype).tiny)
            if not np.any((fine > FINE) & (fine < 0.5 * last_fine)):
                return Root(z, step, solver)
        error = np.linalg.norm(r)
        if not (close or size < 0.4 * last or error < 0.5 * before):
            # nothing is gained any more: by rounding alone, if little is to be gained
            if size <= little or _is_noise(f, z, step, r, solver, little, unit):
                return Root(z, step, solver)
            break
        if np.max((np.abs(z - start) / unit)[:held], initial=0.0) > NEARBY and not (
                close or size < 0.25 * last):
            break  # that would be as far as the next root
        last, before = size, error
        z = z - step
        if not np.max(np.abs(z - start)[:held]) <= NEARBY * max(np.max(np.abs(z[:held])), 1.0):
            z = start
            break
        r = numbers(f)(z)
    raise SolverError(
        f"{user_line()}: {who} ended at {_short(z)}, which has no derivative: the residual there "
        f"is {_short(numbers(f)(z))}, and Newton's method does not bring it to zero nearby. Either "
        "this is no solution (a smaller tolerance may help), or the Jacobian there is singular."
    )


def keep_root(z: np.ndarray, find: Callable[[], T], given: bool = False) -> T:
    """``find()``, a root near ``z``, once: without its Jacobian, its systems are of one trace."""
    return once("root", find) if given or z.size <= DENSE else find()


def units_of(z: np.ndarray) -> np.ndarray:
    """The size of each entry, and where it is zero that of the smallest other."""
    limits = np.finfo(z.dtype)
    size = np.where(np.abs(z) > limits.tiny / limits.eps, np.abs(z), 0.0)
    least = np.min(size[size > 0], initial=np.max(size, initial=0.0))
    return np.where(size > 0, size, least or 1.0)


def _is_noise(f: Callable, z: np.ndarray, step: np.ndarray, r: np.ndarray, solver: Any,
              little: float, unit: Any) -> bool:
    """Whether the residual changes as much within a thousandth of the last step: by rounding, where
    a jump would stay on one side of it.
    """
    if np.max(np.abs(step)) > little * max(np.max(np.abs(z)), 1.0):
        return False
    moved = 1e-3 * np.where(np.arange(z.size) % 2, -1.0, 1.0) * np.abs(step)
    change = solver.solve(numbers(f)(z + moved) - r) - moved
    return bool(np.max(np.abs(change) / unit) > 0.01 * np.max(np.abs(step) / unit))


def require_smooth(who: str, f: Callable, root: Root) -> None:
    """SolverError where ``f`` jumps at its root, on both sides of it."""
    if isinstance(root.solver, _Products):
        return
    z, scale = root.z, np.max(np.abs(root.z), initial=0.0)
    moved = np.where(z == 0, 1e-9 * scale or 1e-12, 1e-6 * z)
    r = numbers(f)(z)

    def off(by: np.ndarray) -> np.ndarray:
        return root.solver.solve(numbers(f)(z + by) - r) - by

    for by in (moved, -moved):
        jump = off(by)
        large = np.abs(jump) > np.maximum(0.5 * np.abs(by), 1e-7 * scale or 1e-10)
        # half as far it is as large, unlike what comes of curvature or rounding
        if not large.any() or not np.any(large & (np.abs(off(by / 2) - jump) < 0.3 * abs(jump))):
            return
    raise SolverError(
        f"{user_line()}: the solution of {who} at {_short(z)} has no derivative: the slope of its "
        "function jumps there, as that of an absolute value at 0"
    )


def _short(x: np.ndarray) -> str:
    return np.array2string(x, threshold=6, edgeitems=3, precision=6)


def _solver(
    who: str, f: Callable, z: np.ndarray, matrix: Callable | None
) -> _Dense | _Sparse | _Products:
    if matrix is None and z.size > DENSE:
        return _Products(who, f, z)
    J = concrete((matrix or jacobian(f))(z))
    return _Sparse(who, J, z) if scipy.sparse.issparse(J) else _Dense(who, np.asarray(J), z)


class _Dense:
    """Systems with the Jacobian at ``z`` as a matrix."""

    def __init__(self, who: str, J: np.ndarray, z: np.ndarray):
        if J.shape[0] != J.shape[1]:
            raise SolverError(
                f"{user_line()}: {who} has {J.shape[0]} equations for {J.shape[1]} unknowns"
            )
        finite = bool(np.isfinite(J).all())
        self.scaled, self.units = J, (np.ones(1), np.ones(1))
        worst = 1 / np.linalg.cond(J) if finite and J.size else 1.0 * (not J.size)
        if finite and not worst > WELL:
            self.scaled, self.units = _in_units(J)
            worst = 1 / np.linalg.cond(self.scaled)
        if not worst > J.shape[0] * np.finfo(J.dtype).eps:
            raise SolverError(
                f"{user_line()}: the solution of {who} at {_short(z)} has no derivative: the "
                f"Jacobian of its equations there is singular (reciprocal condition {worst:.1g}):\n"
                f"{_short(J)}"
            )
        self.J, self.nbytes = J, 3 * J.nbytes
        self.factors = scipy.linalg.lu_factor(self.scaled) if len(J) > SMALL else None

    def solve(self, b: np.ndarray, trans: int = 0) -> np.ndarray:
        """J^-1 b along the last axis, or with ``trans`` that of the transpose."""
        before, after = self.units[::-1] if trans else self.units
        columns = (b.reshape(-1, b.shape[-1]) * before).T
        if self.factors is None:
            x = np.linalg.solve(self.scaled.T if trans else self.scaled, columns)
        else:
            x = scipy.linalg.lu_solve(self.factors, columns, trans)
        return (x.T * after).reshape(b.shape)


def _in_units(J: Any) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """A matrix whose rows and columns are multiplied to the size of 1, as equations and unknowns of
    other units would have it, and by what they are.
    """
    units = [np.ones(n, J.real.dtype) for n in J.shape]
    for axis in (1, 0, 1, 0):
        largest = np.max(np.abs(J), axis=axis, keepdims=True, initial=0.0)
        by = np.exp2(-np.frexp(largest)[1])
        J = J * by
        units[1 - axis] = units[1 - axis] * by.reshape(-1)
    return J, (units[0], units[1])


class _Sparse:
    """Systems with the Jacobian at ``z`` as a sparse matrix."""

    def __init__(self, who: str, J: Any, z: np.ndarray):
        singular = SolverError(
            f"{user_line()}: the solution of {who} at {_short(z)} has no derivative: the Jacobian "
            "of its equations there is singular"
        )
        try:
            self.factors = scipy.sparse.linalg.splu(J)
        except RuntimeError as error:  # SuperLU's
            raise singular from error
        self.nbytes = 2 * self.factors.nnz * (J.dtype.itemsize + 4)
        size = self._inverse_size(len(z)) * np.max(np.abs(J).sum(axis=0), initial=0.0)
        if not size * len(z) * np.finfo(J.dtype).eps < 1:
            raise singular

    def _inverse_size(self, n: int) -> float:
        """An estimate from below of the 1-norm of J^-1 (W. Hager, Condition estimates, 1984)."""
        x, size = np.full(n, 1 / n), 0.0
        for _ in range(5):
            y = self.solve(x)
            back = self.solve(np.where(y >= 0, 1.0, -1.0), 1)
            size = max(size, float(np.sum(np.abs(y))))
            worst = np.argmax(np.abs(back))
            if not np.abs(back[worst]) > back @ x:
                break
            x = np.eye(1, n, int(worst))[0]
        return size

    def solve(self, b: np.ndarray, trans: int = 0) -> np.ndarray:
        """J^-1 b along the last axis, or with ``trans`` that of the transpose."""
        columns = np.ascontiguousarray(b.reshape(-1, b.shape[-1]).T)
        return self.factors.solve(columns, "T" if trans else "N").T.reshape(b.shape)


class _Products:
    """Systems with the Jacobian of ``f`` at ``z``, known by its products, by GMRES."""

    def __init__(self, who: str, f: Callable, z: np.ndarray):
        self.who, self.z = who, z
        y, push = linearize(f, z)
        _, pull = vjp(f, z)
        self.dtype = concrete(y).dtype
        self.push = lambda t: np.array(concrete(push(np.asarray(t, z.dtype))))
        self.pull = lambda ct: np.array(concrete(pull(np.asarray(ct, self.dtype)))[0])

    def solve(self, b: np.ndarray, trans: int = 0) -> np.ndarray:
        if b.ndim > 1:
            return np.stack([self.solve(row, trans) for row in b])
        n = self.z.size
        product = self.pull if trans else self.push
        operator: Any = scipy.sparse.linalg.LinearOperator  # of which stubs have the parts alone
        J = operator((n, n), matvec=product, dtype=self.dtype)
        rtol = 100 * np.finfo(self.dtype).eps
        x, _ = scipy.sparse.linalg.gmres(J, b, rtol=rtol, atol=0.0, restart=min(n, 100))
        error = np.linalg.norm(product(x) - b)
        if not error <= 1e4 * rtol * np.linalg.norm(b):
            raise SolverError(
                f"{user_line()}: the derivative of the solution of {self.who} is that of a system "
                f"with the Jacobian of its {n} equations, which GMRES did not solve (residual "
                f"{error:.1g}): it is singular or close to it"
            )
        return x


def _inverse(solver: _Dense | _Sparse | _Products) -> Linear:
    return linear_map(solver.solve, lambda b: solver.solve(b, 1))


def linear_map(forward: Callable, backward: Callable) -> Linear:
    """A fixed linear map of the last axis, and its transpose, as an op."""

    def row(f: Callable, transpose: Callable) -> Linear:
        return Linear(
            "inverse_jacobian", lambda b: f(b).astype(b.dtype, copy=False), transpose,
            lambda size, xs, batched: there(*xs) if f is forward else back(*xs), 1,
            abstract=lambda b: Aval(b.shape, b.dtype), domain="",
            doc="A fixed linear map.",
        )

    there = row(forward, lambda ct, b: back(ct))
    back = row(backward, lambda ct, b: there(ct))
    return there
