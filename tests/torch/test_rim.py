"""What other packages lean on: names, states, views and errors at the rim of torch.

Values and types are PyTorch 2.13's, recorded.
"""

import collections
import inspect

import numpy as np
import pytest

import functrans.torch as torch
from functrans.torch import multiprocessing
from functrans.torch._vmap_internals import _vmap
from functrans.torch.autograd import Function, functional
from functrans.torch.autograd.profiler import profile
from functrans.torch.distributions import constraints
from functrans.torch.optim import lbfgs, optimizer
from functrans.torch.profiler import ProfilerAction, schedule
from functrans.torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

# ---- shapes in place


def test_only_the_shape_of_expanded_memory_can_change_in_place():
    x = torch.zeros(1).expand(3)
    assert x.unsqueeze_(0).shape == (1, 3) and x.squeeze_(0).shape == (3,)
    assert torch.zeros(2, 1).expand(2, 3).t_().shape == (3, 2)


def test_a_leaf_changes_its_shape_under_no_grad_and_stays_a_leaf():
    w = torch.arange(6.0).reshape(2, 3).requires_grad_()
    with torch.no_grad():
        w.t_()
        seen = w.t().view(6).unsqueeze_(0)
    assert w.shape == (3, 2) and w.is_leaf and w.requires_grad and seen.shape == (1, 6)
    (w * torch.arange(6.0).reshape(3, 2)).sum().backward()
    assert w.grad.tolist() == [[0, 1], [2, 3], [4, 5]]


def test_a_computed_tensor_does_not_change_its_shape_behind_the_graph():
    y = torch.ones(2, 1, requires_grad=True) * 2
    with torch.no_grad(), pytest.raises(NotImplementedError, match=r"use x\.t"):
        y.t_()


def test_parts_of_complex_tensors_are_written_to_with_their_gradients():
    a = torch.ones(2, requires_grad=True)
    z = torch.zeros(2, dtype=torch.complex64)
    z.real = a
    z.imag = a * 2
    z.abs().sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), np.sqrt(5), rtol=1e-6)
    z = torch.zeros(2, dtype=torch.complex64)
    z.imag = 3.0
    assert z.tolist() == [3j, 3j]
    x = torch.zeros(2)
    x.real = torch.ones(2)
    assert x.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="imag is not implemented"):
        x.imag = 1.0
    with pytest.raises(RuntimeError, match="a view of a leaf"):
        torch.zeros(2, dtype=torch.complex64, requires_grad=True).real = torch.ones(2)


# ---- optimisers


class Bare(torch.optim.Optimizer):
    def __init__(self, params, lr):
        self.defaults = {"lr": lr}
        self.param_groups = [{"params": list(params), "lr": lr}]
        self.state = collections.defaultdict(dict)

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-group["lr"])


def test_an_optimiser_that_does_not_call_super_steps_and_has_hooks():
    w = torch.ones(2, requires_grad=True)
    o = Bare([w], 0.25)
    seen = []
    o.register_step_post_hook(lambda *args: seen.append(args))
    (w * w).sum().backward()
    o.step()
    o.zero_grad()
    assert w.tolist() == [0.5, 0.5] and w.grad is None and len(seen) == 1
    assert o.state_dict() == {"state": {}, "param_groups": [{"lr": 0.25, "params": [0]}]}
    assert not Bare([w], 1.0)._hooks  # hooks belong to one optimiser


def test_the_state_of_adagrad_is_there_from_the_start():
    w = torch.ones(2, requires_grad=True)
    o = torch.optim.Adagrad([w], initial_accumulator_value=0.5)
    assert o.state[w]["sum"].tolist() == [0.5, 0.5] and o.state[w]["step"].item() == 0


def test_an_option_that_is_required_must_be_given():
    class Needy(torch.optim.Optimizer):
        def __init__(self, params, lr=optimizer.required):
            super().__init__(params, {"lr": lr})

    assert repr(optimizer.required) == "<required parameter>"
    with pytest.raises(ValueError, match="required optimization parameter lr"):
        Needy([torch.ones(1)])
    assert Needy([{"params": [torch.ones(1)], "lr": 2}]).param_groups[0]["lr"] == 2


