"""Derivative matrices within a budget, into arrays given, and what they say beforehand."""

import gc
import re
import tracemalloc

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans._transforms.matrices import batches, memory
from functrans._transforms.matrices.budget import Live, bytes_of
from functrans._transforms.reverse.api import Recording
from functrans.errors import ArgumentError, CaptureError, OutOfMemoryError, ShapeError
from tests.covering import covering
from tests.drawing import generator

RNG = generator(3)
A = RNG.normal(size=(120, 80)) / 10
X = RNG.normal(size=120)


def layers(x):
    return np.tanh(A @ np.tanh(A.T @ x))


def pairs(x):
    return np.exp(-((x[:, None] - x) ** 2)).sum(axis=0)


def energy(x):
    return np.sum(pairs(x) ** 2)


def chain(x):
    for _ in range(5):
        x = np.sin(x) * 1.1
    return x


FUNCTIONS = {
    "forward": (ft.jacfwd, layers),
    "forward, wide": (ft.jacfwd, pairs),
    "reverse": (ft.jacrev, pairs),
    "a chain": (ft.jacrev, chain),
    "hessian": (ft.hessian, energy),
    "auto": (ft.jacobian, layers),
}
# Python's own objects, such as tapes and traces, which the budget leaves out
OBJECTS = 2**17


def peak_of(f, *args):
    """Bytes that a call takes at most, and its result."""
    gc.collect()  # so that when garbage is collected does not depend on what ran before
    tracemalloc.start()
    try:
        # on free-threaded Python each thread has a state of 140 kB
        with ft.config(keep_memory=False, threads=1):
            y = f(*args)
        return tracemalloc.get_traced_memory()[1], y
    finally:
        tracemalloc.stop()


@pytest.fixture
def unbounded(monkeypatch):
    """Batches as large as the budget allows, whatever the cache would like."""
    monkeypatch.setattr(batches, "LARGEST", 2**40)


# ---- the budget


@pytest.mark.parametrize(("name", "budget"), covering(FUNCTIONS, ["8 MB", 2_000_000], meet=1))
def test_a_matrix_stays_within_its_budget_beside_the_result(name, budget, unbounded):
    matrix, f = FUNCTIONS[name]
    J = matrix(f, memory=budget)
    expected = np.asarray(matrix(f)(X))
    peak, y = peak_of(J, X)
    assert peak - expected.nbytes <= bytes_of("", budget) + OBJECTS
    assert_allclose(y, expected, rtol=1e-12, atol=1e-13)
    again, _ = peak_of(J, X)  # the size of batches is known by now
    assert again - expected.nbytes <= bytes_of("", budget) + OBJECTS


def test_a_larger_budget_has_larger_chunks(unbounded):
    chunks = [ft.jacfwd(pairs, memory=m).explain(X).chunk for m in (10**6, 10**7, 10**9)]
    assert chunks[0] < chunks[1] < chunks[2] == 120


def test_the_cache_bounds_chunks_below_the_budget():
    plan = ft.jacfwd(pairs, memory="1 GiB").explain(X)
    assert plan.chunk == batches.LARGEST // (120 * 120 * 8)


@pytest.mark.parametrize("matrix", [ft.jacobian, ft.jacfwd, ft.jacrev, ft.hessian])
def test_a_budget_smaller_than_one_direction_is_refused_with_what_it_takes(matrix):
    f = energy if matrix is ft.hessian else pairs
    text = (
        rf"{matrix.__name__}: one direction at a time takes [\d.]+ [kM]B beside the result for "
        rf"`{f.__name__}`, and memory=20.0 kB is less\. .* linear_operator"
    )
    with pytest.raises(OutOfMemoryError, match=text):
        matrix(f, memory=20_000)(X)


BYTES = {
    1: 1, np.int64(7): 7, "3": 3, "2 GiB": 2**31, "500 MB": 5 * 10**8, "1.5kb": 1500, "1e3 B": 1000,
    "1 KiB": 1024, "2tb": 2 * 10**12,
}


def test_budgets_are_bytes_or_texts():
    assert [bytes_of("f", m) for m in BYTES] == list(BYTES.values())
    assert bytes_of("f", None) is None


@pytest.mark.parametrize("text", [0, -1, 2.5, True, "much", "2 XB", "GiB", "", "0", "-1 MB", [1]])
def test_budgets_that_are_none_are_refused(text):
    with pytest.raises(ArgumentError, match="hessian: memory must be a number of bytes, or"):
        ft.hessian(energy, memory=text)


