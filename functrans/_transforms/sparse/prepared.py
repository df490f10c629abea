"""Sparse derivatives prepared once, for many points: pattern, colours, compiled products."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from functrans import tree
from functrans._compile.ir.program import Program
from functrans._core.array import finfo
from functrans._core.locks import lazy
from functrans._transforms.arguments import Argnums, describe, select
from functrans._transforms.sparse import coloring, compressed, sets
from functrans._transforms.sparse.coloring import Blocks, Table
from functrans._transforms.sparse.compressed import (
    Part,
    Product,
    Substitution,
    Sweep,
    gathered,
    hessian_product,
)
from functrans._transforms.sparse.options import FORMATS, Options
from functrans._transforms.sparse.sets import Csr, sparse
from functrans._transforms.sparse.staged_paths import (
    Staged,
    hessian_pattern,
    jacobian_pattern,
    kinds_of,
    numbers_in,
    require_plain,
    require_scalar,
    staged,
)
from functrans._transforms.staging.staging import stage
from functrans._transforms.watching.watched import refuses_nan
from functrans.errors import (
    AnomalyError,
    ArgumentError,
    CaptureError,
    CheckError,
    NotDifferentiable,
    ShapeError,
    name_of,
)

# ---- Patterns that users give: read, and compared with the derivative along one random vector

# Rows that are computed in full, to find an entry that a pattern misses.
LOOKED_AT = 16
# Rounding, as of entries that cancel in a transform and back, in units of the largest row's.
NOISE = 1000


def pattern_given(who: str, f: Callable, given: Any, shape: tuple[int, int]) -> Csr:
    """The user's pattern, the places that a sparse array stores or where a dense one is not 0."""
    try:
        made = sparse.csr_array(given)
    except (TypeError, ValueError) as e:
        raise ArgumentError(
            f"{who}: sparsity must be a sparse array or a matrix of booleans, but is "
            f"{type(given).__name__}"
        ) from e
    if made.shape != shape:
        raise ShapeError(
            f"{who}: sparsity has the shape {made.shape}, but the matrix of `{name_of(f)}` has "
            f"{shape}"
        )
    made = sparse.csr_array(
        (np.ones(len(made.indices), bool), made.indices.copy(), made.indptr.copy()), shape=shape
    )
    made.sum_duplicates()
    return made


def require_symmetric(who: str, f: Callable, pattern: Csr) -> None:
    """Raise where an entry has no twin across the diagonal."""
    one_way = (pattern.astype(np.int8) - pattern.T.astype(np.int8)).tocoo()
    if one_way.count_nonzero():
        at = np.flatnonzero(one_way.data > 0)[0]
        i, j = (int(c[at]) for c in one_way.coords)
        raise ArgumentError(
            f"{who}: sparsity has the entry [{i}, {j}] but not [{j}, {i}], and the Hessian of "
            f"`{name_of(f)}` is symmetric"
        )


def probe(who: str, name: str, s: Staged, values: Sequence, matrix: Csr) -> None:
    """Raise where the matrix times a random vector is not the derivative along it."""
    along = hessian_product(s) if who == "sparse_hessian" else compressed.along(s)
    across = along if who == "sparse_hessian" else compressed.across(s)
    rows = _differing(along, values, matrix, 32 * float(finfo(matrix.dtype).eps))
    for i in rows.tolist():
        unit = np.zeros(matrix.shape[0])
        unit[i] = 1
        row = np.asarray(across(values, unit))
        kept = matrix.indices[matrix.indptr[i] : matrix.indptr[i + 1]]
        missed = np.abs(row)
        missed[kept] = 0
        j = int(np.argmax(missed))
        if missed[j] > 0:
            raise CheckError(
                f"{who}: sparsity misses the entry [{i}, {j}], where the derivative of `{name}` "
                f"is {row[j]:.6g}. Add it, or leave sparsity out: it is then read off the function."
            )


