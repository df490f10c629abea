"""``functrans.profile``: what is recorded of transforms, and how it is shown."""

import asyncio
import json
import re
from contextvars import Context

import numpy as np
import pytest

import functrans as ft
from functrans._core.bind import Trace, watching
from functrans._transforms.reverse.vjp import VJPTrace
from functrans.errors import ArgumentError
from functrans.profile import profile, record_function
from tests.threads import elsewhere

X = np.ones((3, 4))


def loss(x):
    return np.sum(np.tanh(x @ np.ones((4, 2))) ** 2)


def names(prof, kind=None):
    return [e.name for e in prof.function_events if kind in (None, e.kind)]


def profiled(f=None, **options):
    with profile(**options) as prof:
        (f or (lambda: ft.grad(loss)(X)))()
    return prof


# ---- what is recorded


def test_forward_ops_and_their_backward_have_one_number():
    prof = profiled()
    assert names(prof, "forward") == ["matmul", "tanh", "square", "sum"]
    assert names(prof, "backward") == [f"{n} backward" for n in ("sum", "square", "tanh", "matmul")]
    forward = {e.name: e.sequence_nr for e in prof.function_events if e.kind == "forward"}
    for e in prof.function_events:
        if e.kind == "backward":
            assert e.sequence_nr == forward[e.name.removesuffix(" backward")]


@pytest.mark.parametrize("options", [{}, {"record_shapes": True}], ids=["quick", "full"])
@pytest.mark.parametrize("run, expected", [
    (lambda: ft.jvp(np.sin, X, X), ["sin"]),
    (lambda: ft.vmap(lambda x: np.sin(x) + 1)(X), ["sin", "add"]),
    (lambda: ft.jet(np.exp, (1.0,), ([1.0, 0.0],)), ["exp"]),
    (lambda: ft.vjp(np.linalg.svd, np.eye(2)), ["svd"]),
], ids=["jvp", "vmap", "jet", "several outputs"])
def test_every_transform_is_recorded(run, expected, options):
    assert set(expected) <= set(names(profiled(run, **options), "forward"))


@pytest.mark.parametrize("options", [{}, {"record_shapes": True}], ids=["quick", "full"])
def test_an_op_of_nested_transforms_is_one_event(options):
    prof = profiled(lambda: ft.hvp(lambda x: np.sum(np.sin(x)), (X,), (X,)), **options)
    assert names(prof).count("sin") == 1


def test_the_formula_by_which_an_op_is_compiled_is_no_event():
    with ft.cache.off():
        prof = profiled(lambda: ft.jit(lambda x: np.logaddexp(x, 2 * x) * 3)(X))
    assert not {"log1p", "absolute", "where"} & set(names(prof))


@pytest.mark.parametrize("transform", [ft.grad, ft.hessian, ft.value_and_grad, ft.jacrev])
@pytest.mark.parametrize("f", [loss, lambda x: np.sum(np.linalg.svd(x)[1] * x[0, 0] ** 2),
                               lambda x: sum(x[i % 3, i % 4] * x[i % 2, 0] for i in range(20)),
                               lambda x: ft.checkpoint(loss)(x) + loss(x)],
                         ids=["loss", "svd", "indexing", "checkpoint"])
def test_results_are_those_without_a_profile(transform, f):
    x = X + np.arange(12).reshape(3, 4) ** 2 / 9
    expected = ft.tree.leaves(transform(f)(x))
    for options in ({}, {"record_shapes": True}):
        with profile(**options):
            found = ft.tree.leaves(transform(f)(x))
        for a, b in zip(found, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-13)


def test_large_arrays_are_recorded_op_by_op():
    x = np.linspace(0, 1, 300_000)
    prof = profiled(lambda: ft.grad(lambda x: np.sum(np.sin(x) * x))(x))
    assert names(prof, "backward") == ["sum backward", "multiply backward", "sin backward"]