@pytest.mark.parametrize("chunk_size", [None, 3])
def test_a_budget_and_a_number_of_directions_exclude_each_other(chunk_size):
    with pytest.raises(ArgumentError, match=f"jacrev: chunk_size={chunk_size} says how many"):
        ft.jacrev(pairs, chunk_size=chunk_size, memory="1 GB")


def test_arrays_are_counted_while_they_are_alive_views_with_what_they_are_of():
    live = Live()
    a = np.zeros(100)
    live.add(a)
    live.add(a[10:])
    live.add(b := np.zeros(50))
    assert (live.now, live.peak) == (1200, 1200)
    del b
    live.add(np.float64(1.0))
    assert (live.now, live.peak, live.largest) == (800, 1200, 800)


# ---- what is expected


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_matrix_is_expected_to_take_is_what_it_takes(name):
    matrix, f = FUNCTIONS[name]
    matrix(f)(X)
    peak, _ = peak_of(matrix(f), X)
    # from one direction; what ops take while they run is known roughly, Python's objects are not
    assert 0.75 * peak - OBJECTS <= matrix(f).memory(X) <= 1.5 * peak


PLAIN = {
    "grad": ft.grad(lambda x: np.sum(chain(x))),
    "value_and_grad": ft.value_and_grad(energy),
    "elementwise_grad": ft.elementwise_grad(chain),
    "vmap": ft.vmap(lambda r: layers(r) * 2.0),
    "laplacian": ft.laplacian(lambda x: np.sum(np.tanh(x) ** 2)),
    "laplacian of pairs": ft.laplacian(lambda x: np.sum(pairs(x))),
    "hessian_diagonal of pairs": ft.hessian_diagonal(lambda x: np.sum(pairs(x))),
}


@pytest.mark.parametrize("name", PLAIN)
def test_so_it_is_of_other_derivatives(name):
    f = PLAIN[name]
    x = {"grad": np.ones(50_000), "elementwise_grad": np.ones(50_000), "vmap": np.ones((400, 120))}
    x = x.get(name, X)
    f(x)
    peak, _ = peak_of(f, x)
    # the order in which Python drops values, and temporaries in ops, are known roughly
    assert 0.6 * peak - OBJECTS <= f.memory(x) <= 1.6 * peak


@pytest.mark.parametrize(("f", "x"), [
    (ft.grad(lambda x: np.sum(chain(x))), np.ones(50_000)), (chain, np.ones(50_000)),
    (ft.grad(energy), np.linspace(0, 1, 300)), (ft.jacobian(pairs), X),
], ids=range(4))
def test_so_it_is_of_compiled_functions_but_for_the_headers_of_arrays(f, x):
    compiled = ft.jit(f)
    expected = compiled.memory(x)
    compiled(x), compiled(x)  # the second call loads the C function
    peak, _ = peak_of(compiled, x)
    assert expected <= peak <= expected + 20_000


def test_where_nothing_compiles_or_numpy_has_a_step_the_program_is_asked():
    f = ft.jit(lambda x: np.sort(np.sin(x)) * 2.0)
    x = np.ones(10_000)
    assert 160_000 <= f.memory(x) <= 320_000
    for g in (f, ft.jit(ft.grad(np.linalg.norm)), ft.jit(lambda x: np.abs(np.fft.fft(x)))):
        g(x), g(x)
        assert 0.5 * g.memory(x) <= peak_of(g, x)[0] <= 1.6 * g.memory(x) + OBJECTS
    with ft.config(jit=False):
        assert 160_000 <= f.memory(x) <= 320_000


def test_views_take_nothing():
    f = ft.jit(lambda x: x)  # for its memory attribute alone
    with ft.config(jit=False):
        assert f.memory(X) == 0
        assert ft.jit(lambda x: np.sin(x).reshape(2, 60).T[1:]).memory(X) == 960


def test_functions_that_decide_by_values_have_no_program_to_ask():
    with pytest.raises(ft.errors.ConcretizationError):
        ft.grad(lambda x: x**2 if x > 0 else x).memory(1.0)


# ---- what is said


def test_the_mode_is_that_of_fewer_directions_and_the_reason_says_so():
    plan = ft.jacobian(lambda x: A.T @ x).explain(X)
    assert (plan.mode, plan.directions) == ("reverse", 80)
    assert plan.reason == "there are 120 directions of inputs and 80 of outputs"
    plan = ft.jacobian(lambda x: A @ x).explain(X[:80])
    assert (plan.mode, plan.directions) == ("forward", 80)
    assert ft.jacobian(layers, mode="reverse").explain(X).mode == "reverse"
    assert ft.jacfwd(layers).explain(X).reason == "that is the mode asked for"
    assert "gradient" in ft.hessian(energy).explain(X).reason


