"""Binomial checkpointing: how many steps are run, how many states are kept, and where."""

import functools
import itertools
import math
import os
import tempfile
import tracemalloc

import numpy as np
import pytest

import functrans as ft
from functrans._transforms.control import revolve
from functrans._transforms.control.revolve import FIRST, first_part, most_steps, runs, usual
from functrans.errors import ArgumentError, OutOfMemoryError, ShapeError, UnsupportedError

XS = np.linspace(0.5, 1.5, 13)
FEW = ft.Revolve(snapshots=3)


@functools.cache
def fewest_runs(n, states):
    """The least number of steps run, by trying each first part."""
    if n == 1:
        return 0
    if states == 1:
        return n * (n - 1) // 2
    return min(
        m + fewest_runs(n - m, states - 1) + fewest_runs(m, states) for m in range(1, n)
    )


def scheduled_runs(n, states):
    if n == 1:
        return 0
    m = first_part(n, states)
    return m + scheduled_runs(n - m, states - 1) + scheduled_runs(m, states)


def gradient_runs(n, **options):
    runs_of = []

    def step(c, x):
        runs_of.append(1)
        return np.sin(c) * x, c * c

    def loss(c, xs):
        last, ys = ft.scan(step, c, xs, checkpoint=ft.Revolve(**options))
        return last + np.sum(ys)

    ft.grad(loss)(0.3, np.linspace(0.5, 1.5, n))
    return len(runs_of)


@pytest.mark.parametrize("states", [1, 2, 3, 4, 7])
def test_the_formula_is_the_least_number_of_runs_and_the_schedule_attains_it(states):
    lengths = range(1, 26)
    least = [fewest_runs(n, states) for n in lengths]
    assert [runs(n, states) for n in lengths] == least
    assert [scheduled_runs(n, states) for n in lengths] == least


@pytest.mark.parametrize(("n", "states"), [(1, 1), (2, 1), (9, 1), (10, 2), (11, 2), (35, 3),
                                           (36, 3), (70, 4), (100, 7)])
def test_a_gradient_runs_each_step_once_and_the_least_number_again(n, states):
    assert gradient_runs(n, snapshots=states) == n + runs(n, states)


@pytest.mark.parametrize(("states", "repeats"), [(1, 4), (3, 2), (4, 3)])
def test_as_many_steps_as_the_binomial_says_are_run_again_so_often_and_no_more(states, repeats):
    n = most_steps(states, repeats)
    assert n == math.comb(states + repeats, states)
    seen = dict.fromkeys(range(n), 0)

    def step(c, k):
        seen[int(k)] += 1
        return c * 1.01, None

    ft.grad(lambda c: ft.scan(step, c, np.arange(n), checkpoint=ft.Revolve(states))[0])(1.0)
    assert max(seen.values()) == repeats + 1


def test_without_a_number_no_step_is_run_more_than_three_times_again():
    n = 200
    states = usual(n)
    assert most_steps(states, 3) >= n > most_steps(states - 1, 3)
    runs_of = []

    def step(c, _):
        runs_of.append(1)
        return np.sin(c), None

    ft.grad(lambda c: ft.scan(step, c, None, n, checkpoint="revolve")[0])(1.0)
    assert len(runs_of) == n + runs(n, states)


# ---- values and derivatives


def carried(c, xs, checkpoint):
    def step(state, x):
        u, v = state
        return (np.sin(u * x) + v, np.tanh(v) * c), {"sum": u + v, "same": x}

    (u, v), ys = ft.scan(step, (c, 0.5), xs, checkpoint=checkpoint)
    return u * v + np.sum(ys["sum"] ** 2) + ys["same"][3] * u


def backwards(c, xs, checkpoint):
    last, ys = ft.scan(
        lambda c, x: (np.sin(c * x), c * x), c, xs, reverse=True, checkpoint=checkpoint
    )
    return last * np.sum(ys * np.arange(len(xs)))


