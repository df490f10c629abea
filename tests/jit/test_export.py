"""Functions without their Python: ``ft.export``, files and libraries for C."""

import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
import functrans.scipy.linalg as fsl
import functrans.scipy.special as special
from functrans._export import exported
from functrans.errors import ArgumentError, UnsupportedError

CC = shutil.which("cc")
needs_cc = pytest.mark.skipif(CC is None, reason="there is no C compiler `cc`")
X = np.array([0.5, -1.0, 2.0])


def loss(p):
    return np.sum(np.sin(p["a"]) * p["b"][0]) + p["b"][1] ** 2


P = {"a": X, "b": [2.0, 3.0]}


def same(y, expected):
    assert repr(ft.tree.flatten(y)[1]) == repr(ft.tree.flatten(expected)[1])
    for a, b in zip(ft.tree.flatten(y)[0], ft.tree.flatten(expected)[0], strict=True):
        assert_allclose(a, b, rtol=1e-15)


@pytest.mark.parametrize(
    ("f", "args"),
    [
        (lambda x: x**3, (X,)),
        (ft.value_and_grad(loss), (P,)),
        (ft.jit(ft.hessian(lambda x: np.sum(x**2 * x[0]))), (X,)),
        (ft.vmap(lambda x, y: (x * y, None)), (X, X)),
        (lambda x, n: x * n, (X.astype(np.float32), np.int32(3))),
        (lambda z: np.conj(z) * 2j, (X + 1j,)),
        (lambda x: (x, 1.5, np.arange(3)), (X,)),
        (lambda x: np.linalg.cholesky(x), (np.diag([1.0, 4.0]),)),
        (lambda x: np.zeros(0), (X,)),
    ],
)
def test_an_exported_function_computes_what_the_function_does(f, args, tmp_path):
    expected = f(*args)
    g = ft.export(f, *args)
    same(g(*args), expected)
    g.save(tmp_path / "f")
    same(ft.load(tmp_path / "f")(*args), expected)
    same(pickle.loads(pickle.dumps(g))(*args), expected)


def test_results_are_arrays_that_nobody_can_change():
    y = ft.export(lambda x: x * 2, X)(X)
    assert isinstance(y, ft.Array)
    assert not y.flags.writeable


def test_what_the_function_reads_is_part_of_it():
    weights = np.ones(3)
    g = ft.export(lambda x: weights @ x, X)
    weights[:] = 0.0
    assert g(X) == 1.5


def test_a_file_needs_nothing_of_the_users(tmp_path):
    path = tmp_path / "f"
    ft.export(ft.grad(loss), P).save(path)
    script = (
        "import sys, numpy as np, functrans as ft\n"
        "g = ft.load(sys.argv[1])\n"
        "y = g({'b': [2.0, 3.0], 'a': np.zeros(3)})\n"
        "print(y['a'].tolist(), [float(b) for b in y['b']])\n"
    )
    root = Path(ft.__file__).parent.parent
    done = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(root)}, cwd=tmp_path,
    )
    assert done.stdout == "[2.0, 2.0, 2.0] [0.0, 6.0]\n", done.stderr


def test_other_arguments_are_refused():
    g = ft.export(loss, P)
    with pytest.raises(ArgumentError, match=r"loss\(.*exported> takes arguments that nest as"):
        g(X)
    with pytest.raises(ValueError, match=r"has shape \(2,\), but the program was made for \(3,\)"):
        g({"a": np.ones(2), "b": [1.0, 2.0]})
    with pytest.raises(TypeError, match="is float32, but the program was made for float64"):
        g({"a": np.ones(3, np.float32), "b": [1.0, 2.0]})
    with pytest.raises(ArgumentError, match="takes numbers and arrays, but got str"):
        g({"a": "text", "b": [1.0, 2.0]})


