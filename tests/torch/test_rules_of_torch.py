"""Rules of torch that are not NumPy's: axes behind an index, hooks, memory, types, refusals.

Expected values were recorded with torch 2.13. Issue 38.
"""

import copy

import numpy as np
import pytest

import functrans.torch as torch

T = torch.tensor
F = torch.nn.functional
DOUBLE = torch.float64

# index of ``arange(24).reshape(2, 3, 4)`` -> what is read: a number is no index array
READ = {
    "0, :, [2, 0]": [[2, 0], [6, 4], [10, 8]],
    "..., 1, None, [1, 0]": [[[5, 4]], [[17, 16]]],
    "[1, 0], :, 0": [[12, 16, 20], [0, 4, 8]],
    "0, None, [2, 0]": [[[8, 9, 10, 11], [0, 1, 2, 3]]],
    "[0, 1], 0, :, None": [[[0], [1], [2], [3]], [[12], [13], [14], [15]]],
    "1, ..., [True, False, True, False]": [[12, 14], [16, 18], [20, 22]],
    ":, 0, [1, 2]": [[1, 2], [13, 14]],
    "[1], 0, [3, 1]": [15, 13],
    "None, 0, :, [1, 1]": [[[1, 1], [5, 5], [9, 9]]],
}


def leaf(*shape):
    return torch.ones(shape, dtype=DOUBLE, requires_grad=True)


@pytest.mark.parametrize("index", READ)
def test_a_number_beside_index_arrays_does_not_move_axes(index):
    x = torch.arange(24, dtype=DOUBLE).reshape(2, 3, 4).requires_grad_()
    y = eval(f"x[{index}]")
    assert y.tolist() == READ[index]
    weights = torch.arange(1.0, y.numel() + 1, dtype=DOUBLE).reshape(y.shape)
    (g,) = torch.autograd.grad((y * weights).sum(), x)
    written = torch.zeros(2, 3, 4, dtype=DOUBLE)
    exec(f"written[{index}] = weights")
    places = np.array(READ[index], int).reshape(-1)
    expected = np.zeros(24)
    expected[places] = np.arange(1, len(places) + 1)
    if len(set(places)) == len(places):
        np.testing.assert_array_equal(g.numpy().reshape(-1), expected)
    np.testing.assert_array_equal(written.numpy().reshape(-1), expected)


def test_a_write_at_numbers_and_arrays_is_recorded():
    x, v = leaf(2, 3, 4), leaf(3, 2)
    y = x * 1
    y[0, :, [2, 0]] = v * 5
    gx, gv = torch.autograd.grad((y * torch.arange(24, dtype=DOUBLE).reshape(2, 3, 4)).sum(),
                                 (x, v))
    assert gx[0, :, 0].tolist() == gx[0, :, 2].tolist() == [0, 0, 0]
    assert gv.tolist() == [[10, 0], [30, 20], [50, 40]]


# ---- views and memory


def test_strided_entries_of_an_argument_have_its_derivative():
    def f(x):
        return x.as_strided((2, 2), (1, 1)).sum()

    for x in (torch.arange(3.0), torch.arange(3.0, requires_grad=True),
              torch.arange(6.0)[3:], torch.arange(6.0, requires_grad=True)[::2].clone()):
        assert torch.func.grad(f)(x).tolist() == [1, 2, 1]
    assert torch.func.jvp(f, (torch.arange(3.0, requires_grad=True),), (torch.ones(3),))[1] == 4


def test_entries_of_the_base_beside_a_view_are_constant():
    x = torch.arange(6.0, requires_grad=True)
    y = (x * 1)[2:4].as_strided((3,), (1,), 1)
    assert y.tolist() == [1, 2, 3]
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [0, 0, 1, 1, 0, 0]
    turned = torch.arange(6.0).reshape(2, 3).t()
    assert turned.as_strided((2,), (1,), 4).tolist() == [4, 5]


def test_reversed_turns_the_first_dimension():
    assert reversed(T([[1, 2], [3, 4]])).tolist() == [[3, 4], [1, 2]]
    assert reversed(T(1.0)).item() == 1


