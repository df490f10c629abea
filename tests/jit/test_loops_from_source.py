"""Loops of Python's source that ``jit`` stages as loops."""

import types
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose

import functrans as ft
import functrans.numpy as fnp
from functrans._compile.nest import equation, saved
from functrans._transforms.control import nest_reverse
from functrans._transforms.staging import loops
from tests.fuzz import from_source
from tests.jit import loop_programs as programs

N = 7
A = 2.0 * np.eye(N) + 0.3 * np.sin(3.0 * np.arange(N * N) ** 2).reshape(N, N)
B = 0.7 * np.cos(2.0 * np.arange(N) ** 2)
DIRECTION = np.cos(np.arange(N * N)).reshape(N, N), np.sin(np.arange(N) + 1.0)
NAMES = [f.__name__ for f in programs.STAGED]


@pytest.fixture
def every_loop(monkeypatch):
    """Loops of few passes are staged as loops, too."""
    monkeypatch.setattr(loops, "MANY", 0)


def everything(f):
    """Value, gradient and a second derivative of a function of a matrix and a vector."""

    def derivatives(a, b):
        value, product = ft.hvp(f, (a, b), DIRECTION)
        return value, ft.grad(f, argnums=(0, 1))(a, b), product

    return derivatives


def notes_of(compiled):
    """What ``explain()`` says of loops, each without its file."""
    lines = repr(compiled.explain()).splitlines()
    return [line.partition("loop at ")[2] for line in lines if "loop at " in line]


def line_of(f, text):
    """The line of a function that has a text."""
    lines = Path(f.__code__.co_filename).read_text(encoding="utf-8").splitlines()
    first = f.__code__.co_firstlineno
    return next(k for k, line in enumerate(lines[first - 1 :], first) if text in line)


@pytest.mark.usefixtures("every_loop", "unoptimised")
@pytest.mark.parametrize("f", programs.STAGED, ids=NAMES)
def test_a_program_of_loops_is_staged_as_loops_and_agrees_with_eager_code(f):
    wanted = ft.tree.leaves(everything(f)(A, B))
    compiled = ft.jit(everything(f))
    for x, y in zip(ft.tree.leaves(compiled(A, B)), wanted, strict=True):
        assert_allclose(x, y, rtol=1e-11, atol=1e-11 * np.max(np.abs(y)))
    notes = notes_of(compiled)
    assert notes and all(note.endswith("staged as a loop") for note in notes), notes


@pytest.mark.usefixtures("every_loop", "unoptimised")
@pytest.mark.parametrize("f", programs.WRITTEN_OUT, ids=lambda f: f.__name__)
def test_a_loop_that_is_not_staged_says_why_and_agrees(f):
    compiled = ft.jit(ft.value_and_grad(f, argnums=(0, 1)))
    wanted = ft.tree.leaves(ft.value_and_grad(f, argnums=(0, 1))(A, B))
    for x, y in zip(ft.tree.leaves(compiled(A, B)), wanted, strict=True):
        assert_allclose(x, y, rtol=1e-12, atol=1e-14)
    assert not any(note.endswith("staged as a loop") for note in notes_of(compiled))


CASES = list(from_source.cases(1, 24, most=1))


@pytest.mark.usefixtures("every_loop", "unoptimised")
@pytest.mark.parametrize("case", CASES, ids=lambda case: "f")
def test_drawn_loops_give_what_python_gives(case):
    found = from_source.wrong(case, second=False)
    assert found is None, f"{case.source}# {found}"


def test_explain_names_the_line_that_is_the_reason():
    f = programs.append
    compiled = ft.jit(f)
    long = np.zeros(80)
    compiled(A, long)
    (note,) = notes_of(compiled)
    assert note.startswith(f"{f.__code__.co_filename}:{line_of(f, 'for x')}: written out")
    assert f"{f.__code__.co_filename}:{line_of(f, 'append(s)')}" in note


def test_loops_of_few_passes_are_written_out_and_long_ones_are_not():
    def f(x):
        s = 0.0
        for v in x:
            s = s + v * v
        return s

    compiled = ft.jit(f)
    compiled(np.ones(9))
    compiled(np.ones(99))
    first, second = notes_of(compiled)
    assert first.endswith("written out: it has 9 passes")
    assert second.endswith("staged as a loop")
    assert len(compiled.lower(np.ones(99)).program.eqns) == 1


