"""Tensors: sections F, G and G2 of the checklist, types, printing, and NumPy."""

import copy
import pickle
import subprocess
import sys
from collections import namedtuple

import numpy as np
import pytest

import functrans.torch as torch


def leaf(*values):
    return torch.tensor(values, requires_grad=True)


# ---- the tutorial


def test_the_tape_tutorial_prints_what_it_shows():
    x = torch.ones(2, 2, requires_grad=True)
    assert repr(x) == "tensor([[1., 1.],\n        [1., 1.]], requires_grad=True)"
    assert repr(x.data) == "tensor([[1., 1.],\n        [1., 1.]])"
    assert x.grad is None and x.grad_fn is None
    y = x + 2
    assert repr(y) == "tensor([[3., 3.],\n        [3., 3.]], grad_fn=<AddBackward0>)"
    z = y * y * 3
    out = z.mean()
    assert repr(z) == "tensor([[27., 27.],\n        [27., 27.]], grad_fn=<MulBackward0>)"
    assert repr(out) == "tensor(27., grad_fn=<MeanBackward0>)"
    out.backward()
    assert x.grad.tolist() == [[4.5, 4.5], [4.5, 4.5]]


def test_requires_grad_begins_in_the_middle_of_the_tutorial():
    a = torch.randn(2, 2)
    a = (a * 3) / (a - 1)
    assert not a.requires_grad
    a.requires_grad_(True)
    b = (a * a).sum()
    assert b.grad_fn.name() == "SumBackward0"


def test_two_backwards_through_a_part_add_up():
    x = torch.ones(2, 2, requires_grad=True)
    y = x + 2
    y.backward(torch.ones(2, 2), retain_graph=True)
    assert x.grad.tolist() == [[1, 1], [1, 1]]
    gradient = torch.randn(2, 2)
    y.backward(gradient)
    assert x.grad.tolist() == (gradient + 1).tolist()


# ---- leaves and history


def test_tensors_that_require_nothing_are_leaves():
    x = torch.ones(2)
    assert x.is_leaf and (x * 2).is_leaf and not x.requires_grad


def test_results_are_leaves_only_without_history():
    x = leaf(1.0)
    assert x.is_leaf and not (x * 2).is_leaf and not x.double().is_leaf
    assert x.float() is x


def test_requires_grad_is_for_floating_and_complex_types():
    with pytest.raises(RuntimeError, match="Only Tensors of floating point and complex dtype"):
        torch.ones(2, dtype=torch.int64, requires_grad=True)
    with pytest.raises(RuntimeError, match="only Tensors of floating point dtype can require"):
        torch.ones(2, dtype=torch.int64).requires_grad_()


def test_requires_grad_of_a_result_cannot_be_turned_off():
    with pytest.raises(RuntimeError, match="only change requires_grad flags of leaf"):
        (leaf(1.0) * 2).requires_grad_(False)


def test_requires_grad_of_a_leaf_can_be_turned_off():
    x = leaf(1.0)
    x.requires_grad = False
    assert not (x * 2).requires_grad


def test_detach_shares_memory_and_forgets_history():
    y = leaf(1.0, 2.0) * 2
    d = y.detach()
    assert not d.requires_grad and d.is_leaf
    d[0] = 7.0
    assert y.tolist() == [7.0, 4.0]


def test_detach_in_place_makes_a_leaf():
    y = leaf(1.0) * 2
    assert y.detach_() is y
    assert y.is_leaf and not y.requires_grad


def test_data_shares_memory_and_is_not_watched():
    x = leaf(1.0, 2.0)
    y = (x * x).sum()
    x.data.mul_(1)
    assert x._version == 0
    y.backward()
    assert x.grad.tolist() == [2.0, 4.0]


def test_retain_grad_fills_in_the_grad_of_a_result():
    x = leaf(2.0)
    y = x * 3
    y.retain_grad()
    assert y.retains_grad
    (y * y).backward()
    assert y.grad.tolist() == [12.0]


