"""``torch.utils.checkpoint``, and A21."""

import contextlib
import weakref

import numpy as np
import pytest

import functrans.torch as torch
from functrans.torch.utils.checkpoint import (
    check_backward_validity,
    checkpoint,
    checkpoint_sequential,
    detach_variable,
    noop_context_fn,
)


def leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


class Counted:
    """x -> exp(sin(x) w), with w from outside; counts its runs."""

    def __init__(self, w):
        self.w, self.runs = w, 0

    def __call__(self, x):
        self.runs += 1
        return (x.sin() * self.w).exp()


def plain(x, w):
    return (x.sin() * w).exp()


def gradients(y, *xs, order=1):
    """Gradients in all of ``xs``, differentiated ``order`` times along ones."""
    for _ in range(order - 1):
        y = sum(g.sum() for g in torch.autograd.grad(y.sum(), xs, create_graph=True))
    return [g.tolist() for g in torch.autograd.grad(y.sum(), xs, retain_graph=True)]


@pytest.mark.parametrize("order", [1, 2, 3])
def test_grad_is_that_of_the_function_to_any_order_also_in_what_it_closes_over(order):
    x, w = leaf(0.5, -1.0), leaf(2.0, 3.0)
    a = x * 1.5  # not a leaf
    expected = gradients(plain(a, w), x, w, order=order)
    assert gradients(checkpoint(Counted(w), a), x, w, order=order) == expected


def test_backward_reaches_the_leaves_once():
    x, w = leaf(0.5, -1.0), leaf(2.0, 3.0)
    f = Counted(w)
    checkpoint(f, x * 1.5, use_reentrant=False).sum().backward()
    found = x.grad.tolist(), w.grad.tolist()
    assert f.runs == 2
    x.grad = w.grad = None
    plain(x * 1.5, w).sum().backward()
    assert found == (x.grad.tolist(), w.grad.tolist())


def test_what_lies_between_two_arguments_is_passed_once():
    x = leaf(0.5)
    y = x.exp()
    assert gradients(checkpoint(lambda a, b: a * b * b, x, y), x) == gradients(x * y * y, x)


def test_checkpoints_nest():
    x, w = leaf(0.5), leaf(2.0)

    def inner(x):
        return (x * w).sin()

    def outer(x):
        return checkpoint(inner, x * x) * x + checkpoint(inner, x)

    expected = gradients(inner(x * x) * x + inner(x), x, w, order=2)
    np.testing.assert_allclose(gradients(checkpoint(outer, x), x, w, order=2), expected, rtol=1e-14)


def test_what_is_computed_in_between_is_not_kept():
    x = leaf(0.5)
    f = Counted(1.0)
    y = checkpoint(f, x)
    assert y.grad_fn.name() == "CheckpointNode"
    assert y.grad_fn.next_functions[0][0].variable is x
    y.backward(retain_graph=True)
    y.backward()
    assert f.runs == 3
    with pytest.raises(RuntimeError, match=r"second time .*what CheckpointNode had saved"):
        y.backward()


def test_memory_of_what_is_computed_in_between_is_free_after_the_call():
    seen = []

    def f(x):
        h = x.sin()
        seen.append(weakref.ref(h.detach().numpy()))
        return h * h

    y = checkpoint(f, leaf(0.5))
    assert y.requires_grad and seen[0]() is None
    f(leaf(0.5))
    kept = f(leaf(0.5))
    assert kept.requires_grad and seen[-1]() is not None


def test_results_and_arguments_may_be_nested_and_of_any_kind():
    def f(pair, *, scale):
        a, b = pair["ab"]
        return {"sum": a + b, "product": a * b * scale, "as is": b, "n": 3, "int": torch.ones(2)}

    a, b = leaf(2.0), leaf(5.0)
    y = checkpoint(f, {"ab": (a, b)}, scale=10)
    assert y["n"] == 3 and y["as is"] is b and not y["int"].requires_grad
    assert gradients(y["product"], a, b) == [[50.0], [20.0]]


def test_an_output_that_shares_memory_with_another_has_its_own():
    def f(x):
        y = x * 2
        return y, y.view(-1), x.view(-1)

    x = leaf(1.0, 2.0)
    y, flat, alias = checkpoint(f, x)
    y.mul_(5)
    assert flat.tolist() == [2.0, 4.0]
    assert gradients(y + 100 * flat + 1000 * alias, x) == [[1210.0, 1210.0]]