def require_holomorphic(who: str, name: str, run: Product, values: Sequence, matrix: Csr) -> None:
    """Raise where the matrix, whose entries are derivatives along 1, is not that along i too."""
    eps = float(finfo(matrix.dtype).eps)
    differ = _differing(run, values, matrix, eps**0.5, NOISE * eps)
    ends = zip(matrix.indptr[differ], matrix.indptr[differ + 1], strict=True)
    if any([np.isfinite(matrix.data[start:end]).all() for start, end in ends]):
        of = "the gradient of " if who == "sparse_hessian" else ""
        raise NotDifferentiable(
            f"{who}: {of}`{name}` is not holomorphic here: its derivatives along 1 and along i do "
            "not belong together, so no complex matrix holds them. Differentiate real and "
            "imaginary part as functions of real and imaginary part."
        )


def _differing(along: Product, values: Sequence, matrix: Csr, tolerance: float,
               noise: float = 0.0) -> np.ndarray:
    """Rows of the matrix whose product with a random vector is not the derivative along it, at
    most so many; those where this is NaN are not among them, nor those that differ by no more than
    ``noise`` times the largest."""
    random = np.random.default_rng(0)
    t = random.uniform(0.5, 1.5, matrix.shape[1]).astype(matrix.dtype)
    if matrix.dtype.kind == "c":
        t = t + 1j * random.uniform(0.5, 1.5, len(t)).astype(matrix.dtype)
    with np.errstate(all="ignore"):
        expected = np.asarray(along(values, t))
        found = matrix @ t
        size = abs(matrix) @ abs(t) + abs(expected)
        gap = abs(expected - found) / np.where(size > 0, size, 1)
        small = abs(expected - found) <= noise * np.max(size, initial=0.0, where=np.isfinite(size))
    rows = np.flatnonzero(~(gap <= tolerance) & ~np.isnan(expected) & ~small)
    worst = np.argsort(-np.nan_to_num(gap[rows], nan=np.inf), kind="stable")[:LOOKED_AT]
    return np.sort(rows[worst])


def find_nan(who: str, name: str, function: tuple[Callable, Argnums] | None, args: tuple) -> None:
    """Raise where a derivative first becomes NaN: one product, op by op, for observers to see."""
    from functrans._transforms.matrices import operators  # lazy: for debugging alone

    if function is not None:
        chosen = select(who, function[0], function[1], args, {})
        made = operators.of_hessian if who == "sparse_hessian" else operators.Products
        product = made(who, chosen.call, chosen.values, name)
        product.push(np.ones(product.shape[1], product.dtype))
    raise AnomalyError(
        f"{who}: the derivative of `{name}` has a NaN here, and no op of one product alone gives "
        "one. Look at single columns, with jvp."
    )


# ---- Sparse derivatives prepared once, for many points: pattern, colours, compiled products

# What a product from the left costs, in products from the right.
PRICE = 2
ARRAYS = {format: getattr(sparse, f"{format}_array") for format in FORMATS}