def test_retain_grad_needs_a_gradient():
    with pytest.raises(RuntimeError, match="can't retain_grad"):
        torch.ones(1).retain_grad()


def test_an_assigned_grad_must_fit():
    x = leaf(1.0, 2.0)
    with pytest.raises(TypeError, match="None but got grad of type float"):
        x.grad = 1.0
    with pytest.raises(RuntimeError, match=r"gradient of size .*are the same size"):
        x.grad = torch.ones(3)
    with pytest.raises(RuntimeError, match=r"gradient with dtype 'torch.int64'.*They must agree"):
        x.grad = torch.tensor([1, 2])
    with pytest.raises(RuntimeError, match="can't assign Variable as its own grad"):
        x.grad = x


def test_variable_is_the_old_name_of_tensors():
    x = torch.ones(2)
    v = torch.autograd.Variable(x, requires_grad=True)
    assert isinstance(v, torch.Tensor) and isinstance(v, torch.autograd.Variable)
    assert v.requires_grad and not x.requires_grad
    v.data[0] = 5.0
    assert x.tolist() == [5.0, 1.0]


def test_variable_in_small_letters_is_deprecated():
    with pytest.warns(DeprecationWarning, match="use torch.tensor"):
        assert torch.autograd.variable([1.0]).tolist() == [1.0]


# ---- hooks


def test_a_hook_sees_each_gradient_and_may_replace_it():
    x, seen = leaf(1.0, 2.0), []
    y = x * 2
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.register_hook(lambda g: g * 10)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    assert seen == [[1, 1], [1, 1]]
    assert x.grad.tolist() == [40.0, 40.0]


def test_a_removed_hook_is_not_called():
    x = leaf(1.0)
    handle = x.register_hook(lambda g: g * 10)
    (x * 2).backward()
    handle.remove()
    handle.remove()
    (x * 2).backward()
    assert x.grad.tolist() == [22.0]


def test_a_hook_must_return_a_tensor_of_the_same_size():
    x = leaf(1.0, 2.0)
    handle = x.register_hook(lambda g: 3.0)
    with pytest.raises(TypeError, match=r"expected Variable, but hook returned .float"):
        (x * 2).sum().backward()
    handle.remove()
    x.register_hook(lambda g: g[:1])
    with pytest.raises(RuntimeError, match="changed the size"):
        (x * 2).sum().backward()


HOOKED = {
    "leaf": lambda x, dtype: x.register_hook(lambda g: g.to(dtype)),
    "result": lambda y, dtype: y.register_hook(lambda g: g.to(dtype)),
    "before": lambda y, dtype: y.grad_fn.register_prehook(lambda gs: (gs[0].to(dtype),)),
    "after": lambda y, dtype: y.grad_fn.register_hook(lambda ins, outs: (ins[0].to(dtype), None)),
}


KINDS = {torch.float64: "torch.DoubleTensor", torch.complex64: "torch.ComplexFloatTensor"}


@pytest.mark.parametrize("dtype", KINDS, ids=str)
@pytest.mark.parametrize("name", HOOKED)
def test_a_hook_must_return_a_gradient_of_the_same_type(name, dtype):
    x = leaf(1.0, 2.0)
    y = x * torch.tensor(2.0)
    HOOKED[name](x if name == "leaf" else y, dtype)
    with pytest.raises(RuntimeError, match=f"was torch.FloatTensor got {KINDS[dtype]}"):
        y.sum().backward()
    assert x.grad is None


def test_a_hook_of_a_node_returns_as_many_gradients_as_it_sees():
    y = leaf(1.0) * leaf(2.0)
    y.grad_fn.register_hook(lambda ins, outs: ins[:1])
    with pytest.raises(RuntimeError, match="incorrect number of values: 1 gradients for the 2"):
        y.backward()


