"""The profiler of tensors: section J of the checklist."""

import inspect
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import functrans.torch as torch
from functrans.torch._graph.modes import state
from functrans.torch._graph.observed import watched_threads
from functrans.torch.autograd import profiler
from tests.tools.test_profile import valid_trace

ROOT, LEAF = "torch::autograd::GraphRoot", "torch::autograd::AccumulateGrad"


def names(prof):
    return [e.name.removeprefix("aten::") for e in prof.function_events]


def point(*shape):
    return torch.ones(*shape, requires_grad=True)


@pytest.mark.parametrize("options", [{}, {"record_shapes": True}], ids=["quick", "full"])
def test_forward_and_backward_are_recorded(options):
    x = point(2)
    with profiler.profile(**options) as prof:
        (x.exp() * 2).sum().backward()
    assert names(prof) == ["exp", "mul", "sum", ROOT, "SumBackward0", "MulBackward0",
                           "ExpBackward0", LEAF]
    assert x.grad.tolist() == pytest.approx([5.43656, 5.43656], rel=1e-5)  # float32


@pytest.mark.parametrize("options", [{}, {"record_shapes": True}], ids=["quick", "full"])
def test_an_operation_and_its_backward_have_one_sequence_number(options):
    x = point(3)
    with profiler.profile(**options) as prof:
        y = x.sin()
        y.mul_(x)
        y[0] = 1.0
        y.prod().backward()
    forward = {e.name.removeprefix("aten::"): e.sequence_nr
               for e in prof.function_events if e.kind == "forward"}
    backward = {e.name: e.sequence_nr for e in prof.function_events if e.kind == "backward"}
    assert backward["SinBackward0"] == forward["sin"]
    assert backward["MulBackward0"] in (forward["mul_"], forward["mul"])
    assert backward["ProdBackward0"] == forward["prod"]
    assert forward["sin"] < forward["mul"] < forward["prod"]


def test_operations_have_the_names_of_the_dispatcher_and_functions_their_own():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

    x = torch.ones(2)
    with profiler.profile() as prof:
        assert torch.autograd._profiler_enabled()
        Twice.apply(-(x**2))
    assert not torch.autograd._profiler_enabled()
    assert {e.name for e in prof.function_events} == {
        "aten::pow", "aten::neg", "aten::mul", "Twice"}


def test_double_backward_is_correlated_too():
    x = point(2)
    with profiler.profile() as prof:
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        g.sum().backward()
    inside = [e for e in prof.function_events
              if e.kind == "forward" and e.cpu_parent is not None]
    assert inside and all(e.cpu_parent.name.endswith("Backward0") for e in inside)
    passed = {e.sequence_nr for e in prof.function_events if e.kind == "backward"}
    assert passed & {e.sequence_nr for e in inside}


def test_operations_without_a_graph_have_no_number():
    with profiler.profile() as prof:
        torch.ones(2).exp()
        with torch.no_grad():
            point(2).exp()
    assert [e.sequence_nr for e in prof.function_events] == [-1, -1]


@pytest.mark.parametrize("f, name", [
    (lambda x: x + x, "add"), (lambda x: 2.0 / x, "div"), (lambda x: x @ x, "matmul"),
    (lambda x: x.mean(), "mean"), (lambda x: x.sum(0), "sum"), (lambda x: x[0], "slice"),
    (lambda x: x.t(), "transpose"), (lambda x: x.reshape(-1), "reshape"),
    (lambda x: torch.cat([x, x]), "cat"), (lambda x: x.detach().zero_(), "zero_"),
    (lambda x: torch.mm(x, x), "mm"), (lambda x: x.detach().add_(1), "add_"),
    (lambda x: torch.where(x > 0, x, x), "where"), (lambda x: torch.einsum("ij->j", x), "einsum"),
])
@pytest.mark.parametrize("options", [{}, {"record_shapes": True}], ids=["quick", "full"])
def test_operations_of_every_kind_are_recorded(f, name, options):
    x = point(2, 2)
    with profiler.profile(**options) as prof:
        f(x)
    assert name in names(prof)


def test_shapes_flops_memory_and_lines_are_recorded_where_asked():
    x, w = point(3, 4), point(4, 5)
    with profiler.profile(record_shapes=True, with_flops=True, profile_memory=True,
                          with_stack=True) as prof:
        y = x @ w
        torch.addmm(y, x, w)
    product, added = prof.function_events
    assert product.input_shapes == [[3, 4], [4, 5]] and product.flops == added.flops == 120
    assert product.cpu_memory_usage == 60
    assert "test_profiler.py" in product.stack[0]
    with profiler.profile(record_shapes=True) as prof2:
        x.sum(), x.t(), x[0], x.mean()
    assert [e.input_shapes for e in prof2.function_events] == [[[3, 4]]] * 4
    assert "MFLOPs" in prof.table() and "Source Location" in prof.table()


