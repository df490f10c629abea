"""Functions of one number, and shares in a sum, keep their digits far out: values, slopes and
curvatures are compared with mpmath relative to themselves. Issues 29 and 38."""

import math

import mpmath as mp
import numpy as np
import pytest

import functrans.torch as torch

F = torch.nn.functional
DTYPES = [torch.float64, torch.float32, torch.float16]


def sigmoid(x):
    return 1 / (1 + mp.exp(-x))


def softplus(x):
    return mp.log1p(mp.exp(x)) if x < 5 else x + mp.log1p(mp.exp(-x))


def softplus2(x):
    return mp.log1p(mp.mpf(2) ** x) / mp.log(2) if x < 5 else x + softplus2(-x)


def normal(x):
    return mp.erfc(-x / mp.sqrt(2)) / 2


def pair(x):
    return torch.stack([x, 0 * x])


def loss(f, target, **options):
    return lambda x: f(x, torch.full_like(x, target), reduction="sum", **options)


LOGITS = F.binary_cross_entropy_with_logits
ROOT, CUBIC = mp.sqrt(2 / mp.pi), 0.044715
# name -> the shim's function, mpmath's
CURVES = {
    "sigmoid": (torch.sigmoid, sigmoid),
    "expit": (torch.special.expit, sigmoid),
    "logsigmoid": (F.logsigmoid, lambda x: -softplus(-x)),
    "silu": (F.silu, lambda x: x * sigmoid(x)),
    "glu": (lambda x: F.glu(torch.stack([x, x]), 0)[0], lambda x: x * sigmoid(x)),
    "softplus": (lambda x: F.softplus(x, threshold=1e4), softplus),
    "gelu": (F.gelu, lambda x: x * normal(x)),
    "gelu by tanh": (lambda x: F.gelu(x, approximate="tanh"),
                     lambda x: x * sigmoid(2 * ROOT * (x + CUBIC * x**3))),
    "tanh": (torch.tanh, mp.tanh),
    "softsign": (F.softsign, lambda x: x / (1 + abs(x))),
    "logaddexp": (lambda x: torch.logaddexp(x, 0 * x), softplus),
    "logaddexp2": (lambda x: torch.logaddexp2(x, 0 * x), softplus2),
    "elu": (F.elu, lambda x: x if x > 0 else mp.expm1(x)),
    "hardswish": (F.hardswish, lambda x: x * min(max(x + 3, 0), 6) / 6),
    "log_softmax": (lambda x: torch.log_softmax(pair(x), 0)[0], lambda x: -softplus(-x)),
    "cross_entropy": (lambda x: F.cross_entropy(pair(x), torch.tensor(0)), lambda x: softplus(-x)),
    "weighted cross_entropy": (
        lambda x: F.cross_entropy(pair(x), torch.tensor(0), reduction="sum",
                                  weight=torch.tensor([2, 1]).to(x.dtype)),
        lambda x: 2 * softplus(-x)),
    "soft_margin_loss": (loss(F.soft_margin_loss, 1), lambda x: softplus(-x)),
    "logits of 0": (loss(LOGITS, 0), softplus),
    "logits of 1": (loss(LOGITS, 1), lambda x: softplus(-x)),
    "weighted logits of 0": (loss(LOGITS, 0, pos_weight=torch.tensor(2.0)), softplus),
}
# half precision of composed functions is rounded in between
COARSE = {"silu", "glu", "gelu", "gelu by tanh", "softplus"}
MANY = torch.zeros(600)  # by a kernel
CURVES |= {
    f"many {name}": (lambda x, f=f: f(x + MANY.to(x.dtype))[-1], truth) for name, f, truth in [
        ("sigmoid", torch.sigmoid, sigmoid),
        ("softplus", lambda x: F.softplus(x, threshold=1e4), softplus),
        ("logits", lambda x: LOGITS(x, 0 * x, reduction="none"), softplus),
        ("logits of 1", lambda x: LOGITS(x, 0 * x + 1, reduction="none"), lambda x: softplus(-x))]
}
POINTS = [3.1, -3.2, 7.3, -7.4, 15.5, -15.6, 40.3, -40.4, 300.5, -300.6, 2**-8, -2**-9, 1e-20,
          -1e-200]


def exact(f, x, order):
    """A value or a derivative of ``f``, by differences so narrow that they are exact."""
    with mp.workdps(100 + int(8 * abs(math.log10(abs(x)))) + int(2 * abs(x))):
        x, h = mp.mpf(x), mp.mpf(10) ** (-mp.mp.dps // 4)
        down, here, up = [f(x * (1 + k * h)) for k in (-1, 0, 1)]
        return [here, (up - down) / (2 * h * x), (up - 2 * here + down) / (h * x) ** 2][order]


def derivatives(f, x, dtype):
    """The value, the slope and the curvature of ``f``."""
    x = torch.tensor(x, dtype=dtype, requires_grad=True)
    y = f(x)
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    h = torch.autograd.grad(g, x)[0].item() if g.requires_grad else 0.0
    return y.item(), g.item(), h


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CURVES)
def test_values_slopes_and_curvatures_keep_their_digits_in_the_tails(name, dtype):
    f, truth = CURVES[name]
    info = np.finfo(str(dtype).removeprefix("torch."))
    eps, tiny = float(info.eps), float(info.tiny)
    ulps = 64 if name in COARSE and dtype is torch.float16 else 16  # of sums of two or three terms
    for x in np.unique(np.array(POINTS, info.dtype)):
        if not x or (abs(x) > 9 and name == "gelu by tanh"):  # of which the reference takes long
            continue
        got = derivatives(f, float(x), dtype)
        # exp(-x**2 / 2) and the like move by so much where their argument is rounded
        far = 1 + abs(float(x)) ** 3 if "gelu" in name else 1
        for order in range(3):
            want = exact(truth, float(x), order)
            scale = max(abs(want), tiny)
            if abs(want) < info.max and (order == 0 or abs(want * x) > 1e-40 or got[order]):
                assert abs(got[order] - want) <= ulps * far * eps * scale, (x, order, want)