def test_a_hook_needs_a_gradient():
    with pytest.raises(RuntimeError, match="cannot register a hook"):
        torch.ones(1).register_hook(print)


def test_a_post_accumulate_hook_sees_the_finished_grad():
    x, seen = leaf(2.0), []
    x.register_post_accumulate_grad_hook(lambda t: seen.append(t.grad.tolist()))
    (x * x + x).backward()
    assert seen == [[5.0]]


def test_hooks_of_nodes_see_and_replace_the_gradients_of_operands():
    x, y = leaf(2.0), leaf(3.0)
    z = x * y
    z.grad_fn.register_prehook(lambda outs: (outs[0] * 2,))
    z.grad_fn.register_hook(lambda ins, outs: (ins[0] + outs[0], None))
    z.backward()
    assert x.grad.tolist() == [8.0]
    assert y.grad is None


def test_behind_a_node_with_hooks_only_what_grad_asks_for_is_reached():
    x, y, seen = leaf(2.0), leaf(3.0), []
    z = x * y
    z.grad_fn.register_hook(lambda ins, outs: None)
    y.register_hook(lambda g: seen.append(g))
    assert torch.autograd.grad(z, x)[0].tolist() == [3.0]
    assert seen == []


def test_hooks_run_under_create_graph_are_differentiated():
    x = leaf(3.0)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    assert torch.autograd.grad(g, x)[0].tolist() == [12.0]  # g = 2 x * x


# ---- types


@pytest.mark.parametrize(
    ("make", "dtype"),
    [
        (lambda: torch.tensor([1.0]), "float32"),
        (lambda: torch.tensor([1]), "int64"),
        (lambda: torch.tensor([True]), "bool"),
        (lambda: torch.tensor([1j]), "complex64"),
        (lambda: torch.tensor(np.ones(1)), "float64"),
        (lambda: torch.arange(3), "int64"),
        (lambda: torch.arange(3.0), "float32"),
        (lambda: torch.tensor([1, 2]) / 2, "float32"),
        (lambda: torch.tensor([1, 2]) * 1.5, "float32"),
        (lambda: torch.tensor([1, 2]).sqrt(), "float32"),
        (lambda: torch.ones(2) * torch.tensor(2.0, dtype=torch.float64), "float32"),
        (lambda: torch.ones(2) * torch.ones(2, dtype=torch.float64), "float64"),
        (lambda: torch.ones(2) * torch.tensor(2), "float32"),
        (lambda: torch.ones(2, dtype=torch.int32) + torch.ones(2, dtype=torch.float16), "float16"),
        (lambda: torch.ones(2, dtype=torch.float16) + torch.ones(2, dtype=torch.bfloat16),
         "float32"),
        (lambda: torch.ones(2, dtype=torch.uint8) + torch.ones(2, dtype=torch.int8), "int16"),
        (lambda: torch.ones(2, dtype=torch.bfloat16) * 1.5, "bfloat16"),
        (lambda: torch.ones(2) * 1j, "complex64"),
        (lambda: torch.tensor([True, False]).sum(), "int64"),
        (lambda: torch.ones(2) > 0, "bool"),
        (lambda: torch.cat([torch.ones(1), torch.ones(1, dtype=torch.float64)]), "float64"),
        (lambda: torch.where(torch.tensor([True]), 1.0, 0.0), "float32"),
    ],
)
def test_types_promote_by_category_then_by_rank(make, dtype):
    assert repr(make().dtype) == f"torch.{dtype}"


def test_the_default_type_can_be_set():
    torch.set_default_dtype(torch.float64)
    try:
        assert torch.tensor([1.0]).dtype is torch.zeros(1).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_conversion_is_recorded():
    x = leaf(1.0, 2.0)
    (x.double() * 3).sum().backward()
    assert x.grad.dtype is torch.float32
    assert x.grad.tolist() == [3.0, 3.0]


