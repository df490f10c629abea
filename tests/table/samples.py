"""Operands and parameters for every row of the table.

Elementwise rows are drawn by their domain, with broadcasting. Every other row is listed by name: a
function of a random generator to its operands, and parameters.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import pytest

import functrans as ft
import functrans.scipy.linalg
import functrans.scipy.ndimage
import functrans.scipy.signal
import functrans.scipy.special
from functrans._ops.declare import TABLE, Elementwise
from functrans._ops.sparse import Constant, Pattern, directly

# imported for the rows that they declare, whichever test comes first
assert ft.numpy and functrans.scipy.linalg and functrans.scipy.special
assert functrans.scipy.ndimage and functrans.scipy.signal

# of sparse matrices, the first with two entries in one place
PLACES = Pattern([0, 1, 2, 2, 0], [1, 0, 1, 1, 0], (3, 2))
SQUARE = Pattern([0, 1, 2, 2], [0, 1, 2, 0], (3, 3))
MATRIX = Constant.of(PLACES.matrix(np.array([0.4, -1.3, 0.0, 2.0, 0.7], np.float32)))


class Sample(NamedTuple):
    """``draw(rng)`` gives operands, of the same shapes each time.

    ``prepare`` is put before the row where it is to be differentiated: it keeps the first operand
    in the set on which the row is defined.
    """

    draw: Callable[[np.random.Generator], tuple]
    params: dict
    prepare: Callable | None = None

    def operands(self, seed: int = 0, dtype: Any = np.float64) -> tuple:
        """Read-only operands, floats cast to ``dtype``."""
        return tuple(frozen(x, dtype) for x in self.draw(np.random.default_rng(seed)))


def frozen(x: Any, dtype: Any = np.float64) -> np.ndarray:
    x = np.array(x)
    if x.dtype.kind == "f":
        x = x.astype(dtype)
    elif x.dtype.kind == "c":
        x = x.astype(np.result_type(dtype, np.complex64))
    x.setflags(write=False)
    return x


# ---- numbers of a domain


def normal(rng, shape):
    return rng.normal(size=shape)


def nonzero(rng, shape):
    return rng.choice([-1.0, 1.0], shape) * rng.uniform(0.5, 2, shape)


def positive(rng, shape):
    return rng.uniform(0.3, 2.5, shape)


def unit(rng, shape):
    return rng.uniform(-0.9, 0.9, shape)


def probability(rng, shape):
    return rng.uniform(0.1, 0.9, shape)


def integers(rng, shape):
    return rng.integers(0, 5, shape)


def counts(rng, shape):
    return rng.integers(1, 4, shape)


def flags(rng, shape):
    return rng.integers(0, 2, shape).astype(bool)


def complexes(rng, shape):
    return nonzero(rng, shape) + 1j * rng.normal(size=shape)


DOMAINS = {
    "any": normal,
    "real": normal,
    "positive": positive,
    "nonzero": nonzero,
    "unit": unit,
    "above one": lambda rng, shape: rng.uniform(1.2, 3, shape),
    "integer": integers,
    "boolean": flags,
    "complex": complexes,
    "probability": probability,
    "negative": lambda rng, shape: -positive(rng, shape),
}
# Operands that are not all of the row's domain.
OPERANDS: dict[str, tuple] = {
    "where": (flags, normal, normal),
    "ldexp": (normal, integers),
    "sinc_nth": (
        lambda rng, shape: 4 * normal(rng, shape),
        lambda rng, shape: rng.integers(0, 3, shape),
    ),
    "bessel_i": (normal, integers),
    "clip": (
        lambda rng, shape: 3 * normal(rng, shape),
        lambda rng, shape: -positive(rng, shape),
        positive,
    ),
    # the second operand is the value at 0
    "heaviside": (lambda rng, shape: rng.integers(-1, 2, shape), normal),
    "left_shift": (integers, integers),
    "moving_as": (lambda rng, shape: np.full(shape, 0.7),) * 2,
    "right_shift": (integers, integers),
    "strong_multiply": (nonzero, nonzero),
    "power": (positive, normal),
    "special.boxcox": (positive, normal),
    "special.boxcox1p": (positive, normal),
    "special.powm1": (positive, normal),
    "special.huber": (positive, nonzero),
    "special.zeta": (lambda rng, shape: rng.integers(2, 5, shape), positive),
    "special.hankel1": (integers, complexes),
    "special.hankel2": (integers, complexes),
    "special.pdtr": (integers, positive),
    "special.pdtrc": (integers, positive),
    "special.pdtri": (integers, probability),
    **{f"special.{n}": (integers, lambda rng, shape: counts(rng, shape) + 5, probability)
       for n in ("bdtr", "bdtrc", "nbdtr", "nbdtrc")},
    "special.ker": (lambda rng, shape: rng.uniform(0.2, 1.0, shape),),  # off its zero
    # up to 2.1 SciPy's Ai loses three digits to the difference of two series
    **{f"special.{n}": (lambda rng, shape: rng.uniform(2.2, 4.0, shape),) for n in ("aie", "aipe")},
    "special.binom": (lambda rng, shape: rng.uniform(3, 5, shape), positive),
    "special.inv_boxcox": (positive, positive),
    "special.counts": (integers, normal),
    "special.stdtr": (positive, normal),
    "special.log_density_of_t": (positive, normal),
    "special.stdtrit": (counts, probability),
    "special.skewnorm_ppf": (probability, normal),
    "special.vonmises_cdf": (normal, integers),
    "special.vonmises_ppf": (probability, integers),
    "special.gammaincinv": (positive, probability),
    "special.gammainccinv": (positive, probability),
    "special.log_density_of_beta": (probability, positive, positive),
    "special.betainc": (positive, positive, probability),
    "special.betaincc": (positive, positive, probability),
    "special.betaincinv": (positive, positive, probability),
    "special.betainccinv": (positive, positive, probability),
    **{f"special.{n}": (integers, positive) for n in (
        "jv", "yv", "yn", "iv", "kv", "kn", "jve", "yve", "ive", "kve", "struve",
        "modstruve", "expn",
    )},
    # of low order: others are beyond float16
    **{f"special.spherical_{n}": (lambda rng, shape: rng.integers(0, 3, shape), positive)
       for n in ("jn", "yn", "in", "kn")},
    **{f"special.eval_{n}": (integers, unit) for n in (
        "legendre", "chebyt", "chebyu", "chebyc", "chebys", "laguerre", "hermite", "hermitenorm",
    )},
    **{f"special.eval_sh_{n}": (integers, probability) for n in ("legendre", "chebyt", "chebyu")},
    "special.eval_jacobi": (integers, counts, counts, unit),
    "special.eval_sh_jacobi": (integers, lambda rng, shape: counts(rng, shape) + 3, counts,
                               probability),
    "special.eval_gegenbauer": (integers, counts, unit),
    "special.eval_genlaguerre": (integers, counts, unit),
    "special.hyp0f1": (counts, normal),
    "special.hyp1f1": (counts, counts, normal),
    "special.hyp2f1": (counts, counts, counts, unit),
    "special.hyperu": (counts, counts, positive),
    "special.lambertw": (positive, lambda rng, shape: np.zeros(shape, int)),
    "special.round": (normal,),
    "float_power": (positive, normal),
}
# Rows that take complex numbers and are differentiated for real ones alone: they are
# not holomorphic.
REAL_ONLY = {f"special.{name}" for name in (
    "ive", "jve", "kve", "yve", "elliprc", "elliprd", "elliprf", "elliprg", "elliprj", "aie",
    "aipe", "bie", "bipe",
)}
# Rows whose references take mpmath long.
SLOW = {f"special.{name}" for name in (
    "yv", "yve", "yn", "hyperu", "owens_t", "betaincinv", "betainccinv", "stdtrit",
)}
SCIPYS = {name for name in TABLE if name.startswith("special.")}
SHAPES: dict[int, list[tuple]] = {
    1: [((2, 3),), ((),)],
    2: [((2, 3), (2, 3)), ((2, 3), (3,)), ((2, 1), (1, 3)), ((), (3,))],
    3: [((2, 3), (2, 3), (2, 3)), ((3,), (2, 1), ()), ((2, 1), (), (1, 3))],
}


def elementwise_samples(row: Elementwise) -> list[Sample]:
    kinds = OPERANDS.get(row.name, (DOMAINS[row.domain],) * len(row.actions))

    def sample(kinds, shapes):
        return Sample(lambda rng: tuple(k(rng, s) for k, s in zip(kinds, shapes, strict=True)), {})

    # linear and bilinear rows on complex numbers as well: their slopes may be complex too
    shapes = SHAPES.get(len(kinds), [((2,),) * len(kinds)])
    # SciPy's functions are many and have the plumbing of one family: a shape that broadcasts does
    few = [((2,),) * len(kinds)] if row.name in SLOW else shapes[-1:]
    found = [sample(kinds, s) for s in (few if row.name in SCIPYS else shapes)]
    if row.domain == "any" and row.name != "where":
        found.append(sample((complexes,) * len(kinds), SHAPES[len(kinds)][0]))
    return found


# ---- rows listed by name


def floats(*shapes: tuple, draw: Callable = normal, **params: Any) -> Sample:
    """One float operand a shape."""
    return Sample(lambda rng: tuple(draw(rng, s) for s in shapes), params)


def spectrum(*shapes: tuple, **params: Any) -> Sample:
    """One complex operand a shape."""
    return floats(*shapes, draw=complexes, **params)


def operands(draw: Callable, **params: Any) -> Sample:
    return Sample(draw, params)


def indexed(
    *shapes: tuple,
    high: int,
    count: int = 1,
    size: tuple = (2,),
    distinct: bool = False,
    **params: Any,
) -> Sample:
    """Float operands, then ``count`` index arrays with entries below ``high``."""

    def draw(rng):
        if distinct:
            indices = [rng.permutation(high)[: size[0]] for _ in range(count)]
        else:
            indices = [rng.integers(-high, high, size) for _ in range(count)]
        return (*[rng.normal(size=s) for s in shapes], *indices)

    return Sample(draw, params)


def hermitian(x: Any) -> Any:
    return (x + np.conj(x).mT) / 2


def symmetric(shape: tuple, shift: float = 0.0, **params: Any) -> Sample:
    """A symmetric matrix, positive definite if shifted far enough."""

    def draw(rng):
        x = rng.normal(size=shape)
        return (hermitian(x) + shift * np.eye(shape[-1]) + np.diag(np.arange(shape[-1])),)

    return Sample(draw, params, hermitian)


def regular(*shapes: tuple, **params: Any) -> Sample:
    """A well-conditioned matrix, or stack of them, and other operands."""

    def draw(rng):
        a, *others = (rng.normal(size=s) for s in shapes)
        return (a / 2 + 2 * np.eye(a.shape[-1]), *others)

    return Sample(draw, params)


def tied(rng: np.random.Generator) -> tuple:
    """Slices with equal entries, and two entries of each."""
    x = rng.permuted([[0.0, 2, 2, 5], [1, 1, 1, 3]], axis=1)
    return x, np.array([[2.0, 5], [3, 1]])


def at_places(rng: np.random.Generator) -> tuple:
    """An array, and values that are combined with its entries."""
    return rng.normal(size=2), rng.normal(size=3)


TRIANGLE = {"lower": True, "transposed": False, "unit": False}
A = "array"
W = (None, None, None)
ROWS: dict[str, list[Sample]] = {
    # reductions
    "sum": [
        floats((2, 3), axis=(0,)),
        floats((2, 3), axis=(0, 1)),
        floats((), axis=()),
        floats((0, 3), axis=(0,)),
    ],
    "max": [floats((2, 3), axis=(1,)), floats((2, 3), axis=(0, 1))],
    "min": [floats((2, 3), axis=(1,)), floats((2, 3), axis=(0, 1))],
    "any": [operands(lambda rng: (flags(rng, (2, 3)),), axis=(1,))],
    "all": [operands(lambda rng: (flags(rng, (2, 3)),), axis=(1,))],
    "count_nonzero": [operands(lambda rng: (flags(rng, (2, 3)),), axis=(0,))],
    "argmax": [floats((2, 3), axis=1)],
    "argmin": [floats((2, 3), axis=0)],
    "equal_share": [
        operands(
            lambda rng: (rng.permuted([[0.0, 2, 2], [0, 1, 2]], axis=1), np.array([2.0, 2])),
            axis=(1,),
        )
    ],
    "running_share": [floats((2, 3), axis=1, largest=True), floats((2, 3), axis=0, largest=False)],
    "cumsum": [floats((2, 3), axis=1, reverse=False), floats((2, 3), axis=0, reverse=True)],
    "cumprod": [floats((2, 3), axis=1, reverse=False), floats((2, 3), axis=0, reverse=True)],
    "cummax": [floats((4,), axis=0), floats((2, 4), axis=1)],
    "cummin": [floats((4,), axis=0), floats((2, 4), axis=1)],
    "accumulate": [
        operands(lambda rng: (rng.uniform(0.5, 2, (2, 3)),), axis=i, by=name)
        for i, name in enumerate(("logaddexp", "hypot"))
    ],
    "fold_at": [operands(lambda rng: (*at_places(rng), np.array([1, 0, 1])), by="multiply")],
    "recur_at": [
        operands(lambda rng: (*at_places(rng), rng.normal(size=3), np.array([1, 0, 1])), reverse=r)
        for r in (False, True)
    ],
    "shift": [floats((2, 3), axis=1, by=1), floats((3,), axis=0, by=-1)],
    "recurrence": [
        floats((3,), (3,), axis=0, reverse=False),
        floats((2, 3), (2, 3), axis=1, reverse=True),
    ],
    "prod": [
        floats((2, 3), axis=1),
        floats((3,), axis=0),
        operands(lambda rng: (rng.normal(size=(2, 3)) * [[0, 1, 1], [0, 1, 0]],), axis=1),
    ],
    "softmax": [floats((2, 3), axis=(1,)), floats((2, 3), axis=(0, 1))],
    "logsumexp": [floats((2, 3), axis=(1,)), floats((2, 3), axis=(0, 1))],
    # structure
    "checked": [floats((2, 3)), floats(())],
    "reshape": [floats((2, 3), shape=(3, 2)), floats((2, 3), shape=(6,)), floats((), shape=(1, 1))],
    "transpose": [floats((2, 3, 1), axes=(1, 2, 0)), floats((2, 3), axes=(1, 0))],
    "broadcast_to": [
        floats((3,), shape=(2, 3)),
        floats((2, 1), shape=(2, 3)),
        floats((), shape=(2,)),
    ],
    "astype": [
        floats((3,), dtype=np.dtype(np.float32)),
        floats((3,), dtype=np.dtype(np.complex128)),
    ],
    "astype_discrete": [
        Sample(lambda rng: (rng.uniform(1, 9, 3),), {"dtype": np.dtype(np.int64)}),
    ],
    "concatenate": [floats((2, 3), (1, 3), axis=0), floats((2, 1), (2, 2), (2, 0), axis=1)],
    "stack": [floats((2, 3), (2, 3), axis=0), floats((2,), (2,), (2,), axis=1)],
    "windows": [
        floats((5,), axis=0, size=2, step=1, spread=1),
        floats((2, 7, 2), axis=1, size=3, step=2, spread=1),
        floats((2, 6), axis=1, size=2, step=1, spread=3),
    ],
    "overlap_add": [
        floats((4, 2), axis=0, length=5, step=1, spread=1),
        floats((2, 3, 2, 3), axis=1, length=8, step=2, spread=1),
        floats((3, 2), axis=0, length=6, step=1, spread=3),
    ],
    "diagonal": [floats((3, 3), offset=0), floats((2, 3, 4), offset=1), floats((3, 2), offset=-1)],
    "embed_diagonal": [
        floats((3,), offset=0, shape=(3, 3)),
        floats((2, 2), offset=-1, shape=(3, 2)),
    ],
    # contractions
    "matmul": [
        floats(a, b)
        for a, b in [
            ((2, 3), (3, 2)),
            ((3,), (3,)),
            ((3,), (3, 2)),
            ((2, 3), (3,)),
            ((2, 2, 3), (3, 2)),
            ((2, 3), (2, 3, 2)),
            ((2, 1, 2, 3), (2, 3, 1)),
            ((3,), (2, 3, 2)),
            ((2, 2, 3), (3,)),
            ((2, 0), (0, 3)),
            ((0, 2, 3), (3, 2)),
        ]
    ],
    "einsum": [
        floats((2, 3), (3, 2), subscripts="ij,jk->ki"),
        floats((2, 3), (2, 3), subscripts="ij,ij->i"),
        floats((2, 3), (2,), subscripts="ij,k->jki"),
        floats((2, 3), (3, 2), subscripts="ij,ji->"),
        floats((2, 2, 3), (2, 3), subscripts="abj,aj->ab"),
        floats((2, 3), (2, 2, 3), subscripts="aj,baj->baj"),
    ],
    "convolve": [
        floats((4,), (3,), mode="full"),
        floats((2,), (3,), mode="full"),
        floats((4,), (2,), mode="valid"),
        floats((2, 4), (2,), mode="valid"),
        floats((3,), (2, 3), mode="full"),
    ],
    "signal.convolve_nd": [
        floats((3, 4), (2, 2), ndim=2, mode="full", by_fft=False),
        floats((4, 4), (2, 3), ndim=2, mode="valid", by_fft=False),
        floats((2, 2), (3, 3), ndim=2, mode="full", by_fft=False),
        floats((2, 1, 4), (3, 2), ndim=1, mode="valid", by_fft=False),
    ],
    "signal.lfilter": [
        operands(lambda rng: (rng.normal(size=3), [1.5, -0.4, 0.2] + rng.normal(size=3) / 9,
                              rng.normal(size=(2, 5)))),
        operands(lambda rng: (rng.normal(size=2), np.array([1.5]), rng.normal(size=4))),
    ],
    "sparse.product": [
        floats((5,), (2,), places=PLACES), floats((5,), (2, 3), places=PLACES),
    ],
    "sparse.constant_product": [
        floats((2,), matrix=MATRIX), floats((2, 3), matrix=MATRIX), floats((3,), matrix=MATRIX.T),
    ],
    "sparse.sampled": [
        floats((3,), (2,), places=PLACES), floats((3, 2), (2, 2), places=PLACES),
    ],
    "sparse.solve": [
        operands(lambda rng: (np.array([3.0, 2, 4, 1]) + rng.normal(size=4) / 9,
                              rng.normal(size=(3, 2))), places=SQUARE, solver=directly),
    ],
    "toeplitz.solve": [
        operands(lambda rng: (np.eye(5)[2] * 4 + rng.normal(size=5), rng.normal(size=3))),
        operands(lambda rng: (np.eye(5)[2] * 4 + rng.normal(size=5), rng.normal(size=(3, 2)))),
    ],
    "ndimage.spline_filter": [
        floats((4, 2), axis=0, order=3, mode="mirror"),
        floats((2, 5), axis=1, order=2, mode="reflect"),
        floats((6,), axis=0, order=5, mode="grid-wrap"),
    ],
    "cross": [floats((3,), (3,)), floats((2, 3), (3,)), floats((2, 1, 3), (3, 3))],
    # Fourier transforms
    "fft": [
        spectrum((3,), axis=0, norm="backward", inverse=False),
        spectrum((2, 4), axis=0, norm="ortho", inverse=True),
        spectrum((2, 3, 1), axis=1, norm="forward", inverse=False),
        floats((2, 3), axis=1, norm="backward", inverse=True),
    ],
    "rfft": [
        floats((4,), axis=0, norm="backward"),
        floats((2, 5), axis=1, norm="ortho"),
        floats((3, 2), axis=0, norm="forward"),
        floats((1,), axis=0, norm="backward"),
    ],
    "fft.trigonometric": [
        floats((4,), kind=kind, type=k, axis=0, norm=norm, orthogonalize=orthogonal)
        for kind in ("dct", "dst") for k, norm, orthogonal in (
            (1, "backward", False), (2, "forward", False), (3, "backward", False),
            (4, "ortho", True), (2, "ortho", True), (1, "ortho", True))
    ] + [spectrum((2, 3, 1), kind="dct", type=3, axis=1, norm="ortho", orthogonalize=True)],
    "irfft": [
        spectrum((3,), n=4, axis=0, norm="backward"),
        spectrum((2, 3), n=5, axis=1, norm="forward"),
        spectrum((2, 2), n=2, axis=0, norm="ortho"),
        spectrum((1,), n=1, axis=0, norm="backward"),
        floats((3,), n=4, axis=0, norm="backward"),
    ],
    # polynomials
    "roots": [
        operands(lambda rng: (np.poly([2, -1, 0.5] + rng.normal(size=3) / 9),), lead=0),
        operands(lambda rng: (np.poly([2, 1j, -1j]).real * rng.uniform(1, 2),), lead=0),
        operands(lambda rng: (rng.normal(size=2),), lead=0),
    ],
    # linear algebra
    "solve": [
        regular(a, b)
        for a, b in [
            ((2, 2), (2,)),
            ((3, 3), (3, 2)),
            ((2, 3, 3), (3, 1)),
            ((2, 2), (2, 2, 1)),
        ]
    ],
    "inv": [regular((2, 2)), regular((2, 3, 3))],
    "lu": [regular((3, 3)), floats((2, 4, 2)), floats((2, 3))],
    **{f"linalg.{n}": [regular((3, 3)), regular((2, 2, 2))] for n in ("expm", "sqrtm")},
    "linalg.logm": [regular((2, 2))],  # slow in SciPy, as are powers
    "linalg.fractional_matrix_power": [regular((2, 2), t=0.3)],
    "linalg.sylvester": [
        regular((3, 3), (3, 3), (3, 3)), regular((2, 2, 2), (2, 3, 3), (2, 2, 3)),
    ],
    "triangular_solve": [
        regular((3, 3), (3,), **TRIANGLE),
        regular((3, 3), (3, 2), lower=False, transposed=True, unit=False),
        regular((2, 2, 2), (2, 1), lower=True, transposed=True, unit=True),
    ],
    "det": [regular((2, 2)), regular((2, 3, 3)), regular((1, 1))],
    "cofactor": [regular((3, 3)), regular((2, 3, 3))],
    "cofactor_slope": [regular((3, 3), (3, 3)), regular((2, 3, 3), (2, 3, 3))],
    "slogdet": [regular((2, 2)), regular((2, 3, 3))],
    "cholesky": [symmetric((2, 2), 4), symmetric((2, 3, 3), 4)],
    "eigh": [
        symmetric((2, 2), lower=True),
        symmetric((3, 3), lower=False),
        symmetric((2, 2, 2), lower=True),
    ],
    # where a flag is set there is no derivative: test_coinciding
    "vectors_if": [
        Sample(lambda rng: (rng.normal(size=(2, 2)), np.zeros((2, 2), bool)), {}),
        Sample(lambda rng: (rng.normal(size=(2, 3, 3)), np.zeros((2, 3, 3), bool)), {}),
    ],
    "svd": [
        floats((3, 3), kind="thin"),
        floats((3, 2), kind="full"),
        floats((2, 2, 3), kind="values"),
    ],
    "qr": [
        floats((3, 3), complete=False),
        floats((4, 2), complete=False),
        floats((2, 3, 2), complete=True),
    ],
    "pinv": [floats((3, 3), rcond=1e-15), floats((2, 4, 2), rcond=1e-15)],
    "eig": [floats((2, 2)), regular((2, 3, 3))],
    "norm2": [floats((3,), axis=(0,)), floats((2, 3), axis=(1,)), floats((2, 3), axis=(0, 1))],
    # indexing
    "getitem": [
        floats((2, 3), pattern=(0,)),
        floats((4, 3), pattern=((0, 4, 2), None, 1)),
        indexed((4, 3), high=4, pattern=(A,)),
        indexed((2, 3), high=2, count=2, pattern=(A, A)),
        indexed((3, 2, 3), high=3, count=2, pattern=(A, W, A)),
        indexed((2, 3), high=3, pattern=(Ellipsis, A)),
    ],
    "put_add": [
        floats((3,), pattern=(0,), shape=(2, 3)),
        indexed((2, 3), high=4, pattern=(A,), shape=(4, 3)),
        indexed((2, 2), high=3, count=2, pattern=(A, W, A), shape=(3, 2, 3)),
    ],
    "scatter_set": [
        floats((2, 3), (3,), pattern=(0,)),
        indexed((4, 3), (2, 3), high=4, distinct=True, pattern=(A,)),
        indexed((2,), (4,), high=2, size=(4,), pattern=(A,)),
    ],
    "scatter_add": [
        floats((2, 3), (3,), pattern=(0,)),
        indexed((4, 3), (3, 3), high=4, size=(3,), pattern=(A,)),
    ],
    "item": [floats(())],
    "argpartition": [floats((2, 4), kth=(1,), axis=1), floats((4, 2), kth=(0, 2), axis=0)],
    "lexsort": [floats((2, 4), axis=1), floats((3, 2), (3, 2), axis=0)],
    "ranked": [
        operands(lambda rng: (rng.normal(size=(2, 4)), np.array([1, 3, 1])), skip_nan=False),
        operands(
            lambda rng: (rng.normal(size=(2, 4)), rng.integers(0, 4, (2, 2))), skip_nan=True
        ),
        operands(lambda rng: (rng.normal(size=3), np.array([0])), skip_nan=False),
    ],
    "tied_mean": [operands(lambda rng: (rng.normal(size=(2, 4)), *tied(rng)))],
    "tied_spread": [operands(lambda rng: (rng.normal(size=(2, 2)), *tied(rng)))],
    "argsort": [floats((2, 4), axis=1, stable=False), floats((4, 2), axis=0, stable=True)],
    "searchsorted": [
        operands(lambda rng: (np.sort(rng.normal(size=4)), rng.normal(size=(2, 3))), side="left"),
    ],
    "last_write": [indexed(high=3, size=(4,), pattern=(A,), shape=(3,))],
}


# Of a type of its own, and weak: tests of results in arrays do not fit it (``test_result_types``).
APART = {"item"}


def samples(name: str) -> list[Sample]:
    row = TABLE[name]
    if name not in ROWS and isinstance(row, Elementwise):
        return elementwise_samples(row)
    return ROWS[name]


def cases(only: Callable = lambda row: True) -> list[tuple[str, int]]:
    """(row name, number of the sample) for every row in the table that has samples."""
    return [
        (name, i)
        for name, row in TABLE.items()
        if only(row) and has_samples(name) and name not in APART
        for i in range(len(samples(name)))
    ]


def has_samples(name: str) -> bool:
    return name in ROWS or isinstance(TABLE[name], Elementwise)


def case_id(case: Any) -> str:
    return "-".join(map(str, case)) if isinstance(case, tuple) else str(case)


@contextmanager
def named(case: Any) -> Iterator[None]:
    """What is raised says in which case."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the case {case_id(case)}")
        raise


def by_row(cases: Sequence[tuple]) -> Callable:
    """A test of one case becomes one of all the cases of a row, since pytest's own work for each
    test is more than what most of them do."""
    rows: dict[str, list] = {}
    for case in cases:
        rows.setdefault(case[0], []).append(case)

    def decorate(test: Callable) -> Callable:
        @pytest.mark.parametrize("cases", rows.values(), ids=rows)
        def of_a_row(cases):
            for case in cases:
                with named(case):
                    test(case)

        of_a_row.__name__, of_a_row.__doc__ = test.__name__, test.__doc__
        return of_a_row

    return decorate