def test_the_line_search_of_lbfgs_can_be_called():
    def objective(x, t, d):
        y = x + t * d
        return float((y**4).sum()), 4 * y**3

    x = torch.tensor([1.0, 2.0])
    d = -4 * x**3
    f, g = objective(x, 0, d)
    loss, gradient, t, count = lbfgs._strong_wolfe(objective, x, 0.1, d, f, g, g.dot(d))
    assert (round(loss, 4), t, count) == (2.2032, 0.1, 1)
    np.testing.assert_allclose(gradient.numpy(), [0.864, -6.912], rtol=1e-5)
    assert [*inspect.signature(lbfgs._strong_wolfe).parameters] == [
        "obj_func", "x", "t", "d", "f", "g", "gtd", "c1", "c2", "tolerance_change", "max_ls"]


# ---- limits of types, and constraints


def test_finfo_takes_pythons_types():
    assert torch.finfo(float) == torch.finfo(torch.float64) == torch.finfo(complex)
    assert torch.iinfo(int).max == 2**63 - 1
    assert repr(torch.finfo(torch.float32)) == (
        "finfo(resolution=1e-06, min=-3.40282e+38, max=3.40282e+38, eps=1.19209e-07, "
        "smallest_normal=1.17549e-38, tiny=1.17549e-38, dtype=float32)")
    for bad, error in ((np.float32, "must be torch.dtype, not type"), (int, "Use torch.iinfo")):
        with pytest.raises(TypeError, match=error):
            torch.finfo(bad)
    with pytest.raises(TypeError, match=r"torch\.bool is not supported"):
        torch.iinfo(bool)


@pytest.mark.parametrize("name", [
    "Real", "Boolean", "Simplex", "OneHot", "LowerTriangular", "LowerCholesky", "CorrCholesky",
    "Square", "Symmetric", "PositiveSemidefinite", "PositiveDefinite", "Dependent"])
def test_classes_of_constraints_can_be_derived_from(name):
    kind = getattr(constraints, f"_{name}")

    class Own(kind):
        pass

    assert repr(kind()) == f"{name}()" and isinstance(Own(), kind)
    assert Own().event_dim == kind().event_dim
    if name not in ("Dependent", "OneHot", "Simplex"):
        assert Own().check(torch.eye(2)).all()


def test_a_derived_interval_checks_by_its_bounds():
    class UpToTwo(constraints._Interval):
        def __init__(self):
            super().__init__(0, 2)

    assert UpToTwo().check(torch.tensor([1.0, 3.0])).tolist() == [True, False]


# ---- what a custom backward does to the gradient that it gets


class Twice(Function):
    @staticmethod
    def forward(ctx, x, k=2):
        return x * k

    @staticmethod
    def backward(ctx, g):
        g[0] = 5.0
        g.mul_(2)
        return g, None


@pytest.mark.parametrize("n", [3, 20_000])  # from some size on it is copied at the write alone
def test_a_backward_may_write_to_its_gradient_and_nobody_else_sees_it(n):
    x = torch.ones(n, requires_grad=True)
    ct = torch.ones(n)
    t = x * 1.0
    (Twice.apply(t) + t).backward(ct)
    assert x.grad[:3].tolist() == [11, 3, 3] and ct.eq(1).all()


def test_what_a_backward_writes_is_differentiated():
    x = torch.ones(3, requires_grad=True)
    g, = torch.autograd.grad((Twice.apply(x) ** 2).sum(), x, create_graph=True)
    assert g.tolist() == [10, 8, 8]
    # of the first entry, a constant by now, what the backward makes of any gradient is left
    assert torch.autograd.grad(g.sum(), x)[0].tolist() == [10, 8, 8]


def test_apply_takes_keywords_and_a_context_sees_defaults():
    x = torch.ones(2, requires_grad=True)
    Twice.apply(x, k=3).sum().backward()
    assert x.grad.tolist() == [10, 2]
    seen = []

    class Separate(Function):
        @staticmethod
        def forward(x, k=2):
            return x * k

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.k = inputs[1]
            seen.append(inputs[1])

        @staticmethod
        def backward(ctx, g):
            return g * ctx.k, None

    Separate.apply(x, k=3)
    Separate.apply(x)
    Separate.apply(k=4, x=x)
    assert seen == [3, 2, 4]


# ---- modes


