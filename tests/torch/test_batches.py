"""``torch.func.vmap`` runs a function once for the whole batch, with what an entry alone gives."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from functrans import torch
from functrans.torch import _batching, func
from tests.drawing import generator

F = torch.nn.functional
F64 = torch.float64


def draw(*shape, seed=0):
    return torch.tensor(generator(seed).standard_normal(shape))


W, X, V = draw(4, 3), draw(5, 4, seed=1), draw(5, 3, seed=2)
CLASSES = torch.tensor([0, 1, 2, 0, 1])

# name -> function, its in_dims, its arguments
CASES = {
    "elementwise": (lambda a: a.sin() * 2 + a**2 - 1 / (a * a + 1) + a**3, 0, (X,)),
    "activations": (
        lambda a: torch.sigmoid(a) * torch.relu(a) + F.gelu(a) + F.softplus(a), 0, (X,)),
    "totals": (lambda a: a.sum() * a.mean() + a.prod() + a.std() + a.norm(), 0, (X,)),
    "along a dimension": (lambda a: a.reshape(2, 2).sum(0) + a.cumsum(0)[:2], 0, (X,)),
    "shares": (lambda a: a.softmax(0) + a.log_softmax(0) + torch.logsumexp(a, 0), 0, (X,)),
    "views": (lambda a: a.view(2, 2).t()[0].unsqueeze(0) * a.chunk(2)[1], 0, (X,)),
    "joined": (lambda a, b: torch.cat([a, b])[:6].reshape(2, 3) + torch.stack([b, b]), 0, (X, V)),
    "chosen": (lambda a: torch.where(a > 0, a, a.abs()) + a.clamp(-0.5, 0.5) + a.max(), 0, (X,)),
    "order": (lambda a: a.sort()[0] + a.max(0).values + a.argmax(), 0, (X,)),
    "products": (lambda a: torch.outer(a, a) @ W + F.linear(a, W.t()), 0, (X,)),
    "einsum": (lambda a, b: torch.einsum("i,ij,j->i", a, W, b), 0, (X, V)),
    "systems": (lambda a: torch.linalg.inv(torch.outer(a, a) + torch.eye(4, dtype=F64)), 0, (X,)),
    "normalised": (lambda a: F.layer_norm(a, (4,)), 0, (X,)),
    "convolution": (
        lambda a: F.conv1d(a.reshape(1, 1, 4), W[:2].reshape(1, 1, 6)[..., :2]), 0, (X,)),
    "whether": (lambda a: (a > 0).all() | (a > 2).any() | (a.contiguous().count_nonzero() > 3),
                0, (X,)),
    "an index a entry": (lambda a, i: a[i] * F.one_hot(i, 3), 0, (X, CLASSES)),
    "classes": (lambda a, c: F.nll_loss((a @ W).log_softmax(0), c), 0, (X, CLASSES)),
    "a constant": (lambda a: torch.ones(3), 0, (X,)),
    "gradients": (func.grad(lambda w, x: torch.tanh(x @ w).sum()), (None, 0), (W, X)),
    "gradients of a loss": (
        func.grad(lambda w, x, c: F.cross_entropy((x @ w)[None], c[None])), (None, 0, 0),
        (W, X, CLASSES)),
    "second gradients": (
        func.grad(lambda a: func.grad(lambda a: (a.sin() * a).sum())(a).pow(2).sum()), 0, (X,)),
    "jacrev": (func.jacrev(lambda a: torch.tanh(a @ W)), 0, (X,)),
    "jacfwd": (func.jacfwd(lambda a: torch.tanh(a @ W)), 0, (X,)),
    "hessian": (func.hessian(lambda a: (torch.tanh(a @ W) ** 2).sum()), 0, (X,)),
    "vjp": (lambda a, c: func.vjp(lambda a: torch.tanh(a @ W), a)[1](c)[0], 0, (X, V)),
    "jvp": (lambda a, t: func.jvp(lambda a: torch.tanh(a @ W), (a,), (t,))[1], 0, (X, X + 1)),
    "nested": (func.vmap(func.grad(lambda a, b: (a * b).sin().sum()), (None, 0)), (0, None),
               (X, draw(3, 4))),
    "complex": (lambda a: (torch.polar(a.abs(), a) * 1j).imag, 0, (X,)),
}


@pytest.fixture
def entries(monkeypatch):
    """Calls a function of a batch in the way that takes one entry after the other."""

    def run(f, *args):
        with monkeypatch.context() as patch:
            patch.setattr(_batching, "_at_once", lambda *args: None)
            return f(*args)

    return run


def same(found, expected):
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert_allclose(found.detach().numpy(), expected.detach().numpy(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", CASES)
def test_a_batch_runs_once_and_is_what_its_entries_are(entries, name):
    f, dims, args = CASES[name]
    calls = []

    def counted(*args):
        calls.append(1)
        return f(*args)

    found = func.vmap(counted, dims)(*args)
    assert len(calls) == 1
    same(found, entries(func.vmap(f, dims), *args))


@pytest.mark.parametrize("name", [n for n, (_, dims, _) in CASES.items() if dims == 0])
def test_what_is_outside_is_differentiated_through_a_batch(entries, name):
    f, dims, (x, *rest) = CASES[name]
    weight = draw(5, 6, seed=3)

    def loss(x):
        y = func.vmap(f, dims)(x, *rest)
        return (y.reshape(5, -1)[:, :6] * weight[:, : y[0].numel()][:, :6]).sum()

    if name in ("a constant", "whether"):
        assert not func.vmap(f)(x.clone().requires_grad_()).requires_grad
        return
    same(func.grad(loss)(x), entries(func.grad(loss), x))
    t = draw(*x.shape, seed=4)
    for derivative in (
        lambda: func.jvp(loss, (x,), (t,))[1],
        lambda: func.jvp(func.grad(loss), (x,), (t,))[1],
    ):
        same(derivative(), entries(derivative))


# what only an entry allows
APART = {
    "a branch": lambda a: a if a.sum() > 0 else -a,
    "in place": lambda a: a.clone().mul_(2),
    "an item that is set": lambda a: _with_first(a.clone()),
    "an array": lambda a: torch.tensor(a.detach().numpy() * 2),
    "a custom function": lambda a: _Double.apply(a),
    "a gradient of its own": lambda a: _own_gradient(a),
    "numbers of a list": lambda a: torch.tensor(a.tolist()[::-1], dtype=F64),
}


def _with_first(a):
    a[0] = 1.0
    return a


def _own_gradient(a):
    a = a.detach().requires_grad_()
    (a**3).sum().backward()
    return a.grad


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


@pytest.mark.parametrize("name", APART)
def test_what_entries_do_each_for_itself(entries, name):
    f = func.vmap(APART[name])
    if name == "numbers of a list":
        with pytest.raises(RuntimeError, match=r"calling .item\(\) on a Tensor"):
            f(X)
        return
    same(f(X), entries(f, X))


@pytest.mark.parametrize("inside", [
    lambda a: a * a.detach(), lambda a: a * a.data, lambda a: a * _unrecorded(a),
    lambda a: a * PARAMETER[0] * PARAMETER.sum(),
])
def test_histories_outside_are_kept_and_hidden(entries, inside):
    def loss(a):
        PARAMETER.grad = None
        y = func.vmap(inside)(a).sum()
        return (y, *torch.autograd.grad(y, [a, PARAMETER], allow_unused=True))

    a = X.clone().requires_grad_()
    for found, expected in zip(loss(a), entries(loss, a), strict=True):
        assert (found is None) == (expected is None)
        if found is not None:
            same(found, expected)


PARAMETER = torch.tensor([1.5, -2.0], dtype=F64, requires_grad=True)


def _unrecorded(a):
    with torch.no_grad():
        return a.exp()


def test_numbers_of_a_batch_are_not_items():
    with pytest.raises(RuntimeError, match=r"calling .item\(\) on a Tensor"):
        func.vmap(lambda a: a * a.sum().item())(X)
    assert func.vmap(lambda a: a * W.sum().item())(X).shape == (5, 4)


def test_results_are_memory_of_their_own():
    y = func.vmap(lambda a: a)(X)
    y.zero_()
    assert X.abs().sum() > 0
    z = func.vmap(lambda a: W)(X)
    z[0] = 0
    assert W.abs().sum() > 0 and z[1].abs().sum() > 0


def test_chunks_are_joined():
    sizes = []

    def f(d, w):
        sizes.append(d["x"].numel())
        return d["x"] @ w, w

    found = func.vmap(f, ({"x": 0}, None), (1, None), chunk_size=2)({"x": X}, W)
    same(found[0], (X @ W).t())
    same(found[1], W)
    assert len(sizes) == 3  # 2, 2 and 1 entries


def test_random_numbers_of_a_batch():
    torch.manual_seed(0)
    same_numbers = func.vmap(lambda a: a + torch.rand(4, dtype=F64), randomness="same")(X)
    after = torch.rand(1)
    torch.manual_seed(0)
    same(same_numbers, X + torch.rand(4, dtype=F64))
    assert torch.equal(after, torch.rand(1))
    torch.manual_seed(0)
    each = func.vmap(lambda a: a + torch.rand(4, dtype=F64), randomness="different")(X)
    torch.manual_seed(0)
    same(each, torch.stack([a + torch.rand(4, dtype=F64) for a in X]))


def test_an_error_is_that_of_an_entry():
    with pytest.raises(RuntimeError, match=r"mat1 and mat2|size|shape"):
        func.vmap(lambda a: a @ W.t())(X)
    assert np.isfinite(func.vmap(torch.sin)(X).numpy()).all()  # nothing is left open


MATRIX = torch.tensor([[0.5, -1.0, 2.0], [1.0, 0.3, -0.2]], dtype=torch.float64, requires_grad=True)
BIAS = torch.tensor([0.1, -0.2], dtype=torch.float64, requires_grad=True)
LAYER = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
CAPTURING = {
    "sum": lambda v: torch.einsum("ij,j->i", MATRIX, v) + BIAS * 2,
    "module": lambda v: LAYER(v),
    "rows": lambda v: (MATRIX * v).sum(1) / (BIAS + 3),
    "gradient": lambda v: func.grad(lambda v: (LAYER(v) ** 2).sum())(v),
    "hessian": lambda v: func.hessian(lambda v: LAYER(v).prod())(v),
    # once for each entry: what hides a history, or asks for a derivative in what is captured
    "detached": lambda v: LAYER(v) * LAYER(v).detach(),
    "inside": lambda v: func.grad(lambda m: (m * v).sin().sum())(MATRIX),
    "unused": lambda v: (BIAS.sum() * v).sum() + torch.autograd.grad(
        (MATRIX * v).sin().sum(), [MATRIX, BIAS], allow_unused=True, create_graph=True)[0].sum(),
}


@pytest.mark.parametrize("name", CAPTURING)
def test_what_is_captured_is_differentiated_through_a_batch(name, monkeypatch):
    f = CAPTURING[name]
    xs = torch.tensor([[0.3, 1.0, -0.5], [2.0, 0.1, 0.4], [-1.0, 0.2, 0.9]], dtype=torch.float64)
    leaves = [MATRIX, BIAS, *LAYER.parameters()]
    weigh = torch.arange(1.0, 100.0, dtype=torch.float64)

    def derivatives(y):
        loss = (y.flatten() * weigh[: y.numel()]).sin().sum()
        first = torch.autograd.grad(loss, leaves, create_graph=True, materialize_grads=True,
                                    allow_unused=True)
        second = torch.autograd.grad(sum((g**2).sum() for g in first), leaves,
                                     materialize_grads=True, allow_unused=True)
        return [x.detach() for x in (y, *first, *second)]

    expected = derivatives(torch.stack([f(x) for x in xs]))
    if name not in ("detached", "inside", "unused"):
        monkeypatch.setattr(_batching, "_run", None)  # which would run one entry
    for ours, theirs in zip(derivatives(func.vmap(f)(xs)), expected, strict=True):
        assert_allclose(ours, theirs, rtol=1e-11, atol=1e-12)
