"""Writes docs/scipy.md, the names of SciPy that take traced values, from the table of them.

How fast solvers are is read from docs/solvers.json.

Run it with ``python docs/scipy_page.py``; a test says when the page is out of date.
"""

from __future__ import annotations

import importlib
import json
import textwrap
from pathlib import Path

from functrans._core.scipy_names import NAMES

DOCS = Path(__file__).resolve().parent

HEAD = """# SciPy's functions

SciPy's ufuncs take traced values as they are: a program that calls `scipy.special.gammaln` is
differentiated without a change. For functions that do not, `functrans.scipy` has counterparts with
SciPy's names and arguments. They take plain arrays as well, and then SciPy's own function runs; so
an import is all that changes. In a block of [`ft.patch()`](patch.md) not even that changes: SciPy's
own names take traced values there.

```python
>>> import numpy as np
>>> import functrans as ft
>>> import scipy.special
>>> from functrans.scipy import special

>>> ft.grad(lambda x: np.sum(scipy.special.gammaln(x)))(np.array([1.0, 2.0]))
Array([-0.57721566,  0.42278434])

>>> ft.grad(special.logsumexp)(np.array([1000.0, 1000.0]))
Array([0.5, 0.5])

```

A traced value that reaches SciPy's own raises, and the error names the import.

```python
>>> ft.grad(lambda x: scipy.special.logsumexp(x))(np.ones(2))
Traceback (most recent call last):
functrans.errors.ConcretizationError: ...: from functrans.scipy import special.

```

No module of SciPy is imported before it is needed. All other names of `functrans.scipy` are
SciPy's own functions, for plain arrays.

## What to expect

- Values are SciPy's. Derivatives agree with mpmath to 1e-12 and better over the domain, in every
  mode and to any order; at [poles](conventions.md#edge-points) they are infinite or NaN.
- Shape parameters of incomplete gamma and beta functions, their complements and inverses, of
  `stdtr`, `fdtr`, `chdtr` and `gdtr`, the parameter of elliptic integrals and the exponent of
  `zeta` are differentiable, by sums over the nodes of a quadrature rule (about 80 evaluations for
  an entry).
- A derivative in the order of a Bessel function, the degree of a polynomial, a parameter of a
  hypergeometric function or a count raises `NotDifferentiable`. So does one in a complex argument
  of `jve`, `yve`, `ive` and `kve`; other functions that SciPy has for complex numbers take them.
- Carlson's integrals and scaled Airy functions are differentiated for real numbers; `elliprj` of
  p < 0, a principal value, has the derivative NaN.
- The slope of `stdtr` in many degrees of freedom loses digits; so do second derivatives of `binom`
  and `poch` where an argument is tiny.
- Methods BDF and LSODA of `solve_ivp`, whose steps depend on those before, are Radau beside traced
  values, with the same tolerances: `t` and `y` are those of its steps.
- `odeint` and `solve_ivp` are part of the program under `jit` and `vmap`: there they need `t_eval`,
  and have room for `max_steps` steps and `max_events` times of an event; shapes stay as they are,
  and what a terminal event cuts off, or no event fills, is NaN; so are all values where SciPy
  refuses `t_eval`. `adjoint=True` gives gradients of first order that are right up to the
  tolerances, also of stiff equations, in memory that does not grow with the steps: the state is not
  integrated back, its steps are taken again.
- Integrals are differentiated under the sign of integration, and each order of derivatives is made
  to converge as the value is, which takes two to four times as long as the rule alone. **A jump of
  the integrand that moves with a parameter is not seen**: give its place in `points=`, which moves
  along.
- `solve_bvp` is differentiated as the solution of SciPy's collocation equations on the mesh that
  it has found; under `jit` the mesh has to keep its size.
- Optimisers are given exact derivatives of the function, compiled where it can be. What is
  compiled is kept with the function, and serves others of its code: numbers and arrays in closures,
  in containers there, in `args` and in attributes of an object whose method is given are arguments
  of it. A function that closes over other things is compiled when it is met again, or after 20
  calls. A function that takes plain numbers alone is simply called, and SciPy takes differences.
- Outside of programs too, the steps of `solve_ivp` and `odeint` are taken again by compiled code,
  once a right-hand side has been met with more than 30 steps in two solutions or more, or with more
  than 120 in the first. Where it has no program, Python takes them.
- Solvers (`quad`, `brentq`, `root`, `minimize`, `least_squares`, `curve_fit`, `linprog`,
  `lu_factor`, ...) are a step of their own under `jit` and `vmap`, which runs SciPy's with compiled
  functions, once for each entry of a batch; derivatives are further such steps, which find the
  solution and the factors of its Jacobian where the solve has left them, and take all rows at once.
  Of those solves 4,096 or 16 MB are kept; older ones are made again. Functions that solvers are
  given may not decide by values there, as in any program; results are numbers without texts
  (`message` is None), and those whose size depends on values (`allvecs`) raise. `success` may be
  asked for: it is True, and the program raises SolverError where it is not, in functions that are
  given to another solver, and of all but `minimize` where derivatives are taken.
- `jit` calls the C functions that SciPy offers to Cython. Spherical Bessel functions, `lambertw`,
  `wofz`, `ellipj`, Hankel functions, Riemann's `zeta` and complex numbers are steps of NumPy
  between compiled loops.
- Signals and images: what is linear has SciPy's values to rounding; convolution (`direct` by sums
  of products, otherwise by transforms), recursive filters, spline filters and sparse products are
  steps of NumPy and SciPy under `jit`, the rest is compiled. The number of weights of
  `gaussian_filter` follows from `sigma` as a number: under `jit` and `vmap` pass `radius`. Windows
  and rates of spectra are constants.
- Of uniform and extreme filters, the windows that hold a NaN or an infinity have it: SciPy's
  running sums carry it along the row, and its ranks depend on the order.
- `Rotation` holds quaternions of its own, traced or not, so SciPy's functions do not take it: give
  them `scipy.spatial.transform.Rotation.from_quat(r.as_quat())`.
- Distances have the derivative 0 where points coincide, as a norm at 0.
- A constant sparse array of SciPy takes part in `A @ x`, `x @ A`, `A.T @ x`, `A.dot(x)` and, with a
  traced number, in `a * A`, `A / a`, and `A + a * B` as it is. Its transpose is copied once, and
  kept as long as its entries live; programs keep a copy of the matrix too. Each use sums up what it
  holds, so a change is noticed. `spsolve` keeps the factors. Formats `bsr` and `dia` are copied
  again where `.T` is written out, `lil` and `dok` at each use: convert them once, `A.tocsr()`.
- Traced entries need a constructor of `functrans.scipy.sparse`, such as
  `csr_array((data, indices, indptr), shape=shape)`, which is a function there, not a class.
- Iterations (`cg`, `gmres`, ...) are differentiated as solutions: what has not converged raises
  `SolverError`. `expm_multiply` takes as many products as the norm of the matrix needs, and records
  them.
- Interpolants are differentiated in values and points; piecewise polynomials (`CubicSpline`,
  `PchipInterpolator`, `Akima1DInterpolator`, `CubicHermiteSpline`, `PPoly`) in their knots as well,
  B-splines and grids not. A smoothing spline of traced values needs `s=0` or `lam=`: otherwise its
  knots follow from the values. Cubic and quintic `RegularGridInterpolator` have the coefficients of
  a direct solution; SciPy's default stops at an error of 1e-5.

[How many of them other libraries have](scipy_peers.md) is a page of its own.

This page is written by `docs/scipy_page.py` from `functrans/_core/scipy_names.py`.

## How fast solvers are

SciPy's own time, and others as multiples of it, each the least of {rounds} rounds in turns after
four calls: here on plain arguments, with one tangent, with the gradient, and under `jit` the value
and `value_and_grad`. Functions are made anew for each call, as closures over the parameters.
Written by `python -m benchmarks.solvers` with NumPy {numpy} and SciPy {scipy} on {processor}.

{table}
"""
# The columns of the table, by what benchmarks/solvers.py calls them.
COLUMNS = {"plain": "plain", "jvp": "`jvp`", "gradient": "`grad`", "jit": "`jit`",
           "jit gradient": "`jit`, `value_and_grad`"}


