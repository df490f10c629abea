"""The walk backward: sections A, D and L of the checklist, and G where gradients arrive."""

import gc
import tracemalloc

import numpy as np
import pytest

import functrans as ft
import functrans.torch as torch
from functrans.torch._graph.nodes import Node
from tests.threads import at_once


def leaf(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def array(t):
    return t.detach().numpy()


# ---- backward


def test_backward_adds_up_the_gradients_of_several_outputs():
    x = leaf(1.0, 2.0)
    torch.autograd.backward([(x * x).sum(), (3 * x).sum()])
    assert x.grad.tolist() == [5.0, 7.0]


def test_backward_takes_one_tensor_and_one_gradient_without_a_list():
    x = leaf(1.0, 2.0)
    torch.autograd.backward(x * x, torch.tensor([1.0, 10.0], dtype=torch.float64))
    assert x.grad.tolist() == [2.0, 40.0]


def test_backward_accumulates_into_leaves():
    x = leaf(3.0)
    (x * x).backward()
    (x * x).backward()
    assert x.grad.tolist() == [12.0]


@pytest.mark.parametrize("shape", [(), (1,), (1, 1)])
def test_the_seed_of_one_element_is_one_whatever_its_shape(shape):
    x = torch.full(shape, 3.0, requires_grad=True)
    (x * x).backward()
    assert x.grad.tolist() == np.full(shape, 6.0).tolist()


def test_several_elements_need_a_seed():
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        (leaf(1.0, 2.0) * 2).backward()


def test_a_gradient_may_be_none_for_scalars_and_for_what_requires_none():
    x, c = leaf(2.0), torch.ones(3)
    torch.autograd.backward([x * x, c], [None, None])
    assert x.grad.tolist() == [4.0]


def test_gradients_are_tensors_or_none():
    with pytest.raises(TypeError, match=r"either Tensors or None, but got float"):
        torch.autograd.backward([leaf(1.0) * 2], [1.0])


def test_lengths_of_tensors_and_gradients_must_agree():
    with pytest.raises(RuntimeError, match="got 1 tensors and 2 gradients"):
        torch.autograd.backward([leaf(1.0) * 2], [None, None])


def test_shapes_of_tensors_and_gradients_must_agree():
    with pytest.raises(RuntimeError, match=r"Mismatch in shape: grad_output\[0\]"):
        (leaf(1.0, 2.0) * 2).backward(torch.ones(3))


def test_a_second_backward_raises_unless_the_graph_was_retained():
    x = leaf(2.0)
    y = x * x
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [8.0]
    with pytest.raises(RuntimeError, match=r"second time .*retain_graph=True.*MulBackward0"):
        y.backward()


def test_a_seed_is_recorded_only_with_create_graph():
    x, seed = leaf(2.0), leaf(3.0)
    (x * x).backward(seed)
    assert not x.grad.requires_grad
    (g,) = torch.autograd.grad(x * x, x, seed, create_graph=True)
    assert torch.autograd.grad(g, seed)[0].tolist() == [4.0]


def test_retain_graph_is_create_graph_by_default():
    x = leaf(2.0)
    y = x * x * x
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    (g2,) = torch.autograd.grad(g, x, retain_graph=True)
    assert g2.tolist() == [12.0]
    y.backward()
    assert x.grad.tolist() == [12.0]


def test_retain_variables_is_the_old_name_of_retain_graph():
    x = leaf(2.0)
    y = x * x
    with pytest.warns(FutureWarning, match="retain_graph"):
        y.backward(retain_variables=True)
    y.backward()
    assert x.grad.tolist() == [8.0]


def test_create_graph_makes_derivatives_of_any_order():
    x = leaf(0.3)
    y = x.sin()
    for expected in (np.cos, lambda v: -np.sin(v), lambda v: -np.cos(v), np.sin):
        (y,) = torch.autograd.grad(y, x, create_graph=True)
        assert y.item() == pytest.approx(expected(0.3), rel=1e-14)


def test_grad_variables_is_deprecated_and_not_taken_together():
    x = leaf(2.0)
    one = torch.ones(1, dtype=torch.float64)
    with pytest.warns(UserWarning, match="'grad_variables' is deprecated"):
        torch.autograd.backward([x * x], grad_variables=[one])
    assert x.grad.tolist() == [4.0]
    with (
        pytest.warns(UserWarning, match="deprecated"),
        pytest.raises(RuntimeError, match="both passed"),
    ):
        torch.autograd.backward([x * x], [one], grad_variables=[one])


def test_leaves_that_are_not_reached_are_left_alone():
    x, y = leaf(1.0), leaf(1.0)
    (x * 2).backward()
    assert y.grad is None


def test_inputs_says_where_gradients_are_accumulated():
    x, y = leaf(2.0), leaf(3.0)
    (x * y).backward(inputs=[x])
    assert x.grad.tolist() == [3.0]
    assert y.grad is None


def test_inputs_may_be_the_result_of_an_operation():
    x = leaf(2.0)
    z = x * 3
    (z * z).backward(inputs=z)
    assert z.grad.tolist() == [12.0]
    assert x.grad is None


def test_inputs_must_not_be_empty():
    with pytest.raises(RuntimeError, match="cannot be empty"):
        leaf(2.0).backward(inputs=[])


def test_what_requires_no_gradient_cannot_be_walked():
    with pytest.raises(RuntimeError, match="does not require grad and does not have a grad_fn"):
        torch.ones(1).backward()


# ---- grad


def test_grad_returns_a_tuple_and_touches_no_grad():
    x, y = leaf(2.0), leaf(3.0)
    gx, gy = torch.autograd.grad(x * y, [x, y])
    assert (gx.tolist(), gy.tolist(), x.grad, y.grad) == ([3.0], [2.0], None, None)


def test_grad_of_an_intermediate_result():
    x = leaf(2.0)
    z = x * 3
    assert [g.tolist() for g in torch.autograd.grad(z * z, [z, x])] == [[12.0], [36.0]]


def test_only_inputs_is_deprecated_and_ignored():
    x = leaf(2.0)
    with pytest.warns(FutureWarning, match="only_inputs"):
        torch.autograd.grad(x * x, x, only_inputs=False)
    assert x.grad is None


def test_an_unused_input_is_an_error_or_none_or_zeros():
    x, y = leaf(2.0), leaf(3.0, 4.0)
    with pytest.raises(RuntimeError, match="index 1 appears to not have been used"):
        torch.autograd.grad(x * x, [x, y])
    assert torch.autograd.grad(x * x, [x, y], allow_unused=True)[1] is None
    assert torch.autograd.grad(x * x, [y], materialize_grads=True)[0].tolist() == [0.0, 0.0]


def test_an_input_that_requires_no_gradient_is_an_error():
    with pytest.raises(RuntimeError, match="does not require grad"):
        torch.autograd.grad(leaf(2.0) * 2, torch.ones(1))


def test_grad_frees_only_what_it_passes():
    x, y = leaf(2.0), leaf(3.0)
    loss = x * x + y * y
    torch.autograd.grad(loss, x)
    torch.autograd.grad(loss, y)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(loss, x)


def test_results_of_grad_share_no_memory():
    x, y = leaf(2.0), leaf(3.0)
    seed = torch.ones(1, dtype=torch.float64)
    gx, gy = torch.autograd.grad(x + y, [x, y], seed)
    gx.add_(1)
    assert (gy.tolist(), seed.tolist()) == ([1.0], [1.0])


# ---- the walk


def test_a_value_used_twice_receives_both_contributions_and_its_node_is_passed_once():
    x = leaf(2.0)
    y = x * 3
    passed = []
    y.grad_fn.register_hook(lambda gi, go: passed.append(go[0].tolist()))
    (y * y + y).backward()
    assert passed == [[13.0]]
    assert x.grad.tolist() == [39.0]


def test_a_sum_of_many_contributions_changes_none_of_them():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    u, v = x * 1, w * 1
    seen = []
    v.register_hook(seen.append)
    (u + v + u + u + u * v).sum().backward()
    assert x.grad.tolist() == [6.0, 7.0] and w.grad.tolist() == [2.0, 3.0]
    assert seen[0].tolist() == [2.0, 3.0]


def test_edges_lead_from_outputs_to_inputs():
    x = leaf(2.0)
    y = x * 3 + 1
    add = y.grad_fn
    ((mul, k), rest) = add.next_functions
    assert (add.name(), mul.name(), k, rest) == ("AddBackward0", "MulBackward0", 0, (None, 0))
    (accumulate, _), _ = mul.next_functions
    assert accumulate.variable is x
    assert accumulate.next_functions == ()


def test_a_backward_may_run_inside_a_backward():
    x, z = leaf(2.0), leaf(5.0)

    def hook(g):
        with torch.enable_grad():  # inside a backward nothing is recorded
            (z * z).backward()
        return g * 10

    y = x * 3
    y.register_hook(hook)
    (y * y).backward()
    assert (x.grad.tolist(), z.grad.tolist()) == ([360.0], [10.0])


def test_a_contribution_that_two_operands_received_is_not_added_into():
    x, w = leaf(1.0, 2.0), leaf(3.0, 4.0)
    u, v = x * 1, w * 1
    early = u * 3
    ((u + v) * 2 + early).sum().backward()
    assert (x.grad.tolist(), w.grad.tolist()) == ([5.0, 5.0], [2.0, 2.0])


def test_hooks_see_what_those_registered_before_have_made():
    for on_leaf in (True, False):
        x = leaf(2.0)
        y = x * 1
        for hook in (lambda g: g * 10, lambda g: g + 1):
            (x if on_leaf else y).register_hook(hook)
        y.sum().backward()
        assert x.grad.tolist() == [11.0]


def test_checkpoints_know_whether_a_walk_reaches_all_leaves():
    x, seen = leaf(2.0), []
    y = x * 3
    y.register_hook(lambda g: seen.append(torch.autograd._is_checkpoint_valid()))
    y.backward(retain_graph=True)
    torch.autograd.grad(y, x)
    assert seen == [True, False]
    assert torch.autograd._is_checkpoint_valid()


def test_a_graph_may_be_100000_nodes_deep():
    x = leaf(1.0)
    y = x
    for _ in range(100_000):
        y = y + x
    y.backward()
    assert x.grad.tolist() == [100_001.0]
    del y  # freed without recursion


def test_threads_walk_graphs_of_their_own_and_add_to_one_leaf():
    shared = leaf(1.0)

    def work(_):
        for _ in range(25):
            (shared * 2).backward()

    at_once(work, range(8))
    assert shared.grad.tolist() == [400.0]


def step():
    a = torch.randn(5, 5, requires_grad=True)
    b = (a @ a).exp() * 1
    b.mul_(2)
    v = b[0]
    v.add_(1)
    b[1] = 0
    b.retain_grad()
    b.register_hook(lambda g: g * 2)
    (b.std() + b.softmax(0).sum() + v.sum()).backward()


def test_no_reference_cycles_are_left_behind():
    step()
    gc.collect()
    gc.disable()
    try:
        step()
        assert gc.collect() == 0
    finally:
        gc.enable()


def test_gradients_may_be_batched():
    x = leaf(1.0, 2.0)
    y = x * x
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 3.0]], dtype=torch.float64)
    (g,) = torch.autograd.grad(y, x, rows, is_grads_batched=True, retain_graph=True)
    assert g.tolist() == [[2.0, 0.0], [0.0, 4.0], [4.0, 12.0]]
    y.register_hook(lambda g: 10 * g)  # a hook sees one after the other
    (g,) = torch.autograd.grad(y, x, rows, is_grads_batched=True)
    assert g.tolist() == [[20.0, 0.0], [0.0, 40.0], [40.0, 120.0]]
    with pytest.raises(RuntimeError, match="a second time"):
        y.sum().backward()