WAYS = {
    "values": lambda f: f,
    "gradients": lambda f: ft.grad(f, argnums=(0, 1)),
    "tangents": lambda f: lambda c, xs: ft.jvp(f, (c, xs), (1.0, np.cos(xs))),
    "batches": lambda f: lambda c, xs: ft.vmap(ft.grad(f), in_axes=(0, None))(xs[:3], xs),
    "forward over reverse": lambda f: ft.jacfwd(ft.grad(f, argnums=1), argnums=1),
    "reverse over reverse": lambda f: ft.jacrev(ft.grad(f, argnums=1), argnums=1),
    "reverse over forward": lambda f: ft.jacrev(ft.jacfwd(f, argnums=1), argnums=1),
    "compiled gradients": lambda f: ft.jit(ft.grad(f, argnums=(0, 1))),
}


@pytest.mark.parametrize(("f", "way"), [
    *itertools.product([carried, backwards], [way for way in WAYS if "comp" not in way]),
    (backwards, "compiled gradients"),
])
def test_every_transform_gives_what_it_gives_without_checkpoints(f, way):
    with_few = WAYS[way](lambda c, xs: f(c, xs, FEW))(0.3, XS)
    plain = WAYS[way](lambda c, xs: f(c, xs, None))(0.3, XS)
    for x, y in zip(ft.tree.leaves(with_few), ft.tree.leaves(plain), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-13)


def test_under_jit_the_parts_are_equal_as_with_a_number():
    def program(checkpoint):
        return ft.make_program(ft.grad(lambda c: ft.scan(
            lambda c, _: (np.sin(c), c), c, None, 20, checkpoint=checkpoint)[0]))(0.3)

    assert str(program(FEW)) == str(program(3)) != str(program(None))


@pytest.mark.parametrize("n", [0, 1])
def test_loops_of_no_step_or_one_need_no_states(n):
    def last(c, checkpoint):
        return ft.scan(lambda c, x: (c * x, c), c, XS[:n], checkpoint=checkpoint)[0]

    assert ft.value_and_grad(last)(2.0, "revolve") == ft.value_and_grad(last)(2.0, None)


# ---- memory


def states_kept(loss, size):
    """The most memory that a gradient takes, in arrays like its argument."""
    x = np.linspace(0.1, 1.0, size)
    ft.grad(loss)(x)  # what is imported or made once is not counted
    tracemalloc.start()
    try:
        ft.grad(loss)(x)
        return tracemalloc.get_traced_memory()[1] / x.nbytes
    finally:
        tracemalloc.stop()


def chained(n, checkpoint):
    return lambda x: np.sum(
        ft.scan(lambda c, _: (np.sin(c), None), x, None, n, checkpoint=checkpoint)[0]
    )


@pytest.mark.parametrize(("n", "states"), [(35, 3), (40, 8)])
def test_no_more_states_are_kept_than_asked_for(n, states):
    # beside them: the last value, the slope and the cotangent of the step that is walked
    assert states_kept(chained(n, ft.Revolve(states)), 20_000) < states + 6


@pytest.mark.parametrize(("n", "states"), [(35, 3), (40, 8), (300, 8), (300, 30)])
def test_a_number_of_carries_is_kept_to(n, states):
    assert states_kept(chained(n, states), 5_000) < states + 6
    x = np.linspace(0.1, 1.0, 5)
    np.testing.assert_allclose(ft.grad(chained(n, states))(x), ft.grad(chained(n, None))(x),
                               rtol=1e-12)


def test_a_number_of_carries_that_is_too_small_is_an_error():
    with pytest.raises(ArgumentError, match=r"with 2 states kept, .* Keep at least 3"):
        chained(600, 2)(np.ones(3))


def test_a_schedule_that_meets_a_staged_value_in_its_first_step_is_a_loop():
    def step(c, x):
        name = "_" + "held"  # which is looked for nowhere
        return np.sin(c * globals()[name + "_value"]), c

    @ft.jit
    def last(k):
        globals()["_held_value"] = k
        return ft.scan(step, 0.5, None, 20, checkpoint=4)[0]

    def plain(k):
        globals()["_held_value"] = k
        return ft.scan(step, 0.5, None, 20)[0]

    assert len(last.lower(1.1).optimised.eqns) < 20
    np.testing.assert_allclose(ft.grad(last)(1.1), ft.grad(plain)(1.1), rtol=1e-12)


def test_states_on_disk_take_no_memory(tmp_path):
    options = ft.Revolve(snapshots=1, on_disk=12, folder=tmp_path)
    assert states_kept(chained(40, options), 20_000) < 10
    assert os.listdir(tmp_path) == []


