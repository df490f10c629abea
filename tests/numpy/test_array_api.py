"""The Python array API standard, 2024.12: every function, called with every option it names.

Each line is an expression of the namespace ``xp`` and of arrays in it. On Arrays it must give what
NumPy gives on ndarrays, as Arrays; with a traced ``x`` also, and a derivative that differences
confirm.
"""

from typing import Any

import numpy as np
import pytest

import functrans as ft
from functrans.testing import check_grads
from tests.drawing import generator

fnp: Any = ft.numpy  # its names are published from a table

# x, y, s, v and z are floating, c is complex, i and j are integers, b and d booleans; s is
# symmetric and positive definite, z holds repeated entries
CONSTANTS = ["e", "inf", "nan", "newaxis", "pi"]

DTYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float32", "float64", "complex64", "complex128",
]

CREATION = """
arange(1, 7, 2, dtype=xp.float32, device="cpu")
asarray([1, 2], dtype=xp.float64, device="cpu", copy=True)
empty((0, 2), dtype=xp.float32, device="cpu")
eye(2, 3, k=1, dtype=xp.float32, device="cpu")
from_dlpack(plain, device="cpu", copy=True)
full((2,), 3.0, dtype=xp.float32, device="cpu")
linspace(0.0, 1.0, 5, dtype=xp.float32, device="cpu", endpoint=False)
ones((2, 3), dtype=xp.int64, device="cpu")
zeros((2, 3), dtype=xp.complex64, device="cpu")
ones_like(x, dtype=xp.float32, device="cpu")
zeros_like(x, dtype=xp.float32, device="cpu")
full_like(x, 2.0, dtype=xp.float32, device="cpu")
""".strip().splitlines()

# of values that have no derivative, or none through this function
CONSTANT = """
bitwise_and(i, j)
bitwise_invert(i)
bitwise_left_shift(i, j)
bitwise_or(i, j)
bitwise_right_shift(i, j)
bitwise_xor(i, j)
ceil(x)
equal(x, y)
floor(x)
floor_divide(x, y)
greater(x, y)
greater_equal(x, y)
isfinite(x)
isinf(x)
isnan(x)
less(x, y)
less_equal(x, y)
logical_and(b, d)
logical_not(b)
logical_or(b, d)
logical_xor(b, d)
not_equal(x, y)
round(x)
sign(x)
signbit(x)
trunc(x)
argmax(x, axis=1, keepdims=True)
argmin(x, axis=1, keepdims=True)
count_nonzero(x, axis=0, keepdims=True)
nonzero(x)
searchsorted(v, x, side="right", sorter=xp.argsort(v))
argsort(x, axis=0, descending=False, stable=True)
argsort(z, stable=True)
unique_all(z)
unique_counts(z)
unique_inverse(z)
all(x, axis=0, keepdims=True)
any(x, axis=0, keepdims=True)
linalg.matrix_rank(x, rtol=1e-3)
""".strip().splitlines()