def test_a_shallow_copy_and_unsafe_parts_share_memory():
    x = torch.zeros(4, requires_grad=True)
    copied = copy.copy(x)
    assert copied.requires_grad
    assert copied.is_leaf
    assert not copy.copy(x * 1).grad_fn
    for parts in (x.unsafe_chunk(2), torch.unsafe_split(x, 2), x.unsafe_split_with_sizes([2, 2])):
        with torch.no_grad():
            x.add_(1)
        assert parts[1].tolist() == copied[:2].tolist() == x[2:].tolist()
        assert parts[0]._base is None


def test_a_deep_copy_of_a_parameter_has_no_gradient():
    layer = torch.nn.Linear(1, 1)
    layer.weight.grad = torch.ones(1, 1)
    assert copy.deepcopy(layer).weight.grad is None
    x = torch.zeros(1)
    x.grad = torch.ones(1)
    assert copy.deepcopy(x).grad.tolist() == [1]


@pytest.mark.parametrize("write", [
    lambda x: x[3:].fill_(3.0), lambda x: x[3:].add_(1), lambda x: x[3:].copy_(torch.zeros(0, 2)),
    lambda x: x[:, 2:].mul_(2),
], ids=["fill_", "add_", "copy_", "mul_"])
def test_a_write_into_an_empty_view_changes_nothing(write):
    z = leaf(3, 2)
    x = z.clone()
    write(x)
    assert torch.autograd.grad((x * x).sum(), z)[0].tolist() == [[2, 2]] * 3


# ---- hooks


def hooked():
    x = leaf(2)
    y = x * 2
    y.grad_fn.register_prehook(lambda g: (g[0] * 2,))
    return x, y


def test_what_is_asked_of_a_node_itself_does_not_see_the_hooks_before_it():
    x, y = hooked()
    assert torch.autograd.grad((y * 5).sum(), [y])[0].tolist() == [5, 5]
    x, y = hooked()
    y.register_hook(lambda g: g * 3)
    assert torch.autograd.grad((y * 5).sum(), [y])[0].tolist() == [15, 15]
    x, y = hooked()
    y.register_hook(lambda g: g * 3)
    gy, gx = torch.autograd.grad((y * 5).sum(), [y, x])
    assert (gy.tolist(), gx.tolist()) == ([5, 5], [60, 60])
    x, y = hooked()
    y.retain_grad()
    (y * 5).sum().backward()
    assert (y.grad.tolist(), x.grad.tolist()) == ([5, 5], [20, 20])


def test_hooks_of_a_view_are_not_told_what_a_later_write_replaces():
    x, log = leaf(4), []
    y = x * 1
    v = y[:2]
    v.register_hook(lambda g: log.append(("old", g.tolist())))
    v.mul_(3)
    v.register_hook(lambda g: log.append(("new", g.tolist())))
    (v.sum() + y.sum()).backward()
    assert log == [("new", [1, 1])]
    assert x.grad.tolist() == [6, 6, 1, 1]


def test_hooks_of_a_turned_tensor_are_those_of_what_it_was():
    x, log = leaf(2, 3), []
    y = x * 1
    y.transpose_(0, 1)
    y.register_hook(lambda g: log.append(tuple(g.shape)))
    y.add_(1)
    y.sum().backward()
    assert log == [(3, 2)]


# ---- states of optimisers


def stepped(make, steps):
    p = T([1.5, -2.0], requires_grad=True)
    optimiser = make([p])

    def closure():
        optimiser.zero_grad()
        loss = (p**2).sum() * 1.3 + (p**4).sum()
        loss.backward()
        return loss

    for _ in range(steps):
        optimiser.step(closure)
    return optimiser


