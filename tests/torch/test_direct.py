"""Calls that go straight to one row, against the same calls by NumPy's names on traced values."""

import warnings

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from functrans import torch
from functrans.torch._functions import outputs
from functrans.torch._graph.modes import quietly
from tests.drawing import generator

RNG = generator(3)


def tensor(*shape, dtype=np.float64):
    return torch.tensor(RNG.standard_normal(shape).astype(dtype), requires_grad=True)


NN = torch.nn.functional
INDEX, CLASSES = torch.tensor([[2, 0], [2, 1]]), torch.tensor([2, 0, 3])
CALLS = {
    "sum": (lambda x: x.sum(1), (2, 3)),
    "sum of the last, kept": (lambda x: x.sum(-1, keepdim=True), (2, 3)),
    "sum of nothing": (lambda x: x.sum(0), (0, 3)),
    "sum of a vector": (lambda x: x.sum(0), (4,)),
    "softmax": (lambda x: x.softmax(-1), (2, 3)),
    "softmax of columns": (lambda x: torch.softmax(x, 0), (2, 3)),
    "softmax of nothing": (lambda x: x.softmax(0), (3, 0)),
    "log_softmax": (lambda x: torch.log_softmax(x, dim=1), (2, 3)),
    "log_softmax of columns": (lambda x: x.log_softmax(0), (4, 2)),
    "logsumexp": (lambda x: x.logsumexp(1), (2, 3)),
    "cat": (lambda x: torch.cat([x, 2 * x, x.detach()], 1), (2, 3)),
    "cat of other lengths": (lambda x: torch.cat((x, x[:1]), dim=0), (2, 3)),
    "stack": (lambda x: torch.stack([x, x.exp()], -1), (2, 3)),
    "matrix and vector": (lambda x: x @ x[0], (3, 3)),
    "vector and matrix": (lambda x: x[0] @ x, (3, 3)),
    "vectors": (lambda x: x @ x, (3,)),
    "mv": (lambda x: torch.mv(x, x[1]), (3, 3)),
    "bmm": (lambda x: torch.bmm(x, x.transpose(1, 2)), (2, 3, 4)),
    "stacks": (lambda x: x @ x.mT, (2, 2, 3, 4)),
    "a stack and a matrix": (lambda x: x @ x[0], (2, 3, 3)),
    "entries": (lambda x: x[INDEX], (3, 2)),
    "entries by a mask": (lambda x: x[x.detach() > 0], (5, 2)),
    "embedding": (lambda x: torch.nn.functional.embedding(INDEX, x), (3, 4)),
    "scatter_add": (lambda x: x.scatter_add(0, INDEX, x[:2]), (3, 2)),
    "scatter_add of a vector": (lambda x: (2 * x).scatter_add(0, INDEX[1], x[:2]), (3,)),
    "dot": (lambda x: torch.dot(x, x.exp()), (4,)),
    "outer": (lambda x: torch.outer(x, x.exp()), (4,)),
    "where": (lambda x: torch.where(x > 0, x.exp(), x[:1]), (3, 4)),
    "mean": (lambda x: x.mean(1), (3, 4)),
    "mean, kept": (lambda x: x.mean(-2, keepdim=True), (3, 4)),
    "logits": (lambda x: NN.binary_cross_entropy_with_logits(x, x.detach().sigmoid()), (3, 4)),
    "clamp": (lambda x: x.clamp(-0.5, 0.5), (3, 4)),
    "clamp from below": (lambda x: x.clamp(min=0), (3, 4)),
    "softplus": (NN.softplus, (3, 4)),
    "linear": (lambda x: NN.linear(x, x[:2], x[0, :2]), (3, 4)),
    "linear without bias": (lambda x: NN.linear(x.detach(), x), (3, 4)),
    "linear of stacks": (lambda x: NN.linear(x, x[0, 1:], x[1, 0, :2]), (2, 3, 4)),
    "linear in its input": (lambda x: NN.linear(x, x.detach()[:2]), (3, 4)),
    "mse_loss": (lambda x: NN.mse_loss(x, x[:1].detach().expand(3, 4)), (3, 4)),
    "mse_loss, summed": (lambda x: NN.mse_loss(x, 2 * x.exp(), reduction="sum"), (3, 4)),
    "mse_loss, each": (lambda x: NN.mse_loss(x, x.exp(), reduction="none"), (3, 4)),
    "cross_entropy": (lambda x: NN.cross_entropy(x, CLASSES), (3, 4)),
    "cross_entropy, summed": (lambda x: NN.cross_entropy(x, CLASSES, reduction="sum"), (3, 4)),
    "nll_loss": (lambda x: NN.nll_loss(x.exp(), CLASSES), (3, 4)),
    "layer_norm": (lambda x: NN.layer_norm(x, (4,), x[0], x[1]), (3, 4)),
    "layer_norm of two": (lambda x: NN.layer_norm(x.exp(), (3, 4), x[0], eps=0.1), (2, 3, 4)),
    "batch_norm": (lambda x: NN.batch_norm(x, None, None, x[0, :, 0], x[1, :, 1], True), (3, 2, 4)),
    "chunks": (lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1], (2, 4)),
    "splits": (lambda x: torch.split(x, [1, 2], -1)[1] ** 2, (2, 3)),
}


