r"""Linear programs, differentiated at a vertex.

With the rows A and right-hand sides b of the constraints that are active, as many as unknowns, the
solution is :math:`x = A^{-1} b` and the slopes of the optimum in b are :math:`A^{-T} c`. So x does
not depend on c as long as no multiplier is zero.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import scipy.sparse
from scipy import optimize

from functrans._core.bind import AnyArray
from functrans.errors import SolverError, UnsupportedError, user_line
from functrans.numpy.structure import as_operand
from functrans.scipy.implicit import concrete, implicit, require_success
from functrans.scipy.optimize.constraints import ends_of
from functrans.scipy.programs import in_programs
from functrans.scipy.public import is_traced

so: Any = optimize  # its types say less than its functions take
ACTIVE = 1e-9  # the slack, relative to the numbers of its row, of an active constraint
CERTAIN = 1e-13  # the multiplier, relative to the largest, of one that may be left


class Rows(NamedTuple):
    """Constraints ``A x = b``, or ``A x <= b`` or ``>= b``; where SciPy has their multipliers."""

    A: Any
    b: Any
    equal: bool
    name: str


@in_programs
def linprog(c, A_ub=None, b_ub=None, A_eq=None, b_eq=None, bounds=(0, None), method="highs",
            callback=None, options=None, x0=None, integrality=None):
    """The minimum of ``c @ x`` under linear constraints and bounds.

    The solution, its slacks and the multipliers (``marginals``) are differentiated in all
    coefficients, right-hand sides and bounds. Raises SolverError with SciPy's message where there
    is no solution, and where the vertex is degenerate: more constraints hold than there are
    unknowns, or one holds with a multiplier of zero, so that other points are as good.

    >>> import functrans as ft, numpy as np
    >>> best = lambda b: linprog([-1.0, -1.0], [[1.0, 2.0], [3.0, 1.0]], b).x
    >>> ft.jacobian(best)(np.array([4.0, 6.0])).round(6)
    array([[-0.2,  0.4],
           [ 0.6, -0.2]])
    """
    data = _together([c, A_ub, b_ub, A_eq, b_eq])
    bounds = _together(bounds) if not is_traced(bounds) else bounds
    numbers, plain = concrete((data, bounds))
    sol = so.linprog(*numbers, plain, method, callback, options, x0, integrality)
    if not is_traced((data, bounds)):
        return sol
    if integrality is not None and np.any(integrality):
        raise UnsupportedError(
            f"{user_line()}: linprog got integrality= beside a traced value. A solution in "
            "integers is constant or jumps; pass ft.stop_gradient of the data."
        )
    require_success("linprog", sol.success, sol.message)
    _differentiated(sol, data, bounds)
    return sol


def _together(x: Any) -> Any:
    if isinstance(x, list | tuple) and len(x) and is_traced(x):
        return [as_operand(v) if is_traced(v) else v for v in x]
    return x


def _differentiated(sol: Any, data: list, bounds: Any) -> None:
    """Give the numbers of a solution their derivatives."""
    c = as_operand(data[0]).reshape(-1)
    groups = _groups(data, bounds, sol.x)
    force = [np.asarray(sol[g.name].marginals)[_places(g, sol)] for g in groups]
    least = CERTAIN * max([float(np.max(np.abs(f), initial=0.0)) for f in force], default=0.0)
    active = [g.equal | (np.abs(_slack(g, sol.x)) <= _close(g, sol.x)) | (np.abs(f) > least)
              for g, f in zip(groups, force, strict=True)]
    _require_vertex(sol.x, groups, active, force, least)
    rows = [np.flatnonzero(a) for a in active]
    A = np.concatenate([as_operand(g.A)[r] for g, r in zip(groups, rows, strict=True)])
    b = np.concatenate([as_operand(g.b)[r] for g, r in zip(groups, rows, strict=True)])
    x = implicit("linprog", lambda x: A @ x - b, sol.x)
    multipliers = np.linalg.solve(A.T, c)
    at = 0
    for g, r in zip(groups, rows, strict=True):
        part = sol[g.name]
        total = np.zeros(np.size(part.marginals))
        places = _places(g, sol)[r]
        part.marginals = _set(total, places, multipliers[at : at + len(r)])
        part.residual = _set(np.asarray(part.residual), _places(g, sol),
                             (as_operand(g.b) - as_operand(g.A) @ x) * (-1 if g.name == "lower"
                                                                         else 1))
        at += len(r)
    sol.x, sol.fun = x, c @ x
    sol.slack, sol.con = sol.ineqlin.residual, sol.eqlin.residual


def _set(x: np.ndarray, places: np.ndarray, values: Any) -> AnyArray:
    matrix = np.eye(x.size)[places]
    kept = np.ones(x.size)
    kept[places] = 0.0
    return np.where(kept == 1, x, 0.0) + values @ matrix if len(places) else x


def _groups(data: list, bounds: Any, x: np.ndarray) -> list[Rows]:
    _, A_ub, b_ub, A_eq, b_eq = [v.toarray() if scipy.sparse.issparse(v) else v for v in data]
    groups = []
    if A_ub is not None:
        groups.append(Rows(_matrix(A_ub), as_operand(b_ub).reshape(-1), False, "ineqlin"))
    if A_eq is not None:
        groups.append(Rows(_matrix(A_eq), as_operand(b_eq).reshape(-1), True, "eqlin"))
    pairs = [tuple(bounds)] * x.size if _one_pair(bounds) else bounds
    eye = np.eye(x.size)
    for name, end in zip(("lower", "upper"), ends_of(pairs) or (), strict=False):
        end = np.broadcast_to(as_operand(end), x.shape)
        known = np.flatnonzero(np.isfinite(np.asarray(concrete(end), float)))
        if known.size:
            groups.append(Rows(eye[known], end[known], False, name))
    return groups


def _matrix(A: Any) -> AnyArray:
    A = as_operand(A)
    return A if A.ndim > 1 else A[None]


def _one_pair(bounds: Any) -> bool:
    return len(bounds) == 2 and not any([isinstance(v, list | tuple) or np.ndim(v) for v in bounds])


def _places(g: Rows, sol: Any) -> np.ndarray:
    """Which of SciPy's multipliers are those of a group: of bounds, those of the entries."""
    if g.name in ("lower", "upper"):
        return np.flatnonzero(np.asarray(concrete(g.A)).any(axis=0))
    return np.arange(len(concrete(g.b)))


def _slack(g: Rows, x: np.ndarray) -> np.ndarray:
    return np.asarray(concrete(g.A)) @ x - np.asarray(concrete(g.b))


def _close(g: Rows, x: np.ndarray) -> np.ndarray:
    terms = np.abs(np.asarray(concrete(g.A))) @ np.abs(x)
    return ACTIVE * np.maximum(terms, np.abs(np.asarray(concrete(g.b))))


def _require_vertex(x: np.ndarray, groups: list[Rows], active: list, force: list,
                    certain: float) -> None:
    count = sum([int(np.sum(a)) for a in active])
    least = min([float(np.min(np.abs(f[a]), initial=np.inf))
                 for g, a, f in zip(groups, active, force, strict=True) if not g.equal],
                default=np.inf)
    if count == x.size and least > certain:
        return
    why = (f"{count} constraints hold at it, for {x.size} unknowns" if count != x.size
           else f"a constraint holds with a multiplier of {least:.1g}")
    raise SolverError(
        f"{user_line()}: the solution of linprog at {x} is degenerate: {why}. There is no "
        "derivative; drop what is redundant, or change c where other points are as good."
    )
