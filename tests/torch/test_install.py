"""Being torch: ``install``, ``python -m functrans.torch``, and where names are imported from."""

import importlib
import re
import subprocess
import sys

import pytest

import functrans.torch as torch
from functrans.torch._names import INSTEAD, PARENTS


def run(*arguments, code=None):
    command = [sys.executable, *(["-c", code] if code else ["-m", "functrans.torch", *arguments])]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


NAMES = """
from functrans.torch import install
install()
install()  # again changes nothing
import torch, torch.nn.functional as F
import torch.autograd.functional, torch.utils.checkpoint, torch.cuda
from torch import nn
from torch.autograd import Function, Variable, grad_mode
from torch.autograd.function import Function as Same, once_differentiable
from torch.autograd.variable import Variable as AlsoSame
from torch.utils.hooks import RemovableHandle
from torch._six import inf, with_metaclass
import functrans.torch
assert torch is functrans.torch and torch.autograd.function.Function is torch.autograd.Function
assert Same is Function and AlsoSame is Variable and nn.functional is F
import sys
assert torch.__name__ == "torch" and nn.__name__ == "torch.nn" and F.__name__ == F.__dict__[
    "__name__"] == "torch.nn.functional" and torch.Tensor.__module__ == "torch"
import torch.optim.lbfgs
assert torch.optim.lbfgs.__name__ == "torch.optim.lbfgs"
doubled = [n for n in sys.modules if n.startswith("torch.") and
           sys.modules[n] is not sys.modules["functrans." + n]]
assert not doubled, doubled
try:
    import torch.onnx
except ModuleNotFoundError as error:
    assert "functrans.torch, which is installed as torch, has no such module" in str(error)
else:
    raise AssertionError
x = torch.tensor([2.0], requires_grad=True)
(x**3).backward()
y = F.softmax(x, 0)
y.mul_(2)
try:
    y.sum().backward()
except RuntimeError as error:  # the modules are called torch's, their frames are not the user's
    assert "saved it at <string>" in str(error), error
else:
    raise AssertionError
w = torch.ones(2, 2, requires_grad=True)  # a sum in the shim's code is not the user's either
print(torch.func.vmap(lambda v: F.linear(v[None], w, torch.ones(2)))(torch.ones(1, 2)).tolist())
print(x.grad)
"""


def test_every_module_is_loaded_once():
    done = run(code=NAMES)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[[[3.0, 3.0]]]\ntensor([12.])\n"


def test_another_torch_is_not_replaced():
    done = run(code="import sys, types; sys.modules['torch'] = types.ModuleType('torch')\n"
                    "from functrans.torch import install; install()")
    assert "ImportError: functrans.torch.install: torch has been imported already" in done.stderr


def test_a_script_runs_as_it_is(tmp_path):
    (tmp_path / "helper.py").write_text("import torch\nONE = torch.ones(1)\n")
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, torch\nfrom helper import ONE\nif __name__ == '__main__':\n"
        "    print(sys.argv[1:], ONE, torch.__version__.split('+')[1])\n")
    done = run(str(script), "--rate", "3")
    assert done.stdout == "['--rate', '3'] tensor([1.]) functrans\n", done.stderr


def test_a_module_and_a_string_of_code_run_too():
    assert run("-c", "import torch, sys; print(torch.ones(2).sum(), sys.argv)", "a").stdout == (
        "tensor(2.) ['-c', 'a']\n")
    assert run("-m", "this").stdout.startswith("The Zen of Python")
    assert run().returncode == 2 and run("-m").returncode == 2
    assert "usage: python -m functrans.torch" in run("--help").stdout


IMPORTS = {
    "autograd": "NestedIOFunction _make_grads _engine kineto_available _profiler_enabled",
    "autograd.function": "FunctionCtx _ContextMethodMixin _HookMixin BackwardCFunction "
                         "FunctionMeta InplaceFunction NestedIOFunction traceable "
                         "once_differentiable "
                         "_nested_map _iter_filter _unflatten _iter_jit_values _iter_tensors "
                         "_iter_None_tensors _map_tensor_data _jit_unwrap_structured",
    "autograd.grad_mode": "no_grad enable_grad set_grad_enabled inference_mode "
                          "set_multithreading_enabled",
    "autograd.graph": "saved_tensors_hooks save_on_cpu disable_saved_tensors_hooks Node "
                      "register_multi_grad_hook GradientEdge get_gradient_edge increment_version",
    "autograd.forward_ad": "dual_level make_dual unpack_dual enter_dual_level exit_dual_level "
                           "UnpackedDualTensor",
    "autograd.anomaly_mode": "detect_anomaly set_detect_anomaly",
    "autograd.profiler": "profile record_function emit_nvtx load_nvprof EventList FunctionEvent "
                         "FunctionEventAvg",
    "func": "grad grad_and_value vjp jvp jacrev jacfwd hessian vmap linearize functional_call "
            "stack_module_state",
    "_C": "_FunctionBase _functions _autograd_init Value is_grad_enabled _WeakTensorRef",
    "_C._functions": "AccumulateGrad DelayedError UndefinedGrad",
    "utils.hooks": "RemovableHandle",
    "testing": "assert_close assert_allclose",
}


@pytest.mark.parametrize("module", IMPORTS)
def test_names_are_where_the_manuals_and_sources_have_them(module):
    found = __import__(f"functrans.torch.{module}", fromlist=["x"])
    assert not [n for n in IMPORTS[module].split() if not hasattr(found, n)]