def pendulum(n, checkpoint):
    """The angles of many pendulums after n steps, of which the pairs (q, p) are the state."""

    def end(x):
        def step(state, _):
            q, p = state
            p = p - 0.01 * np.sin(q)
            return (q + 0.01 * p, p), None

        return np.sum(ft.scan(step, (x, 0 * x), None, n, checkpoint=checkpoint)[0][0])

    return end


def test_the_gradient_of_a_long_pendulum_keeps_twice_the_snapshots_in_arrays():
    n, states = 60, 5
    few = pendulum(n, ft.Revolve(states))
    assert states_kept(few, 4000) < 2 * states + 20  # and values and slopes of one step
    x = np.linspace(0.1, 1.0, 5)
    np.testing.assert_allclose(ft.grad(few)(x), ft.grad(pendulum(n, None))(x), rtol=1e-12)


# ---- files


def spilled(x, **options):
    return ft.grad(chained(30, ft.Revolve(snapshots=1, on_disk=5, **options)))(x)


def test_states_in_files_give_the_same_gradient():
    x = np.linspace(0.1, 1.0, revolve.LEAST)
    np.testing.assert_array_equal(spilled(x), ft.grad(chained(30, ft.Revolve(6)))(x))


def test_files_are_gone_and_their_bytes_given_back_after_an_error(tmp_path, monkeypatch):
    made, held = [], []
    hold = revolve.Files.hold
    monkeypatch.setattr(
        revolve.Files, "hold", lambda self, x: made.append(self) or held.append(self.used)
        or hold(self, x))
    x = np.linspace(0.1, 1.0, revolve.LEAST)
    calls = []

    def step(c, _):
        calls.append(1)
        if len(calls) == 40:
            raise ZeroDivisionError
        return np.sin(c), None

    options = ft.Revolve(snapshots=1, on_disk=5, folder=tmp_path)
    with pytest.raises(ZeroDivisionError):
        ft.grad(lambda x: np.sum(ft.scan(step, x, None, 30, checkpoint=options)[0]))(x)
    assert os.listdir(tmp_path) == []
    assert max(held) >= x.nbytes
    assert made[0].used <= 5 * x.nbytes  # never more than the places asked for


def test_a_limit_of_bytes_is_kept_and_named(tmp_path):
    x = np.linspace(0.1, 1.0, revolve.LEAST)
    np.testing.assert_array_equal(
        spilled(x, folder=tmp_path, max_bytes=5 * x.nbytes), spilled(x, folder=tmp_path)
    )
    with pytest.raises(OutOfMemoryError, match=r"would take 131,072 bytes, but max_bytes is 70,"):
        spilled(x, folder=tmp_path, max_bytes=70_000)
    assert os.listdir(tmp_path) == []


def test_small_and_traced_states_stay_in_memory():
    files = revolve.Files(None, None)
    small = np.ones(3)
    assert files.hold(small) is small
    assert files.hold(2.0) == 2.0
    held = files.hold(big := np.arange(20_000.0).reshape(100, 200).T)
    assert files.used == big.nbytes
    assert held.shape == big.shape and not held.flags.writeable
    np.testing.assert_array_equal(held, big)
    del held
    assert files.used == 0


@pytest.mark.skipif(os.name != "posix", reason="elsewhere a file goes when it is closed")
def test_a_file_has_no_name_while_it_is_read(tmp_path):
    held = revolve.Files(tmp_path, None).hold(np.arange(20_000.0))
    assert os.listdir(tmp_path) == []  # so a process that is killed leaves nothing
    assert held[-1] == 19_999