class Prepared:
    """A sparse derivative matrix of one function, for arguments of one kind.

    Called with such arguments it returns the matrix there. ``prepared(*args, out=J)`` writes the
    entries into ``J``, a matrix that it has returned before. Matrices share their index arrays,
    which are read-only. It pickles with its pattern and programs, without the function.

    Where Python decides by values in it (`if`), it serves those that take the path of the arguments
    it was prepared with, which is asked at each call.

    ``sparsity`` is the pattern, a boolean ``csr_array``, and ``colors`` the number of products that
    give all entries; ``sparsity_is_given`` says whether the pattern is the user's.
    """

    def __init__(self, who: str, f: Callable, s: Staged, pattern: Csr, options: Options):
        self.who, self.name = who, name_of(f)
        self._function: Any = f, options.argnums
        self.sparsity, self.format = pattern, options.format
        self.sparsity_is_given = options.sparsity is not None
        self.colors = 0
        self.coloring = ""
        self.dtype = s.dtype
        self._kinds, self._reads, self._staged = s.kinds, s.reads, s._replace(values=[], reads=None)
        children = getattr(s.kinds[0], "children", ())
        flat = all(c is tree.LEAF for c in children) and all(
            isinstance(k, tuple) and k[1].isnative for k in s.kinds[1]
        )
        self._plain_kinds = list(s.kinds[1]) if flat else None
        self._sweeps: Sequence[Part] = []
        self._substitution: Substitution | None = None
        self._along: Program | None = None  # of what must be holomorphic
        self._arrays, self._order = _structure(pattern, self.format)

    @property
    def shape(self) -> tuple[int, int]:
        """Of the matrix: entries of the output, or of the input, by entries of the input."""
        return self.sparsity.shape

    def __call__(self, *args: Any, out: Any = None) -> Any:
        """The matrix at these arguments."""
        return self.checked(args, self.evaluated(self._values_here(args), out))

    def checked(self, args: tuple, matrix: Any) -> Any:
        """The matrix; where a NaN in it is to be an error, one that says where it came from."""
        if refuses_nan() and np.isnan(matrix.data).any():
            find_nan(self.who, self.name, self._function, args)
        return matrix

    def leaves(self, values: Sequence) -> str | None:
        """How it does not serve these numbers, which are on another path; None if it does."""
        return self._staged.leaves(values)

    def evaluated(self, values: list, out: Any = None) -> Any:
        """The matrix for the numbers among the arguments, which are on the path."""
        if out is None:
            out = self._fresh(values)
        else:
            self._require_own(out)
            self._write(values, out.data)
        if self._along is not None:
            require_holomorphic(self.who, self.name, self._product, values, out.tocsr())
        return out

    def memory(self, *args: Any) -> int:
        """The bytes that a call with such arguments is expected to take at most, beside them and
        what has been prepared."""
        self._values_here(args)
        entries = self.sparsity.nnz * self.dtype.itemsize
        copies = 0 if self._whole is not None else 1 if self._order is None else 2
        written = copies * entries
        if self._substitution is not None:
            written += self.colors * self.shape[0] * self.dtype.itemsize
        return written + max([run.nbytes for run in self._runs], default=0)

    def is_current(self) -> bool:
        """Whether all that the function read when it was prepared is as it was."""
        return self._reads is None or self._reads.unchanged()

    def check(self, *args: Any) -> None:
        """Raise where the matrix at these arguments is not the derivative: the pattern misses an
        entry, which is named. The product with one random vector is compared."""
        values = self._values_here(args)
        data = np.empty(self.sparsity.nnz, self.dtype)
        self._write(values, data, ordered=False)
        matrix = sparse.csr_array(
            (data, self.sparsity.indices, self.sparsity.indptr), shape=self.shape
        )
        probe(self.who, self.name, self._staged, values, matrix)

    def spy(self, ax: Any = None, **options: Any) -> Any:
        """The pattern drawn by matplotlib, into ``ax`` or a new figure; returns the axes."""
        return sets.spy(self.sparsity, repr(self).partition("\n")[0], ax, options)

    def __repr__(self) -> str:
        m, n = self.shape
        count = f"{self.colors} color{'s' if self.colors != 1 else ''}"
        head = f"<{self.who} of {self.name}: {m} x {n}, {self.sparsity.nnz} entries, {count}>"
        drawn = sets.text(self.sparsity)
        return f"{head}\n{drawn}" if drawn else head

    def __getstate__(self) -> dict[str, Any]:
        state = {k: v for k, v in self.__dict__.items() if k not in ("_runs", "_template")}
        return state | {"_reads": None, "_function": None}

    # ---- evaluation

    def values(self, args: tuple) -> list:
        """The numbers among the arguments, if these are of the kind that was prepared."""
        plain = self._plain_kinds is not None and self._plain_kinds == [
            (x.shape, x.dtype) if type(x) is np.ndarray else None for x in args
        ]  # the usual case, told in a tenth of the time
        if not plain:
            require_plain(self.who, self.name, args)
        if not plain and kinds_of(args) != self._kinds:
            found, expected = describe(args), _describe(self._kinds)
            raise ShapeError(
                f"{self.who}: `{self.name}` was prepared for {expected}, but is called with "
                f"{found}; prepare it for such arguments"
            )
        if self._reads is not None and not self._reads.unchanged():
            raise CaptureError(
                f"{self.who}: {self._reads.changed()}, which `{self.name}` reads, has changed "
                "since it was prepared; call prepare again, or pass it as an argument"
            )
        return list(args) if plain else numbers_in(self.who, tree.leaves(args))

    def _values_here(self, args: tuple) -> list:
        """The numbers among the arguments, if they are on the path that was prepared."""
        values = self.values(args)
        if (how := self.leaves(values)) is not None:
            raise ArgumentError(
                f"{self.who}: `{self.name}` was prepared {how}. Call prepare again at these "
                f"values, or {self.who}(f) itself, which prepares each path that it meets; "
                "np.where and cond are on one path"
            )
        return values

    def _product(self, values: Sequence, along: np.ndarray) -> np.ndarray:
        return self._runs[-1]([*values, along])[0]

    @lazy
    def _runs(self) -> list[compressed.Runner]:
        name = f"{self.who}({self.name})"
        programs = [s.program for s in self._sweeps]
        if self._along is not None:
            programs.append(self._along)
        return [compressed.Runner(name, p) for p in programs]

    def _write(self, values: list, data: np.ndarray, ordered: bool = True) -> None:
        """The entries, in the order of the format or of ``sparsity``."""
        order = self._order if ordered else None
        entries = data if order is None else np.empty_like(data)
        if self._substitution is not None:
            products = np.concatenate([
                self._runs[0]([*values, s.colors, numbers])[0]
                for s in self._sweeps if isinstance(s, Sweep) for numbers in s.numbers
            ])
            self._substitution.into(entries, products.reshape(-1))
        else:
            for s, run in zip(self._sweeps, self._runs, strict=False):
                s.into(entries, run, values)
        if order is not None:
            entries.take(order, out=data, mode="clip")

    def _fresh(self, values: list) -> Any:
        made = copy.copy(self._template)  # a third of the time that SciPy takes to make one
        whole = self._whole
        if whole is not None:
            data = whole.entries(self._runs[0], values)
        else:
            data = np.empty(self.sparsity.nnz, self.dtype)
            self._write(values, data)
        made.data = data
        return made

    @property
    def _whole(self) -> Table | Blocks | None:
        """What returns all entries in order without a copy, if there is such a part."""
        part = next(iter(self._sweeps), None)
        if self._order is None and isinstance(part, Table | Blocks) and part.in_order:
            return part
        return None

    @lazy
    def _template(self) -> Any:
        """A matrix without data of its own."""
        zeros = np.broadcast_to(self.dtype.type(0), self.sparsity.nnz)
        if self.format == "coo":
            made = sparse.coo_array((zeros, self._arrays), shape=self.shape)
            made.coords = self._arrays
        else:
            made = ARRAYS[self.format]((zeros, *self._arrays), shape=self.shape)
            made.indices, made.indptr = self._arrays
        made.has_canonical_format = True
        return made

    def _require_own(self, out: Any) -> None:
        kind = ARRAYS[self.format]
        if not isinstance(out, kind) or out.shape != self.shape or out.dtype != self.dtype:
            found = f"{type(out).__name__} {getattr(out, 'dtype', '')}{getattr(out, 'shape', '')}"
            raise ArgumentError(
                f"{self.who}: out must be a {kind.__name__} of shape {self.shape} and dtype "
                f"{self.dtype} with the pattern of `{self.name}`, such as an earlier result, but "
                f"is {found}"
            )
        theirs = out.coords if self.format == "coo" else (out.indices, out.indptr)
        for a, b in zip(theirs, self._arrays, strict=True):
            if a is not b and not np.array_equal(a, b):
                raise ArgumentError(
                    f"{self.who}: out has entries in other places than the pattern of "
                    f"`{self.name}`; pass an earlier result"
                )
        if not out.data.flags.writeable or len(out.data) != self.sparsity.nnz:
            raise ArgumentError(f"{self.who}: the data of out cannot be written to")