SMOOTH = """
astype(x, xp.float64, copy=True)
abs(x)
acos(x)
acosh(1 + x)
add(x, y)
asin(x)
asinh(x)
atan(x)
atan2(x, y)
atanh(x)
clip(x, 0.2, 0.8)
clip(x, min=0.2)
clip(x, max=0.8)
conj(x)
copysign(x, y)
cos(x)
cosh(x)
divide(x, y)
exp(x)
expm1(x)
hypot(x, y)
imag(x * (1 + 2j))
log(x)
log1p(x)
log2(x)
log10(x)
logaddexp(x, y)
maximum(x, y)
minimum(x, y)
multiply(x, y)
negative(x)
nextafter(x, y)
positive(x)
pow(x, y)
real(x * (1 + 2j))
reciprocal(x)
remainder(x, y)
sin(x)
sinh(x)
sqrt(x)
square(x)
subtract(x, y)
tan(x)
tanh(x)
take(x, i, axis=1)
take_along_axis(x, xp.argsort(x, axis=1), axis=1)
matmul(x, y.T)
matrix_transpose(x)
tensordot(x, y, axes=((0, 1), (0, 1)))
tensordot(x, y.T, axes=1)
vecdot(x, y, axis=0)
broadcast_arrays(x, v)
broadcast_to(x, (2, 2, 3))
concat((x, y), axis=0)
concat((x, y), axis=None)
expand_dims(x, axis=1)
flip(x, axis=1)
flip(x)
meshgrid(v, v, indexing="ij")
moveaxis(x, 0, 1)
permute_dims(x, (1, 0))
repeat(x, 2, axis=1)
repeat(x, i, axis=1)
reshape(x, (3, 2), copy=None)
roll(x, 1, axis=1)
roll(x, (1, 1), axis=(0, 1))
squeeze(x[None], axis=0)
stack((x, y), axis=1)
tile(x, (2, 1))
tril(x, k=-1)
triu(x, k=1)
unstack(x, axis=1)
where(x > 0.5, x, y)
unique_values(x)
sort(x, axis=0, descending=False, stable=True)
cumulative_prod(x, axis=1, dtype=xp.float64, include_initial=True)
cumulative_sum(x, axis=1, dtype=xp.float64, include_initial=True)
max(x, axis=1, keepdims=True)
mean(x, axis=1, keepdims=True)
min(x, axis=1, keepdims=True)
prod(x, axis=1, dtype=xp.float64, keepdims=True)
std(x, axis=1, correction=1.0, keepdims=True)
sum(x, axis=1, dtype=xp.float64, keepdims=True)
var(x, axis=1, correction=1.0, keepdims=True)
diff(x, axis=1, n=1, prepend=x, append=y)
linspace(x, y, 4)
linalg.cholesky(s, upper=True)
linalg.cross(x, y, axis=-1)
linalg.det(s)
linalg.diagonal(x, offset=1)
linalg.eigvalsh(s)
linalg.inv(s)
linalg.matmul(x, s)
linalg.matrix_norm(x, keepdims=True, ord="nuc")
linalg.matrix_power(s, 3)
linalg.matrix_transpose(x)
linalg.outer(v, v)
linalg.pinv(x, rtol=1e-3)
linalg.qr(s, mode="complete")
linalg.slogdet(s)
linalg.solve(s, v)
linalg.svdvals(x)
linalg.tensordot(x, y, axes=((0, 1), (0, 1)))
linalg.trace(s, offset=1, dtype=xp.float64)
linalg.vecdot(x, y, axis=0)
linalg.vector_norm(x, axis=1, keepdims=True, ord=3)
abs(linalg.eigh(s)[1])
abs(linalg.svd(x, full_matrices=False)[0])
""".strip().splitlines()

# of the standard, named nowhere above: the rest of what its elementwise functions promise
COMPLEX = """
abs(c)
conj(c)
exp(c)
imag(c)
multiply(c, c)
real(c)
sign(c)
sqrt(c)
sum(c)
""".strip().splitlines()

RNG = generator(3)
X, Y = RNG.uniform(0.1, 0.9, (2, 3)), RNG.uniform(0.1, 0.9, (2, 3))
VALUES = {
    "x": X,
    "y": Y,
    "s": np.array([[2.0, 0.3, 0.1], [0.3, 3.0, 0.2], [0.1, 0.2, 4.0]]),
    "v": np.array([0.2, 0.4, 0.7]),
    "z": np.array([0.5, 0.2, 0.5, 0.9, 0.2]),
    "c": X + 1j * Y,
    "i": np.array([2, 0, 1]),
    "j": np.array([1, 2, 3]),
    "b": np.array([True, False]),
    "d": np.array([True, True]),
    "plain": np.array([1.0, 2.0]),
}


class Names(dict):
    """The variables of an expression; what is none of them is the namespace's."""

    def __missing__(self, name):
        return getattr(self["xp"], name)


def value(xp, line, **values):
    return eval(line, {"__builtins__": {}}, Names(VALUES | values | {"xp": xp}))


def arrays():
    return {k: x if k == "plain" else ft.array(x) for k, x in VALUES.items()}


def parts(out):
    return list(out) if isinstance(out, tuple | list) else [out]


@pytest.mark.parametrize("line", CREATION + CONSTANT + SMOOTH + COMPLEX)
def test_a_call_of_the_standard_gives_numpys_value_as_arrays(line):
    found = parts(value(fnp, line, **arrays()))
    expected = parts(value(np, line.replace("descending=False, ", "")))
    assert len(found) == len(expected)
    for x, y in zip(found, expected, strict=True):
        assert type(x) is ft.Array
        assert x.dtype == y.dtype
        np.testing.assert_array_equal(x, y)


def operand(line):
    """The variable that an expression is differentiated by."""
    arguments = line[line.rindex("(", 0, line.index(",") if "," in line else None) :]
    return next(n for n in "svzx" if f"({n}" in line or f", {n}" in line or f"+ {n}" in arguments)