def test_inference_tensors_are_not_saved_for_a_backward():
    with torch.inference_mode():
        x = torch.ones(2)
    w = torch.ones(2, requires_grad=True)
    for f in (lambda: w * x, lambda: w @ x, lambda: torch.nn.Linear(2, 2)(x),
              lambda: (w - x).pow(x), lambda: torch.special.xlogy(w, x)):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            f()
    assert (w + x).requires_grad and (w * x.clone()).requires_grad
    assert x.view(1, 2).is_inference() and x.detach().is_inference()
    with torch.no_grad():
        assert (w * x).tolist() == [1, 1]
    b = w * 1
    b.copy_(x)
    assert b.requires_grad
    with torch.inference_mode():
        w.detach().add_(1)
    assert w.tolist() == [2, 2]


@pytest.mark.parametrize("mode", [3, 1, None, np.bool_(True)])
def test_recording_is_switched_by_bools_alone(mode):
    with pytest.raises(TypeError, match=r"argument 'enabled' .* must be bool"):
        torch.set_grad_enabled(mode)
    assert torch.is_grad_enabled()


# ---- errors


def test_errors_of_allclose_and_mvlgamma_are_torchs():
    x = torch.ones(2)
    with pytest.raises(RuntimeError, match=r"The size of tensor a \(2\) must match"):
        torch.allclose(x, torch.ones(3))
    with pytest.raises(TypeError, match=r"'other' \(position 2\) must be Tensor, not float"):
        torch.allclose(x, 1.0)
    with pytest.raises(RuntimeError, match="rtol must be greater than or equal to zero"):
        torch.allclose(x, x, rtol=-1)
    with pytest.raises(RuntimeError, match="p has to be greater than or equal to 1"):
        torch.mvlgamma(x, 0)


# ---- names that packages import


def test_inner_names_of_functional_take_and_give_tuples():
    x = torch.ones(1, requires_grad=True)
    assert functional._as_tuple(x, "inputs", "hvp") == (False, (x,))
    assert functional._as_tuple((x,), "inputs", "hvp") == (True, (x,))
    with pytest.raises(TypeError, match="The inputs given to hvp must be either a Tensor or a"):
        functional._as_tuple(3, "inputs", "hvp")
    (kept,), (cut,) = [functional._grad_postprocess((x * 2,), flag) for flag in (True, False)]
    assert kept.requires_grad and not cut.requires_grad
    assert functional._tuple_postprocess((x,), False) is x
    assert functional._tuple_postprocess(((x,), (x,)), (False, True)) == (x,)
    assert functional._tuple_postprocess(((x,), (x,)), (True, False)) == (x, x)
    (leaf,) = functional._grad_preprocess((x * 2,), False, True)
    assert leaf.is_leaf and leaf.requires_grad


def test_vmap_passes_none_where_it_may():
    def f(x):
        return None, x * 2

    assert _vmap(f, allow_none_pass_through=True)(torch.ones(2))[0] is None
    assert _vmap(lambda x: x + 1)(torch.ones(2)).tolist() == [2, 2]


def test_checkpoints_take_the_context_of_early_stops():
    x = torch.ones(2, requires_grad=True)
    with set_checkpoint_early_stop(False):
        checkpoint(lambda x: x * x, x, use_reentrant=False).sum().backward()
    assert x.grad.tolist() == [2, 2]


def test_a_schedule_says_which_steps_a_profile_records():
    plan = schedule(wait=1, warmup=1, active=2, repeat=1, skip_first=1)
    assert [plan(i).name for i in range(8)] == [
        "NONE", "NONE", "WARMUP", "RECORD", "RECORD_AND_SAVE", "NONE", "NONE", "NONE"]
    ready = []
    with torch.profiler.profile(
            schedule=schedule(wait=1, warmup=0, active=2, repeat=2),
            on_trace_ready=lambda p: ready.append([e.name for e in p.function_events])) as p:
        for f in (torch.exp, torch.sin, torch.cos, torch.exp, torch.sin, torch.exp, torch.cos):
            f(torch.ones(1))
            p.step()
    assert ready == [["aten::sin", "aten::cos"], ["aten::sin", "aten::exp"]]
    assert p.current_action is ProfilerAction.NONE


def test_a_profile_that_is_not_enabled_has_no_events():
    with profile(enabled=False) as p:
        torch.ones(2).exp()
    assert len(p.key_averages()) == 0 and p.total_average().count == 0