@pytest.mark.parametrize(("example", "given", "found"), [
    (2, 2.5, "float"), (2, np.nan, "float"), (2, 1j, "complex"), (2.0, 1j, "complex"),
    (np.True_, 2, "int"), (np.True_, 0.5, "float"), (np.int8(2), 2.5, "float"),
    (2, np.float64(2), "float64"),
    (np.int32(2), np.int64(2), "int64"), (2.0, np.longdouble(2), str(np.dtype(np.longdouble))),
])
def test_a_number_that_the_program_would_cut_off_is_refused(example, given, found, tmp_path):
    g = ft.export(lambda x, n: x * n, X, example)
    g.save(tmp_path / "f")
    for h in (g, ft.load(tmp_path / "f")):
        for _ in range(2):  # the second call takes a shorter way
            with pytest.raises(ArgumentError, match=rf"value 1 of .* is {found}, but the program"):
                h(X, given)
            h(X, example)


@pytest.mark.parametrize(("example", "given"), [
    (2.0, 2), (1j, 2), (1j, 2.5), (np.float32(2), 2.5), (np.int8(2), 3),
    (2.0, np.float64(2.5)), (2.0, np.array(2.5, ">f8")),
])
def test_a_number_of_which_nothing_is_cut_off_is_taken(example, given):
    g = ft.export(lambda x, n: x * n, X, example)
    for _ in range(2):
        np.testing.assert_allclose(g(X, given), X * given)


def test_what_cannot_be_exported_is_refused(tmp_path):
    with pytest.raises(ArgumentError, match="export needs a function"):
        ft.export(3.0, X)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="compiled for arguments like the examples"):
        ft.export(loss)
    with pytest.raises(UnsupportedError, match="closes over a value that a transform traces"):
        ft.grad(lambda x: ft.export(lambda y: x * y, 1.0)(2.0))(1.0)
    with pytest.raises(UnsupportedError, match="decides by values, in Python"):
        ft.export(lambda x: x if x > 0 else -x, 1.0)
    with pytest.raises(UnsupportedError, match=r"has a step that NumPy runs \(`\w+` at .*:\d+\)"):
        ft.export(np.sort, X)
    with pytest.raises(UnsupportedError, match="computes with Python's integers"):
        ft.export(lambda n: n * 3, 2)
    with pytest.raises(ArgumentError, match="takes numbers and arrays, but got"):
        ft.export(lambda x, how: x, X, "fast")


def test_a_key_that_would_be_another_in_a_file_is_not_written(tmp_path):
    g = ft.export(lambda p: p["two  spaces"] * 2, {"two  spaces": X})
    with pytest.raises(UnsupportedError, match="cannot be written to a file, which knows"):
        g.save(tmp_path / "f")


class Pair:
    def __init__(self, x):
        self.x = x


def test_a_class_is_not_written_to_a_file(tmp_path):
    ft.tree.register(Pair, lambda p: ((p.x,), None), lambda _, xs: Pair(*xs))
    try:
        g = ft.export(lambda p: p.x * 2, Pair(X))
        assert_array_equal(g(Pair(X)), 2 * X)
        with pytest.raises(UnsupportedError, match="cannot be written to a file, which knows"):
            g.save(tmp_path / "f")
    finally:
        ft.tree._registry.pop(Pair)


def test_files_that_are_not_as_they_were_written_are_refused(tmp_path, monkeypatch):
    path = tmp_path / "f"
    ft.export(loss, P).save(path)
    data = path.read_bytes()
    with pytest.raises(ArgumentError, match=r"load: .*nowhere' cannot be read: No such file"):
        ft.load(tmp_path / "nowhere")
    for wrong in (data[:-1], data.replace(b"export 2", b"export 9"), b"", data + b" "):
        path.write_bytes(wrong)
        with pytest.raises(ArgumentError, match="is not a file that this version of functrans"):
            ft.load(path)
    path.write_bytes(data)
    if hasattr(os, "getuid"):
        path.chmod(0o666)
        with pytest.raises(ArgumentError, match="or others may write to it"):
            ft.load(path)
        path.chmod(0o600)
    text = pickle.dumps(ft.load(path)).replace(b"functrans export 2", b"functrans export 9")
    with pytest.raises(ArgumentError, match="pickled by another version"):
        pickle.loads(text)
    monkeypatch.setattr(exported, "_machine", lambda: [("processor", "abacus")])
    with pytest.raises(ArgumentError, match=r"for the processor .*, but this is abacus"):
        ft.load(path)