@pytest.mark.parametrize("line", SMOOTH)
def test_a_smooth_function_of_the_standard_is_differentiated(line):
    name = operand(line)

    def f(x):
        if name == "s":
            x = (x + x.T) / 2
        return [p for p in parts(value(fnp, line, **{name: x})) if p.dtype.kind == "f"]

    check_grads(f, (VALUES[name],), order=1)


@pytest.mark.parametrize("line", CONSTANT)
def test_what_has_no_derivative_is_constant_on_traced_values(line):
    def f(given):
        out = parts(value(fnp, line, **given))
        if line.startswith("unique"):
            out = out[1:]  # the values are no constants
        return sum(np.sum(p.astype(float)) for p in out) + 0 * given["x"].sum()

    given = {n: VALUES[n] for n in "xvz"}
    for g in ft.grad(f)(given).values():
        np.testing.assert_array_equal(g, np.zeros(g.shape))


@pytest.mark.parametrize("name", CONSTANTS + DTYPES)
def test_constants_and_dtypes_are_numpys(name):
    ours, theirs = getattr(fnp, name), getattr(np, name)
    assert ours is theirs or ours == theirs


@pytest.mark.parametrize("x", [ft.array([1.0]), np.array([1.0], np.float32)])
def test_dtype_functions_take_dtypes_and_arrays(x):
    assert fnp.finfo(x).eps == np.finfo(x.dtype).eps
    assert fnp.finfo(x.dtype).max == np.finfo(x.dtype).max
    assert fnp.iinfo(fnp.asarray([1], dtype="int8")).max == 127
    assert fnp.iinfo("int16").min == -(2**15)
    assert fnp.can_cast(x, "complex128")
    assert fnp.isdtype(x.dtype, "real floating")
    assert not fnp.isdtype(x.dtype, ("integral", "bool"))
    assert fnp.result_type(x, np.float64) == np.float64


def test_dtype_functions_take_traced_values():
    def f(x):
        assert fnp.finfo(x).eps == np.finfo(np.float32).eps
        assert fnp.can_cast(x, "float64")
        assert not fnp.can_cast(x, "float16")
        assert fnp.result_type(x, np.float64) == np.float64
        return x.sum()

    ft.grad(f)(np.ones(2, np.float32))


def test_the_namespace_describes_itself():
    info = fnp.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"]
    assert info.default_device() == "cpu"
    assert [*info.devices()] == ["cpu"]  # a list, and from NumPy 2.5 on a tuple
    assert info.default_dtypes()["real floating"] == np.float64
    assert set(info.dtypes()) == set(DTYPES)
    assert fnp.__array_api_version__ == "2024.12"


@pytest.mark.parametrize("version", [None, "2021.12", "2022.12", "2023.12", "2024.12"])
def test_arrays_and_traced_values_name_the_namespace(version):
    assert ft.array([1.0]).__array_namespace__(api_version=version) is fnp

    def f(x):
        assert x.__array_namespace__(api_version=version) is fnp
        return x.__array_namespace__().sum(x)

    assert ft.grad(f)(np.ones(2)).tolist() == [1, 1]


@pytest.mark.parametrize("make", [ft.array, lambda x: x])
def test_an_unknown_version_is_refused(make):
    def f(x):
        return x.__array_namespace__(api_version="2019.12")

    with pytest.raises(ValueError, match=r"2024.12, not version '2019.12'"):
        f(ft.array([1.0]))
    with pytest.raises(ValueError, match=r"2024.12, not version '2019.12'"):
        ft.grad(f)(np.ones(1))


def test_a_function_written_for_the_standard_is_differentiated():
    def loss(x):
        xp = x.__array_namespace__()
        return xp.linalg.vector_norm(xp.concat((x, xp.zeros_like(x)))) + xp.mean(xp.exp(x))

    check_grads(loss, (np.array([0.3, 0.4]),), order=2)


def test_devices_are_the_processor():
    def f(x):
        assert x.device == "cpu"
        assert x.__dlpack_device__()[0] == 1
        with pytest.raises(ValueError, match=r"device 'cpu'.*got 'gpu'"):
            x.to_device("gpu")
        with pytest.raises(ValueError, match=r"without streams"):
            x.to_device("cpu", stream=1)
        with pytest.raises(ft.errors.ConcretizationError, match=r"ft.external"):
            np.from_dlpack(x)
        return x.to_device("cpu").sum()

    assert ft.grad(f)(np.ones(2)).tolist() == [1, 1]
    assert ft.array([1.0]).device == "cpu"


