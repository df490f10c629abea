"""Derivative matrices as linear operators of SciPy's, and traces from a few products with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from functrans import tree
from functrans._core.array import Aval, aval_of
from functrans._core.bind import AnyArray, Tracer, cast
from functrans._ops.elementwise import from_parts, real
from functrans._transforms.arguments import (
    describe,
    hand_out,
    hand_out_all,
    open_argument,
    require_callable,
)
from functrans._transforms.derived import OfRun
from functrans._transforms.forward.api import as_arguments, jvp
from functrans._transforms.matrices.batches import Batches
from functrans._transforms.matrices.directions import Rows
from functrans._transforms.options import require_choice, require_count
from functrans._transforms.reverse.api import Recording, active_tangents, conjugate, record
from functrans._transforms.reverse.grad import grad, run_value_and_grad
from functrans._transforms.rules.custom import stop_gradient
from functrans.errors import ArgumentError, NotDifferentiable, name_of

if TYPE_CHECKING:
    from scipy.sparse.linalg import LinearOperator


# ---- Derivative matrices as linear operators of SciPy's: products, and no matrix

WHO = "linear_operator"


def linear_operator(
    f: Callable[[Any], Any], x: Any, kind: str = "jacobian", *,
    loss: Callable[[Any], Any] | None = None,
) -> LinearOperator:
    """A derivative of ``f`` at ``x`` as a ``scipy.sparse.linalg.LinearOperator``.

    ``kind`` is "jacobian" (``J``), "hessian" (``H``, of a scalar function) or
    "gauss_newton" (``J^T H J`` with the Hessian of ``loss`` at ``f(x)``; without ``loss``
    ``J^T J``, for half the sum of squares). It acts on vectors: containers and arrays are
    flattened as ``tree.ravel`` does. ``f`` runs once, here; a product is one walk over what
    was recorded, a product with a matrix one walk for a batch of its columns. Transpose and
    adjoint are products too, those of a Hessian the same.

    Arguments are real, or all complex and ``f`` holomorphic.

    Raises NotDifferentiable where the derivative is not linear over the complex numbers, or where
    "hessian" is asked of a function with several outputs; CaptureError from a product if large
    arrays that it reads have been changed since (small ones are copied).

    >>> import functrans as ft, numpy as np
    >>> from scipy.sparse.linalg import lsqr
    >>> A = np.array([[2.0, 0.0], [1.0, 3.0], [0.0, 1.0]])
    >>> J = ft.linear_operator(lambda x: A @ x, np.zeros(2))
    >>> J.shape, J @ np.array([1.0, 1.0]), J.T @ np.array([1.0, 0.0, 0.0])
    ((3, 2), array([2., 4., 1.]), array([2., 0.]))
    >>> lsqr(J, A @ np.array([1.0, -1.0]))[0].round(6)
    array([ 1., -1.])
    """
    function = require_callable(WHO, f)
    require_choice(WHO, "kind", kind, ("jacobian", "hessian", "gauss_newton"))
    if loss is not None and kind != "gauss_newton":
        raise ArgumentError(f'{WHO}: loss is for kind="gauss_newton", but kind is {kind!r}')
    if any(isinstance(v, Tracer) for v in open_argument(WHO, f, 0, x).leaves):
        raise ArgumentError(
            f"{WHO}: the argument of `{name_of(f)}` is traced, and SciPy's operators hold numbers. "
            "Use jvp, vjp, hvp or ggnvp inside of transforms."
        )
    if kind == "hessian":
        return _operator(of_hessian(WHO, function, x))
    first = Products(WHO, function, x)
    if kind == "jacobian":
        return _operator(first)
    if first.dtype.kind == "c":
        raise NotDifferentiable(
            f"{WHO}: Gauss-Newton matrices are of real functions, but `{name_of(f)}` maps "
            f"{first.described}. Return real and imaginary part."
        )
    if loss is None:
        return _square(first, lambda v: v, first.dtype)
    second = of_hessian(WHO, require_callable(WHO, loss), first.run.output)
    return _square(first, second.push, np.result_type(first.dtype, second.dtype))


def of_hessian(who: str, f: Callable, x: Any, name: str = "") -> Products:
    """Products with the Hessian of a scalar function: those with the Jacobian of its gradient."""
    holomorphic = any([aval_of(v).dtype.kind == "c" for v in open_argument(who, f, 0, x).primals])

    def scalar(x: Any) -> Any:
        y = f(x)
        leaves, structure = tree.flatten(y)
        if structure is not tree.LEAF or aval_of(leaves[0]).size != 1:
            raise NotDifferentiable(
                f"{who}: a Hessian is of a scalar function, but `{name_of(f)}` returned "
                f'{describe(y)}. Reduce the result, for example with .sum(), or use '
                'kind="jacobian".'
            )
        if holomorphic and aval_of(y).dtype.kind != "c":
            raise NotDifferentiable(
                f"{who}: `{name_of(f)}` is a real function of complex numbers, whose gradient is "
                "not holomorphic. Differentiate it as a function of real and imaginary part."
            )
        return y

    gradient = grad(scalar, holomorphic=holomorphic)
    return Products(who, gradient, x, name or name_of(f), symmetric=True)


class Products:
    """A function recorded at a point, and products with its derivative as a matrix.

    Vectors, or matrices of columns, of what ``tree.ravel`` makes of arguments and outputs.
    """

    def __init__(self, who: str, f: Callable, x: Any, name: str = "", symmetric: bool = False):
        self.who, self.f, self.name, self.symmetric = who, f, name or name_of(f), symmetric
        self.run: Recording = record(who, f, [x], False)
        self.ins = [aval_of(v) for v in self.run.inputs]
        self.outs = [aval_of(v) for v in self.run.values]
        self.dtype = np.result_type(*[a.dtype for a in (*self.ins, *self.outs)])
        self.complex = any([a.dtype.kind == "c" for a in self.ins])
        if self.complex:
            self._require_linear()

    @property
    def shape(self) -> tuple[int, int]:
        return sum([a.size for a in self.outs]), sum([a.size for a in self.ins])

    @property
    def described(self) -> str:
        ins, outs = [", ".join(map(repr, avals)) for avals in (self.ins, self.outs)]
        return f"{ins} to {outs}"

    def _require_linear(self) -> None:
        """Raise unless a product with ``i v`` is ``i`` times that with ``v``."""
        if all(a.dtype.kind == "c" for a in self.ins):
            n, rng = self.shape[1], np.random.default_rng(0)
            v = rng.standard_normal(n) + 1j * rng.standard_normal(n)
            along, turned = self.push(v), self.push(1j * v)
            bound = float(np.sqrt(np.finfo(self.dtype).eps)) * np.abs(along).max(initial=0.0)
            if not np.any(np.abs(turned - 1j * along) > bound):
                return
        raise NotDifferentiable(
            f"{self.who}: `{self.name}` maps {self.described} and is not holomorphic, so that no "
            "complex matrix holds its derivative. Differentiate it as a function of real and "
            "imaginary part."
        )

    def push(self, v: Any) -> AnyArray:
        """``J v``."""
        if aval_of(v).dtype.kind == "c" and not self.complex:
            y, z = self.push(v.real), self.push(v.imag)
            return y + 1j * z if self.dtype.kind == "c" else from_parts(y, z)
        return self._moved(v, self.ins, self.outs, self.run.push)

    def pull(self, ct: Any) -> AnyArray:
        """``J^T ct``, without conjugation."""
        if self.symmetric:
            return self.push(ct)
        if not self.complex and np.result_type(aval_of(ct).dtype, self.dtype).kind == "c":
            # cotangents of real arguments are real parts
            return from_parts(real(self._pull(ct)), real(self._pull(-1j * ct)))
        return self._pull(ct)

    def _pull(self, ct: Any) -> AnyArray:
        return self._moved(ct, self.outs, self.ins, self.run.pull)

    def adjoint(self, ct: Any) -> AnyArray:
        """``J^H ct``."""
        return np.conjugate(self.pull(np.conjugate(ct))) if self.dtype.kind == "c" else (
            self.pull(ct))

    def _moved(self, v: Any, avals: Sequence[Aval], images: Sequence[Aval],
               image: Callable) -> AnyArray:
        if v.ndim == 1:
            ys = image(Rows(v[None], avals).vector())
            return cast(np.concatenate([np.reshape(y, (-1,)) for y in ys]), self.dtype)
        rows, sizes = Rows(v.T, avals), [a.size for a in images]
        if rows.total == 0:
            return np.zeros((sum(sizes), 0), self.dtype)
        batches = Batches(self.who, self.f, "auto", False, "", {})
        ys = batches.run(rows, sum(sizes), self.run.inputs, image)
        flat = [np.reshape(y, (rows.total, n)) for y, n in zip(ys, sizes, strict=True)]
        return cast(np.concatenate(flat, axis=1), self.dtype).T


def _operator(products: Products) -> LinearOperator:
    return _of(products.name, products.shape, products.push, products.adjoint, products.dtype)


def _square(first: Products, inner: Callable, dtype: np.dtype) -> LinearOperator:
    """``J^T H J`` of a symmetric ``H``."""

    def product(v: Any) -> Any:
        return first.pull(inner(first.push(v)))

    n = first.shape[1]
    return _of(first.name, (n, n), product, product, dtype)


def _of(name: str, shape: tuple, product: Callable, adjoint: Callable,
        dtype: np.dtype) -> LinearOperator:
    from scipy.sparse.linalg import LinearOperator  # lazy: slow to import

    push, pull = [OfRun(_on_plain(p), name) for p in (product, adjoint)]
    return LinearOperator(  # type: ignore[call-issue]  # of functions, it makes a subclass
        shape, matvec=push, rmatvec=pull, matmat=push, rmatmat=pull, dtype=dtype  # type: ignore
    )


def _on_plain(product: Callable) -> Callable:
    """``product`` of what SciPy gives: a vector, as such or as one column, or several columns."""

    def plainly(v: Any) -> np.ndarray:
        v = np.asarray(v)
        if v.ndim == 2 and v.shape[1] == 1:
            return product(v[:, 0])[:, None]
        return product(v)

    plainly.__name__ = "product"
    return plainly


def ggnvp(loss: Callable, f: Callable, x: Any, v: Any) -> tuple:
    """The value of ``loss(f(x))`` and ``J^T H J v``, a product with the generalised
    Gauss-Newton matrix: the Hessian of the composition without the curvature of ``f``.

    ``J`` is the Jacobian of ``f`` at ``x`` and ``H`` the Hessian of the scalar
    ``loss`` at ``f(x)`` (N. Schraudolph, Neural Computation 14, 2002). ``f`` runs once. Arguments
    and result are as those of ``hvp``.

    >>> import functrans as ft, numpy as np
    >>> value, product = ft.ggnvp(
    ...     lambda r: 0.5 * np.sum(r**2), lambda x: x**2, np.array([1.0, 2.0]), np.array([1.0, 1.0])
    ... )
    >>> product
    Array([ 4., 16.])
    """
    f, loss = require_callable("ggnvp", f), require_callable("ggnvp", loss)
    args, vs = as_arguments("ggnvp", f, x, v)
    run = record("ggnvp", f, args, False)
    ts = run.push(active_tangents("ggnvp", f, run.opened, args, vs))
    y, t = [tree.unflatten(run.structure, leaves) for leaves in (run.values, ts)]
    (value, _), (_, (ct,)) = jvp(run_value_and_grad("ggnvp", loss, (0,)), (y,), (t,))
    cts = run.pull([np.conjugate(c) for c in tree.leaves(ct)])
    leaves = iter(hand_out_all([conjugate(c) for c in cts]))
    product = [a.only([next(leaves) for _ in a.active]) if a else None for a in run.opened]
    return value, tuple(product) if isinstance(x, tuple | list) else product[0]


# ---- Traces of derivative matrices from a few products with random vectors

ESTIMATOR = "hutchinson"


class TraceEstimate(NamedTuple):
    """A trace, estimated; ``standard_error`` is the standard deviation that the estimate is
    thought to have, from the spread of its samples."""

    estimate: Any
    standard_error: Any


def hutchinson(
    f: Callable[[Any], Any], x: Any, samples: int = 100, seed: int | np.random.Generator = 0, *,
    kind: str = "hessian", method: str = "hutchinson",
) -> TraceEstimate:
    """An estimate of the trace of the Hessian of ``f`` at ``x``, and its standard error.

    With ``kind="jacobian"`` of the trace of the Jacobian, the divergence of ``f``. ``samples``
    products with vectors of random signs are taken; ``seed`` is that of a generator, or one.

    ``method="hutchinson"``: the mean of ``v^T A v`` (M. F. Hutchinson, 1990). Its variance is
    twice the sum of the squares of the entries of ``(A + A^T) / 2`` off the diagonal, divided
    by ``samples``; where there are none, a single sample is exact.
    ``method="hutch++"``: a third of the products finds where ``A`` is large, a third gives the
    trace there exactly, and the others estimate what is left (R. A. Meyer, C. Musco, C. Musco and
    D. P. Woodruff, 2021). Better where a few eigenvalues dominate; the standard error is that of
    the last part.

    Of one sample there is no standard error, so it is NaN. Derivatives of the estimate are
    estimates of the derivatives. Under ``jit`` the vectors are drawn when it is compiled.

    >>> import functrans as ft, numpy as np
    >>> A = np.diag([1.0, 2.0, 3.0]) + 0.1
    >>> ft.hutchinson(lambda x: x @ A @ x / 2, np.ones(3), samples=1000)
    TraceEstimate(estimate=Array(6.29...), standard_error=Array(0.01...))
    >>> ft.hutchinson(lambda x: x @ A @ x / 2, np.ones(3), samples=9, method="hutch++").estimate
    Array(6.3)
    """
    function = require_callable(ESTIMATOR, f)
    require_choice(ESTIMATOR, "method", method, ("hutchinson", "hutch++"))
    count = require_count(ESTIMATOR, "samples", samples, 3 if method == "hutch++" else 1)
    require_choice(ESTIMATOR, "kind", kind, ("hessian", "jacobian"))
    products = (of_hessian if kind == "hessian" else Products)(ESTIMATOR, function, x)
    m, n = products.shape
    if products.complex:
        raise NotDifferentiable(
            f"{ESTIMATOR}: the argument of `{name_of(f)}` is complex. Pass real and imaginary part."
        )
    if m != n:
        raise NotDifferentiable(
            f"{ESTIMATOR}: a trace is of a square matrix, but `{name_of(f)}` returned "
            f"{describe(tree.unflatten(products.run.structure, products.run.values))} for "
            f"{describe(x)}"
        )
    rng = np.random.default_rng(seed)
    if method == "hutchinson":
        sums = _forms(products, _signs(rng, count, n))
        return _estimate(sums, 0.0)
    return _hutch_plus_plus(products, rng, min(count // 3, n), count)


def _hutch_plus_plus(
    products: Products, rng: np.random.Generator, rank: int, count: int
) -> TraceEstimate:
    n = products.shape[1]
    sketch = stop_gradient(products.push(_signs(rng, rank, n).T))
    # for any fixed basis the estimate is unbiased, so no derivative needs to pass through it
    basis = np.linalg.qr(sketch)[0]
    exact = _forms(products, np.conjugate(basis).T, basis.T).sum()
    rest = _signs(rng, count - 2 * rank, n)
    rest = rest - (rest @ np.conjugate(basis)) @ basis.T
    return _estimate(_forms(products, np.conjugate(rest), rest), exact)


def _signs(rng: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    """Random signs, of variance 1 and the least fourth moment."""
    return rng.integers(0, 2, (rows, columns), np.int8) * 2.0 - 1.0


def _forms(products: Products, rows: Any, right: Any = None) -> Any:
    """``u A v`` for each row ``u`` and the row ``v`` beside it, by default the same."""
    right = rows if right is None else right
    moved = products.push(right.T).T
    return (rows * moved).sum(axis=1)


def _estimate(forms: Any, known: Any) -> TraceEstimate:
    count = aval_of(forms).size
    mean = forms.mean()
    if count == 1:
        return TraceEstimate(hand_out(mean + known), hand_out(0 * abs(mean) + np.nan))
    spread = abs(forms - mean) ** 2
    error = np.sqrt(spread.sum() / (count * (count - 1)))
    return TraceEstimate(hand_out(mean + known), hand_out(error))
