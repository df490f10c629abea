"""``sparsity``, ``sparse_jacobian`` and ``sparse_hessian``; SciPy is imported at the first call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from functrans._transforms.arguments import Argnums, plain_argnums, require_callable
from functrans._transforms.derived import global_name
from functrans._transforms.options import require_choice
from functrans._transforms.sparse.options import Options
from functrans.errors import ArgumentError, name_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    from functrans._transforms.sparse.prepared import Prepared

# Kinds of arguments, and paths, that one derivative is kept prepared for.
KEPT = 8


def sparsity(
    f: Callable, *args: Any, argnums: Argnums = 0, local: bool = False, kind: str = "jacobian"
) -> csr_array:
    """Where the Jacobian of ``f``, or with ``kind="hessian"`` its Hessian, may have entries.

    A boolean ``scipy.sparse.csr_array`` with a row for each entry of the output and a column for
    each entry of what ``argnums`` names, both in C order, those of containers in the order of
    ``tree.ravel``; read off the program of ``f`` equation by equation. It is conservative: for
    every value of the arguments, but for integers among them that index what is differentiated, an
    entry that is not in it is exactly 0. Where Python decides by
    values (`if`), it is the union over all ways, at most 64 of them. With ``local`` it is that of
    these values: the way that is gone; an operand that ``np.where`` does not choose, an entry that
    is not the largest, and a factor that is 0 count as no dependence. The Jacobian's other entries
    are exactly 0 there, and need not be elsewhere. Entries that are 0 since terms cancel stay in
    both.

    The pattern of a Hessian holds the pairs of inputs that meet in an operation that is not linear.

    >>> import functrans as ft, numpy as np
    >>> ft.sparsity(lambda x: x[1:] * x[:-1], np.ones(4)).toarray().astype(int)
    array([[1, 1, 0, 0],
           [0, 1, 1, 0],
           [0, 0, 1, 1]])
    """
    from functrans._transforms.sparse import staged_paths as stages  # lazy: SciPy is slow to import

    require_choice("sparsity", "kind", kind, ("jacobian", "hessian"))
    if local and kind == "hessian":
        raise ArgumentError(
            "sparsity: a local pattern goes by slopes that are 0 here, whose own derivatives need "
            "not be. Take that of the gradient: sparsity(grad(f), x, local=True)."
        )
    ways = stages.staged_ways(f, plain_argnums("sparsity", argnums), args, local)
    if kind == "jacobian":
        return stages.jacobian_pattern(ways, local)
    for s in ways:
        stages.require_scalar("sparsity", f, s)
    return stages.hessian_pattern(ways)


class SparseDerivative:
    """What ``sparse_jacobian`` and ``sparse_hessian`` return: a function of the arguments of ``f``.

    ``prepare(*args)`` is the same for many calls with arguments of one kind.
    """

    def __init__(self, who: str, f: Callable, options: Options):
        self.who, self.f, self.options = who, f, options
        self._kept: list[tuple[Any, Prepared]] = []
        functools.update_wrapper(self, f, updated=())

    def prepare(self, *args: Any) -> Prepared:
        """Pattern, colors and compiled products for arguments of these shapes and dtypes.

        A pattern of the user's is compared with the derivative at these arguments.
        """
        from functrans._transforms.sparse import prepared  # lazy: SciPy is slow to import

        make = {
            "sparse_jacobian": prepared.prepare_jacobian,
            "sparse_hessian": prepared.prepare_hessian,
        }[self.who]
        return make(self.who, self.f, self.options, args)

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """The matrix at these arguments."""
        if keywords:
            raise ArgumentError(
                f"{self.who}: `{name_of(self.f)}` takes its arguments by position here, but got "
                f"{', '.join(keywords)} by name; functools.partial holds those that stay the same"
            )
        known, values = self._prepare(args)
        return known.checked(args, known.evaluated(values))

    def memory(self, *args: Any) -> int:
        """The bytes that a call is expected to take at most, beside the arguments and what it
        prepares once."""
        return self._prepare(args)[0].memory(*args)

    def _prepare(self, args: tuple) -> tuple[Prepared, list]:
        """What serves these arguments, and the numbers among them."""
        from functrans._transforms.sparse.staged_paths import (  # lazy: SciPy is slow to import
            kinds_of,
        )

        kind = kinds_of(args)
        for known_kind, known in self._kept:
            if known_kind == kind and known.is_current():
                values = known.values(args)
                if known.leaves(values) is None:
                    return known, values
        made = self.prepare(*args)
        current = [entry for entry in self._kept if entry[1].is_current()]
        self._kept = [*current, (kind, made)][-KEPT:]  # anew: other threads may read it
        return made, made.values(args)

    def __repr__(self) -> str:
        return f"<{self.who} of {name_of(self.f)}>"

    def __reduce__(self) -> tuple | str:
        return global_name(self) or (SparseDerivative, (self.who, self.f, self.options))


def sparse_jacobian(
    f: Callable | None = None,
    argnums: Argnums = 0,
    *,
    sparsity: Any = None,
    format: str = "csr",
    coloring: str = "auto",
    order: str = "largest_first",
) -> Any:
    """The Jacobian as a sparse array of SciPy's, ``J[i, j] = df_i/dx_j``, in C order of both.

    Columns without a row in common share one product J v, rows without a column in common one
    product v^T J, and the entries are read off these (Curtis, Powell and Reid 1974; Gebremedhin,
    Manne and Pothen 2005). ``sparsity`` is the pattern, a sparse array or a matrix of booleans; by
    default it is read off the function, as by ``sparsity``. One that is passed in is compared with
    the derivative along one random vector, and CheckError names an entry that it misses.

    ``format`` is "csr", "csc" or "coo". ``coloring`` is "column", "row", "bidirectional" (columns,
    and dense rows apart, or the other way round) or "auto", the one of the fewest colors; ``order``
    that in which they are colored, "largest_first", "natural", "incidence_degree", "smallest_last",
    which takes fewer colors for many Hessians, or "saturation". The last takes longer, and fewer
    colors on grids: where the largest first take more than any coloring must, it colors columns or
    rows again, by how many colors are taken (Brelaz 1979).

    ``sparse_jacobian(f).prepare(*args)`` does all but the products once: it has the pattern
    ``.sparsity`` and the number of products ``.colors``, is called at many points, writes into an
    earlier result with ``out=``, pickles, and draws itself with ``.spy()``. A function that is
    called without it keeps what was prepared for the latest kinds of arguments.

    ``argnums`` is as for ``grad``: a position, a name, a path, a predicate or a tuple of them. What
    it names, and the value of ``f``, may be containers, whose entries are the columns and rows of
    one matrix in the order of ``tree.ravel``; other arguments are constants. The pattern goes by
    the values of integers among them that index what is differentiated. Numbers are real, or
    all of them complex: the matrix is then that of a holomorphic function, and NotDifferentiable
    is raised where it is not, for which one more product is compared at each call.

    Where Python decides by values (`if`), pattern and products are those of the path that is taken,
    and each call asks whether it still is: other paths are prepared when they are met, but one
    that ``prepare`` has returned serves its own path and raises ArgumentError elsewhere.

    >>> import functrans as ft, numpy as np
    >>> J = ft.sparse_jacobian(lambda x: x[1:] * x[:-1]).prepare(np.ones(6))
    >>> J
    <sparse_jacobian of <lambda>: 5 x 6, 10 entries, 2 colors>
    [@@    ]
    [ @@   ]
    [  @@  ]
    [   @@ ]
    [    @@]
    >>> J(np.arange(6.0)).toarray()[0]
    array([1., 0., 0., 0., 0., 0.])
    """
    options = Options(argnums, sparsity, format, coloring, order)
    return _derivative("sparse_jacobian", f, options)


def sparse_hessian(
    f: Callable | None = None,
    argnums: Argnums = 0,
    *,
    sparsity: Any = None,
    format: str = "csr",
    coloring: str = "auto",
    order: str = "largest_first",
) -> Any:
    """The Hessian of a scalar function as a sparse array of SciPy's.

    Products with sums of unit vectors, forward over reverse; entries are read off by a star
    coloring, or by substitution with ``coloring="acyclic"`` (Gebremedhin, Tarafdar, Manne and
    Pothen 2007), which needs fewer products, but takes differences of entries, so that rounding
    errors add up and one that is not finite reaches others. "column" takes no advantage of the
    symmetry. The pattern by default is that of ``sparsity(f, x, kind="hessian")``; all else is as
    for ``sparse_jacobian``.

    >>> import functrans as ft, numpy as np
    >>> def rosenbrock(x):
    ...     return np.sum(100 * (x[1:] - x[:-1]**2)**2 + (1 - x[:-1])**2)
    >>> H = ft.sparse_hessian(rosenbrock)(np.ones(3))
    >>> H.toarray()
    array([[ 802., -400.,    0.],
           [-400., 1002., -400.],
           [   0., -400.,  200.]])
    """
    options = Options(argnums, sparsity, format, coloring, order)
    return _derivative("sparse_hessian", f, options)


def _derivative(who: str, f: Callable | None, given: Options) -> Callable:
    options = given.checked(who)
    if f is None:
        return functools.partial(SparseDerivative, who, options=options)
    require_callable(who, f)
    return SparseDerivative(who, f, options)