def test_transforms_of_functions_are_recorded_too():
    import functrans as ft

    x = point(2)
    with profiler.profile() as prof:
        ft.grad(lambda a: (a * a).sum())(x.detach().numpy())
        x.sin()
    assert names(prof)[0].startswith("grad(") and names(prof)[-1] == "sin"


def test_a_trace_of_tensors_follows_the_format(tmp_path):
    x = point(2)
    with profiler.profile(record_shapes=True) as prof:
        (x.exp() * x).sum().backward()
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = valid_trace(tmp_path / "trace.json")
    assert sum(e["ph"] == "s" for e in events) == 3


def test_named_blocks_and_functions_are_events():
    @profiler.record_function("step")
    def step():
        return torch.ones(1) + 1

    step()
    with profiler.profile() as prof, profiler.record_function("all"):
        step()
    assert names(prof) == ["all", "step", "add"]


def test_a_profile_ends_with_an_error_and_leaves_nothing_behind():
    with pytest.raises(RuntimeError), profiler.profile() as prof:
        torch.ones(2) + torch.ones(3)
    assert state.watch is None and names(prof) == ["add"]
    with pytest.raises(RuntimeError, match="cannot be entered again"), prof:
        pass


def test_a_profile_that_is_not_enabled_does_nothing():
    with profiler.profile(enabled=False) as prof:
        assert state.watch is None
        point(2).exp()
    assert prof.function_events is None


def test_errors_of_changed_tensors_still_name_the_users_line():
    x = point(2)
    with profiler.profile():
        y = x.exp()
        y.mul_(2)
    with pytest.raises(RuntimeError, match=r"saved it at .*test_profiler.py:\d+ .*test_profiler"):
        y.sum().backward()


def test_there_is_no_other_device():
    with pytest.warns(UserWarning, match="no CUDA device"):
        profiler.profile(use_cuda=True)
    with pytest.raises(RuntimeError, match="no CUDA device"), profiler.emit_nvtx():
        pass
    with profiler.emit_nvtx(enabled=False, record_shapes=True):
        pass
    with pytest.raises(RuntimeError, match="no CUDA device"):
        profiler.load_nvprof("trace.prof")


MODULES = sorted(Path(torch.__file__).parent.rglob("*.py"))
# who is told, the calls that ask, the walk, and what shows or sets it
ASKING = {"watching", "observed", "walk", "anomaly_mode", "profiler"}


@pytest.mark.parametrize("path", [p for p in MODULES if p.stem not in ASKING], ids=lambda p: p.stem)
def test_no_operation_asks_for_itself_whether_it_is_watched(path):
    assert "state.watch" not in path.read_text().replace("``state.watch``", "")


def test_a_thread_is_told_of_its_own_operations_only():
    def elsewhere():
        point(2).exp()
        return state.watch

    with ThreadPoolExecutor(1) as pool, profiler.profile() as prof:
        watch = pool.submit(elsewhere).result()
        point(2).sin()
    assert watch is None and names(prof) == ["sin"]


def test_a_thread_that_ends_its_profile_leaves_the_others_watched():
    def elsewhere():
        with profiler.profile() as prof:
            point(2).exp()
        return names(prof)

    with ThreadPoolExecutor(1) as pool, profiler.profile() as prof:
        assert pool.submit(elsewhere).result() == ["exp"]
        point(2).sin()
    assert names(prof) == ["sin"] and not watched_threads


def test_an_operation_keeps_its_name_and_its_parameters():
    assert torch.matmul.__name__ == "matmul" and torch.exp.__name__ == "exp"
    assert list(inspect.signature(torch.matmul).parameters) == ["input", "other"]


def test_todays_profiler_calls_when_it_has_ended():
    ended = []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU],
                                on_trace_ready=ended.append, record_shapes=True) as prof:
        point(2).exp()
        prof.step()
    assert ended == [prof] and prof.step_num == 1
    assert [e.key for e in prof.key_averages()] == ["aten::exp"]
    prof = torch.profiler.profile()
    prof.start()
    torch.nn.functional.linear(point(1, 2), point(3, 2)).sum()
    prof.stop()
    assert names(prof) == ["linear", "sum"]