def test_the_mode_chosen_is_the_one_that_runs(monkeypatch):
    ran = []

    def noted(name, method):
        return lambda self, ts: ran.append(name) or method(self, ts)

    for name in ("push", "pull"):
        monkeypatch.setattr(Recording, name, noted(name, getattr(Recording, name)))
    ft.jacobian(lambda x: A.T @ x)(X)
    ft.jacobian(lambda x: A @ x)(X[:80])
    assert ran == ["pull", "push"]


def test_a_plan_prints():
    text = repr(ft.jacobian(layers, chunk_size=50).explain(X))
    assert re.fullmatch(
        r"jacobian\(layers\): forward mode, since there are 120 directions of inputs and 120 of "
        r"outputs\n  120 tangents, 50 at once\n  [\d.]+ kB expected: [\d.]+ kB kept from chunk to "
        r"chunk, [\d.]+ kB for each at once; the result of 115.2 kB is part of it",
        text,
    )
    assert ft.jacobian(layers, out=np.empty((120, 120))).explain(X).given


def test_decorated_and_nested_functions_say_it_too():
    @ft.jacobian(memory="1 GB")
    def f(x):
        return x**2

    assert f.explain(X).peak == f.memory(X) > X.size**2 * 8
    assert ft.hessian(chain).memory(X[:5]) > 0
    assert ft.jacobian(np.sin).explain(np.zeros(0)).directions == 0


def test_traced_arguments_have_no_plan():
    with pytest.raises(ArgumentError, match="jacobian: memory and explain need values"):
        ft.jit(lambda x: x * ft.jacobian(chain).memory(x))(X)


# ---- into an array given


@pytest.mark.parametrize(("matrix", "options", "x"), covering(
    [ft.jacobian, ft.jacfwd, ft.jacrev],
    [{}, {"chunk_size": 7}, {"memory": "1 MB"}, {"holomorphic": True}],
    [X[:6], X[:6].reshape(2, 3), X[:6].astype(np.float32), X[0]],
))
def test_the_array_given_is_filled_and_returned(matrix, options, x):
    def f(x):
        return np.stack([np.sin(x), np.cumsum(x).reshape(np.shape(x)) * x, np.exp(x)])

    if "holomorphic" in options:
        x = x + np.array(1j, np.result_type(x, np.complex64))
    expected = np.asarray(matrix(f, **options)(x))
    out = np.full(expected.shape, np.nan, expected.dtype)
    assert matrix(f, out=out, **options)(x) is out
    assert_allclose(out, expected, rtol=1e-6 if out.dtype.char in "fF" else 1e-14)  # other batches
    assert out.flags.writeable


def test_a_file_is_filled(tmp_path):
    out = np.memmap(tmp_path / "H", np.float64, "w+", shape=(120, 120))
    peak, y = peak_of(ft.hessian(energy, out=out, memory="8 MB"), X)
    assert y is out
    assert peak < 8e6
    out.flush()
    kept = np.fromfile(tmp_path / "H").reshape(120, 120)
    assert_allclose(kept, ft.hessian(energy)(X), rtol=1e-12)


def test_containers_are_filled():
    p = {"a": X[:3], "b": 2.0, "n": 3}

    def f(p, q):
        return (p["a"] * p["b"] * q, np.sum(p["a"]) * p["b"] ** 2), p["n"]

    for options in ({}, {"mode": "reverse"}, {"mode": "forward"}):
        J = ft.jacobian(f, (0, "q"), has_aux=True, **options)
        expected, aux = J(p, q=1.5)
        out = ft.tree.map(lambda x: x if x is None else np.zeros(x.shape), expected)
        y, same = ft.jacobian(f, (0, "q"), has_aux=True, out=out, **options)(p, q=1.5)
        assert y is out
        assert same == aux == 3
        for a, b in zip(ft.tree.leaves(out), ft.tree.leaves(expected), strict=True):
            if a is not None:
                assert_allclose(a, b, rtol=1e-14)


def test_gradients_of_complex_numbers_are_filled_in_by_reverse_mode():
    z = X[:4] + 1j * X[4:8]

    def f(z):
        return np.stack([np.sum(np.abs(z) ** 2), np.sum(z * z).real])

    out = np.empty((2, 4), complex)
    ft.jacrev(f, out=out)(z)
    assert_allclose(out, np.stack([2 * z, 2 * np.conj(z)]), rtol=1e-14)


