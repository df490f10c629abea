"""Code for any size: which lengths compile, and that results are those of eager code."""

from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import functrans as ft
from functrans._compile.emit.module import generalise
from functrans._compile.emit.shared_text import split
from functrans._compile.run import machine, store

pytestmark = pytest.mark.usefixtures("unoptimised")


@pytest.fixture(autouse=True)
def nothing_compiled_before():
    machine.local().families.by_key.clear()
    with ft.cache.off():
        yield


def compiled(f):
    """How each program of a jitted function came by its code, without the times."""
    entries = [entry for staging in f.explain().stagings for entry in staging.entries]
    return [entry.made.rpartition(" in ")[0].rstrip() for entry in entries]


def ramp(*shape):
    return np.linspace(-1.0, 2.0, int(np.prod(shape))).reshape(shape)


def steps(x):
    return np.sum((x[1:] - 0.5 * x[:-1]) ** 2) * np.mean(x)


def test_three_lengths_compile_and_others_do_not():
    f = ft.jit(ft.grad(steps))
    for n in (20, 31, 47, 101, 33, 500):
        assert np.allclose(f(ramp(n)), ft.grad(steps)(ramp(n)), rtol=1e-13, atol=0)
    shared = "runs what was compiled for any length of axis 0 of x, ready"
    assert compiled(f) == [
        "compiled", "compiled", "compiled for any length of axis 0 of x", shared, shared, shared
    ]


def test_inputs_are_named_as_the_user_names_them():
    f = ft.jit(lambda a, p, *rest, z, b: a + p["w"] * rest[0] + b * z[1])
    for n in (20, 31, 47):
        x = ramp(n)
        y = f(2.0, {"w": x, "c": x[:3]}, x, z=(1.0, x), b=x)
        assert np.array_equal(y, 2.0 + x * x + x * x)
    inputs = "p['w']", "argument 2", "b", "z[1]"
    lengths = ", ".join([f"axis 0 of {name}" for name in inputs])
    assert compiled(f)[-1] == f"compiled for any length of {lengths}"


def test_a_decision_by_an_unseen_length_is_taken():
    def f(x):
        return 2.0 * x + 1.0 if len(x) > 90 else 3.0 * x - len(x) * x[::-1]

    g = ft.jit(f)
    for n in (20, 31, 47, 60, 90, 91, 92, 200, 300):
        assert np.array_equal(g(ramp(n)), f(ramp(n)))


def test_a_number_decided_by_an_unseen_length_is_taken():
    def f(x):
        return x * (1.5 if len(x) < 90 else 2.5)

    g = ft.jit(f)
    for n in (20, 31, 47, 60, 91, 95, 30):
        assert np.array_equal(g(ramp(n)), f(ramp(n)))


def test_numbers_and_arrays_made_of_a_length_are_those_of_each_length():
    def f(x):
        n = len(x)
        return x / n + np.arange(n) * (n % 7) + np.sqrt(n) + np.linspace(0.0, 1.0, n) ** 2

    g = ft.jit(f)
    for n in (20, 31, 47, 60, 91, 200):
        assert np.array_equal(g(ramp(n)), f(ramp(n)))


def test_sizes_that_agreed_and_no_longer_do_are_told_apart():
    def f(x, y):
        return np.sum(x[:, None] * y, axis=0) - y

    g = ft.jit(f)
    for n, m in [(20, 20), (31, 31), (47, 47), (50, 40), (60, 33), (33, 60), (70, 70)]:
        assert np.allclose(g(ramp(n), ramp(m)), f(ramp(n), ramp(m)), rtol=1e-12)
    made = compiled(g)
    assert made[3] == "compiled for any length of axis 0 of x, axis 0 of y"
    assert all(x.startswith("runs") for x in made[4:])


def test_a_number_that_changes_beside_the_lengths():
    scale = 1.0
    f = ft.jit(lambda x: np.exp(x) * scale)
    for scale, n in [(2.0, 20), (3.0, 31), (5.0, 47), (-1.5, 52)]:
        assert np.allclose(f(ramp(n)), np.exp(ramp(n)) * scale, rtol=1e-14)
    assert compiled(f)[-1].startswith("runs what was compiled for any length")