def shares(x):
    parts = [mp.exp(mp.mpf(v) - max(x)) for v in x]
    return [p / sum(parts) for p in parts]


@pytest.mark.parametrize("size", [1, 600], ids=["few", "many"])  # many: by a kernel
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("place", [0, 3])
def test_shares_of_numbers_of_all_sizes_move_by_exact_amounts(place, dtype, size):
    row = [40.0, -30.0, 1.5, 1e-8, 22.0, 0.25, -7.0, 3.0, 2.0]
    x = torch.tensor([row] * size, dtype=dtype, requires_grad=True)
    rounded = x[0].tolist()
    with mp.workdps(60):
        p = shares(rounded)
        others = [sum(p) - v if i else sum(p[1:]) for i, v in enumerate(p)]
        jacobian = [p[place] * (others[j] if j == place else -p[j]) for j in range(len(p))]
        logs = [others[j] if j == place else -p[j] for j in range(len(p))]
        value = mp.log1p(-others[place]) if place == 0 else mp.log(p[place])
    eps = 64 * float(np.finfo(x.detach().numpy().dtype).eps)  # exp of -70
    tiny = 1e-45 if dtype is torch.float32 else 0
    y = torch.log_softmax(x, 1)
    for out, want in ((torch.softmax(x, 1), jacobian), (y, logs)):
        (g,) = torch.autograd.grad(out[:, place].sum(), x, create_graph=True)
        np.testing.assert_allclose(g[-1].tolist(), [float(v) for v in want], rtol=eps, atol=tiny)
        if place == 0 and out is y:  # the curvature is minus the slope of the share
            (h,) = torch.autograd.grad(g[:, 0].sum(), x)
            np.testing.assert_allclose(h[-1].tolist(), [-float(v) for v in jacobian], rtol=eps)
    np.testing.assert_allclose(y[-1, place].item(), float(value), rtol=eps)


@pytest.mark.parametrize("size", [1, 600], ids=["few", "many"])
def test_a_share_of_an_infinity_is_its_limit(size):
    inf = float("inf")
    x = torch.tensor([[inf, 0.0, -inf, inf, 1, 2, 3, 4]] * size)
    assert torch.softmax(x, 1)[-1].tolist() == [0.5, 0, 0, 0.5, 0, 0, 0, 0]
    assert torch.log_softmax(x, 1)[-1].exp().tolist() == [0.5, 0, 0, 0.5, 0, 0, 0, 0]
    one = torch.tensor([[1, inf]] * size)
    assert torch.softmax(one, 1)[-1].tolist() == [0, 1]
    assert torch.log_softmax(one, 1)[-1].tolist() == [-inf, 0]
    assert torch.softmax(torch.full((size, 8), -inf), 1).isnan().all()
    assert torch.log_softmax(torch.full((size, 8), -inf), 1).isnan().all()


def test_the_loss_of_a_small_probability_is_not_zero():
    loss = F.binary_cross_entropy(torch.tensor(1e-30), torch.tensor(0.0))
    assert loss.item() == np.float32(1e-30)


@pytest.mark.parametrize("name", ["sigmoid", "tanh"])
def test_a_slope_is_that_of_the_operand_before_it_changed(name):
    for change in (lambda x, y: None, lambda x, y: x.mul_(2)):
        leaf = torch.tensor([0.5, -2.0], dtype=torch.float64, requires_grad=True)
        x = leaf * 1
        y = getattr(x, name)()
        assert y.grad_fn._saved_result is not None
        assert not hasattr(y.grad_fn, "_saved_self")
        change(x, y)
        y.sum().backward()
        y = y.detach()
        want = y * (1 - y) if name == "sigmoid" else 1 - y * y
        np.testing.assert_allclose(leaf.grad.tolist(), want.tolist(), rtol=1e-14)


@pytest.mark.parametrize("f", [F.tanhshrink], ids=["tanhshrink"])
def test_the_difference_of_a_number_and_its_tangent_is_exact_near_zero(f):
    for x in (1e-3, -1e-60, 0.29, -0.31, 0.4):
        y, g, _ = derivatives(f, x, torch.float64)
        with mp.workdps(250):
            want = mp.mpf(x) - mp.tanh(mp.mpf(x))
            slope = mp.tanh(mp.mpf(x)) ** 2
        assert abs(y - want) <= 16 * np.finfo(float).eps * abs(want)
        assert abs(g - slope) <= 8 * np.finfo(float).eps * slope


def test_at_nan_abs_has_the_slope_nan_and_sign_none():
    x = torch.tensor([math.nan], requires_grad=True)
    slopes = [torch.autograd.grad(f(x).sum(), x)[0].item() for f in (torch.abs, torch.sign)]
    assert math.isnan(slopes[0]) and slopes[1] == 0