# ---- C

PROGRAM = """\
#include "g.h"
#include <stdio.h>
int main(void) {
  double x[3] = {0.5, -1.0, 2.0}, scale = 2.0, value, slopes[3];
  int wrong = g(x, 2, &scale, 1, &value, 1, slopes, 3);
  int status = g(x, 3, &scale, 1, &value, 1, slopes, 3);
  printf("%d %d %.17g %.17g %.17g %.17g\\n", wrong, status, value, slopes[0], slopes[1], slopes[2]);
  return 0;
}
"""


@needs_cc
def test_a_program_in_c_calls_a_gradient(tmp_path):
    weights = np.array([1.0, 2.0, 4.0])

    def g(x, scale):
        return np.sum(np.exp(scale * x) * weights)

    f = ft.value_and_grad(g)
    code = ft.export(f, X, np.float64(1.0))
    code.shared_library(tmp_path / "libg.so")
    (tmp_path / "g.h").write_text(code.c_source_header())
    (tmp_path / "main.c").write_text(PROGRAM)
    subprocess.run(
        [str(CC), "-Wall", "-Werror", "main.c", "-o", "main", "-L.", "-lg", "-Wl,-rpath,."],
        cwd=tmp_path, check=True,
    )
    out = subprocess.run(["./main"], cwd=tmp_path, capture_output=True, text=True, check=True)
    wrong, status, *numbers = out.stdout.split()
    assert (wrong, status) == ("-1", "0")
    value, slopes = f(X, np.float64(2.0))
    assert_allclose(list(map(float, numbers)), [value, *slopes], rtol=1e-14)


def called(function, path, *args):
    """The results of a library's function, by ctypes."""
    import ctypes

    code = ft.export(function, *args)
    code.shared_library(path)
    f = getattr(ctypes.CDLL(str(path)), code._source().identifier)
    frame = code._code.frame
    ys = [np.full(y.shape, 99, y.dtype) for y in frame.results]
    flat: list = []
    xs = [np.ascontiguousarray(x) for x in ft.tree.flatten(args)[0]]  # kept until the call
    for x in (*xs, *ys):
        size = x.size * (2 if x.dtype.kind == "c" else 1)
        flat += [ctypes.c_void_p(x.ctypes.data), ctypes.c_size_t(size)]
    return f(*flat), ys


def newton(a):
    return ft.while_loop(lambda x: np.abs(x * x - a) > 1e-12, lambda x: (x + a / x) / 2, a)


@needs_cc
@pytest.mark.parametrize(
    ("f", "args"),
    [
        (newton, (np.float64(2.0),)),
        (lambda x: (x, x * 2, 1.5), (X.astype(np.float32),)),
        (lambda z: z * 1j, (X + 1j,)),
        (lambda x: x.T @ x, (np.arange(6.0).reshape(2, 3),)),
        (lambda x: np.cumsum(np.sin(x)) * x.sum(), (np.linspace(0, 1, 300_000),)),
    ],
    ids=["a loop", "copies", "complex", "a product", "large arrays"],
)
def test_libraries_compute_what_the_function_does(f, args, tmp_path):
    status, ys = called(f, tmp_path / "lib.so", *args)
    assert status == 0
    for y, expected in zip(ys, ft.tree.flatten(f(*args))[0], strict=True):
        assert_allclose(y, expected, rtol=1e-12 if y.size < 1000 else 1e-10)  # sums are regrouped