def test_shapes_and_flops_and_memory_and_lines_are_recorded_where_asked():
    prof = profiled(record_shapes=True, with_flops=True, profile_memory=True, with_stack=True)
    product = next(e for e in prof.function_events if e.name == "matmul")
    assert product.input_shapes == [[3, 4], [4, 2]]
    assert product.flops == 2 * 3 * 4 * 2
    assert product.cpu_memory_usage == product.self_cpu_memory_usage == 3 * 2 * 8
    assert re.match(r".*test_profile.py\(\d+\): loss", product.stack[0])
    plain = next(e for e in profiled().function_events if e.name == "matmul")
    assert (plain.input_shapes, plain.flops, plain.cpu_memory_usage, plain.stack) == ([], 0, 0, [])


@pytest.mark.parametrize("f, flops", [
    (lambda x: np.einsum("ij,ik->jk", x, np.ones((3, 5))), 2 * 3 * 4 * 5),
    (lambda x: np.convolve(x[0], np.ones(3)), 2 * 4 * 3),
    (lambda x: np.convolve(x[0], np.ones(3), "valid"), 2 * 2 * 3),
    (lambda x: x @ np.ones(4), 2 * 3 * 4),
    (lambda x: np.stack([x, x]) @ np.ones((4, 5)), 2 * 2 * 3 * 4 * 5),
    (np.sin, 0),
])
def test_flops_are_those_of_products_and_convolutions(f, flops):
    prof = profiled(lambda: ft.jvp(f, X, X), with_flops=True)
    assert max(e.flops for e in prof.function_events) == flops


def test_views_take_no_memory():
    prof = profiled(lambda: ft.jvp(lambda x: x.reshape(-1), X, X), profile_memory=True)
    assert next(e for e in prof.function_events if e.name == "reshape").cpu_memory_usage == 0


def test_blocks_are_shown_under_their_name():
    def run():
        with record_function("first half"):
            ft.grad(loss)(X)

    prof = profiled(run)
    first = prof.function_events[0]
    assert first.name == "first half" and first.cpu_parent is None
    assert [c.name for c in first.cpu_children] == ["grad(loss)"]
    with record_function("nothing listens"):
        pass


# ---- when and where


def test_nothing_is_watched_outside():
    assert watching.get() is None
    assert type(VJPTrace("f")) is VJPTrace
    with profile():
        assert type(VJPTrace("f")) is not VJPTrace
    assert type(VJPTrace("f")) is VJPTrace and type(Trace("f")) is Trace


def test_a_profile_that_is_not_enabled_does_nothing():
    with profile(enabled=False) as prof:
        assert watching.get() is None
    assert prof.function_events is None
    assert "enabled=False" in str(prof) and str(prof) == repr(prof)
    with pytest.raises(RuntimeError, match="not enabled"):
        prof.table()


def test_a_profile_ends_with_an_error():
    prof = profile()
    with pytest.raises(KeyError), prof:
        ft.grad(lambda x: np.sin(x) + {}[0])(1.0)
    assert watching.get() is None and "sin" in names(prof)


def test_a_profile_records_once():
    prof = profiled()
    with pytest.raises(RuntimeError, match="cannot be entered again"), prof:
        pass
    unfinished = profile()
    with unfinished, pytest.raises(RuntimeError, match="not finished"):
        unfinished.key_averages()


@pytest.mark.parametrize("options", [{}, {"record_shapes": True}], ids=["quick", "full"])
def test_profiles_nest(options):
    with profile(**options) as outer:
        ft.grad(np.sin)(1.0)
        with profile() as inner:
            ft.grad(np.cos)(1.0)
    assert names(inner, "forward") == ["cos"]
    assert names(outer, "forward") == ["sin", "cos"]


def test_other_threads_are_not_recorded_but_tasks_are():
    with profile() as prof:
        elsewhere(Context().run, ft.grad(np.cos), 1.0)

        async def task():
            ft.grad(np.sin)(1.0)

        asyncio.run(task())
    assert names(prof, "forward") == ["sin"]


def test_a_profile_ends_in_its_own_thread():
    failures = []

    def leave():
        try:
            prof.__exit__(None, None, None)
        except RuntimeError as e:
            failures.append(str(e))

    with profile() as prof:
        elsewhere(leave)
        ft.grad(np.sin)(1.0)
    assert "must end in the thread" in failures[0] and names(prof, "forward") == ["sin"]