def derivatives(f, x):
    """The value, its node, the gradient of its weighed sum and that of the gradient's."""
    y = f(x)
    w = torch.tensor(np.cos(np.arange(y.numel())).reshape(y.shape).astype(y.detach().numpy().dtype))
    (g,) = torch.autograd.grad((w * y).sum(), x, create_graph=True)
    second = torch.zeros_like(x)
    if g.requires_grad:
        second = torch.autograd.grad((g * g).sum(), x, allow_unused=True)[0]
    name = type(y.grad_fn).__name__
    return name, [None if t is None else t.detach().numpy() for t in (y, g, second)]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("call", CALLS)
def test_a_call_by_its_row_is_the_call_by_numpys_name(call, dtype, monkeypatch):
    f, shape = CALLS[call]
    x = tensor(*shape, dtype=dtype)
    name, found = derivatives(f, x)
    monkeypatch.setattr(outputs, "FLOATS", frozenset())
    slow, expected = derivatives(f, x)
    assert name == slow
    for a, b in zip(found, expected, strict=True):
        assert (a is None) == (b is None)
        if a is not None:
            assert (a.shape, a.dtype) == (b.shape, b.dtype)
            assert_allclose(a, b, rtol=20 * np.finfo(dtype).eps, atol=20 * np.finfo(dtype).eps)