A, B, WIDE = (np.random.default_rng(5).normal(size=size) for size in ((6, 6), (6, 5), (70, 90)))


def products(a, b, c, z, wide):
    x, rows, row, column = b[:, 0], wide @ wide[0], wide[:, 0] @ wide, wide.T @ wide[:, 1]
    return (rows, row, column, a @ b, a.T @ b, b.T @ a, (b.T @ a.T).T, a @ x, x @ a, c @ c.T,
            c @ c[0], z.T @ z, z @ z[0], z[0] @ z)


def in_tiles(*xs):
    stacks = [np.exp(x[:, :, None] * x[:, None]) for x in xs]
    return tuple([np.tanh(x @ x) for x in stacks])


def systems(a, b):
    low = np.linalg.cholesky(a @ a.T + 6 * np.eye(6))
    return (np.linalg.solve(a, b), np.linalg.solve(a.T, b[:, 0]), *np.linalg.slogdet(a), low,
            fsl.solve_triangular(low, b, lower=True), fsl.solve_triangular(a, b, trans=1),
            fsl.solve_triangular(low, b[:, 0], lower=True, trans=1),
            fsl.solve_triangular(a * 0.1, b, unit_diagonal=True))


def norm(a, b):
    return sum([np.sum(y * y) for y in systems(a, b)])


@needs_cc
@pytest.mark.parametrize(("f", "args"), [
    (products, (A, B, A.astype(np.float32), A + 1j * A.T, WIDE)),
    (in_tiles, (WIDE[:, :20], WIDE[:, :30].astype(np.float32))),
    (systems, (A, B)),
    (ft.grad(norm), (A, B)),
], ids=["products", "in tiles", "systems", "gradient"])
def test_libraries_bring_loops_for_blas_and_lapack(f, args, tmp_path):
    status, ys = called(f, tmp_path / "lib.so", *args)
    assert status == 0
    for y, expected in zip(ys, ft.tree.flatten(f(*args))[0], strict=True):
        assert_allclose(y, expected, rtol=1e-5 if y.dtype == np.float32 else 1e-11, atol=1e-12)


def spectrum(diagonal, one, full, repeated, lower):
    found = [np.linalg.eigh(a) for a in (diagonal, one, full, repeated)]
    signless = [x for w, v in found for x in (w, (v * w) @ v.T, v @ v.T)]
    return (*signless, np.linalg.eigvalsh(lower, UPLO="L"), np.linalg.eigvalsh(lower, UPLO="U"))


@needs_cc
def test_libraries_bring_loops_for_eigenvalues(tmp_path):
    full = WIDE[:30, :30] + WIDE[:30, :30].T
    args = (np.diag([3.0, -1.0, 0.0]), np.array([[2.0]]), full, np.ones((4, 4)), A * 1e150)
    status, ys = called(spectrum, tmp_path / "lib.so", *args)
    assert status == 0
    for y, expected in zip(ys, spectrum(*args), strict=True):
        assert_allclose(y, expected, rtol=1e-13, atol=1e-13 * np.max(np.abs(expected)))
    grad = ft.grad(lambda a: np.sum(np.linalg.eigh(a)[1][:, -1] ** 2 * np.arange(30)))
    status, (y,) = called(grad, tmp_path / "grad.so", full)
    assert_allclose(y, grad(full), rtol=1e-10, atol=1e-12)


def of_one_number(x, p, q):
    return (special.gamma(x), special.j0(x), special.j1(x), special.y0(x), special.y1(x),
            special.logit(p), special.erfinv(q), special.ndtri(p), special.exp10(x))