def _structure(pattern: Csr, format: str) -> tuple[tuple, np.ndarray | None]:
    """The index arrays of the format, read-only, and the order of its entries if not by rows."""
    pattern.has_canonical_format = True
    order = None
    arrays: tuple = pattern.indices, pattern.indptr
    if format == "csc":
        numbered = sparse.csr_array(
            (np.arange(pattern.nnz), pattern.indices, pattern.indptr), shape=pattern.shape
        ).tocsc()
        arrays, order = (numbered.indices, numbered.indptr), numbered.data.astype(np.intp)
    elif format == "coo":
        arrays = tuple(pattern.tocoo().coords)
    for a in (*arrays, pattern.data):
        a.setflags(write=False)
    return arrays, order


def _describe(kinds: tuple) -> str:
    """The arguments of a kind, as ``describe`` shows them."""
    structure, leaves = kinds
    shown = [np.broadcast_to(np.zeros((), k[1]), k[0]) if isinstance(k, tuple) else
             k() if isinstance(k, type) else k.x for k in leaves]
    return describe(tree.unflatten(structure, shown))


# ---- preparing


def prepare_jacobian(who: str, f: Callable, options: Options, args: tuple) -> Prepared:
    """A Jacobian, colored by columns, rows, or some of each."""
    s = staged(who, f, options.argnums, args)
    if options.sparsity is None:
        s = s.with_indices()
        pattern = jacobian_pattern([s])
    else:
        pattern = pattern_given(who, f, options.sparsity, s.shape)
    made = Prepared(who, f, s, pattern, options)
    name, kind = f"{who}({name_of(f)})", options.coloring
    plan = coloring.plan(pattern, kind, options.order)
    after = gathered(s, pattern) if kind == "auto" and _cost(plan) >= 2 * PRICE else None
    try:
        if after is not None:
            fewer = coloring.plan(after.pattern, kind, options.order)
            after, plan = (after, fewer) if 2 * _cost(fewer) <= _cost(plan) else (None, plan)
        if after is not None:
            made._sweeps = compressed.gathered_sweeps(s, name, after, plan)
        else:
            made._sweeps = compressed.jacobian_sweeps(s, name, pattern, plan)
    except NotDifferentiable:  # in reverse: a while_loop without max_steps
        if kind != "auto" or not plan.reverse:
            raise
        plan = coloring.plan(pattern, "column", options.order)
        made._sweeps = compressed.jacobian_sweeps(s, name, pattern, plan)
    made.colors = plan.total
    made.coloring = kind if kind != "auto" else (
        "bidirectional" if plan.forward and plan.reverse else "row" if plan.reverse else "column"
    )
    return _finish(made, s, compressed.along(s), args)


