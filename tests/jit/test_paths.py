"""Python's control flow under ``jit``: paths, the tree that they form, and transforms of it."""

import dataclasses
import gc
import itertools
import sys
import threading
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import functrans as ft
from functrans._compile.lowering.numbers import AS_NUMPY
from functrans._transforms.staging import paths, recording, walking
from functrans._transforms.staging.jit import Jitted
from functrans._transforms.staging.paths import TraceTree
from functrans._transforms.staging.signature import same_eqn
from functrans.errors import ArgumentError, ConcretizationError, UnsupportedError
from tests.threads import at_once

X = np.array([0.5, -1.25, 2.0])


# ---- programs


def newton(a):
    x = a
    while np.abs(x * x - a) > 1e-9:
        x = 0.5 * (x + a / x)
    return x


def bisection(a):
    low, high = 0.0 * a, a + 1.0
    while high - low > 1e-3:
        middle = 0.5 * (low + high)
        if middle * middle > a:
            high = middle
        else:
            low = middle
    return low


def pieces(x):
    if x < -1.0:
        return x * x
    elif x < 1.0:
        return 3.0 * x
    return 2.0 - x


def clipped(x):
    y = x * 1.5
    if y > 2.0:
        y = 2.0 + 0.0 * y
    if y < 0.0:
        y = 0.25 * y
    return y * y


def early(x):
    total = 0.0 * x
    for k in range(6):
        total = total + x / (k + 1.0)
        if total > 1.0:
            return total * k
    return -total


def simpson(a, b, depth=0):
    def f(x):
        return x * x * x * x

    def rule(a, b):
        return (b - a) / 6.0 * (f(a) + 4.0 * f(0.5 * (a + b)) + f(b))

    middle = 0.5 * (a + b)
    whole, parts = rule(a, b), rule(a, middle) + rule(middle, b)
    if depth == 4 or np.abs(whole - parts) < 1e-3:
        return parts
    return simpson(a, middle, depth + 1) + simpson(middle, b, depth + 1)


def attempt(x):
    try:
        n = int(x)
    except ValueError:
        return x * 0.0
    return x * n


def generated(x):
    def steps(v):
        while v > 1.0:
            yield v
            v = v * 0.5

    return sum(steps(x), 0.0) + x


@dataclasses.dataclass
class Walker:
    place: object
    steps: int = 0

    def step(self, x):
        if self.place < 1.0:
            self.place = self.place + x
            self.steps += 1
        return self


def walked(x):
    walker = Walker(0.0 * x)
    for _ in range(4):
        walker.step(x)
    return walker.place * walker.steps


def collected(x):
    seen = {"low": [], "high": []}
    for v in (x, 2.0 * x, 3.0 * x):
        seen["high" if v > 1.5 else "low"].append(v)
    return sum(seen["high"], 0.0 * x) * len(seen["low"]) + x


PROGRAMS = {f.__name__: f for f in (newton, bisection, pieces, clipped, early, attempt, generated,
                                    walked, collected)}
POINTS = (0.25, 2.0, 0.75, 9.0, 0.25, 2.5)