def test_the_state_of_lbfgs_has_the_names_and_forms_of_torch():
    optimiser = stepped(lambda ps: torch.optim.LBFGS(ps, lr=0.5, max_iter=3), 1)
    (state,) = optimiser.state_dict()["state"].values()
    assert set(state) == {"func_evals", "n_iter", "al", "d", "t", "old_dirs", "old_stps", "ro",
                          "H_diag", "prev_flat_grad", "prev_loss"}
    assert len(state["al"]) == 100
    assert state["al"][0].item() == pytest.approx(1.7296, rel=1e-4)
    assert state["al"][1] is None
    assert state["ro"][0].item() == pytest.approx(0.1767, rel=1e-3)
    assert isinstance(state["d"], torch.Tensor)
    again = stepped(lambda ps: torch.optim.LBFGS(ps, lr=0.5, max_iter=3), 0)
    again.load_state_dict(optimiser.state_dict())
    again.step(lambda: T(0.0))


def test_plain_descent_has_no_state():
    assert stepped(lambda ps: torch.optim.SGD(ps, lr=0.1), 1).state_dict()["state"] == {}


# ---- types of results

BFLOAT16 = {
    "@": lambda a, b: a @ b, "mv": lambda a, b: a.mv(b[0]),
    "bmm": lambda a, b: torch.bmm(a[None], b[None]), "linear": lambda a, b: F.linear(a, b, b[0]),
    "norm": lambda a, b: a.norm() + b.norm(), "einsum": lambda a, b: torch.einsum("ij,jk", a, b),
    "conv1d": lambda a, b: F.conv1d(a[None], b[None]),
    "attention": lambda a, b: F.scaled_dot_product_attention(a[None], b[None], a[None]),
    "logcumsumexp": lambda a, b: (a + b).logcumsumexp(0),
    "layer_norm": lambda a, b: F.layer_norm(a, (2,), b[0]),
}


@pytest.mark.parametrize("name", BFLOAT16)
def test_results_and_gradients_of_bfloat16_are_bfloat16(name):
    a, b = [torch.ones(2, 2, dtype=torch.bfloat16, requires_grad=True) for _ in range(2)]
    y = BFLOAT16[name](a, b)
    grads = torch.autograd.grad(y.sum(), (a, b))
    y = BFLOAT16[name](a, b)
    y.sum().backward()
    assert {x.dtype for x in (y, *grads, a.grad, b.grad)} == {torch.bfloat16}


TYPES = {
    "addcmul of a 0-d tensor": (lambda: torch.addcmul(T([1.0]), T(2.0, dtype=DOUBLE), T(3)),
                                torch.float32, [7]),
    "addcmul of integers": (lambda: torch.addcmul(T([1]), T([2]), T([3]), value=1.5),
                            torch.int64, [7]),
    "addcmul of both": (lambda: torch.addcmul(T([1.0]), T([2]), T([3])), torch.float32, [7]),
    "l1_loss with a 0-d tensor": (lambda: F.l1_loss(T([1.0]), T(3.0, dtype=DOUBLE)), DOUBLE, 2),
    "margin_ranking_loss": (lambda: F.margin_ranking_loss(T([0.5]), T([1.0]), T([1])),
                            torch.float32, 0.5),
    "float_power": (lambda: torch.float_power(T([2.0]), 2), DOUBLE, [4]),
    "a hessian of a number": (lambda: torch.func.hessian(lambda x: x * x)(T(1.5)),
                              torch.float32, 2),
    "pow_": (lambda: T([2.0]).pow_(2), torch.float32, [4]),
    "a write at no place": (lambda: put([], T([])), torch.float32, [0, 0]),
    "a number at a mask": (lambda: put(T([True, False]), T(3)), torch.float32, [3, 0]),
}


def put(index, value):
    x = torch.zeros(2)
    x[index] = value
    return x


@pytest.mark.parametrize("name", TYPES)
def test_a_result_has_the_type_of_torch(name):
    call, dtype, value = TYPES[name]
    y = call()
    assert y.dtype is dtype
    assert y.tolist() == value


def test_whole_powers_are_taken_in_place():
    x = T([2.0, 3.0])
    x **= 2
    x **= 3
    assert x.tolist() == [64, 729]