def test_the_engine_is_an_object():
    engine = torch.autograd.Variable._execution_engine
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    engine.run_backward([(x * x).sum()], [None], False, False, allow_unreachable=True)
    assert x.grad.tolist() == [2.0, 4.0] and engine.is_checkpoint_valid()
    (g,) = engine.run_backward([(x * x).sum()], [None], False, False, [x])
    assert g.tolist() == [2.0, 4.0]
    with pytest.raises(RuntimeError, match="only be installed during backward pass"):
        engine.queue_callback(print)


def test_callbacks_run_at_the_end_of_their_own_backward():
    said = []

    class Calls(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, name, inner):
            ctx.name, ctx.inner = name, inner
            return x * 1

        @staticmethod
        def backward(ctx, g):
            engine = torch.autograd.Variable._execution_engine
            engine.queue_callback(lambda: said.append(f"end of {ctx.name}"))
            if ctx.inner is not None:
                ctx.inner[0].backward()
            said.append(ctx.name)
            return g, None, None

    x = torch.ones(1, requires_grad=True)
    inner = Calls.apply(x, "inner", None)
    Calls.apply(x, "outer", [inner]).backward()  # a list: not an operand
    assert said == ["inner", "end of inner", "outer", "end of outer"]


def test_gradients_are_made_for_outputs():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    make = torch.autograd._make_grads
    (one,) = make((x.sum(),), (None,))
    assert one.tolist() == 1.0 and make((torch.ones(2),), (None,)) == (None,)
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        make((x,), (None,))
    with pytest.raises(TypeError, match="gradients can be either Tensors or None, but got int"):
        make((x,), (3,))


def test_what_cannot_be_differentiated_says_so_in_time():
    x = torch.ones(2, requires_grad=True)
    sealed = torch._C._functions.DelayedError(b"not this one", 1)(x * 2)
    assert sealed.requires_grad
    with pytest.raises(RuntimeError, match="not this one"):
        sealed.sum().backward()
    with pytest.raises(RuntimeError, match="made for 1 tensors, got 2"):
        torch._C._functions.DelayedError("no", 1)(x, x)


def test_an_undefined_gradient_is_passed_on():
    seen = []

    class Sees(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.set_materialize_grads(False)
            return x * 1

        @staticmethod
        def backward(ctx, g):
            seen.append(g)
            return g

    x = torch.ones(1, requires_grad=True)
    torch._C._functions.UndefinedGrad()(Sees.apply(x)).backward()
    assert seen == [None] and x.grad is None


def test_functions_of_jit_and_compile_return_what_they_are_given():
    def f(x):
        return x * 2

    assert torch.jit.script(f) is f and torch.jit.trace(f, torch.ones(1)) is f
    assert torch.jit.ignore(f) is f and torch.jit.unused()(f) is f and torch.compile(f) is f
    assert torch.compile(dynamic=True)(f) is f and not torch.jit.is_scripting()
    assert torch.jit._wait(torch.jit._fork(f, 3)) == 6


def test_switches_that_mean_nothing_here_are_accepted():
    torch.backends.cudnn.benchmark = True
    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(1)
    torch.set_float32_matmul_precision("high")
    assert torch.are_deterministic_algorithms_enabled() and torch.get_num_threads() >= 1
    assert torch.get_float32_matmul_precision() == "high" and not torch.set_flush_denormal(True)
    torch.set_float32_matmul_precision("highest")
    assert not torch.backends.cudnn.is_available() and torch.backends.cudnn.version() is None


def test_a_missing_name_says_what_is_there():
    for module, name, said in (
            (torch, "lobpcg", "'torch' has no attribute 'lobpcg': linalg.eigh is there"),
            (torch.optim, "Muon", "'torch.optim' has no attribute 'Muon': optim.SGD"),
            (torch.nn, "cross_entropy", "torch.nn.functional.cross_entropy is there"),
            (torch.linalg, "sovle", "near it are solve"),
            (torch.nn.functional, "qqq", "nothing like it is there; docs/torch.md says")):
        assert not hasattr(module, name)
        with pytest.raises(AttributeError, match=re.escape(said)):
            getattr(module, name)


def test_what_is_named_in_place_of_a_missing_name_is_there():
    spaces = (torch, torch.nn, torch.optim, torch.distributions, torch.linalg, torch.utils.data)
    for name, said in INSTEAD.items():
        assert not any(hasattr(space, name) for space in spaces), name
        first = said.split()[0]
        if " is there" in said or " are there" in said:
            *path, last = first.split(".")
            space = getattr(torch, path[0]) if path else None
            found = [space] if space else spaces
            assert "no " in said or any(hasattr(m, last) for m in found), said
    for parent in set(PARENTS.values()) - {""}:
        importlib.import_module(f"functrans.torch.{parent}")


def test_modules_of_one_name_are_those_of_several():
    code = """
import functrans.torch
functrans.torch.install()
from torch.distributions.normal import Normal
from torch.nn.modules.loss import MSELoss
from torch.nn.utils.clip_grad import clip_grad_norm_
from torch.optim.adam import Adam
import torch, torch.functional
assert Normal is torch.distributions.Normal and MSELoss is torch.nn.MSELoss
assert Adam is torch.optim.Adam and clip_grad_norm_ is torch.nn.utils.clip_grad_norm_
assert torch.functional.einsum is torch.einsum
"""
    found = run(code=code)
    assert found.returncode == 0, found.stderr