# ---- sparse tensors in coordinate form


def coo(values=(3.0, 4.0, 5.0)):
    return torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 2]], values, (2, 3))


@pytest.mark.parametrize("f", [
    lambda s: s.transpose(0, 1), lambda s: s.permute(1, 0), lambda s: s.mT,
    lambda s: s.unsqueeze(0), lambda s: s.unsqueeze(1), lambda s: s.unsqueeze(-1),
    lambda s: s[0], lambda s: s[-1], lambda s: s[:, 2], lambda s: s[None], lambda s: s[1, 2],
    lambda s: s[1].unsqueeze(0), lambda s: s.index_select(0, torch.tensor([1, 1, 0])),
    lambda s: s.index_select(1, torch.tensor([2]))])
def test_sparse_tensors_are_read_as_their_dense_ones_with_gradients(f):
    v = torch.tensor([3.0, 4.0, 5.0], requires_grad=True)
    s = coo(v)
    y, dense = f(s), f(s.to_dense())
    y = y if isinstance(y, torch.Tensor) else y.to_dense()
    assert y.equal(dense)
    ct = torch.arange(1.0, y.numel() + 1).reshape(y.shape)
    g, = torch.autograd.grad(y, v, ct)
    assert g.equal(torch.autograd.grad(dense, v, ct)[0])


def test_hybrid_sparse_tensors_move_their_dense_dimensions():
    values = torch.arange(12.0).reshape(2, 2, 3)
    s = torch.sparse_coo_tensor([[0, 2]], values, (3, 2, 3))
    for f in (lambda s: s.transpose(1, 2), lambda s: s.unsqueeze(-1), lambda s: s.select(1, 0),
              lambda s: s.index_select(2, torch.tensor([2, 0])), lambda s: s[2]):
        y = f(s)
        assert (y if isinstance(y, torch.Tensor) else y.to_dense()).equal(f(s.to_dense()))
    with pytest.raises(RuntimeError, match="sparse and dense dimensions cannot change places"):
        s.transpose(0, 1)


def test_what_sparse_tensors_say_of_themselves_and_refuse():
    s = coo()
    assert (s.numel(), len(s), s.ndimension(), s.type()) == (6, 2, 2, "torch.sparse.FloatTensor")
    assert s.device == torch.device("cpu") and s.is_floating_point()
    with pytest.raises(IndexError, match="index 5 out of range"):
        s[5]
    with pytest.raises(NotImplementedError, match="an integer, None or :"):
        s[0:1]
    assert s.clone().zero_()._nnz() == 0


# ---- what packages of today's torch still call, and build on


def test_a_factor_may_come_before_the_operands():
    a, b = torch.ones(2), torch.full((2,), 3.0)
    assert a.clone().add_(0.5, b).tolist() == [2.5, 2.5]
    assert torch.add(a, 2, b).tolist() == [7, 7] and a.clone().sub_(2, b).tolist() == [-5, -5]
    assert a.clone().mul_(2).addcmul_(0.5, b, b).tolist() == [6.5, 6.5]
    assert torch.addcdiv(a, 2, b, b).tolist() == [3, 3]
    assert torch.addcmul(a, b, b, value=2).tolist() == [19, 19]
    assert set(torch.randint_like(a, high=2).tolist()) <= {0, 1}


def test_a_transform_can_be_a_module():
    class Shift(torch.distributions.Transform, torch.nn.Module):
        def __init__(self):
            super().__init__(cache_size=1)
            self.inner = torch.nn.Linear(1, 1)

        def _call(self, x):
            return x + 1

    t = Shift()
    x = torch.ones(1)
    assert t(x) is t(x) and len([*t.parameters()]) == 2
    assert type(t.inv).__name__ == "_InverseTransform"


def test_multiprocessing_is_pythons():
    assert multiprocessing.get_context("fork") and multiprocessing.get_sharing_strategy()


def test_the_cubic_of_a_line_search_is_least_where_it_is():
    # (x - 1)^2 at 0 and 3
    assert lbfgs._cubic_interpolate(0.0, 1.0, -2.0, 3.0, 4.0, 4.0) == pytest.approx(1)
    assert lbfgs._cubic_interpolate(0.0, 1.0, -2.0, 3.0, 4.0, 4.0, (1.5, 2.0)) == 1.5