def test_batched_gradients_can_be_differentiated():
    x = leaf(1.0, 2.0)
    rows = torch.tensor([[1.0, 0.0], [5.0, 1.0]], dtype=torch.float64)
    (g,) = torch.autograd.grad(x**3, x, rows, is_grads_batched=True, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    assert h.tolist() == [36.0, 12.0]


def test_batched_gradients_must_be_given_and_fit():
    x = leaf(1.0, 2.0)
    with pytest.raises(RuntimeError, match="only for scalar outputs"):
        torch.autograd.grad(x.sum(), x, is_grads_batched=True)
    for wrong in (torch.ones(2), torch.ones(0, 2), torch.ones(3, 3)):
        with pytest.raises(RuntimeError, match="grad_output as the batch dimension"):
            torch.autograd.grad(x * x, x, wrong, is_grads_batched=True)


def test_create_graph_ties_the_leaf_and_its_grad_until_that_is_reset():
    x = leaf(2.0)
    (x * x).backward(create_graph=True)
    assert x.grad.grad_fn is not None
    x.grad = None


def test_buffers_are_freed_as_the_walk_goes():
    x = torch.ones(10_000, dtype=torch.float64, requires_grad=True)
    x.sin().sum().backward()  # what is loaded at first use is not the graph's
    x.grad = None
    tracemalloc.start()
    try:
        y = x
        for _ in range(50):
            y = y.sin()
        held = tracemalloc.get_traced_memory()[0]
        y.sum().backward()
        now, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held > 49 * 80_000
    assert peak < held + 5 * 80_000
    assert now < 8 * 80_000


def test_nodes_without_a_rule_say_so():
    with pytest.raises(NotImplementedError, match="Node"):
        Node(()).pull(1.0, False)


# ---- layouts of grad


def test_a_new_grad_has_the_strides_of_a_dense_tensor():
    x = torch.zeros(3, 4).t().requires_grad_()
    (x * torch.arange(12.0).reshape(4, 3)).sum().backward()
    assert x.stride() == x.grad.stride() == (1, 4)
    assert x.grad.tolist() == np.arange(12.0).reshape(4, 3).tolist()


def test_a_new_grad_is_in_row_order_where_the_tensor_has_gaps():
    x = torch.zeros(4, 6)[:, ::2].detach().requires_grad_()
    x.sum().backward()
    assert (x.stride(), x.grad.stride()) == ((6, 2), (3, 1))


def test_an_existing_grad_is_added_to_in_place():
    x = leaf(1.0, 2.0)
    x.grad = first = torch.zeros(2, dtype=torch.float64)
    (x * x).sum().backward()
    assert x.grad is first
    assert first.tolist() == [2.0, 4.0]


def test_an_existing_grad_is_replaced_when_the_graph_is_created():
    x = leaf(1.0, 2.0)
    x.grad = first = torch.ones(2, dtype=torch.float64)
    (x * x).sum().backward(create_graph=True)
    assert x.grad is not first
    assert (first.tolist(), x.grad.tolist()) == ([1.0, 1.0], [3.0, 5.0])
    x.grad = None


def test_an_assigned_grad_keeps_its_layout():
    x = torch.zeros(2, 3, requires_grad=True)
    x.grad = torch.zeros(3, 2).t()
    (x * 2).sum().backward()
    assert x.grad.stride() == (1, 2)
    x.grad.zero_()
    assert x.grad.stride() == (1, 2)


# ---- complex numbers


def test_the_gradient_of_a_real_loss_is_the_direction_of_ascent():
    z = torch.tensor([3 + 4j], requires_grad=True)
    (z.abs() ** 2).sum().backward()
    assert z.grad.tolist() == [6 + 8j]


def test_complex_gradients_agree_with_the_functional_core():
    z0 = np.array([1 + 2j, -0.5 + 0.3j])

    def f(m, z):
        w = m.exp(z) * z + 1 / z
        return (m.real(w) ** 2 + m.imag(w) * 3).sum()

    z = torch.tensor(z0, requires_grad=True)
    f(torch, z).backward()
    assert array(z.grad) == pytest.approx(np.asarray(ft.grad(lambda z: f(np, z))(z0)), rel=1e-13)


def test_a_hook_sees_the_gradient_in_the_same_convention():
    z = torch.tensor([3 + 4j], requires_grad=True)
    seen = []
    w = z * 1
    w.register_hook(lambda g: seen.append(g.tolist()))
    (w.abs() ** 2).sum().backward()
    assert seen == [[6 + 8j]]


def test_holomorphic_derivatives_are_asked_for_by_name():
    assert ft.grad(lambda z: z * z, holomorphic=True)(1 + 2j) == 2 + 4j
    z = torch.tensor(1 + 2j, dtype=torch.complex128, requires_grad=True)
    (z * z).backward(torch.tensor(1 + 0j, dtype=torch.complex128))
    assert z.grad.item() == 2 - 4j  # the conjugate: the direction of ascent of the real part


def test_a_real_tensor_in_a_complex_computation_has_a_real_gradient():
    x = leaf(1.0, 2.0)
    (x * (3 + 4j)).abs().sum().backward()
    assert x.grad.dtype is torch.float64
    assert x.grad.tolist() == pytest.approx([5.0, 5.0])


def test_a_complex_output_needs_a_seed():
    z = torch.tensor(1 + 2j, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"real scalar outputs but got torch\.complex64"):
        (z * z).backward()
    (z * z).backward(torch.tensor(1 + 0j))
    assert z.grad.item() == 2 - 4j


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_gradients_have_the_type_of_their_tensor(dtype):
    x = torch.ones(3, dtype=dtype, requires_grad=True)
    ((x * 2).exp() / (x + 1)).mean().backward()
    assert x.grad.dtype is dtype
    expected = np.exp(2.0) * (2 / 2 - 1 / 4) / 3
    # half precision has 8 to 11 bits
    assert x.grad.float().tolist() == pytest.approx([expected] * 3, rel=2e-2)


# ---- strong zero


def test_the_branch_that_is_not_taken_contributes_nothing():
    x = leaf(0.0, 4.0)
    torch.where(x > 0, x.sqrt(), 0.0).sum().backward()
    assert x.grad.tolist() == [0.0, 0.25]


WILD = {"square": torch.square, "sin": torch.sin, "exp": torch.exp, "log": torch.log,
        "tanh": lambda x: torch.tanh(x * x) * x, "divide": lambda x: 1 / x}


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e308], ids=str)
@pytest.mark.parametrize("f", WILD.values(), ids=WILD)
def test_the_branch_not_taken_contributes_nothing_whatever_was_met_before(f, value):
    def gradient(create_graph=False):
        x = leaf(value, 1.0)
        wanted = torch.tensor([False, True])
        (g,) = torch.autograd.grad(torch.where(wanted, f(x), 0.0).sum(), x,
                                   create_graph=create_graph)
        return g.tolist()

    one = leaf(1.0)
    f(one).sum().backward()
    with np.errstate(all="ignore"):
        before = gradient()
        torch.log(torch.zeros(1))  # an infinity that has nothing to do with it
        assert before == gradient() == gradient(create_graph=True) == [0.0, one.grad.item()]