# ---- what NumPy's functions of the same name do not have

Z = VALUES["z"]


def test_argsort_descending_keeps_equal_entries_in_order():
    found = fnp.argsort(ft.array(Z), descending=True, stable=True)
    assert found.tolist() == [3, 0, 2, 1, 4]
    rows = fnp.argsort(ft.array(np.stack([Z, -Z])), axis=0, descending=True)
    assert rows.tolist() == [[0] * 5, [1] * 5]
    assert fnp.argsort(ft.array(X), axis=None, descending=True).tolist() == (
        np.argsort(-X, axis=None).tolist()
    )


def test_sort_descending_carries_derivatives_to_their_places():
    w = np.array([1.0, 10, 100, 1000, 10000])

    def f(x):
        return fnp.sum(w * fnp.sort(x, descending=True, stable=True))

    assert ft.grad(f)(Z).tolist() == [10, 1000, 100, 1, 10000]
    assert ft.vmap(ft.grad(f))(Z[None]).tolist() == [[10, 1000, 100, 1, 10000]]
    np.testing.assert_array_equal(fnp.sort(X, axis=None, descending=True), np.sort(X, None)[::-1])


def test_unique_functions_hold_each_nan_an_entry():
    x = np.array([np.nan, 1.0, np.nan, 1.0])
    assert fnp.unique_counts(x).counts.tolist() == [2, 1, 1]

    def f(x):
        values, indices, inverse, counts = fnp.unique_all(x)
        assert (indices.tolist(), inverse.tolist()) == ([1, 0, 2], [1, 0, 2, 0])
        assert counts.tolist() == [2, 1, 1]
        assert fnp.unique_inverse(x).inverse_indices.tolist() == [1, 0, 2, 0]
        return fnp.unique_counts(x).values[0] + 2 * fnp.unique_values(x)[0] + values[0]

    assert ft.grad(f)(x).tolist() == [0, 4, 0, 0]


def test_several_results_are_arrays_under_their_names():
    values, vectors = out = fnp.linalg.eigh(VALUES["s"])
    assert out.eigenvalues is values
    assert type(values) is type(vectors) is ft.Array


NAMES = (
    "abs acos acosh add all any arange argmax argmin argsort asarray asin asinh astype atan "
    "atan2 atanh bitwise_and bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift "
    "bitwise_xor broadcast_arrays broadcast_to ceil clip concat conj copysign cos cosh "
    "count_nonzero cumulative_prod cumulative_sum diff divide empty equal exp expand_dims "
    "expm1 eye flip floor floor_divide from_dlpack full full_like greater greater_equal hypot "
    "imag isfinite isinf isnan less less_equal linspace log log10 log1p log2 logaddexp "
    "logical_and logical_not logical_or logical_xor matmul matrix_transpose max maximum mean "
    "meshgrid min minimum moveaxis multiply negative nextafter nonzero not_equal ones "
    "ones_like permute_dims positive pow prod real reciprocal remainder repeat reshape roll "
    "round searchsorted sign signbit sin sinh sort sqrt square squeeze stack std subtract sum "
    "take take_along_axis tan tanh tensordot tile tril triu trunc unique_all unique_counts "
    "unique_inverse unique_values unstack var vecdot where zeros zeros_like"
)
LINALG = (
    "cholesky cross det diagonal eigh eigvalsh inv matmul matrix_norm matrix_power matrix_rank "
    "matrix_transpose outer pinv qr slogdet solve svd svdvals tensordot trace vecdot "
    "vector_norm"
)


def test_every_name_of_the_standard_is_tried():
    names, linalg = NAMES.split(), LINALG.split()
    lines = " ".join(CREATION + CONSTANT + SMOOTH + COMPLEX)
    assert [n for n in names if f"{n}(" not in lines] == []
    assert [n for n in linalg if f"linalg.{n}(" not in lines] == []
    assert [n for n in [*names, "empty_like", "can_cast", "isdtype"] if n not in fnp.__all__] == []
    assert [n for n in linalg if n not in fnp.linalg.__all__] == []


def test_the_checker_takes_functions_that_cast_to_a_real_type():
    """Its complex step must neither warn nor believe what such a cast leaves of it."""
    check_grads(lambda x: np.sin(x.astype(float)), (X,), order=2)