def test_a_pullback_made_in_a_profile_may_be_called_after_it():
    with profile():
        _, pullback = ft.vjp(np.sin, X)
    np.testing.assert_array_equal(pullback(X)[0], np.cos(X))


def test_there_is_no_other_device():
    with pytest.warns(UserWarning, match="no CUDA device"):
        profile(use_cuda=True)
    with pytest.raises(ArgumentError, match="use_cpu=False"):
        profile(use_cpu=False)
    assert names(profiled(use_kineto=True)) == names(profiled())


# ---- how it is shown


def test_events_nest_by_their_times():
    prof = profiled()
    root = prof.function_events[0]
    assert root.name == "grad(loss)" and root.cpu_parent is None
    assert [c.name for c in root.cpu_children][-1] == "backward of grad(loss)"
    for e in prof.function_events:
        for c in e.cpu_children:
            assert c.cpu_parent is e
            assert e.time_range.start <= c.time_range.start <= c.time_range.end <= e.time_range.end
    own = sum(e.self_cpu_time_total for e in prof.function_events)
    assert own == pytest.approx(root.cpu_time_total) == pytest.approx(prof.self_cpu_time_total)


def test_averages_are_by_name_and_on_demand_by_shapes_and_lines():
    def run():
        ft.grad(loss)(X)
        ft.grad(loss)(np.ones((5, 4)))

    prof = profiled(run, record_shapes=True, with_stack=True)
    by_name = {e.key: e for e in prof.key_averages()}
    assert by_name["tanh"].count == 2
    tanhs = [e for e in prof.function_events if e.name == "tanh"]
    assert by_name["tanh"].cpu_time_total == sum(e.cpu_time_total for e in tanhs)
    assert by_name["tanh"].cpu_time == by_name["tanh"].cpu_time_total / 2
    shapes = [e.input_shapes for e in prof.key_averages(True) if e.key == "tanh"]
    assert shapes == [[[3, 2]], [[5, 2]]]
    lines = [e for e in prof.key_averages(group_by_stack_n=2) if e.key == "tanh"]
    assert len(lines) == 2 and len(lines[0].stack) == 2
    total = prof.total_average()
    assert total.count == len(prof.function_events) and total.key == "Total"


def test_averages_by_what_was_not_recorded_are_refused():
    with pytest.raises(ArgumentError, match="record_shapes=True"):
        profiled().key_averages(group_by_input_shape=True)
    with pytest.raises(ArgumentError, match="with_stack=True"):
        profiled().key_averages(group_by_stack_n=1)


KEYS = ["cpu_time", "cuda_time", "cpu_time_total", "cuda_time_total", "cpu_memory_usage",
        "cuda_memory_usage", "self_cpu_memory_usage", "self_cuda_memory_usage", "count"]


def shown(table):
    """The names in a table's rows."""
    rules = [i for i, line in enumerate(table.splitlines()) if set(line) == {"-", " "}]
    return [re.split(r"\s\s+", line.strip())[0]
            for line in table.splitlines()[rules[1] + 1 : rules[2]]]


@pytest.mark.parametrize("key", KEYS)
def test_tables_are_sorted(key):
    prof = profiled(lambda: [ft.grad(loss)(X) for _ in range(2)], profile_memory=True)
    averages = prof.key_averages()
    order = sorted(averages, key=lambda e: getattr(e, key), reverse=True)
    assert shown(averages.table(sort_by=key)) == [e.key for e in order]


def test_tables_have_the_columns_of_what_was_recorded():
    everything = profiled(record_shapes=True, with_flops=True, profile_memory=True, with_stack=True)
    titles = everything.table().splitlines()[1]
    for title in ("Name", "Self CPU %", "CPU total", "CPU time avg", "CPU Mem", "Self CPU Mem",
                  "# of Calls", "Input Shapes", "Total MFLOPs", "Source Location"):
        assert title in titles
    assert "Mem" not in profiled().table().splitlines()[1]
    assert str(everything) == everything.table()