def page() -> str:
    """The page."""
    stored = json.loads((DOCS / "solvers.json").read_text())
    head = HEAD.format(table=_table(stored["rows"]), **stored["about"])
    return "\n".join([head, *[_section(namespace) for namespace in NAMES]])


def _table(rows: dict[str, dict[str, float]]) -> str:
    lines = [f"| solver | SciPy, us | {' | '.join(COLUMNS.values())} |",
             "|---|---:|" + "---:|" * len(COLUMNS)]
    for title, row in rows.items():
        cells = [f"{row[name]:.2g}" if row.get(name, 100) < 100 else f"{row[name]:.0f}"
                 if name in row else "" for name in COLUMNS]
        lines.append(f"| {title} | {row['scipy'] * 1e6:,.0f} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _section(namespace: str) -> str:
    known = NAMES[namespace]
    parts = [
        f"## scipy.{namespace}\n",
        _listed("As they are", f"`scipy.{namespace}.f(x)`", known.called),
        _listed("By import", f"`functrans.scipy.{namespace}.f(x)`", known.ours),
        _listed("Constant", "as they are, with the derivative zero", known.constant),
        _listed("Without a counterpart", "for plain arrays", " ".join(others(namespace))),
    ]
    return "\n".join([part for part in parts if part])


def _listed(title: str, how: str, names: str) -> str:
    if not names.split():
        return ""
    text = ", ".join([f"`{name}`" for name in sorted(names.split())])
    lines = textwrap.wrap(text, 100, break_on_hyphens=False)
    return "\n".join([f"{title} ({how}): {len(names.split())} functions.\n", *lines, ""])


def functions(namespace: str) -> list[str]:
    """SciPy's own names of functions and classes in a namespace."""
    module = importlib.import_module(f"scipy.{namespace}")
    found = [name for name in module.__all__ if callable(getattr(module, name))]
    return sorted([name for name in found if not _is_exception(getattr(module, name))])


def _is_exception(x: object) -> bool:
    return isinstance(x, type) and issubclass(x, BaseException)


def others(namespace: str) -> list[str]:
    """SciPy's names in a namespace that the table does not have."""
    known = set(" ".join(NAMES[namespace]).split())
    return [name for name in functions(namespace) if name not in known]


if __name__ == "__main__":
    (DOCS / "scipy.md").write_text(page())