@needs_cc
def test_libraries_bring_special_functions_of_one_number(tmp_path):
    p = np.array([0.0, 1e-300, 1e-17, 0.02, 0.3, 0.5, 0.5 + 1e-9, 0.97, 1 - 1e-16, 1.0, -0.1, 1.1])
    args = np.array([0.3, 1.0, 4.5, 21.25]), p, np.concatenate([p, -p])
    status, ys = called(of_one_number, tmp_path / "lib.so", *args)
    assert status == 0
    for y, expected in zip(ys, of_one_number(*args), strict=True):
        assert_allclose(y, expected, rtol=1e-14, atol=1e-15)

    def total(*args):
        return sum([np.sum(y[2:-1]) for y in of_one_number(*args)[5:8]])

    slopes = ft.grad(total, (1, 2))
    inside = args[0], p[1:-3], p[1:-3]
    status, ys = called(slopes, tmp_path / "grad.so", *inside)
    for y, expected in zip(ys, slopes(*inside), strict=True):
        assert_allclose(y, expected, rtol=1e-13)


def far_from_usual(a, x, b, p, q):
    return (special.gammainc(a, x), special.gammaincc(a, x), special.betaincc(b, 1 + b, p),
            special.stdtr(1e300, p), special.ndtri(q), special.j0(q), special.cosm1(q))


@needs_cc
def test_special_functions_of_libraries_end_and_keep_their_digits_far_from_the_usual(tmp_path):
    q = np.array([-1e-300, -0.0, np.inf])
    a, x = np.array([12.0, 30.0, 2e8, 1e14, 1e300]), np.array([1e-10, 1.0, 2e8, 1e14 - 3e7, 1e300])
    args = a, x, np.array([1e-18, 2.0, 1e9]), np.array([0.3, 0.5, 0.7]), q
    status, ys = called(far_from_usual, tmp_path / "lib.so", *args)
    part, rest, beta, t, quantile, bessel, cosine = ys
    assert status == 0
    assert_allclose(part[:3], special.gammainc(a, x)[:3], rtol=1e-12)
    # by integrals of 40 digits: SciPy's has two at this place
    assert_allclose(part[3:], [0.0013498968498041, 0.5], rtol=1e-13)
    assert_allclose(rest, 1 - part, rtol=1e-12)
    assert 0 <= beta[0] < 1e-14 and np.isnan(beta[2])
    assert_allclose(t, special.ndtr(args[3]), rtol=1e-14)
    assert_allclose(quantile, [np.nan, -np.inf, np.nan])
    assert_allclose(bessel, [1.0, 1.0, np.nan])
    assert not np.signbit(cosine[:2]).any()


@needs_cc
@pytest.mark.parametrize(("f", "a", "status"), [
    (np.linalg.eigvalsh, np.full((3, 3), np.nan), 3),
    (np.linalg.cholesky, -np.eye(3), 2),
    (np.linalg.inv, np.array([[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 1.0, 1.0]]), 1),
], ids=["no numbers", "indefinite", "singular"])
def test_loops_refuse_what_lapack_refuses(f, a, status, tmp_path):
    import ctypes

    code = ft.export(f, np.eye(3))
    code.shared_library(tmp_path / "lib.so")
    g = getattr(ctypes.CDLL(str(tmp_path / "lib.so")), code._source().identifier)
    y = np.empty_like(f(np.eye(3)))
    sizes = ctypes.c_size_t(a.size), ctypes.c_size_t(y.size)
    place = ctypes.c_void_p
    assert g(place(a.ctypes.data), sizes[0], place(y.ctypes.data), sizes[1]) == status