def test_programs_alike_but_for_their_inputs_are_told_apart():
    """A captured array and an argument of one number have the same text."""
    place = np.array([0])

    def by(f):
        f.__name__ = "f"
        return ft.jit(f)

    assert by(lambda x, i: x[i])(np.ones(1), 0) == 1.0
    assert np.array_equal(by(lambda x: x[place])(np.ones(1)), [1.0])
    assert np.array_equal(by(lambda x, i: x[i])(np.ones(1), place), [1.0])


def test_programs_of_one_shape_are_compiled_as_they_are():
    functions = [ft.jit(lambda x, k=k: x * (k + 0.5) - 1.0) for k in range(5)]
    for k, f in enumerate(functions):
        assert np.array_equal(f(ramp(20)), ramp(20) * (k + 0.5) - 1.0)
    assert [compiled(f) for f in functions] == [["compiled"]] * 5


@pytest.mark.parametrize("name", ["grad", "jvp", "vmap", "hessian", "outer"])
def test_transforms_of_compiled_functions_share_code(name):
    def f(x):
        return np.sum(np.tanh(x) * x**2) / len(x)

    make = {
        "grad": ft.grad, "jvp": lambda h: lambda x: ft.jvp(h, (x,), (x,))[1],
        "vmap": lambda h: lambda x: ft.vmap(h)(np.stack([x, -x])), "hessian": ft.hessian,
        "outer": lambda h: ft.jit(ft.grad(h)),
    }[name]
    g = make(ft.jit(f))
    for n in (20, 31, 47, 25, 53):
        assert np.allclose(g(ramp(n)), make(f)(ramp(n)), rtol=1e-12, atol=1e-15)


def test_matrices_of_any_size():
    def f(w, x, y):
        return np.mean((np.tanh(x @ w) @ w.T - y) ** 2)

    g, w = ft.jit(ft.grad(f)), ramp(12, 16)
    for n in (40, 41, 57, 63, 77, 90):
        x = ramp(n, 12)
        assert np.allclose(g(w, x, x[::-1]), ft.grad(f)(w, x, x[::-1]), rtol=1e-11)
    assert sum(x.startswith("runs") for x in compiled(g)) == 3


@pytest.mark.parametrize("dtype", ["f", "d", "F", "D", "i", "l"])
def test_every_dtype(dtype):
    def f(x):
        return np.sum(x * x, axis=0) + x * (2 / len(x)) - x[::-1] * len(x)

    g = ft.jit(f)
    for n in (20, 31, 47, 25, 53):
        x = (10 * ramp(n, 3) * (1 + 1j if dtype in "FD" else 1)).astype(dtype)
        assert g(x).dtype == f(x).dtype
        # NumPy's complex products are contracted, or not, by its own compiler
        assert np.allclose(g(x), f(x), rtol=1e-14 if dtype in "Dil" else 1e-5)
    assert compiled(g)[-1].startswith("runs")


def test_pieces_for_threads_and_rows_that_fit_the_cache():
    def f(x):
        y = np.sqrt(np.abs(x))
        return y / np.sum(y, axis=1, keepdims=True), np.sum(y * y, axis=0)

    g = ft.jit(f)
    for n in (20_000, 20_111, 24_001, 20_222):
        for y, e in zip(g(ramp(n, 6)), f(ramp(n, 6)), strict=True):
            assert np.allclose(y, e, rtol=1e-13)
    assert compiled(g)[-1].startswith("runs")


def test_threads_at_once():
    f, lengths = ft.jit(ft.grad(steps)), list(range(20, 32))
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: f(ramp(n)), lengths))
    for n, y in zip(lengths, found, strict=True):
        assert np.allclose(y, ft.grad(steps)(ramp(n)), rtol=1e-13, atol=0)