def _cost(plan: coloring.Plan) -> int:
    return plan.forward + PRICE * plan.reverse


def prepare_hessian(who: str, f: Callable, options: Options, args: tuple) -> Prepared:
    """A Hessian, by a star or acyclic coloring, or by one of its columns."""
    s = staged(who, f, options.argnums, args)
    require_scalar(who, f, s)
    n = s.shape[1]
    if options.sparsity is None:
        s = s.with_indices()
        pattern = hessian_pattern([s])
    else:
        pattern = pattern_given(who, f, options.sparsity, (n, n))
        require_symmetric(who, f, pattern)
    made = Prepared(who, f, s, pattern, options)
    made.coloring = options.coloring if options.coloring != "auto" else "star"
    made.dtype = np.result_type(*[a.dtype for a in s.sources])
    colors = {
        "star": coloring.star_colors, "acyclic": coloring.acyclic_colors,
        "column": coloring.column_colors,
    }[made.coloring](pattern, options.order)
    product = compressed.hessian_product(s)
    count = made.colors = int(colors.max(initial=-1)) + 1 if pattern.nnz else 0
    if count:
        by, places = colors[pattern.indices], np.repeat(np.arange(n), np.diff(pattern.indptr))
        if made.coloring == "star":
            by, places = compressed.star_sources(pattern, colors)
        elif made.coloring == "acyclic":
            made._substitution = compressed.substitution(pattern, colors)
        made._sweeps = [compressed.sweep(
            product, s.values, f"{who}({name_of(f)})", colors, count, n, by, places, None,
            made._substitution is None,
        )]
    return _finish(made, s, product, args)


def _finish(made: Prepared, s: Staged, product: compressed.Product, args: tuple) -> Prepared:
    """With what tells whether it is right, where that can be in doubt."""
    if s.is_complex:
        made._along, _ = stage(lambda *xs: product(xs[:-1], xs[-1]),
                               [*s.values, np.zeros(s.shape[1], made.dtype)], made.who)
    if made.sparsity_is_given:
        made.check(*args)
    return made
