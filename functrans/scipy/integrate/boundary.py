"""Boundary value problems: SciPy's solution as that of its collocation equations.

On the mesh that SciPy has found, values and parameters obey as many equations as there are
unknowns. Their Jacobian has a block for each two nodes side by side, and is factored as a sparse
matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy import integrate

from functrans._core.bind import AnyArray
from functrans._transforms.forward.api import jvp
from functrans._transforms.matrices.jacobian import jacobian
from functrans.errors import UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.calls import Numbers
from functrans.scipy.implicit import concrete, implicit, require_success
from functrans.scipy.kept import once
from functrans.scipy.programs import in_programs
from functrans.scipy.public import is_traced, refused

si: Any = integrate  # its types say less than its functions take


@in_programs
def solve_bvp(fun, bc, x, y, p=None, S=None, fun_jac=None, bc_jac=None, tol=1e-3, max_nodes=1000,
              verbose=0, bc_tol=None):
    """The solution of ``dy/dx = fun(x, y, p)`` with ``bc(y(a), y(b), p) = 0``, and its parameters.

    It is differentiated in what ``fun`` and ``bc`` close over, and in the ends of ``x``: as the
    solution of the collocation equations on the mesh that SciPy has found, whose nodes keep their
    places between the ends. Raises SolverError where these do not determine it.

    >>> import functrans as ft, numpy as np
    >>> def middle(k):
    ...     sol = solve_bvp(lambda x, y: np.stack([y[1], k * y[0]]),
    ...                     lambda a, b: np.stack([a[0] - 1, b[0] - 1]),
    ...                     np.linspace(0, 1, 5), np.ones((2, 5)), tol=1e-8)
    ...     return sol.sol(0.5)[0]
    >>> exact = lambda k: 1 / np.cosh(np.sqrt(k) / 2)
    >>> bool(np.isclose(ft.grad(middle)(2.0), ft.grad(exact)(2.0)))
    True
    """
    f, g = Numbers(fun), Numbers(bc)
    primes = [Numbers(h) if callable(h) else h for h in (fun_jac, bc_jac)]
    mesh, start, guess = concrete((x, y, p))
    sol = once("solve", lambda: si.solve_bvp(f, g, mesh, start, guess, S, *primes, tol, max_nodes,
                                             verbose, bc_tol))
    if not (f.closes_over(x) or g.closes_over(())):
        return sol
    if S is not None:
        raise refused("solve_bvp", "S", "a matrix", "leave the singular term out")
    if sol.y.dtype.kind == "c":
        raise UnsupportedError(f"{user_line()}: solve_bvp of complex numbers has no derivative "
                               "here. Solve for real and imaginary parts.")
    require_success("solve_bvp", sol.success, sol.message)
    equations = Collocation(fun, bc, _move(sol.x, x), sol.x, sol.y.shape, p is not None)
    start = np.concatenate([sol.y.reshape(-1), [] if sol.p is None else sol.p])
    z = implicit("solve_bvp", equations, start, equations.matrix)
    sol.x, (sol.y, parameters) = equations.x, equations.parts(z)
    sol.p = parameters if p is not None else None
    sol.yp = equations.slope(sol.x, sol.y, parameters)
    from functrans.scipy.interpolate import CubicHermiteSpline  # lazy: slow to import

    sol.sol = CubicHermiteSpline(sol.x, sol.y, sol.yp, axis=1)
    return sol


def _move(nodes: np.ndarray, x: Any) -> AnyArray:
    """The nodes between ends that may be traced."""
    if not is_traced(x):
        return nodes
    x, a, b = as_operand(x), nodes[0], nodes[-1]
    return x[0] + (nodes - a) / (b - a) * (x[-1] - x[0])


class Blocks(NamedTuple):
    """Derivatives of the right side at points: in y (point, row, column), and in p."""

    in_y: np.ndarray
    in_p: np.ndarray


class Collocation:
    """The equations of the unknowns y at all nodes and p, in one vector: SciPy's, of order 4."""

    def __init__(self, fun: Callable, bc: Callable, x: Any, plain_x: np.ndarray, shape: tuple,
                 has_p: bool):
        self.fun, self.bc, self.x, self.plain_x = fun, bc, x, plain_x
        self.shape, self.has_p = shape, has_p

    def parts(self, z: Any) -> tuple[Any, Any]:
        """y and p."""
        size = self.shape[0] * self.shape[1]
        return z[:size].reshape(self.shape), z[size:]

    def slope(self, x: Any, y: Any, p: Any) -> AnyArray:
        """The right side."""
        return as_operand(self.fun(x, y, p) if self.has_p else self.fun(x, y))

    def ends(self, a: Any, b: Any, p: Any) -> AnyArray:
        """What is zero at the ends."""
        return as_operand(self.bc(a, b, p) if self.has_p else self.bc(a, b))

    def __call__(self, z: Any) -> AnyArray:
        y, p = self.parts(z)
        h = self.x[1:] - self.x[:-1]
        f = self.slope(self.x, y, p)
        middle = 0.5 * (y[:, 1:] + y[:, :-1]) - 0.125 * h * (f[:, 1:] - f[:, :-1])
        of_middle = self.slope(self.x[:-1] + 0.5 * h, middle, p)
        rest = y[:, 1:] - y[:, :-1] - h / 6 * (f[:, :-1] + f[:, 1:] + 4 * of_middle)
        return np.concatenate([rest.reshape(-1), self.ends(y[:, 0], y[:, -1], p).reshape(-1)])

    # ---- the Jacobian, of numbers

    def matrix(self, z: np.ndarray) -> Any:
        """The Jacobian at ``z`` as a sparse matrix."""
        y, p = self.parts(z)
        x, h = self.plain_x, np.diff(self.plain_x)
        f = np.asarray(concrete(self.slope(x, y, p)))
        middle = 0.5 * (y[:, 1:] + y[:, :-1]) - 0.125 * h * (f[:, 1:] - f[:, :-1])
        at, between = self._blocks(x, y, p), self._blocks(x[:-1] + 0.5 * h, middle, p)
        eye, h = np.eye(len(y)), h[:, None, None]
        left, right = at.in_y[:-1], at.in_y[1:]
        first = -eye - h / 6 * (left + 4 * between.in_y @ (0.5 * eye + h / 8 * left))
        second = eye - h / 6 * (right + 4 * between.in_y @ (0.5 * eye - h / 8 * right))
        inside = between.in_p - h / 8 * (between.in_y @ (at.in_p[1:] - at.in_p[:-1]))
        in_p = -h / 6 * (at.in_p[:-1] + at.in_p[1:] + 4 * inside)
        a, b, c = [np.asarray(concrete(jacobian(self.ends, k)(y[:, 0], y[:, -1], p)))
                   for k in range(3)]
        return self._assemble(first, second, in_p, a, b, c)

    def _blocks(self, x: np.ndarray, y: np.ndarray, p: np.ndarray) -> Blocks:
        def column(k: int, direction: np.ndarray) -> np.ndarray:
            def along(v: Any) -> AnyArray:
                return self.slope(x, v, p) if k == 0 else self.slope(x, y, v)

            return np.asarray(concrete(jvp(along, ((y, p)[k],), (direction,))[1]))

        n = len(y)
        in_y = [column(0, np.eye(n)[:, [i]] + np.zeros_like(y)) for i in range(n)]
        in_p = [column(1, e) for e in np.eye(len(p))]
        empty = np.zeros((y.shape[1], n, 0))
        return Blocks(np.stack(in_y, axis=-1).swapaxes(0, 1),
                      np.stack(in_p, axis=-1).swapaxes(0, 1) if in_p else empty)

    def _assemble(self, first: Any, second: Any, in_p: Any, a: Any, b: Any,
                   c: Any) -> Any:
        n, m = self.shape
        row, column = np.indices((n, n))
        i = np.arange(m - 1)[:, None, None]
        rows, columns = row * (m - 1) + i, column * m + i
        last, unknowns = n * (m - 1), n * m
        k = in_p.shape[-1]
        p_rows = np.arange(n)[:, None] * (m - 1) + i + np.zeros(k, int)
        places = [
            (first, rows, columns), (second, rows, columns + 1),
            (in_p, p_rows, unknowns + np.arange(k) + np.zeros((m - 1, n, 1), int)),
        ]
        for block, at in ((a, 0), (b, m - 1)):
            r, q = np.indices(block.shape)
            places.append((block, last + r, q * m + at))
        r, q = np.indices(c.shape)
        places.append((c, last + r, unknowns + q))
        data, i, j = [np.concatenate([np.ravel(part[t]) for part in places]) for t in range(3)]
        return scipy.sparse.csc_array((data, (i, j)), shape=(unknowns + k, unknowns + k))