def test_hooks_see_each_cotangent_once_where_a_nan_arrives():
    x, seen = leaf(0.0, 4.0), []
    y = x * 1.0
    y.register_hook(lambda g: seen.append(g.tolist()))
    torch.where(y > 0, y.sqrt(), 0.0).sum().backward()
    assert seen == [[0.0, 0.25]]
    assert x.grad.tolist() == [0.0, 0.25]


def test_an_infinite_leaf_is_added_to_once():
    x = leaf(0.0, 4.0)
    x.grad = torch.ones(2, dtype=torch.float64)
    torch.where(x > 0, x.sqrt(), 0.0).sum().backward()
    assert x.grad.tolist() == [1.0, 1.25]


def test_a_zero_slope_wins_against_an_infinite_one():
    x = leaf(0.0)
    (x * x.sqrt()).backward()
    assert x.grad.tolist() == [0.0]


def test_a_seed_is_complex_exactly_where_its_output_is():
    x = torch.ones(2, dtype=torch.complex64, requires_grad=True)
    for y, seed in ((x * 2, torch.ones(2)), (x.real, torch.ones(2, dtype=torch.complex64))):
        with pytest.raises(RuntimeError, match="For complex Tensors, both grad_output and output"):
            torch.autograd.grad(y, x, seed)