@pytest.mark.parametrize("call", CALLS)
def test_a_row_is_passed_forward_and_by_batches_as_it_is_backward(call):
    f, shape = CALLS[call]
    x, t = tensor(*shape), tensor(*shape).detach()
    y = f(x)
    seeds = tensor(2, *y.shape).detach()
    batch = torch.autograd.grad(y, x, seeds, retain_graph=True, is_grads_batched=True)[0]
    rows = torch.stack([torch.autograd.grad(y, x, s, retain_graph=True)[0] for s in seeds])
    assert_allclose(batch.numpy(), rows.numpy(), rtol=1e-13, atol=1e-14)
    _, moved = torch.func.jvp(f, (x.detach(),), (t,))
    products = torch.stack([(s * moved).sum() for s in seeds]).detach().numpy()
    assert_allclose(products, (rows * t).flatten(1).sum(1).numpy(), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("call", [
    lambda x: x.softmax(2), lambda x: x.softmax(), lambda x: torch.cat([x, x.reshape(-1)]),
    lambda x: torch.stack([x, x[:1]]), lambda x: x @ x, lambda x: torch.mv(x, x),
    lambda x: x.scatter_add(0, INDEX + 7, x), lambda x: x.scatter_add(0, INDEX - 1, x),
    lambda x: x[INDEX + 7], lambda x: x.sum(5), lambda x: torch.cat([]),
    lambda x: x.softmax(0, colour=1),
])
def test_what_is_wrong_is_refused_with_the_same_words(call, monkeypatch):
    x = tensor(2, 3)
    with pytest.raises((RuntimeError, TypeError, IndexError, ValueError)) as first:
        call(x)
    monkeypatch.setattr(outputs, "FLOATS", frozenset())
    with pytest.raises(first.type) as second:
        call(x)
    assert str(first.value) == str(second.value)


def test_a_change_of_what_a_row_has_saved_is_noticed():
    x = tensor(2, 3)
    y = x.softmax(1)
    with torch.no_grad():
        y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation: SoftmaxBackward0"):
        y.sum().backward()


def test_results_are_on_memory_of_their_own():
    x = tensor(2, 3)
    for y in (torch.cat([x]), torch.stack([x]), x.sum(0), x[torch.tensor([0, 1])]):
        assert not np.may_share_memory(y.detach().numpy(), x.detach().numpy())


def test_nothing_is_recorded_under_no_grad():
    x = tensor(2, 3)
    with torch.no_grad():
        assert torch.cat([x, x]).grad_fn is None
    assert x.detach().softmax(0).grad_fn is None


# ---- gradients that are handed over


def test_no_two_gradients_share_memory():
    x, w = tensor(5), tensor(5)
    (x + w).sum().backward()
    assert not np.may_share_memory(x.grad.numpy(), w.grad.numpy())
    gx, gw = torch.autograd.grad((x + w).sum(), (x, w))
    assert not np.may_share_memory(gx.numpy(), gw.numpy())
    first, again = torch.autograd.grad((x + w).sum(), (x, x))
    assert not np.may_share_memory(first.numpy(), again.numpy())


@pytest.mark.parametrize("f", [lambda x: x + 0, lambda x: x.view(5), lambda x: x * 1])
def test_a_gradient_does_not_share_memory_with_its_seed(f):
    x, seed = tensor(5), torch.ones(5, dtype=torch.float64)
    f(x).backward(seed)
    x.grad.zero_()
    (g,) = torch.autograd.grad(f(x), x, seed)
    g.zero_()
    assert_array_equal(seed.numpy(), np.ones(5))


def test_a_gradient_does_not_share_memory_with_what_a_graph_keeps():
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(w)
            return (x * w).sum()

        @staticmethod
        def backward(ctx, g):
            (w,) = ctx.saved_tensors
            return w, None

    x, w = tensor(4), torch.arange(4.0, dtype=torch.float64)
    y = Scale.apply(x, w)
    y.backward(retain_graph=True)
    x.grad.zero_()
    x.grad = None
    y.backward()
    assert_array_equal(x.grad.numpy(), [0, 1, 2, 3])
    assert_array_equal(w.numpy(), [0, 1, 2, 3])


def test_gradients_add_up_in_the_memory_that_they_have():
    x = tensor(4)
    (x * x).sum().backward()
    before, value = x.grad, 2 * x.detach().numpy()
    (x * x).sum().backward()
    assert x.grad is before
    assert_array_equal(before.numpy(), 2 * value)
    before.zero_()
    (x * x).sum().backward()
    assert_array_equal(x.grad.numpy(), value)


def test_a_gradient_has_the_layout_of_its_tensor():
    x = torch.tensor(RNG.standard_normal((3, 2)).T, requires_grad=True)
    y = torch.tensor(np.asfortranarray(RNG.standard_normal((3, 2))), requires_grad=True)
    ((x * 2).sum() + (y * y).sum()).backward()
    for t in (x, y):
        assert t.grad.stride() == t.stride()


# ---- numbers that are not finite


def test_no_warning_is_given_and_the_callers_handling_stays():
    x = torch.tensor([0.0, -1.0, np.inf], requires_grad=True)
    with warnings.catch_warnings(), np.errstate(all="warn", over="raise"):
        warnings.simplefilter("error")
        before = np.geterr()
        (torch.log(x) / x + torch.sigmoid(-1e4 * x)).sum().backward()
        assert np.geterr() == before


def test_handling_of_errors_is_restored_after_a_failure():
    before = np.geterr()

    def fails():
        assert np.geterr() == dict.fromkeys(before, "ignore")
        raise KeyError

    with pytest.raises(KeyError):
        quietly(fails)
    assert np.geterr() == before


@pytest.mark.parametrize("size", [50, 5000])
def test_zero_times_infinity_is_nothing_in_products_and_sums(size):
    x = tensor(size)
    w = torch.zeros(size, dtype=torch.float64)
    y = (x * w) @ torch.full((size,), np.inf, dtype=torch.float64)
    (g,) = torch.autograd.grad(y, x)
    assert_array_equal(g.numpy(), np.zeros(size))


def test_an_integer_on_the_left_goes_the_way_of_a_float():
    x = tensor(3)
    y = 2 / x + (3 - x) + 2 * x
    assert y.dtype == torch.float64
    (g,) = torch.autograd.grad(y.sum(), x)
    assert_allclose(g.numpy(), 1 - 2 / x.detach().numpy() ** 2, rtol=1e-15)
    half = torch.tensor([1.0, 2.0], dtype=torch.float32)
    assert (2 * half).dtype == (2**half).dtype == torch.float32


def test_only_paths_to_what_is_wanted_are_walked():
    class Refusing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            raise AssertionError("not on a path")

    x, w = tensor(3), tensor(3)
    y = (x * 2).sum() + Refusing.apply(w).sum()
    (g,) = torch.autograd.grad(y, x)
    assert_array_equal(g.numpy(), [2, 2, 2])
    inner = x * 3
    g, h = torch.autograd.grad((inner * x).sum(), (inner, x))
    assert_array_equal(g.numpy(), x.detach().numpy())
    assert_allclose(h.numpy(), 6 * x.detach().numpy(), rtol=1e-15)


def test_zero_wins_against_an_infinite_weight():
    x, w = tensor(2, 3), torch.tensor([[np.inf, 1.0, 1.0], [1.0, 2.0, 3.0]], dtype=torch.float64)
    y = NN.linear(x, w)
    (g,) = torch.autograd.grad((y * torch.tensor([0.0, 1.0])).sum(), x)
    assert_array_equal(g.numpy(), [[1.0, 2.0, 3.0]] * 2)


def test_zero_wins_against_an_infinity_in_a_matrix():
    w, v = torch.tensor([[np.inf, 1.0, 1.0], [1.0, 2.0, 3.0]], dtype=torch.float64), tensor(3)
    (g,) = torch.autograd.grad(((w @ v) * torch.tensor([0.0, 1.0])).sum(), v)
    assert_array_equal(g.numpy(), [1.0, 2.0, 3.0])