def test_another_process_finds_the_code_on_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("FUNCTRANS_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(store, "_on", ContextVar("cache", default=True))
    f = ft.jit(steps)
    for n in (20, 31, 47):
        f(ramp(n))
    machine.local().families.by_key.clear()
    other = ft.jit(steps)
    assert np.isclose(other(ramp(52)), steps(ramp(52)), rtol=1e-14)
    assert compiled(other) == ["runs what was compiled for any length of axis 0 of x, ready"]
    assert len(ft.cache.entries()) == 3


def test_views_that_are_not_contiguous():
    def f(x):
        return np.cumsum(x.T[::2, ::-1], axis=1) + x.T[1::2, :]

    g = ft.jit(f)
    for n in (20, 31, 47, 25, 53):
        x = ramp(3 * n, 8)[::3]
        assert np.array_equal(g(x), f(x))


@given(st.lists(st.integers(0, 70), min_size=4, max_size=5), st.integers(0, 5))
def test_drawn_lengths_and_programs(lengths, which):
    f = PROGRAMS[which]
    g = ft.jit(f)
    for n in lengths:
        x = ramp(n)
        assert np.array_equal(g(x), f(x)), (n, which)


PROGRAMS = [
    lambda x: np.where(x > 0.5, x * x, -x) + np.arange(len(x)),
    lambda x: np.concatenate([x[1:], x[:1] * len(x), x[::-1]]),
    lambda x: np.cumsum(x)[:, None] * np.stack([x, x + 1.0], axis=1),
    lambda x: np.sum(np.ones((len(x), 3)) * x[:, None], axis=0) if len(x) < 8 else x[3:-3] / len(x),
    lambda x: np.pad(x, (2, 1))[1:] * np.pad(x, (1, 2))[:-1],
    lambda x: written(x),
]


def written(x):
    y = x * 1.0
    y[len(x) // 2 :] *= 3.0
    return y


def test_loops_of_any_length():
    def f(x):
        return ft.scan(lambda c, v: (0.5 * c + v, c * v), 0.0, x)

    g = ft.jit(f)
    for n in (50, 61, 77, 90, 55):
        assert all(np.array_equal(a, b) for a, b in zip(g(ramp(n)), f(ramp(n)), strict=True))
    assert compiled(g)[-1].startswith("runs")


# ---- the texts


def test_a_text_is_its_form_with_its_sizes():
    texts = [ft.jit(ft.grad(steps)).lower(ramp(n)).llvm for n in (20, 31, 47)]
    parts = [split(text) for text in texts]
    assert len({skeleton for skeleton, _ in parts}) == 1
    form, text = generalise(parts[0][0], [numbers for _, numbers in parts], 7)
    machine.llvm_binding().parse_assembly(text).verify()
    assert "%size.0 = load i64" in text
    for _, numbers in parts:
        sizes = form.sizes(numbers)
        back = [f"{sizes[int(x[1:])]}" if x[0] == "#" and form.types[int(x[1:])] == "i64" else y
                for x, y in zip(form.numbers, numbers, strict=True)]
        assert tuple(back) == numbers


def test_numbers_that_differ_from_a_form_have_no_sizes():
    line = "define i32 @run0(ptr %list) #0 {{\n  %t = mul i64 {}, {}\n  %u = sub i64 {}, 7\n}}\n"
    skeleton, one = split(line.format(3, 5, 3))
    form, _ = generalise(skeleton, [one, split(line.format(4, 9, 4))[1]], 1)
    assert form.types == ("i64", "i64")
    assert form.sizes(split(line.format(8, -1, 8))[1]).tolist() == [8, -1]
    assert form.sizes(split(line.format(8, 2, 9))[1]) is None
    assert form.sizes(split(line.format(8, 2, 8).replace("7", "6"))[1]) is None


def test_functions_of_other_names_share_nothing():
    def double(x):
        return 2.0 * x

    def twice(x):
        return 2.0 * x

    functions = ft.jit(double), ft.jit(twice)
    for n in (20, 31, 47):
        for f in functions:
            assert np.array_equal(f(ramp(n)), 2.0 * ramp(n))
    made = ["compiled", "compiled", "compiled for any length of axis 0 of x"]
    assert [compiled(f) for f in functions] == [made, made]


def test_numbers_that_llvm_has_to_know_refuse():
    text = "define i32 @run0(ptr %list) #0 {{\nentry:\n  %t = extractvalue [2 x i8] %x, {}\n}}\n"
    skeleton, one = split(text.format(0))
    assert generalise(skeleton, [one, split(text.format(1))[1]], 1) is None


def test_wrong_general_code_is_dropped(monkeypatch):
    real = machine.generalise
    monkeypatch.setattr(machine, "generalise", lambda *xs: (
        (made := real(*xs)) and (made[0], made[1].replace("fadd", "fsub"))))
    f = ft.jit(lambda x: x + 1.25)
    f(ramp(20)), f(ramp(31))
    with pytest.warns(ft.errors.MiscompilationWarning):
        assert np.array_equal(f(ramp(47)), ramp(47) + 1.25)
    assert np.array_equal(f(ramp(50)), ramp(50) + 1.25)
    assert compiled(f)[-1] == "compiled"