def placed(out, f=chain, x=X, **options):
    return lambda: ft.jacobian(f, out=out, **options)(x)


READ_ONLY = np.empty((120, 120))
READ_ONLY.setflags(write=False)
REFUSED = {
    "a shape": (placed(np.empty((120, 3))), ShapeError, r"must have shape \(120, 120\), but has"),
    "a list": (placed([[1.0]]), ArgumentError, "must have the structure of float64"),
    "a number": (placed(1.0), ArgumentError, "must be an array, but is float 1.0"),
    "a type": (placed(np.empty((120, 120), int)), ArgumentError, "is int64, which cannot hold"),
    "an order": (placed(np.empty((120, 120)).T), ArgumentError, "must be a C-contiguous array"),
    "a lock": (placed(READ_ONLY), ArgumentError, "C-contiguous array that can be written"),
    "real": (
        placed(np.empty((120, 120)), lambda x: np.exp(1j * x)), ArgumentError, "cannot hold complex"
    ),
    "two directions": (
        placed(np.empty((3, 3), complex), np.sin, X[:3] + 1j), ArgumentError,
        "derivatives along 1 and along i together. Do without out, or promise holomorphic=True",
    ),
    "traced": (
        lambda: ft.jit(ft.jacobian(chain, out=np.empty((120, 120))))(X), ArgumentError,
        "holds numbers, but the derivative is traced. Do without out inside of jit",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_arrays_that_cannot_be_filled_are_refused(name):
    call, error, text = REFUSED[name]
    with pytest.raises(error, match=f"jacobian: out for `.*` .*{text}"):
        call()


def test_an_array_that_is_also_read_is_refused():
    x = np.ones((3, 3))
    for matrix in (ft.jacfwd, ft.jacrev):
        with pytest.raises(ArgumentError, match="shares memory with an argument"):
            matrix(np.sin, out=x)(x[0])
    W = np.ones((200, 200))
    with pytest.raises(CaptureError):  # a tape tells, for arrays that it has not copied
        ft.jacrev(lambda v: np.sin(W @ v), out=W, chunk_size=50)(np.ones(200))


# ---- interruptions


def test_ctrl_c_ends_the_call_and_nothing_is_returned(capsys):
    calls = []

    def f(x):
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return chain(x)

    J, out = None, np.full((120, 120), np.nan)
    with pytest.raises(KeyboardInterrupt):
        J = ft.jacfwd(f, chunk_size=40, progress=True)(X)
    assert J is None
    calls.clear()
    matrix = ft.jacfwd(f, chunk_size=40, out=out)
    with pytest.raises(KeyboardInterrupt):
        matrix(X)
    assert_array_equal(np.isnan(out[0]), np.arange(120) >= 80)
    assert_allclose(matrix(X), ft.jacfwd(chain)(X), rtol=1e-13)
    assert "67%" in capsys.readouterr().err


# ---- the same values however it is done


@pytest.mark.parametrize(("matrix", "way", "options"), covering(
    [ft.jacfwd, ft.jacrev, ft.hessian], ["plain", "vmap", "jit"],
    [{"chunk_size": None}, {"chunk_size": 5}, {"memory": "1 MB"}],
))
def test_chunks_modes_jit_and_vmap_agree(matrix, way, options):
    f = (lambda x: np.sum(layers(x) ** 2)) if matrix is ft.hessian else layers
    g = matrix(lambda x: f(np.concatenate([x, X[12:]])), **options)
    ways = {"plain": g, "jit": ft.jit(g), "vmap": lambda x: ft.vmap(g)(np.stack([x, x]))[1]}
    reference = (ft.jacrev if matrix is ft.jacfwd else ft.jacfwd)(
        ft.grad(f) if matrix is ft.hessian else f
    )(X)
    expected = reference[:12, :12] if matrix is ft.hessian else reference[:, :12]
    assert_allclose(ways[way](X[:12]), expected, rtol=1e-11, atol=1e-14)


def test_the_hessian_of_many_variables_is_refused_with_what_to_use_instead(monkeypatch):
    monkeypatch.setattr(memory, "available", lambda: 64 * 10**9)
    x = np.ones(200_000)
    with pytest.raises(OutOfMemoryError) as caught:
        ft.hessian(lambda x: np.sum(x[1:] * x[:-1]))(x)
    assert str(caught.value) == (
        "hessian: the result for `<lambda>` takes 320.0 GB, but only 64.0 GB of memory are "
        "available. hvp and linear_operator give products with it that need no matrix, and "
        "sparse_hessian leaves out its zeros."
    )