@pytest.mark.parametrize("kind", [
    lambda a: torch.distributions.Gamma(a, T(2.0)), torch.distributions.Chi2,
    lambda a: torch.distributions.Beta(a, T(2.0)),
], ids=["Gamma", "Chi2", "Beta"])
def test_a_sample_of_a_single_distribution_is_a_tensor(kind):
    a = T(1.5, requires_grad=True)
    y = kind(a).rsample()
    assert y.shape == ()
    assert torch.autograd.grad(y, a)[0].isfinite()


# ---- refusals

BOOLEAN = r"Subtraction, the `-` operator, with a bool tensor is not supported\. If you are"
REFUSED = {
    "bool - float": (lambda: T(True) - torch.zeros(3), BOOLEAN),
    "True - float": (lambda: True - torch.zeros(3), BOOLEAN),
    "rsub": (lambda: torch.rsub(torch.zeros(2), True), BOOLEAN),
    "sub_": (lambda: torch.zeros(2).sub_(T([True, False])), BOOLEAN),
    "bool - bool": (lambda: T([True]) - T([True]), "with two bool tensors is not supported"),
    "put": (lambda: put([0], T([1.0], dtype=DOUBLE)),
            "Index put requires the source and destination dtypes match, got Float for the"),
    "index_put": (lambda: torch.zeros(2).index_put((T([0]),), T([1])), "Index put requires"),
    "relu": (lambda: F.relu(T([True])), "Boolean inputs not supported for relu"),
    "argmax": (lambda: T([True]).argmax(), r"argmax\(\): does not support bool input"),
    "allclose": (lambda: torch.allclose(T([1.0]), T([1.0], dtype=DOUBLE)),
                 "Float did not match Double"),
    "isclose": (lambda: torch.isclose(T([1]), T([1.0])), "Long did not match Float"),
    "lerp": (lambda: torch.lerp(T([1.0]), T([2.0], dtype=DOUBLE), 0.5), "expected dtype float32"),
    "addcdiv": (lambda: torch.addcdiv(T([1.0]), T([2]), T([3])), "Integer division with addcdiv"),
    "mse_loss": (lambda: F.mse_loss(T([1]), T([2])), '"mse_cpu" not implemented for \'Long\''),
    "l1_loss": (lambda: F.l1_loss(T([1]), T([2])), r"mean\(\): could not infer output dtype"),
    "bce": (lambda: F.binary_cross_entropy(T([0.5]), T([1])), "Found dtype Long but expected"),
    "logits": (lambda: F.binary_cross_entropy_with_logits(T([0.5]), T([1])), "can't be cast to"),
    "kl_div": (lambda: F.kl_div(T([0.5]), T([1])), "kl_div: Integral inputs not supported"),
    "inv": (lambda: torch.linalg.inv(torch.eye(2, dtype=torch.bfloat16)),
            "Low precision dtypes not supported. Got BFloat16"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused(name):
    call, text = REFUSED[name]
    with pytest.raises(RuntimeError, match=text):
        call()


@pytest.mark.parametrize("call", [
    lambda D: D.Uniform(0.0, 1.0).cdf(T(2.0)), lambda D: D.Gamma(1.0, 1.0).cdf(T(-1.0)),
], ids=["Uniform", "Gamma"])
def test_a_probability_outside_of_the_support_is_refused(call):
    with pytest.raises(ValueError, match="to be within the support"):
        call(torch.distributions)


@pytest.mark.parametrize(("kind", "at", "expected"), [
    ("Normal", -30.0, 4.906713927148187e-198), ("Laplace", -50.0, 9.643749239819588e-23),
    ("Cauchy", -1e20, 3.183098861837907e-21),
])
def test_probabilities_of_the_left_tail_keep_their_digits(kind, at, expected):
    zero, one = T(0.0, dtype=DOUBLE), T(1.0, dtype=DOUBLE)
    got = getattr(torch.distributions, kind)(zero, one).cdf(T(at, dtype=DOUBLE)).item()
    assert got == pytest.approx(expected, rel=1e-13, abs=0)