def test_types_are_one_object_each_and_pickle():
    assert torch.float is torch.float32
    assert pickle.loads(pickle.dumps(torch.bfloat16)) is torch.bfloat16


# ---- NumPy


def test_numpy_and_from_numpy_share_memory():
    a = np.zeros(3)
    t = torch.from_numpy(a)
    t[0] = 1.0
    t.numpy()[1] = 2.0
    assert a.tolist() == [1.0, 2.0, 0.0]


def test_numpy_of_what_requires_grad_must_be_detached():
    with pytest.raises(RuntimeError, match=r"Use tensor.detach\(\).numpy\(\) instead"):
        leaf(1.0).numpy()
    with pytest.raises(RuntimeError, match="detach"):
        np.asarray(leaf(1.0))
    assert leaf(1.0).detach().numpy() == 1.0


def test_numpy_functions_take_tensors_and_operators_mix():
    t = torch.tensor([1.0, 4.0])
    assert np.sqrt(t).tolist() == [1.0, 2.0]
    for y in (np.ones(2) + t, t + np.ones(2)):
        assert isinstance(y, torch.Tensor)
        assert y.tolist() == [2.0, 5.0]


def test_arrays_that_tensors_cannot_hold_are_refused():
    with pytest.raises(TypeError, match="cannot hold"):
        torch.from_numpy(np.array(["a"]))
    with pytest.raises(ValueError, match=r"pass array.copy\(\)"):
        torch.from_numpy(np.arange(3.0)[::-1])


def test_items_lists_and_numbers():
    assert torch.tensor([2.5]).item() == 2.5
    assert torch.ones(2, 2).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert float(torch.tensor(3)) == 3.0 and [1, 2, 3][torch.tensor(1)] == 2
    with pytest.raises(RuntimeError, match="2 elements cannot be converted to Scalar"):
        torch.ones(2).item()
    with pytest.raises(RuntimeError, match="ambiguous"):
        bool(torch.ones(2))


def test_copies_and_pickles_are_leaves_of_their_own():
    x = leaf(1.0, 2.0)
    for y in (copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert y.requires_grad and y.is_leaf
        assert y.tolist() == [1.0, 2.0]
    with pytest.raises(RuntimeError, match="leaves"):
        copy.deepcopy(x * 2)


# ---- printing


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: torch.tensor(3.5), "tensor(3.5000)"),
        (lambda: torch.tensor([1.0, -20.0]), "tensor([  1., -20.])"),
        (lambda: torch.tensor([1.5, -20.25]), "tensor([  1.5000, -20.2500])"),
        (lambda: torch.tensor([1, 20]), "tensor([ 1, 20])"),
        (lambda: torch.tensor([True, False]), "tensor([ True, False])"),
        (lambda: torch.zeros(0), "tensor([])"),
        (lambda: torch.tensor([1e-6]), "tensor([1.0000e-06])"),
        (lambda: torch.ones(1, dtype=torch.float64), "tensor([1.], dtype=torch.float64)"),
        (lambda: torch.tensor([1.5, float("nan")]), "tensor([1.5000,    nan])"),
        (lambda: leaf(1.0) * 2, "tensor([2.], grad_fn=<MulBackward0>)"),
        (lambda: leaf(1.0).T[0], "tensor(1., grad_fn=<SelectBackward0>)"),
        (lambda: torch.ones(2).size(), "torch.Size([2])"),
        (lambda: torch.tensor([float("nan"), float("inf"), 1.0]), "tensor([nan, inf, 1.])"),
        (lambda: torch.tensor([float("nan"), 1.0, 100.0]), "tensor([ nan,   1., 100.])"),
        (lambda: torch.tensor([-float("inf"), 0.0]), "tensor([-inf, 0.])"),
        (lambda: torch.tensor([1.5 + 2.25j, -1j]), "tensor([1.5000+2.2500j, -0.0000-1.0000j])"),
        (lambda: torch.tensor([1 + 1j, -2 - 100j]), "tensor([ 1.+1.j, -2.-100.j])"),
    ],
)
def test_tensors_print_their_entries_and_what_is_unusual(make, text):
    assert repr(make()) == text