POSITIVE, PARTS = np.array([0.3, 1.0, 2.5, 9.9]), np.array([1e-6, 0.3, 0.5, 0.97])
ANY = np.array([-2.5, -0.3, 0.4, 3.3])
ENDS = np.array([0.0, 1.0, -1.0, -2.5, np.inf, np.nan])
PLAIN = {
    **dict.fromkeys(["exprel", "cosm1", "rgamma", "loggamma", "gammasgn", "round"], (ANY,)),
    **dict.fromkeys(["cosdg", "sindg"], (ANY * 100,)), "ellipkm1": (POSITIVE,),
    **dict.fromkeys(["ellipk", "ellipe"], (1 - POSITIVE,)),
    **dict.fromkeys(["beta", "betaln", "kl_div", "rel_entr"], (POSITIVE, POSITIVE[::-1])),
    **dict.fromkeys(["boxcox", "boxcox1p", "huber", "powm1", "pseudo_huber", "stdtr"],
                    (POSITIVE, ANY)),
    **dict.fromkeys(["inv_boxcox", "inv_boxcox1p"], (POSITIVE, PARTS)),
    **dict.fromkeys(["gammaincinv", "gammainccinv"], (POSITIVE, PARTS)),
    **dict.fromkeys(["pdtr", "pdtrc"], (np.floor(POSITIVE), POSITIVE[::-1])),
    **dict.fromkeys(["betaincinv", "betainccinv"], (POSITIVE, POSITIVE[::-1], PARTS)),
}


@needs_cc
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_libraries_have_special_functions_as_plain_c(tmp_path, unoptimised):
    places = np.cumsum([0, *map(len, PLAIN.values())])

    def every(*xs):
        return [getattr(special, name)(*xs[i:j])
                for name, i, j in zip(PLAIN, places, places[1:], strict=False)]

    args = [np.array(x) for xs in PLAIN.values() for x in xs]
    status, ys = called(every, tmp_path / "lib.so", *args)
    assert status == 0
    for y, expected in zip(ys, every(*args), strict=True):
        assert_allclose(y, expected, rtol=1e-13)
    ends = [e.ravel() for xs in PLAIN.values() for e in np.meshgrid(*[ENDS] * len(xs))]
    _, ys = called(every, tmp_path / "ends.so", *ends)
    for y, expected in zip(ys, every(*ends), strict=True):
        known = ~np.isnan(y)  # it may have fewer limits than SciPy, but no others
        assert_allclose(y[known], expected[known], rtol=1e-13)


@needs_cc
def test_slopes_of_special_functions_are_plain_c_too(tmp_path, unoptimised):
    slopes = ft.grad(lambda a, p: np.sum(
        special.gammaincinv(a, p) * special.exprel(p) + special.boxcox(a, p)
        + special.beta(a, p) * special.stdtr(a, p)
    ), argnums=(0, 1))
    shares = PARTS[::-1] + 0.01
    status, ys = called(slopes, tmp_path / "lib.so", POSITIVE, shares)
    assert status == 0
    for y, expected in zip(ys, slopes(POSITIVE, shares), strict=True):
        assert_allclose(y, expected, rtol=1e-12)


@needs_cc
def test_libraries_are_not_made_of_what_python_brings_along(tmp_path, monkeypatch):
    g = ft.export(lambda x: special.k0(x) + special.kv(2.0, x), X)
    with pytest.raises(UnsupportedError, match=r"calls k0 of SciPy and kv of SciPy, .* Save"):
        g.shared_library(tmp_path / "f.so")
    g = ft.export(lambda x: x * 2, X)
    with pytest.raises(ArgumentError, match="failed for"):
        g.shared_library(tmp_path / "no such folder" / "f.so")
    g.save(tmp_path / "f")
    with pytest.raises(UnsupportedError, match="was loaded from a file"):
        ft.load(tmp_path / "f").c_source_header()
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(UnsupportedError, match="there is no C compiler `no-such-compiler`"):
        g.shared_library(tmp_path / "f.so")


def test_c_has_no_half_precision():
    frame = ft.export(lambda x: x, X)._code.frame
    (x,) = frame.arguments
    half = frame._replace(arguments=(x._replace(dtype=np.dtype(np.float16)),))
    with pytest.raises(UnsupportedError, match="cannot take float16"):
        exported.header(exported.Source("f", half, "", {}))


def test_names_in_c_are_made_of_letters():
    code = ft.export(lambda x: x, X)._code
    source = exported.Source("2d<f>", code.frame, "", {})
    assert source.identifier == "f_2d_f_"
    assert "int f_2d_f_(const double *x0, size_t x0_size" in exported.header(source)


