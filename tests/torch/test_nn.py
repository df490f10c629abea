"""``torch.nn``: parameters, activations and losses, against SciPy."""

import copy
import pickle

import numpy as np
import pytest
from scipy import special

import functrans.torch as torch
from functrans.torch import nn
from functrans.torch.nn import Parameter
from functrans.torch.nn import functional as F

X = np.array([[0.5, -1.0, 2.0], [3.0, 0.1, -0.7]])


def t(a, **options):
    return torch.tensor(a, dtype=torch.float64, **options)


def value_and_grad(f, x):
    x = t(x, requires_grad=True)
    y = f(x)
    (g,) = torch.autograd.grad(y, x)
    return y.item(), g.numpy()


def test_parameters_are_leaves_that_require_gradients():
    p = Parameter(torch.zeros(2))
    assert isinstance(p, torch.Tensor) and p.is_leaf and p.requires_grad
    assert type(p * 1) is torch.Tensor
    assert repr(p) == "Parameter containing:\ntensor([0., 0.], requires_grad=True)"
    (p * 3).sum().backward()
    assert p.grad.tolist() == [3.0, 3.0]
    assert not Parameter(torch.zeros(2), requires_grad=False).requires_grad
    for q in (copy.deepcopy(p), pickle.loads(pickle.dumps(p))):
        assert type(q) is Parameter and q.requires_grad and q.tolist() == [0.0, 0.0]


@pytest.mark.parametrize("target", [[0, 2], [2, -100]])
@pytest.mark.parametrize("weight", [None, [1.0, 2.0, 0.5]])
def test_cross_entropy_of_classes(target, weight):
    w = np.ones(3) if weight is None else np.array(weight)
    kept = np.array([c >= 0 for c in target])
    per = np.where(kept, w[np.maximum(target, 0)], 0)
    logs = special.log_softmax(X, axis=1)
    expected = -(per * logs[[0, 1], np.maximum(target, 0)]).sum() / per.sum()
    slope = special.softmax(X, axis=1) * per[:, None] / per.sum()
    slope[[0, 1], np.maximum(target, 0)] -= per / per.sum()

    def loss(x):
        return F.cross_entropy(x, torch.tensor(target), None if weight is None else t(weight))

    y, g = value_and_grad(loss, X)
    np.testing.assert_allclose(y, expected, rtol=1e-13)
    np.testing.assert_allclose(g, slope, rtol=1e-13, atol=1e-16)
    with_logs = F.nll_loss(F.log_softmax(t(X), 1), torch.tensor(target),
                           None if weight is None else t(weight))
    np.testing.assert_allclose(with_logs.item(), expected, rtol=1e-13)


def test_cross_entropy_of_probabilities_and_reductions():
    p = np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]])
    each = -(p * special.log_softmax(X, axis=1)).sum(1)
    for reduction, expected in (("none", each), ("sum", each.sum()), ("mean", each.mean())):
        found = F.cross_entropy(t(X), t(p), reduction=reduction)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-14)


def test_cross_entropy_of_one_example_and_of_pictures():
    one = F.cross_entropy(t(X[0]), torch.tensor(1)).item()
    np.testing.assert_allclose(one, -special.log_softmax(X[0])[1], rtol=1e-14)
    picture = np.stack([X, X + 1], axis=-1)  # classes along dimension 1
    target = np.array([[0, 1], [2, 0]])
    logs = special.log_softmax(picture, axis=1)
    expected = -np.mean([logs[n, target[n, i], i] for n in range(2) for i in range(2)])
    found = F.cross_entropy(t(picture), torch.tensor(target)).item()
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_losses_and_their_slopes():
    target = np.zeros((2, 3))
    y, g = value_and_grad(lambda x: F.mse_loss(x, t(target)), X)
    np.testing.assert_allclose((y, g[1, 0]), (np.mean(X**2), 1.0), rtol=1e-14)
    y, g = value_and_grad(lambda x: F.l1_loss(x, t(target), reduction="sum"), X)
    np.testing.assert_allclose(y, np.abs(X).sum(), rtol=1e-14)
    assert g.tolist() == np.sign(X).tolist()
    y, g = value_and_grad(lambda x: F.smooth_l1_loss(x, t(target), reduction="sum"), X)
    assert g.tolist() == np.clip(X, -1, 1).tolist()
    y, g = value_and_grad(
        lambda x: F.binary_cross_entropy_with_logits(x, t(target) + 0.25, reduction="sum"),
        [[800.0, 0.0, 1.0], [-800.0, 2.0, -3.0]])
    np.testing.assert_allclose(
        g, special.expit([[800.0, 0.0, 1.0], [-800.0, 2.0, -3.0]]) - 0.25, rtol=1e-13)


def test_a_linear_layer():
    w, b = np.arange(6.0).reshape(2, 3), np.array([1.0, -1.0])
    np.testing.assert_array_equal(F.linear(t(X), t(w), t(b)).numpy(), X @ w.T + b)
    np.testing.assert_array_equal(F.linear(t(X[0]), t(w)).numpy(), w @ X[0])