def eager(f, *args):
    with ft.config(jit=False):
        return f(*args)


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("f", PROGRAMS.values(), ids=PROGRAMS)
def test_values_are_those_of_eager_code_to_the_last_bit(f):
    compiled = ft.jit(f)
    for x in POINTS:
        y, expected = compiled(x), eager(f, x)
        assert_array_equal(y, expected)


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("f", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize("make", [
    lambda f: ft.grad(ft.jit(f)), lambda f: ft.jit(ft.grad(f)),
    lambda f: ft.grad(ft.grad(ft.jit(f))), lambda f: ft.jit(ft.grad(ft.jit(ft.grad(f)))),
    lambda f: lambda x: ft.jvp(ft.jit(f), x, 1.0)[1],
    lambda f: ft.jit(lambda x: ft.jit(f)(x) * 2.0),
], ids=["grad(jit)", "jit(grad)", "grad(grad(jit))", "jit(grad(jit(grad)))", "jvp(jit)",
        "jit(jit)"])
def test_every_transform_of_a_path_agrees_with_eager_code(make, f):
    g = make(f)
    for x in POINTS[:4]:
        np.testing.assert_allclose(g(x), eager(make(f), x), rtol=1e-13)


def test_a_recursion_by_the_accuracy_of_its_result():
    integral = ft.jit(simpson)
    for ends in ((0.0, 1.0), (0.0, 2.0), (-3.0, 1.0), (0.0, 1.0)):
        assert_array_equal(integral(*ends), simpson(*ends))
        np.testing.assert_allclose(ft.grad(integral, 1)(*ends), ft.grad(simpson, 1)(*ends),
                                   rtol=1e-13)


@pytest.mark.parametrize("kind", [int, np.int64, np.int32])
def test_a_loop_by_an_integer(kind):
    def collatz(n):
        steps = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            steps += 1
        return steps

    compiled = ft.jit(collatz)
    for n in (6, 1, 6, 7, 3):
        assert compiled(kind(n)) == collatz(n)


def test_loops_over_traced_counts():
    f = ft.jit(lambda n, x: sum([x * k for k in range(n)], 0.0 * x))
    for n in (3, 0, 5, 3):
        assert_array_equal(f(n, X), sum([X * k for k in range(n)], 0.0 * X))
        assert_array_equal(f(np.int64(n), X), sum([X * k for k in range(n)], 0.0 * X))


def test_shapes_and_plain_arrays_take_traced_integers():
    table = np.array([2.0, 3.0, 5.0])
    f = ft.jit(lambda i, x: np.ones(i + 1) * table[i] * x)
    for i in (0, 2, 1, -1):
        assert_array_equal(f(i, 2.0), np.ones(i + 1) * table[i] * 2.0)


def test_numbers_of_python():
    f = ft.jit(lambda x: x * float(x[0]) + int(x[2]) + complex(x[1]).real)
    for x in (X, X + 1.0, X):
        assert_array_equal(f(x), x * float(x[0]) + int(x[2]) + float(x[1]))


def test_a_constant_of_a_number_has_no_derivative_in_silence():
    f = ft.jit(lambda x: x * float(x))
    assert f(3.0) == 9.0
    for g in (ft.grad(f), ft.jit(ft.grad(lambda x: x * float(x)))):
        with pytest.raises(ConcretizationError, match="the result would have no derivative"):
            g(3.0)


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_zeros_of_both_signs_are_different_numbers(zero):
    f = ft.jit(lambda x: np.copysign(1.0, float(x)) + 0.0 * x)
    for x in (zero, -zero, zero):
        assert f(x) == np.copysign(1.0, x)


@pytest.mark.parametrize("x", [np.nan, np.inf, -np.inf, -0.0, 1e308])
def test_special_numbers_decide_as_they_do_in_python(x):
    def f(x):
        if x == x and x < 0:
            return x * 0.5
        return x * 2.0 if x else x + 3.0

    compiled = ft.jit(f)
    compiled(1.0)
    assert_array_equal(compiled(x), f(x))


def test_what_python_refuses_is_refused_each_time():
    f = ft.jit(lambda x: int(x) * x)
    for _ in range(2):
        assert f(2.5) == 5.0
        with pytest.raises(ValueError, match="cannot convert float NaN to integer"):
            f(np.nan)
    with pytest.raises(ValueError, match="ambiguous"):
        ft.jit(lambda x: x if x else -x)(X)
    with pytest.raises(TypeError, match="only integer values"):
        ft.jit(lambda x: range(x))(1.0)


def test_large_arrays_decide_by_their_numbers():
    x = np.linspace(-1.0, 1.0, 100_000)
    f = ft.jit(lambda x: x[-1] * 2.0 if np.sum(x) > 1.0 else x[-1] * 3.0)
    assert f(x) == 3.0
    assert f(x + 1.0) == 4.0


def test_results_of_native_loops_decide():
    def f(x):
        y = ft.fori_loop(0, 3, lambda k, y: y * 2.0, x)
        return y + 1.0 if y > 8.0 else y

    compiled = ft.jit(f)
    assert [float(compiled(x)) for x in (0.5, 2.0, 1.0, 3.0)] == [4.0, 17.0, 8.0, 25.0]


# ---- the tree


def tree_of(f, *calls, most=64):
    compiled = Jitted(f, (), (), AS_NUMPY, most)
    for args in calls:
        compiled(args, {})
    (tree,) = compiled.entries.values()
    return compiled, tree


def test_a_path_is_staged_when_it_is_first_met():
    runs = []

    def f(x):
        runs.append(x)
        return x * 2.0 if x > 0 else x * 3.0

    compiled = ft.jit(f)
    assert [float(compiled(x)) for x in (1.0, 2.0, -1.0, -2.0, 5.0)] == [2.0, 4.0, -3.0, -6.0, 10.0]
    assert len(runs) == 2


def test_what_paths_have_in_common_is_one_piece():
    def f(x):
        y = np.exp(x) * 2.0
        if y > 3.0:
            return y + 1.0
        return y - 1.0 if y > 1.0 else y * y

    _, tree = tree_of(f, (2.0,), (0.0,), (-3.0,))
    assert isinstance(tree, TraceTree)
    nodes = list(tree.nodes())
    assert [(depth, key, len(node.eqns)) for depth, key, node in nodes] == [
        (0, None, 3), (1, True, 1), (1, False, 1), (2, True, 1), (2, False, 1)]
    root = nodes[0][2].piece.entry
    assert [e.prim.name for e in root.program.eqns] == ["exp", "multiply", "greater"]
    assert len(root.program.outputs) == 2  # y and the decision


@ft.config(loops=False)
def test_equal_pieces_are_compiled_once():
    _, tree = tree_of(newton, (2.0,), (3.0,), (9.0,))
    entries = {id(n.piece.entry) for _, _, n in tree.nodes() if n.test is not None}
    assert len(entries) == 3  # of the first decision, of the step from a, of a step
    assert len(list(tree.nodes())) > 6


def test_what_is_not_read_later_is_not_kept():
    def f(x):
        unused = np.sin(x) * 2.0
        return x * 2.0 if np.cos(unused) > 0 else x

    _, tree = tree_of(f, (0.1,))
    assert len(tree.root.piece.entry.program.outputs) == 1


def test_a_later_path_may_need_more_of_what_was_computed():
    def f(x):
        y = np.sin(x)
        return x if x > 0 else y + x

    compiled, tree = tree_of(f, (1.0,))
    assert len(tree.root.piece.gives) == 1
    assert compiled((-1.0,), {}) == np.sin(-1.0) - 1.0
    assert len(tree.root.piece.gives) == 2
    assert compiled((1.0,), {}) == 1.0


def test_a_later_path_may_decide_by_what_was_computed_before():
    runs = []

    def f(x):
        runs.append(x)
        y = x * 2.0
        small = y < -4.0
        if x > 0:
            return x
        return y if small else x + 1.0

    compiled = ft.jit(f)
    assert [float(compiled(x)) for x in (1.0, -1.0, -3.0, 1.0, -1.0)] == [1.0, 0.0, -6.0, 1.0, 0.0]
    assert len(runs) == 3


def test_paths_are_bounded_and_the_least_recently_used_goes():
    compiled, tree = tree_of(lambda n, x: x * n.__index__(), *[(n, 1.0) for n in (1, 2, 3)], most=3)
    compiled((1, 1.0), {})
    compiled((4, 1.0), {})
    kept = [key for _, key, node in tree.nodes() if node.test is None]
    assert kept == [(int, 1), (int, 3), (int, 4)]
    assert len(tree.leaves) == 3


def test_paths_without_end_are_warned_of_and_then_python_runs_them():
    f = ft.jit(lambda n, x: x * float(n), max_paths=3)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for n in range(12):
            assert_array_equal(f(float(n), X), X * n)
    (warning,) = seen
    text = str(warning.message)
    assert "test_paths.py:" in text and "while_loop" in text and "max_paths=3" in text
    assert warning.filename.endswith("test_paths.py")


def test_paths_that_cost_more_than_they_save_are_left_to_python(monkeypatch, caplog):
    clock = itertools.count(step=0.3)
    monkeypatch.setattr(paths, "thread_time", lambda: next(clock))
    runs = []

    def f(n, x):
        runs.append(n)
        return x * float(n)

    compiled = ft.jit(f)
    for n in range(12):
        assert_array_equal(compiled(float(n), X), X * n)
    staged = 5  # the first, and as many as take 1.2 s
    (said,) = caplog.messages
    assert "test_paths.py:" in said and "`return x * float(n)`" in said
    text = repr(compiled.explain())
    assert f"staged {staged} times" in text and said.removeprefix("jit(f): ") in text
    del runs[:]
    for n in range(staged):
        assert_array_equal(compiled(float(n), X), X * n)
    assert not runs  # paths that are there serve on
    for _ in range(3):
        assert_array_equal(compiled(11.0, X), X * 11)
    # once Python has taken as long for it as a path takes, there is a path
    assert len(runs) == 1 and f"staged {staged + 1} times" in repr(compiled.explain())
    assert ft.grad(lambda x: np.sum(compiled(20.0, x)))(X).tolist() == [20.0] * 3


def test_the_plan_of_many_paths_is_not_made_anew_for_each(monkeypatch):
    made = []
    native = walking.native
    monkeypatch.setattr(walking, "native",
                        lambda tree, *rest: made.append(len(tree.leaves)) or native(tree, *rest))
    f = ft.jit(lambda n, x: x * float(n))
    for n in range(30):
        assert_array_equal(f(float(n), X), X * n)
    assert len(made) < 10
    for n in range(10):
        assert_array_equal(f(float(n), X), X * n)
    assert made[-1] == 30


@ft.config(loops=False)
def test_a_loop_without_end_is_warned_of_and_then_python_runs_it(monkeypatch):
    monkeypatch.setattr(recording, "MOST_DECISIONS", 20)

    def f(x):
        while x < 100.0:
            x = x + 1.0
        return x

    compiled = ft.jit(f)
    loop = r"test_paths.py:\d+: .* `while x < 100.0:`, .* 20 times .*while_loop"
    with pytest.warns(RuntimeWarning, match=loop):
        assert compiled(0.0) == 100.0
    assert compiled(0.5) == 100.5
    assert compiled(98.5) == 100.5
    assert ft.grad(compiled)(0.5) == 1.0


@pytest.mark.parametrize("most", [0, -1, 1.5, "many"])
def test_max_paths_must_be_a_positive_int(most):
    with pytest.raises(ArgumentError, match="max_paths must be an int of at least 1"):
        ft.jit(lambda x: x, max_paths=most)


def test_clear_cache_forgets_all_paths():
    runs = []
    f = ft.jit(lambda x: runs.append(1) or (x if x > 0 else -x))
    for x in (1.0, -1.0, 2.0):
        f(x)
    f.clear_cache()
    assert f(-3.0) == 3.0
    assert len(runs) == 3


def test_lower_shows_the_path_of_the_arguments():
    f = ft.jit(lambda x: x * 2.0 if x > 0 else np.sin(x))
    assert "new kind" in f.lower(1.0).reason
    lowered = f.lower(-1.0)
    assert lowered.reason == "another path"
    assert [e.prim.name for e in lowered.program.eqns] == ["greater", "sin"]
    assert f.lower(2.0).reason == "staged before"


def test_no_function_for_c_has_paths():
    f = ft.jit(lambda x: x * 2.0 if x > 0 else x)
    with pytest.raises(UnsupportedError, match=r"jit\(<lambda>\)"):
        f.ctypes(1.0)


# ---- what the function does beside its result


def test_an_exception_of_a_branch_is_raised_each_time_and_leaves_nothing():
    def f(x):
        if x < 0:
            raise KeyError("negative")
        return np.sqrt(x)

    compiled, tree = tree_of(f, (4.0,))
    for _ in range(3):
        with pytest.raises(KeyError, match="negative"):
            compiled((-1.0,), {})
        assert compiled((9.0,), {}) == 3.0
    assert len(tree.leaves) == 1
    first = ft.jit(f)
    with pytest.raises(KeyError):
        first(-1.0)
    assert first(4.0) == 2.0


def test_assertions_hold_at_each_call():
    def f(x):
        assert np.all(x > 0), "not positive"
        return np.log(x)

    compiled = ft.jit(f)
    compiled(np.ones(2))
    for _ in range(2):
        with pytest.raises(AssertionError, match="not positive"):
            compiled(np.array([1.0, -1.0]))


def test_closures_that_change_are_met_on_every_path():
    scale = 2.0
    f = ft.jit(lambda x: x * scale if x > 0 else x / scale)
    assert [float(f(x)) for x in (1.0, -1.0)] == [2.0, -0.5]
    scale = 4.0
    assert [float(f(x)) for x in (1.0, -1.0, 1.0)] == [4.0, -0.25, 4.0]


def test_what_only_one_path_changes_is_not_compared():
    calls = {"negative": 0}

    def f(x):
        if x < 0:
            calls["negative"] += 1
        return x * 2.0

    compiled = ft.jit(f)
    for x in (1.0, -1.0, 2.0, -2.0, 3.0, -3.0):
        assert compiled(x) == 2.0 * x
    assert calls["negative"] == 1


def test_a_function_that_computes_otherwise_each_time_is_still_right():
    turn = iter(range(100))

    def f(x):
        y = x * 1.0
        for _ in range(next(turn) % 3):
            y = y + 1.0 - 1.0
        return y * 2.0 if y > 0 else y * 3.0

    compiled = ft.jit(f, max_paths=50)
    for x in (1.0, -1.0, 2.0, -2.0, 3.0, -3.0):
        assert compiled(x) == (2.0 * x if x > 0 else 3.0 * x)


def test_a_function_whose_prefix_changes_is_still_right():
    scales = itertools.chain([2.0], itertools.repeat(3.0))
    f = ft.jit(lambda x: (lambda y: y if y > 0 else y - 1.0)(x * next(scales)))
    assert [float(f(x)) for x in (1.0, -1.0, 1.0, -1.0)] == [2.0, -4.0, 3.0, -4.0]


def test_a_function_that_never_does_the_same_twice_is_run_by_python():
    runs = []

    def f(x):
        runs.append(1)
        y = x
        for _ in runs:
            y = y + 1.0 - 1.0
        return y * 2.0 if y > 0 else y * 3.0

    compiled, tree = tree_of(f, (1.0,))
    assert compiled((-1.0,), {}) == -3.0
    assert len(runs) < 20
    assert not tree.endless


def test_isinstance_and_types_are_of_the_kind_of_arguments():
    def f(x):
        if isinstance(x, tuple):
            return x[0] if x[0] > 0 else x[1]
        return x if x > 0 else -x

    compiled = ft.jit(f)
    assert [float(compiled(x)) for x in (1.0, (1.0, 5.0), -2.0, (-1.0, 5.0))] == [1, 1, 2, 5]


def test_a_path_that_closes_over_a_traced_value():
    def loss(w):
        inner = ft.jit(lambda x: w * x if w * x > 1.0 else w * w * x)
        return inner(3.0) + inner(0.1)

    for w in (2.0, 0.25, 20.0):
        np.testing.assert_allclose(ft.grad(loss)(w), eager(ft.grad(loss), w))
        np.testing.assert_allclose(ft.jit(ft.grad(loss))(w), eager(ft.grad(loss), w))


def test_a_path_that_writes_into_an_array():
    import functrans.numpy as fnp

    def f(x):
        y = fnp.zeros(3)
        for k in range(3):
            if x[k] > 0:
                y[k] = x[k] ** 2
        return fnp.sum(y * x)

    compiled = ft.jit(f)
    for x in (X, -X, X):
        np.testing.assert_allclose(compiled(x), eager(f, x))
        np.testing.assert_allclose(ft.grad(compiled)(x), eager(ft.grad(f), x))


# ---- with batches, loops and each other


def test_a_batch_that_decides_by_what_it_has_in_common():
    f = ft.jit(lambda x, n: x * 2.0 if n > 0 else x * x)
    for n in (1.0, -1.0):
        expected = X * 2.0 if n > 0 else X * X
        assert_array_equal(ft.vmap(f, in_axes=(0, None))(X, n), expected)
        assert_array_equal(ft.jit(ft.vmap(f, in_axes=(0, None)))(X, n), expected)
        assert_array_equal(ft.vmap(ft.grad(f), in_axes=(0, None))(X, n), X * 0 + 2 if n > 0
                           else 2 * X)


def test_the_body_of_a_loop_with_paths_is_written_out():
    def f(xs):
        return ft.scan(lambda c, x: (c + x if x > 0 else c * 0.5, c), 1.0, xs)

    for xs in (X, -X, X):
        for y, expected in zip(ft.jit(f)(xs), f(xs), strict=True):
            assert_array_equal(y, expected)


def test_a_compiled_function_with_paths_in_the_body_of_a_loop():
    inner = ft.jit(lambda c, x: c + x if x > 0 else c * 0.5)

    def f(xs):
        return ft.scan(lambda c, x: (inner(c, x), c), 1.0, xs)[0]

    for xs in (X, -X, X):
        for g in (f, ft.jit(f)):
            np.testing.assert_allclose(g(xs), eager(f, xs))
            np.testing.assert_allclose(ft.grad(g)(xs), eager(ft.grad(f), xs))


def test_the_body_of_a_while_loop_has_one_path():
    f = ft.jit(lambda x: ft.while_loop(lambda y: y < 9.0, lambda y: y * 2 if y > 3 else y * 3, x))
    with pytest.raises(ConcretizationError, match=r"ft\.cond instead of"):
        f(1.0)


def test_a_decision_of_an_inner_function_is_one_of_the_outer():
    inner = ft.jit(clipped)
    outer, tree = tree_of(lambda x: inner(x) + inner(-x), (1.0,), (2.0,), (-1.0,))
    assert [outer((x,), {}) for x in (1.0, 2.0, -1.0, 0.0)] == [
        clipped(x) + clipped(-x) for x in (1.0, 2.0, -1.0, 0.0)]
    assert len(tree.leaves) == 4


@pytest.mark.parametrize("make", [lambda f: f, ft.grad], ids=["value", "grad"])
def test_threads_that_call_at_once_get_what_one_gets(make):
    f = make(ft.jit(newton))
    points = [0.5 + 0.25 * k for k in range(24)]
    expected = [float(eager(make(newton), x)) for x in points]
    start = threading.Barrier(4)

    def work(i):
        start.wait()
        order = points[6 * i:] + points[:6 * i]
        by_point = {x: float(f(x)) for x in order}
        return [by_point[x] for x in points]

    for r in at_once(work, range(4)):
        np.testing.assert_allclose(r, expected, rtol=1e-13)


def test_arguments_are_not_kept():
    f = ft.jit(lambda x: x * 2.0 if np.sum(x) > 0 else x)
    alive = []

    class Owner(np.ndarray):
        def __del__(self):
            alive.append("gone")

    x = np.ones(3).view(Owner)
    f(np.asarray(x))
    del x
    gc.collect()
    assert alive == ["gone"]


# ---- the C function that walks the tree


def again(compiled, *args, calls=3):
    for _ in range(calls):
        y = compiled(*args)
    return y


@pytest.mark.usefixtures("seldom_optimised")
@pytest.mark.parametrize("f", PROGRAMS.values(), ids=PROGRAMS)
def test_paths_that_are_taken_again_give_the_same(f):
    compiled = ft.jit(f)
    for x in (0.75, 2.5, 0.75):
        assert_array_equal(again(compiled, x), eager(f, x))
    assert_array_equal(compiled(9.0), eager(f, 9.0))


def test_all_paths_so_far_are_one_function_that_declines_others():
    def f(x):
        y = np.exp(x) * 2.0
        if y[0] > 3.0:
            return y + 1.0
        return y - 1.0 if y[1] > 1.0 else np.sum(y)

    low, high = np.array([-1.0, -2.0]), np.array([-1.0, 2.0])
    compiled, tree = tree_of(f, (low,), (high,))
    for x in (low, high, low):
        assert_array_equal(tree.native(x), f(x))
    assert type(tree.native) is type(len)
    assert tree.native(-low) is NotImplemented
    for _ in range(2):
        assert_array_equal(compiled.again((-low,), {}), f(-low))
    assert_array_equal(tree.native(-low), f(-low))


def test_walks_leave_nothing_behind():
    def f(x):
        y = np.sin(x) * 2.0
        if y[0] > 0:
            return {"y": y, "n": 1.0}
        return y - 1.0 if y[1] > 0 else np.sum(y)

    _, tree = tree_of(f, (X,), (-X,), (X - 1.0,))
    large = np.ones(3, np.float32)
    points = (X, -X, X - 1.0, large)
    counted = (np.dtype(float), np.dtype(np.uint8), NotImplemented, ft.tree.LEAF, X)
    before = [sys.getrefcount(x) for x in counted]
    blocks = sys.getallocatedblocks()
    for _ in range(300):
        for x in points:
            assert (tree.native(x) is NotImplemented) == (x is large)
    after = [sys.getrefcount(x) for x in counted]
    assert all(abs(a - b) < 50 for a, b in zip(after, before, strict=True))
    assert sys.getallocatedblocks() - blocks < 200


def test_pieces_that_only_decide_are_not_differentiated():
    compiled, tree = tree_of(pieces, (0.5,))
    assert ft.grad(lambda x: compiled((x,), {}))(0.5) == 3.0
    assert tree.root.piece.entry.derived == {}


def test_a_path_that_the_c_function_takes_is_recently_used():
    compiled, tree = tree_of(lambda n, x: x * n.__index__(), *[(n, 1.0) for n in (1, 2, 3)], most=3)
    for n in (1, 2, 3):
        compiled((n, 1.0), {})
    assert tree.native(1, 2.0) == 2.0
    compiled((4, 1.0), {})
    assert [key for _, key, node in tree.nodes() if node.test is None] == [
        (int, 1), (int, 3), (int, 4)]


@pytest.mark.parametrize("order", [*itertools.permutations((-2.0, 0.3, 2.0))])
def test_no_bit_depends_on_the_order_in_which_paths_are_met(order):
    def f(x):
        y = np.sin(x) * np.exp(0.1 * x)
        if x[0] < -1.0:
            return np.sum(y * x) + y
        z = np.cumsum(y / 3.0)
        return np.log1p(z * z) if x[0] < 1.0 else np.tanh(y) - z

    at = {x: x + np.linspace(0.0, 1.0, 7) for x in order}
    fresh = {x: ft.jit(f)(at[x]) for x in order}
    compiled = ft.jit(f)
    for x in (*order, *order, *order):
        assert_array_equal(compiled(at[x]), fresh[x])


@pytest.mark.parametrize("convert", [bool, int, float])
@pytest.mark.parametrize("values", [(2.0, 2.5, -0.5), (0.0, -0.0, 0.5), (1.0, np.nan, np.inf)],
                         ids=["fractions", "zeros", "special"])
def test_what_is_declined_is_what_was_not_decided(convert, values):
    compiled = ft.jit(lambda x: np.copysign(1.0, convert(x)) + convert(x) * x)
    first, *others = values
    again(compiled, np.float64(first))
    for x in (*others, first):
        try:
            expected = np.copysign(1.0, convert(x)) + convert(x) * x
        except (ValueError, OverflowError) as error:
            with pytest.raises(type(error)):
                compiled(np.float64(x))
        else:
            assert_array_equal(compiled(np.float64(x)), expected)


def test_a_loop_that_might_not_end_is_run_on_its_path_alone():
    def f(x):
        if x > 0:
            return ft.while_loop(lambda y: y != 8.0, lambda y: y * 2.0, x)
        return x

    compiled = ft.jit(f)
    for _ in range(3):
        assert (compiled(1.0), compiled(-1.0)) == (8.0, -1.0)


def test_an_error_on_a_path_that_is_not_taken_is_not_raised():
    def f(i, x):
        return x[i] if i < 3 else x[0] * 0.0

    compiled = ft.jit(f)
    assert again(compiled, 2, X) == X[2]
    assert compiled(3, X) == 0.0
    with pytest.raises(IndexError):
        compiled(-4, X)


def test_closures_that_change_are_met_by_the_c_function():
    scale = 2.0
    f = ft.jit(lambda x: x * scale if x > 0 else x)
    assert again(f, 1.0) == 2.0
    scale = 3.0
    assert again(f, 1.0) == 3.0


@pytest.mark.parametrize("kind", [float, np.float64, np.float32, int, np.int8, np.bool_])
@pytest.mark.parametrize("convert", [bool, int, float])
def test_the_c_function_decides_by_numbers_of_every_kind(convert, kind):
    f = ft.jit(lambda x: convert(x) * 2.0 + 0.0 * x)
    for x in map(kind, (1, 0, 3, 1, 0, 3, 1, 0, 3)):
        assert_array_equal(f(x), convert(x) * 2.0)


def test_results_of_several_kinds():
    def f(x):
        if x > 2.0:
            return {"y": x * 2.0, "n": 1}
        return (x, [x + 1.0]) if x > 0 else x

    compiled = ft.jit(f)
    for x in (3.0, 1.0, -1.0) * 4:
        assert compiled(x) == f(x)


def test_constants_and_arguments_are_results_of_their_own():
    f = ft.jit(lambda x: x if x[0] > 0 else X)
    for x in (X, -X) * 4:
        y = f(x)
        assert_array_equal(y, X)
        assert not np.shares_memory(y, x) and not np.shares_memory(y, X)


def test_large_values_that_pieces_hand_on():
    def f(x):
        y = np.sin(x)
        if y[0] > 0:
            z = y * 2.0
            return z - y if z[1] > 0 else np.sum(y)
        return y * x

    compiled = ft.jit(f)
    ones = np.ones(5_000)
    mixed = ones.copy()
    mixed[1] = -1.0
    for x in (ones, -ones, mixed) * 4:
        np.testing.assert_allclose(compiled(x), f(x), rtol=1e-14)


def test_several_values_are_handed_on_by_several_pieces():
    def f(x):
        y, z = np.sin(x), np.cos(x)
        if y[0] > 0:
            u, v = y * 3.0, z * 5.0
            if z[1] > 0:
                return u - v, y, z
            return y, z + v, u
        return z, y, x

    compiled = ft.jit(f)
    for x in (X, -X, X + 0.5, X - 2.0) * 3:
        for y, expected in zip(compiled(x), f(x), strict=True):
            np.testing.assert_allclose(y, expected, rtol=1e-14)


@ft.config(loops=False)
def test_the_c_function_walks_hundreds_of_guards():
    def f(x):
        y = x
        for _ in range(600):
            if y > 0:
                y = y * 1.001
        return y

    compiled, tree = tree_of(f, (1.0,))
    compiled((1.0,), {})
    assert tree.native(1.0) == f(1.0)


def test_paths_with_more_large_values_than_a_call_holds_are_left_to_python():
    def f(x):
        ys = [x]
        for _ in range(70):
            if ys[-1][0] > 0:
                ys.append(ys[-1] * 1.001)
        return sum(ys[1:], x)

    x = np.linspace(1.0, 2.0, 200)
    compiled, tree = tree_of(f, (x,))
    for _ in range(2):
        assert_array_equal(compiled((x,), {}), f(x))
    assert tree.native(x) is NotImplemented
    assert_array_equal(compiled((x,), {}), f(x))


def test_steps_of_numpys_are_left_to_python():
    def f(x):
        if x[0] > 0:
            return np.linalg.svd(np.outer(x, x) + np.eye(3))[1]
        return x * 2.0

    compiled = ft.jit(f)
    for x in (X, -X) * 4:
        np.testing.assert_allclose(compiled(x), f(x), rtol=1e-12)


SWALLOWED = """
def swallowed(x):
    for _ in range(2):
        try:
            x = x * 2 if x > 1 else x + 1
        finally:
            continue
    return x
"""


def test_cleaning_up_does_not_change_where_a_path_ends():
    def f(x):
        out = []
        for v in x:
            try:
                out.append(np.sqrt(v) if v > 0 else v * v)
            finally:
                out[-1] = out[-1] * 2  # IndexError where the decision is not known yet
        return out[0] + out[1]

    names: dict = {"np": np}
    with warnings.catch_warnings(action="ignore", category=SyntaxWarning):  # from Python 3.14 on
        exec(SWALLOWED, names)  # as text, so that the warning can be ignored
    swallowed = names["swallowed"]
    xs = np.array([[4.0, -1.0], [-2.0, 9.0]])
    assert_array_equal(ft.vmap(ft.jit(f))(xs), [f(x) for x in xs])
    assert_array_equal(ft.vmap(ft.jit(swallowed))(xs[0]), [swallowed(x) for x in xs[0]])


def test_exceptions_and_paths_take_turns():
    def f(x):
        if x < 0:
            raise ValueError("negative")
        return x * 2.0

    compiled = ft.jit(f)
    for _ in range(4):
        assert compiled(2.0) == 4.0
        with pytest.raises(ValueError, match="negative"):
            compiled(-2.0)


# ---- masks


def masked_means(x, r):
    out = []
    for low in (0.0, 0.5):
        chosen = x[(r >= low) & (r < low + 0.5)]
        out.append(chosen.mean() if chosen.size else x[0])
    return out[0] * out[1]


def written_where(x, r):
    y = ft.numpy.array(x)
    y[y > 1] = y[y > 1] ** -1.5
    y[r < 0.5] *= 2
    return y.sum() + x[np.nonzero(r > 0.7)[0]].sum()


@pytest.mark.parametrize("f", [masked_means, written_where], ids=lambda f: f.__name__)
def test_a_mask_is_decided_by_as_a_condition_is(f, unoptimised):
    compiled, slope = ft.jit(f), ft.jit(ft.grad(f))
    draws = np.random.default_rng(0).uniform(0.1, 2.0, (3, 2, 70)) * [[1.0], [0.5]]
    for x, r in draws:
        assert compiled(x, r) == pytest.approx(float(f(x, r)), rel=1e-14)
        assert slope(x, r) == pytest.approx(np.asarray(ft.grad(f)(x, r)), rel=1e-14)
    whole = ft.vmap(ft.jit(f))(draws[:, 0], draws[:, 1])
    assert whole == pytest.approx([float(f(x, r)) for x, r in draws], rel=1e-13)


def test_a_long_mask_decides_nothing():
    with pytest.raises(ConcretizationError, match=r"np\.where"):
        ft.jit(lambda x: x[x > 0].sum())(np.ones(2000))


def test_equations_of_two_rows_are_not_the_same():
    sin, cos = [ft.make_program(f)(1.0).eqns[0] for f in (np.sin, np.cos)]
    sources = [{eqn.inputs[0]: "the argument"} for eqn in (sin, cos)]
    assert same_eqn(sin, sin, sources[0], sources[0])
    assert not same_eqn(sin, cos, *sources)