def test_config_switches_it_off():
    def f(x):
        s = 0.0
        for v in x:
            s = s + v
        return s

    with ft.config(loops=False):
        compiled = ft.jit(f)
        assert compiled(np.ones(99)) == 99.0
    assert not notes_of(compiled)


@pytest.mark.usefixtures("every_loop", "unoptimised")
def test_effects_of_a_loop_happen_once_for_each_pass():
    seen = []

    def f(x):
        s = 0.0
        for k, v in enumerate(x):
            s = s + v
            seen.append(k)
        for v in x:
            print("", end="")
            s = s * v
        return s

    assert ft.jit(f)(np.array([2.0, 3.0])) == 30.0
    assert seen == [0, 1]


@pytest.mark.usefixtures("every_loop", "unoptimised")
def test_a_property_and_an_operator_of_an_object_are_called_in_each_pass():
    class Counting:
        calls = 0

        @property
        def next(self):
            self.calls += 1
            return float(self.calls)

        def __mul__(self, other):
            return other * self.next

    def by_property(x):
        c, s = Counting(), 0.0
        for v in x:
            s = s + v * c.next
        return s

    def by_operator(x):
        c, s = Counting(), 0.0
        for v in x:
            s = s + c * v
        return s

    assert ft.jit(by_property)(np.ones(4)) == ft.jit(by_operator)(np.ones(4)) == 10.0


@pytest.mark.usefixtures("every_loop", "unoptimised")
def test_names_after_a_loop_are_what_python_leaves():
    def f(x):
        k = 0
        for i in range(2, len(x)):
            last = x[i] * 2.0
            k += 3
        return last, i, k, [i]

    last, i, k, inside = ft.jit(f)(np.arange(5.0))
    assert (last, i, k, inside) == (8.0, 4, 9, [4])


@pytest.mark.usefixtures("every_loop", "unoptimised")
def test_a_name_without_a_value_raises_as_in_python():
    def f(x):
        for v in x:
            if v > 100.0:
                y = v
            z = y
        return z

    with pytest.raises(UnboundLocalError, match="y"):
        ft.jit(f)(np.ones(4))


@pytest.mark.usefixtures("every_loop", "unoptimised")
def test_arrays_that_others_name_are_seen_to_be_written():
    def f(x):
        u, v = x.copy(), fnp.zeros(len(x))
        kept = u
        for _ in range(5):
            v[1:] = 0.5 * u[:-1] + u[1:]
            u, v = v, u
        v[0] = 7.0
        return kept + 0.0, u + 0.0, v + 0.0

    x = np.arange(4.0)
    for y, z in zip(ft.jit(f)(x), f(x), strict=True):
        assert_allclose(y, z, rtol=1e-14)


@pytest.mark.usefixtures("every_loop", "unoptimised")
def test_a_row_that_a_loop_names_is_still_a_part_of_its_array_behind_the_loop():
    def f(A):
        A = A.copy()
        for k in range(5):
            row = A[k]
        A[4] += 1.0
        return row + 0.0

    A = np.ones((5, 5))
    assert ft.jit(f)(A).tolist() == f(fnp.array(A)).tolist() == [2.0] * 5


@pytest.mark.usefixtures("every_loop", "unoptimised")
def test_what_a_loop_reads_from_outside_is_compared_at_each_call():
    w = np.array([1.0, 2.0, 3.0])
    options = types.SimpleNamespace(scale=2.0)

    def f(x):
        s = 0.0
        for i in range(len(x)):
            s = s + x[i] * w[i] * options.scale
        return s

    compiled = ft.jit(f)
    assert compiled(np.ones(3)) == 12.0
    w[0] = 11.0
    assert compiled(np.ones(3)) == 32.0
    options.scale = 1.0
    assert compiled(np.ones(3)) == 16.0


@pytest.mark.usefixtures("every_loop", "unoptimised")
def test_an_index_that_leaves_an_array_raises_as_in_python():
    def f(x):
        s = 0.0
        for i in range(len(x) + 1):
            s = s + x[i]
        return s

    with pytest.raises(IndexError):
        ft.jit(f)(np.ones(4))