def test_dropout_scales_what_it_keeps():
    torch.manual_seed(0)
    x = torch.ones(1000, requires_grad=True)
    y = F.dropout(x, 0.25)
    assert 700 < (y > 0).sum().item() < 800
    np.testing.assert_array_equal(np.unique(y.detach().numpy()), np.float32([0, 1 / 0.75]))
    y.sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), y.detach().numpy())
    assert F.dropout(x, training=False) is x and not F.dropout(x, 1.0).any()


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: F.mse_loss(t(X), t(X), reduction="max"), ValueError,
     "^max is not a valid value for reduction"),
    (lambda: F.dropout(t(X), 2), ValueError, "between 0 and 1"),
    (lambda: F.nll_loss(t(X), torch.tensor([0])), ValueError, r"\(2\) to match target batch_size"),
    (lambda: F.nll_loss(t(X), torch.tensor([0, 3])), IndexError, "there are 3 classes"),
])
def test_what_is_not_supported_says_so(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_parts_have_names_and_types():
    module = nn.Linear(1, 1)
    with pytest.raises(KeyError, match=r"module name can.*t be empty string"):
        module.add_module("", nn.Linear(1, 1))
    for make in (lambda: nn.Sequential(1), lambda: nn.ModuleList([2])):
        with pytest.raises(TypeError, match="int is not a Module subclass"):
            make()


SCHEDULERS = torch.optim.lr_scheduler
# what PyTorch sets from a rate of 0.5 on in the first four epochs, where the first one was 1
RATES = {
    "StepLR": (lambda opt: SCHEDULERS.StepLR(opt, 2, 0.5), [0.5, 0.25, 0.25, 0.125]),
    "MultiStepLR": (lambda opt: SCHEDULERS.MultiStepLR(opt, [1, 3]), [0.05, 0.05, 0.005, 0.005]),
    "ExponentialLR": (lambda opt: SCHEDULERS.ExponentialLR(opt, 0.5),
                      [0.25, 0.125, 0.0625, 0.03125]),
    "LinearLR": (lambda opt: SCHEDULERS.LinearLR(opt, 0.5, 1.0, 2), [0.375, 0.5, 0.5, 0.5]),
    "CosineAnnealingLR": (lambda opt: SCHEDULERS.CosineAnnealingLR(opt, 2),
                          [0.25, 0.0, 0.5, 0.5 * 2]),
    "LambdaLR": (lambda opt: SCHEDULERS.LambdaLR(opt, lambda e: 0.5**e),
                 [0.5, 0.25, 0.125, 0.0625]),
}


def optimiser():
    opt = torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
    opt.param_groups[0].update(initial_lr=1.0, lr=0.5)
    return opt


@pytest.mark.parametrize("name", RATES)
def test_a_rate_is_made_from_the_one_before(name):
    make, expected = RATES[name]
    opt = optimiser()
    scheduler, rates = make(opt), []
    for _ in range(4):
        opt.step()
        scheduler.step()
        rates.append(opt.param_groups[0]["lr"])
    assert rates == pytest.approx(expected, rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", RATES)
def test_a_rate_of_an_epoch_that_is_named_is_made_from_the_first(name):
    a, b = optimiser(), optimiser()
    b.param_groups[0]["lr"] = 1.0
    first, second = RATES[name][0](a), RATES[name][0](b)
    first.step(3)
    for _ in range(3):
        second.step()
    assert first.get_last_lr() == pytest.approx(second.get_last_lr(), rel=1e-12, abs=1e-15)


def test_a_scheduler_of_ones_own_has_get_lr():
    class Half(SCHEDULERS.LRScheduler):
        def get_lr(self):
            return [group["lr"] / 2 for group in self.optimizer.param_groups]

    assert Half(optimiser()).get_last_lr() == [0.25]


@pytest.mark.parametrize("norm", [
    nn.BatchNorm1d(3, affine=False), nn.InstanceNorm1d(3), nn.GroupNorm(1, 3, affine=False),
    nn.LayerNorm(4, elementwise_affine=False),
], ids=lambda m: type(m).__name__)
def test_what_a_normalisation_returns_may_be_changed_in_place(norm):
    x = t(np.sin(np.arange(24.0)).reshape(2, 3, 4), requires_grad=True)
    (expected,) = torch.autograd.grad((norm(x).relu() ** 2 / 2).sum(), x)
    (changed,) = torch.autograd.grad((nn.ReLU(inplace=True)(norm(x)) ** 2 / 2).sum(), x)
    np.testing.assert_allclose(changed.numpy(), expected.numpy(), rtol=1e-13, atol=1e-15)


def test_dropout_scales_in_the_precision_of_its_input():
    y = F.dropout(torch.ones(20, dtype=torch.float64), 0.3)
    assert set(y.tolist()) <= {0.0, 1 / 0.7}


@pytest.mark.parametrize("drop, shape, lead", [
    (F.dropout1d, (40, 3), 1), (F.dropout1d, (9, 8, 3), 2), (F.dropout2d, (9, 8, 3), 2),
    (F.dropout3d, (40, 2, 1, 3), 1), (F.dropout3d, (9, 8, 2, 1, 3), 2)])
def test_channels_are_dropped_as_a_whole_in_a_batch_or_alone(drop, shape, lead):
    y = drop(torch.ones(shape)).flatten(lead).flatten(0, lead - 1)
    assert (y == y[:, :1]).all() and 0 < y.count_nonzero() < y.numel()


@pytest.mark.parametrize("call, kind, text", [
    (lambda: F.dropout1d(torch.ones(3)), RuntimeError, "Expected 2D or 3D input"),
    (lambda: F.dropout2d(torch.ones(3)), RuntimeError, "requires at least 2 dimensions"),
    (lambda: F.alpha_dropout(torch.ones(3), 1.5), ValueError, "between 0 and 1")])
def test_dropout_refuses_what_it_cannot_drop(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize("options", [{"kernel_size": 0}, {"kernel_size": 2, "stride": 0},
                                     {"kernel_size": 2, "dilation": 0}])
def test_windows_without_a_size_a_step_or_a_spread_are_refused(options):
    with pytest.raises(RuntimeError, match="must be greater than zero, but got 0"):
        F.max_pool1d(torch.ones(1, 1, 9), **options)