@pytest.mark.parametrize("name", [
    "exp", "pow", "double", "class", "main", "size_t", "run0", "constant0", "NULL", "while", "free",
])
def test_functions_have_no_names_that_c_has(name):
    code = ft.export(lambda x: x, X)._code
    assert exported.Source(name, code.frame, "", {}).identifier == f"f_{name}"
    assert exported.Source(f"{name}_of", code.frame, "", {}).identifier == f"{name}_of"


def test_a_name_does_not_end_the_comment_of_a_header():
    code = ft.export(lambda x: x, X)._code
    head = exported.header(exported.Source("a*/b", code.frame, "", {}))
    assert head.startswith("/* a* /b, exported")


def of_several_numbers(a, b, x, p):
    return (special.gammainc(a, x), special.gammaincc(a, x), special.betainc(a, b, p),
            special.zeta(1 + b, a))


@needs_cc
def test_libraries_bring_special_functions_of_several_numbers(tmp_path):
    sizes = [0.01, 0.5, 1.0, 3.25, 9.9, 10.1, 40.0, 1e4]
    a, x = np.meshgrid(sizes, [0.0, 0.02, 0.9, 3.0, 11, 60, 1e4])
    args = [y.ravel() for y in (a, np.roll(a, 3) / 2, x, x / (1 + x))]
    status, ys = called(of_several_numbers, tmp_path / "lib.so", *args)
    assert status == 0
    for y, expected in zip(ys, of_several_numbers(*args), strict=True):
        # logarithms of gamma functions up to 1e5 are what is subtracted
        assert_allclose(y, expected, rtol=2e-11, atol=1e-16)
    few = [y[(a.ravel() < 50) & (x.ravel() < 50)] for y in args]
    for y, expected in zip(called(of_several_numbers, tmp_path / "few.so", *few)[1],
                           of_several_numbers(*few), strict=True):
        assert_allclose(y, expected, rtol=1e-12, atol=1e-16)
    ends = np.meshgrid([0.0, 1.0, 2.5, np.inf, np.nan, -1.0, 0.3], [0.0, 1.0, 0.4])
    ends = [y.ravel() for y in ends]
    ends = ends[0], ends[0][::-1].copy(), ends[1], ends[1]
    for y, expected in zip(called(of_several_numbers, tmp_path / "ends.so", *ends)[1][:3],
                           of_several_numbers(*ends)[:3], strict=True):
        assert_allclose(y, expected, rtol=1e-13)
    slope = ft.grad(lambda x, a: np.sum(special.gammainc(a, x)))
    status, (y,) = called(slope, tmp_path / "grad.so", few[2] + 0.1, few[0])
    assert_allclose(y, slope(few[2] + 0.1, few[0]), rtol=1e-12)


@needs_cc
def test_special_functions_of_huge_and_tiny_parameters_are_right_or_nan(tmp_path, unoptimised):
    a = np.array([1e-9, 1e-4, 0.05, 30.0, 1e5, 1e9, 1e15, 1e20, 1e300])
    x = np.array([1.0, 0.02, 0.9, 1e-8, 1.003e5, 1e9, 1.0, 1e20, 2.0])

    def f(a, x):
        return (special.gammainc(a, x), special.gammaincc(a, x), special.stdtr(a, x),
                special.betaln(a, x), special.betainc(a, 0.5, x / (1 + x)),
                special.gammaincinv(a, x / (1 + x)))

    status, ys = called(f, tmp_path / "lib.so", a, x)
    assert status == 0
    for y, expected in zip(ys, f(a, x), strict=True):
        assert np.all(np.isnan(y) | np.isclose(y, expected, rtol=1e-9, atol=1e-300))
    assert np.isfinite(ys[2:4]).all()
    assert np.isfinite(ys[5][:6]).all()
    assert_allclose(ys[1][:5], f(a, x)[1][:5], rtol=1e-11)