def test_tables_are_limited_headed_and_cut():
    prof = profiled(with_stack=True)
    assert shown(prof.table()) == names(prof)  # in the order of their starts
    assert shown(prof.table(row_limit=2)) == names(prof)[:2]
    assert "(8 more)" in prof.table(row_limit=2)
    assert prof.table(header="one run").splitlines()[1] == "one run"
    assert shown(prof.table(top_level_events_only=True)) == ["grad(loss)"]
    rows = prof.table(max_src_column_width=12).splitlines()
    assert all(len(line.split("  ")[-1].strip()) <= 15 for line in rows[3:-2])
    assert "Self CPU time total: " in rows[-1]
    with pytest.raises(ArgumentError, match="sort_by is one of cpu_time"):
        prof.table(sort_by="name")


def test_an_empty_profile_has_an_empty_table():
    prof = profiled(lambda: None)
    assert prof.table() == "" and prof.self_cpu_time_total == 0 and prof.key_averages() == []


# The Trace Event Format: what each kind of event must have.
FIELDS = {"X": {"name", "cat", "ph", "ts", "dur", "pid", "tid"},
          "M": {"name", "ph", "pid", "args"},
          "s": {"name", "cat", "ph", "ts", "pid", "tid", "id"},
          "f": {"name", "cat", "ph", "ts", "pid", "tid", "id", "bp"}}


def valid_trace(path):
    """The events of a file by the trace-event format, checked."""
    trace = json.loads(path.read_text())
    assert trace["displayTimeUnit"] in ("ms", "ns")
    slices = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    flows = {"s": {}, "f": {}}
    for e in trace["traceEvents"]:
        assert FIELDS[e["ph"]] <= e.keys()
        assert type(e["pid"]) is int and type(e.get("tid", 0)) is int
        assert isinstance(e.get("ts", 0), int | float) and e.get("dur", 0) >= 0
        assert isinstance(e.get("args", {}), dict)
        if e["ph"] in flows:
            assert e["id"] not in flows[e["ph"]]
            flows[e["ph"]][e["id"]] = e
            # an arrow is bound to the slice that it lies in
            assert any(s["tid"] == e["tid"] and s["ts"] <= e["ts"] <= s["ts"] + s["dur"]
                       for s in slices)
    assert flows["s"].keys() == flows["f"].keys()
    assert all(flows["s"][i]["ts"] <= flows["f"][i]["ts"] for i in flows["s"])
    return trace["traceEvents"]


def test_an_exported_trace_follows_the_trace_event_format(tmp_path):
    prof = profiled(record_shapes=True, with_stack=True, with_flops=True)
    prof.export_chrome_trace(tmp_path / "trace.json")
    events = valid_trace(tmp_path / "trace.json")
    slices = {e["name"]: e for e in events if e["ph"] == "X"}
    assert list(slices) == names(prof)
    assert slices["matmul"]["args"]["Input Dims"] == [[3, 4], [4, 2]]
    assert slices["matmul"]["args"]["Flops"] == 48
    assert sum(e["ph"] == "s" for e in events) == 4


def test_a_file_that_cannot_be_written_loses_nothing(tmp_path):
    prof = profiled(with_stack=True)
    with pytest.raises(OSError):
        prof.export_chrome_trace(tmp_path / "missing" / "trace.json")
    with pytest.raises(OSError):
        prof.export_stacks(tmp_path / "missing" / "stacks.txt")
    prof.export_chrome_trace(tmp_path / "trace.json")
    assert valid_trace(tmp_path / "trace.json")


def test_stacks_are_written_for_flame_graphs(tmp_path):
    prof = profiled(with_stack=True)
    prof.export_stacks(tmp_path / "stacks.txt")
    lines = (tmp_path / "stacks.txt").read_text().splitlines()
    assert lines and all(re.fullmatch(r"\S+ \d+", line) for line in lines)
    with pytest.raises(ArgumentError, match="with_stack=True"):
        profiled().export_stacks(tmp_path / "none.txt")
    with pytest.raises(ArgumentError, match="metric"):
        prof.export_stacks(tmp_path / "none.txt", "count")