@pytest.mark.usefixtures("every_loop", "unoptimised")
@pytest.mark.parametrize("dtype", [np.float32, np.complex128, np.int64])
def test_types_are_those_of_eager_code(dtype):
    def f(x):
        s = 0
        for v in x:
            s = s * 2 + v
        return s

    x = np.arange(4).astype(dtype)
    y = ft.jit(f)(x)
    assert y == f(x) and y.dtype == f(x).dtype


@pytest.mark.usefixtures("every_loop", "unoptimised")
def test_batches_and_matrices_of_derivatives_go_through_loops():
    def solve(a, b):
        x = fnp.zeros(len(b))
        for i in range(len(b)):
            x[i] = (b[i] - a[i, :i] @ x[:i]) / a[i, i]
        return x

    jacobian = ft.jit(ft.jacobian(solve, argnums=1))(A, B)
    assert_allclose(jacobian, np.linalg.inv(np.tril(A)), rtol=1e-12, atol=1e-14)
    many = np.stack([B, 2.0 * B, B[::-1]])
    rows = ft.jit(ft.vmap(solve, in_axes=(None, 0)))(A, many)
    assert_allclose(rows, [solve(A, b) for b in many], rtol=1e-12)
    assert_allclose(ft.vmap(ft.jit(solve), in_axes=(None, 0))(A, many), rows, rtol=1e-14)


@pytest.mark.usefixtures("every_loop", "unoptimised")
def test_no_pass_and_one_pass_of_a_while():
    def f(x):
        y, k = x, 0
        while y < 10.0:
            y = y * 3.0
            k += 1
        return y * x, k

    compiled = ft.jit(f)
    for x, y, k in (20.0, 400.0, 0), (5.0, 75.0, 1), (1.0, 27.0, 3):
        assert compiled(x) == (y, k)
        assert ft.grad(lambda x: compiled(x)[0])(x) == ft.grad(lambda x: f(x)[0])(x)


@pytest.mark.usefixtures("unoptimised")
def test_a_while_that_saves_more_than_there_is_room_for_is_staged_pass_by_pass(monkeypatch):
    for module in (equation, saved, nest_reverse):
        monkeypatch.setattr(module, "ROOM", 8)

    def f(x):
        y = x
        while y < 30.0:
            y = y * x
        return y

    slope = ft.jit(ft.grad(f))
    assert slope(6.0) == 12.0
    assert "staged once" in repr(slope.explain())
    assert_allclose(slope(1.2), 19.0 * 1.2**18, rtol=1e-13)
    assert slope(6.0) == 12.0
    assert "staged once" not in repr(slope.explain())


class Ledger:
    total = 0.0


def test_functions_that_a_loop_calls_have_their_effects_in_each_pass(every_loop, unoptimised):
    ledger, seen, kept = Ledger(), {}, [0.0]

    def sets_attribute(v):
        ledger.total = ledger.total + 1.0
        return v

    def sets_item(v):
        seen["last"] = ledger.total
        kept[0] += 1.0
        return v

    def f(x):
        s = 0.0
        for v in x:
            s = s + sets_attribute(v)
        for v in x:
            s = s + sets_item(v)
        return s

    assert ft.jit(f)(np.ones(4)) == 8.0
    assert (ledger.total, seen, kept) == (4.0, {"last": 4.0}, [4.0])


@pytest.mark.usefixtures("every_loop", "unoptimised")
def test_arrays_with_two_names_behind_a_loop_stay_one():
    def part(a):
        a = a.copy()
        for k in range(4):
            y = a[k]
        a[3] += 1.0
        return y + 0.0

    def other(x):
        u = x.copy()
        for _ in range(3):
            t = 0.5 * u
            u = t
        u[0] = 5.0
        return t + 0.0

    def power(x):
        u = x.copy()
        v = u
        for _ in range(3):
            u **= 2
        return v + 0.0

    a = np.arange(16.0).reshape(4, 4)
    for f, x in (part, a), (other, a[1]), (power, a[1]):
        assert_allclose(ft.jit(f)(x), f(x), rtol=1e-15)


def test_loops_are_found_behind_a_gradient_that_a_function_calls():
    slope = ft.grad(programs.pairs, argnums=1)

    def step(a, b):
        return b - 0.1 * slope(a, b)

    a, b = np.ones((80, 80)), np.full(80, 0.01)
    compiled = ft.jit(step)
    assert_allclose(compiled(a, b), step(a, b), rtol=1e-12)
    (note,) = notes_of(compiled)
    assert note.endswith("staged as a loop")