# ---- factories, devices, import


@pytest.mark.parametrize(
    "name", ["zeros", "ones", "empty", "rand", "randn"]
)
def test_factories_take_a_shape_and_requires_grad(name):
    t = getattr(torch, name)(2, 3, requires_grad=True)
    assert (t.shape, t.requires_grad, t.is_leaf) == ((2, 3), True, True)
    u = getattr(torch, f"{name}_like")(t, dtype=torch.float64)
    assert (u.shape, u.dtype, u.requires_grad) == ((2, 3), torch.float64, False)


def test_the_other_factories():
    assert torch.full((2,), 3.0, requires_grad=True).tolist() == [3.0, 3.0]
    assert torch.eye(2).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert torch.linspace(0, 1, 3).tolist() == [0.0, 0.5, 1.0]
    assert torch.arange(1, 7, 2).tolist() == [1, 3, 5]
    assert sorted(torch.randperm(4).tolist()) == [0, 1, 2, 3]
    assert torch.randint(5, (3,)).dtype is torch.int64


def test_a_seed_repeats_random_numbers():
    torch.manual_seed(3)
    first = torch.randn(4).tolist()
    torch.manual_seed(3)
    assert torch.randn(4).tolist() == first


def test_there_is_only_the_cpu():
    with pytest.raises(AssertionError, match="Torch not compiled with CUDA enabled"):
        torch.ones(2, device="cuda")
    with pytest.raises(RuntimeError, match="there is no device 'cuda'"):
        torch.ones(2).cuda()
    assert torch.ones(2, device="cpu").cpu().tolist() == [1.0, 1.0]


def test_the_shim_is_imported_only_when_it_is_asked_for():
    code = "import sys, functrans; assert 'functrans.torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_retained_grad_is_of_what_the_tensor_is_after_a_change_in_place():
    y = leaf(1.0, 1.0, 1.0).clone()
    y.retain_grad()
    y[:2].mul_(3)
    y.add_(1)
    (y * 5).sum().backward()
    assert y.grad.tolist() == [5.0, 5.0, 5.0]


def test_views_keep_their_grad_when_they_or_their_base_change():
    for change in (lambda base, view: view.mul_(3), lambda base, view: base.mul_(3)):
        base = leaf(1.0, 1.0, 1.0).clone()
        view = base[:2]
        view.retain_grad()
        change(base, view)
        (view * 5).sum().backward()
        assert view.grad.tolist() == [5.0, 5.0]


@pytest.mark.parametrize("key", [
    [[0, 2], [1, 1]], [slice(None), [0, 1]], [None, [0]], [..., 0], [(0, 1), (1, 2)],
    [[True, False, True], [0, 1]], [torch.tensor(1), torch.tensor(2)],
], ids=str)
def test_a_list_of_more_than_numbers_is_an_index_for_each_dimension(key):
    x = np.arange(27.0).reshape(3, 3, 3)
    entries = tuple([int(k) if isinstance(k, torch.Tensor) else k for k in key])
    t = torch.tensor(x)
    with pytest.warns(UserWarning, match="Using a non-tuple sequence for multidimensional"):
        assert np.array_equal(t[key].numpy(), x[entries])
    with pytest.warns(UserWarning, match="Using a non-tuple sequence for multidimensional"):
        t[key] = -1.0
    x[entries] = -1.0
    assert np.array_equal(t.numpy(), x)


def test_a_named_tuple_is_an_index_for_each_dimension():
    x = torch.arange(9.0).reshape(3, 3)
    place = namedtuple("place", "row column")
    assert x[place(1, [0, 2])].tolist() == [3.0, 5.0]