def test_a_full_disk_is_an_error_that_names_the_folder(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(revolve.errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    files = revolve.Files(tmp_path, None)
    with pytest.raises(OutOfMemoryError, match="no room for a state of 80,000 bytes in"):
        files.hold(np.ones(10_000))
    assert files.used == 0

    def broken(*args, **kwargs):
        raise OSError(revolve.errno.EIO, "Input/output error")

    monkeypatch.setattr(tempfile, "TemporaryFile", broken)
    with pytest.raises(OSError, match="Input/output error"):
        files.hold(np.ones(10_000))


# ---- loops of unknown length


def until(limit, checkpoint, w=1.0):
    def end(x):
        return ft.while_loop(
            lambda s: s[1] < limit, lambda s: (np.sin(s[0]) * w + 0.1, s[1] + 1), (x, 0),
            checkpoint=checkpoint,
        )[0]

    return end


@pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 40])
def test_loops_of_unknown_length_have_the_same_derivatives(n):
    few, plain = until(n, FEW), until(n, None)
    np.testing.assert_allclose(ft.grad(few)(0.5), ft.grad(plain)(0.5), rtol=1e-13)
    np.testing.assert_allclose(ft.grad(ft.grad(few))(0.5), ft.grad(ft.grad(plain))(0.5), rtol=1e-12)
    closed = ft.grad(lambda w: until(n, "revolve", w)(0.5))(0.9)
    np.testing.assert_allclose(closed, ft.grad(lambda w: until(n, None, w)(0.5))(0.9), rtol=1e-12)


def test_entries_of_a_batch_end_on_their_own():
    def end(checkpoint):
        return ft.vmap(ft.value_and_grad(lambda x: ft.while_loop(
            lambda y: y < 10, lambda y: 1.3 * y + np.sin(y), x, checkpoint=checkpoint)))

    x = np.array([0.5, 3.0, 20.0])
    for few, plain in zip(end(FEW)(x), end(None)(x), strict=True):
        np.testing.assert_allclose(few, plain, rtol=1e-13)


def test_a_loop_of_unknown_length_keeps_few_states_and_runs_few_steps_again():
    n, states, steps = 60, 4, []

    def step(s):
        steps.append(1)
        return np.sin(s[0]), s[1] + 1

    def loss(x):
        end = ft.while_loop(lambda s: s[1] < n, step, (x, 0), checkpoint=ft.Revolve(states))
        return np.sum(end[0])

    kept = states_kept(loss, 20_000)
    assert kept < states + math.log2(n / FIRST + 1) + 7
    steps.clear()
    ft.grad(loss)(np.ones(2))
    assert most_steps(states, 3) < n + FIRST <= most_steps(states, 4)
    assert len(steps) <= (4 + 2) * n


def test_max_steps_ends_a_loop_that_keeps_few_states():
    def end(x, checkpoint):
        return ft.while_loop(lambda y: y < 1e9, lambda y: y * 2, x, max_steps=11,
                             checkpoint=checkpoint)

    assert ft.value_and_grad(end)(1.0, "revolve") == (2048.0, 2048.0)


# ---- errors


@pytest.mark.parametrize(("options", "text"), [
    ({"snapshots": 0}, "snapshots must be None or an int of at least 1, but is 0"),
    ({"snapshots": 1.5}, "snapshots must be None or an int of at least 1, but is 1.5"),
    ({"on_disk": -1}, "on_disk must be an int of at least 0, but is -1"),
    ({"on_disk": None}, "on_disk must be an int of at least 0, but is None"),
    ({"max_bytes": "1 GB"}, "max_bytes must be None or an int of at least 0, but is '1 GB'"),
    ({"folder": "/no such folder"}, "folder '/no such folder' is not a folder"),
])
def test_options_that_cannot_be_are_refused(options, text):
    with pytest.raises(ArgumentError, match=f"Revolve: {text}"):
        ft.Revolve(**options)


def test_too_few_states_are_refused_with_the_least_number():
    with pytest.raises(ArgumentError, match=r"with 1 states kept, some of the 99 steps would be "
                                            r"run 98 times more. Keep at least 2\."):
        ft.grad(chained(99, ft.Revolve(1)))(XS)


def test_errors_of_steps_are_those_of_scan():
    with pytest.raises(ShapeError, match="cannot be stacked"):
        ft.scan(lambda c, x: (c, np.ones(int(x))), 0.0, np.arange(3), checkpoint=FEW)
    with pytest.raises(ArgumentError, match="have the structure"):
        ft.scan(lambda c, x: (c, (x,) if x > 1 else x), 0.0, np.arange(3), checkpoint=FEW)


def test_under_jit_loops_of_unknown_length_refuse_checkpoints():
    with pytest.raises(UnsupportedError, match="checkpoint does not go with jit"):
        ft.jit(until(3, "revolve"))(0.5)
    with pytest.raises(ArgumentError, match='while_loop: checkpoint must be "revolve" or a Rev'):
        until(3, 5)(0.5)