def test_random_numbers_are_the_same_again():
    def dropped(x):
        return x * (torch.rand(20) > 0.5)

    torch.manual_seed(1)
    x = torch.ones(20, requires_grad=True)
    y = checkpoint(dropped, x)
    after = torch.rand(3)
    (g,) = torch.autograd.grad(y.sum(), x)
    assert g.tolist() == y.tolist()
    torch.manual_seed(1)
    torch.rand(20)
    assert torch.rand(3).tolist() == after.tolist()


def test_other_values_in_the_second_run_are_noticed():
    torch.manual_seed(1)
    x = torch.ones(20, requires_grad=True)
    y = checkpoint(lambda x: x * torch.rand(20), x, preserve_rng_state=False)
    with pytest.raises(RuntimeError, match="returned other values when it was run again"):
        y.sum().backward()


def test_other_tensors_in_the_second_run_are_noticed():
    x = leaf(1.0)
    weights = [leaf(2.0), leaf(2.0)]
    y = checkpoint(lambda x: x * weights.pop(), x)
    with pytest.raises(RuntimeError, match="depended on other tensors"):
        y.backward()


def test_an_argument_that_was_changed_in_between_is_noticed():
    x = leaf(1.0)
    a = x * 2
    y = checkpoint(lambda a: a * 3, a)
    a.add_(1)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*add_"):
        y.backward()


def test_under_no_grad_a_checkpoint_is_the_function():
    f = Counted(1.0)
    with torch.no_grad():
        assert not checkpoint(f, leaf(1.0)).requires_grad
    assert not checkpoint(f, torch.ones(1)).requires_grad
    assert f.runs == 2


def test_hooks_outside_see_the_whole_gradient_once():
    x = leaf(1.0)
    a = x * 2
    seen = []
    for t in (x, a):
        t.register_hook(lambda g: seen.append(g.item()))
    checkpoint(lambda a: a * a + x, a).backward()
    assert seen == [4.0, 9.0]


@pytest.mark.parametrize("segments", [1, 2, 3, 5])
def test_a_chain_is_checkpointed_in_groups(segments):
    x = leaf(0.5)
    chain = [torch.sin, torch.exp, lambda x: x * x, torch.cos, torch.tanh]
    y = x
    for f in chain:
        y = f(y)
    assert gradients(checkpoint_sequential(chain, segments, x), x) == gradients(y, x)


def test_a_gradient_of_a_checkpoint_has_jacobians():
    x = leaf(0.5, 1.0)
    J = torch.autograd.functional.jacobian(
        lambda x: checkpoint(lambda x: x * x, x), x, vectorize=True)
    assert J.tolist() == [[1.0, 0.0], [0.0, 2.0]]


def test_a_function_runs_in_the_contexts_that_are_asked_for():
    said = []

    @contextlib.contextmanager
    def saying(word):
        said.append(word)
        yield
        said.append(f"end of {word}")

    x = torch.ones(2, requires_grad=True)
    y = checkpoint(torch.sin, x, use_reentrant=False,
                   context_fn=lambda: (saying("forward"), saying("again")))
    assert said == ["forward", "end of forward"]
    y.sum().backward()
    assert said[2:] == ["again", "end of again"]
    with pytest.raises(ValueError, match="is only supported when use_reentrant=False"):
        checkpoint(torch.sin, x, use_reentrant=True, context_fn=lambda: (None, None))


def test_the_helpers_of_checkpoints():
    x = torch.ones(2, requires_grad=True)
    y, n = detach_variable((x * 2, 3))
    assert y.is_leaf and y.requires_grad and n == 3
    with pytest.raises(RuntimeError, match="Only tuple of tensors is supported"):
        detach_variable([x])
    with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
        check_backward_validity([torch.ones(1), 2])
    check_backward_validity([x])
    assert checkpoint(torch.sin, x, use_reentrant=False, context_fn=noop_context_fn).requires_grad
    with pytest.raises(ValueError, match="Unexpected keyword arguments: k"):
        checkpoint(lambda x, k: x * k, x, k=2, use_reentrant=True)
