"""Changes in place, views and version counters: section E of the checklist."""

import numpy as np
import pytest

import functrans as ft
import functrans.torch as torch


def leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


W = np.array([[0.5, -1.0, 2.0, 0.3], [1.5, 0.7, -0.2, 1.1], [-0.6, 0.9, 0.4, -1.3]])


def gradient(f, w=W):
    """The gradient that backward leaves in the argument of ``f``."""
    x = torch.tensor(w, requires_grad=True)
    f(x).sum().backward()
    return x.grad.numpy()


# name -> on y, which is x, in place; the same on NumPy
IN_PLACE = {
    "add_": (lambda y, x: y.add_(2 * x), lambda x: x + 2 * x),
    "sub_": (lambda y, x: y.sub_(x * x, alpha=2), lambda x: x - 2 * x * x),
    "mul_": (lambda y, x: y.mul_(x.sin()), lambda x: x * np.sin(x)),
    "mul_ itself": (lambda y, x: y.mul_(y), lambda x: x * x),
    "div_": (lambda y, x: y.div_(x * x + 1), lambda x: x / (x * x + 1)),
    "pow_": (lambda y, x: y.pow_(3), lambda x: x**3),
    "exp_": (lambda y, x: y.exp_(), np.exp),
    "sin_": (lambda y, x: y.sin_(), np.sin),
    "tanh_": (lambda y, x: y.tanh_(), np.tanh),
    "sigmoid_": (lambda y, x: y.sigmoid_(), lambda x: 1 / (1 + np.exp(-x))),
    "clamp_": (lambda y, x: y.clamp_(-0.9, 0.8), lambda x: np.clip(x, -0.9, 0.8)),
    "floor_": (lambda y, x: y.floor_(), lambda x: np.floor(x) + 0 * x),
    "+=": (lambda y, x: y.__iadd__(y), lambda x: 2 * x),
    "/=": (lambda y, x: y.__itruediv__(3), lambda x: x / 3),
    "fill_": (lambda y, x: y.fill_(3.0), lambda x: 0 * x),
    "zero_": (lambda y, x: y.zero_(), lambda x: 0 * x),
    "copy_": (lambda y, x: y.copy_((x * x)[0]), lambda x: np.broadcast_to((x * x)[0], (3, 4))),
    "masked_fill_": (
        lambda y, x: y.masked_fill_(x > 0.5, 7.0), lambda x: np.where(x > 0.5, 7.0, x)
    ),
    "lerp_": (lambda y, x: y.lerp_(x * x, 0.25), lambda x: x + 0.25 * (x * x - x)),
    "addcmul_": (lambda y, x: y.addcmul_(x, x, value=2), lambda x: x + 2 * x * x),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_operation_in_place_has_the_gradient_of_the_one_that_is_not(name):
    in_place, expected = IN_PLACE[name]

    def run(x):
        y = x * 1
        assert in_place(y, x) is y
        return y * y

    truth = ft.grad(lambda x: np.sum(expected(x) ** 2))(W)
    assert gradient(run) == pytest.approx(np.asarray(truth), rel=1e-13)


def setitem(x):
    y = x * 1
    y[0] = y[1] * 2
    y[:, 1] *= 3
    y[y > 1.4] = 0.25
    y[[2, 0]] = y[[0, 2]] * x[1, 1]
    y[1, 2] = x[0, 0]
    y[..., 3] = 5
    return y * y


def at(x):
    y = x.at[0].set(x[1] * 2)
    y = y.at[:, 1].multiply(3)
    y = np.where(y > 1.4, 0.25, y)
    y = y.at[np.array([2, 0])].set(y[np.array([0, 2])] * x[1, 1])
    y = y.at[1, 2].set(x[0, 0])
    return y.at[..., 3].set(5.0) ** 2


def test_assignment_by_index_has_the_gradient_of_at_set():
    truth = ft.grad(lambda x: np.sum(at(x)))(W)
    assert gradient(setitem) == pytest.approx(np.asarray(truth), rel=1e-13)


# ---- views


def test_a_view_shares_memory_and_knows_its_base():
    x = torch.zeros(2, 3)
    v = x[0]
    v[1] = 5.0
    assert x.tolist() == [[0, 5, 0], [0, 0, 0]]
    assert v._base is x
    assert x.t()[1]._base is x


def test_a_write_through_a_view_reaches_the_base_and_its_other_views():
    def run(x):
        base = x * 1
        row, turned = base[1], base.t()
        row.mul_(x[0])
        turned[2].sin_()
        base.view(-1)[3:6].add_(1)
        return row * row + turned.sum() * base[0]

    def truth(x):
        base = x.at[1].set(x[1] * x[0])
        base = base.at[:, 2].set(np.sin(base[:, 2]))
        flat = base.reshape(-1)
        base = flat.at[3:6].set(flat[3:6] + 1).reshape(3, 4)
        return np.sum(base[1] ** 2 + base.sum() * base[0])

    assert gradient(run) == pytest.approx(np.asarray(ft.grad(truth)(W)), rel=1e-13)


@pytest.mark.parametrize("create", [False, True])
def test_of_repeated_indices_the_last_write_alone_carries_a_gradient(create):
    x, v = leaf(1.0, 2, 3, 4), leaf(5.0, 6, 7, 8)
    y = x * 1
    y[torch.tensor([1, 2, 1, 1])] = v
    loss = (torch.arange(1.0, 5, dtype=torch.float64) * y**2).sum()
    gx, gv = torch.autograd.grad(loss, (x, v), create_graph=create)
    assert gx.tolist() == [2, 0, 0, 32]
    assert gv.tolist() == [0, 36, 0, 32]
    if create:
        assert torch.autograd.grad(gv.sum(), v)[0].tolist() == [0, 6, 0, 4]


def test_a_write_to_the_base_reaches_views_made_before():
    def run(x):
        base = x * 1
        view = base[1:, ::2]
        base.mul_(x.detach())
        return view * view

    truth = np.zeros_like(W)
    truth[1:, ::2] = 2 * W[1:, ::2] ** 3  # the factor is a constant
    assert gradient(run) == pytest.approx(truth, rel=1e-13)


def test_a_plain_tensor_gets_a_history_through_its_view():
    x = leaf(1.0, 2.0, 3.0)
    y = torch.zeros(2, 3, dtype=torch.float64)
    row = y[1]
    assert not y.requires_grad
    row.copy_(x * x)
    assert y.requires_grad and row.requires_grad
    assert y.grad_fn.name() == "CopySlices"
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 4.0, 6.0]


def test_second_derivatives_go_through_views_and_writes():
    x = torch.tensor(W, requires_grad=True)
    y = x * 1
    y[0].mul_(x[1])
    y.t()[1].sin_()
    (g,) = torch.autograd.grad((y**3).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad((g * torch.tensor(W + 1)).sum(), x)

    def f(x):
        y = x.at[0].set(x[0] * x[1])
        return np.sum(y.at[:, 1].set(np.sin(y[:, 1])) ** 3)

    assert h.numpy() == pytest.approx(np.asarray(ft.hvp(f, W, W + 1)[1]), rel=1e-12)


@pytest.mark.parametrize(
    "view",
    [
        lambda y: y.diagonal(),
        lambda y: y.unsqueeze(0).transpose(0, 2)[1:3],
        lambda y: y.t()[1:].t(),
        lambda y: y.permute(1, 0).view(4, 3, 1)[:, :, 0],
        lambda y: y.narrow(1, 1, 2),
        lambda y: y.narrow(1, 1, 3),
        lambda y: y.reshape(2, 6)[:, 1::2],
        lambda y: y.squeeze()[0, 0],
    ],
)
def test_writing_through_a_chain_of_views_equals_writing_to_their_places(view):
    places = view(torch.arange(12).reshape(3, 4)).numpy()
    mask = np.isin(np.arange(12).reshape(3, 4), places)

    def run(x):
        y = x * 1
        view(y).mul_(x[0, 1])
        return y * y

    truth = ft.grad(lambda x: np.sum(np.where(mask, x * x[0, 1], x) ** 2))(W)
    assert gradient(run) == pytest.approx(np.asarray(truth), rel=1e-13)


# ---- versions


def test_versions_count_changes_and_are_shared_by_views_and_detached_tensors():
    x = torch.zeros(3)
    v, d = x[1:], x.detach()
    x.add_(1)
    v.mul_(2)
    d.zero_()
    x[0] = 1
    assert x._version == v._version == d._version == 4
    assert (x + 1)._version == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda y, x: y.add_(1),
        lambda y, x: y[0].mul_(2),
        lambda y, x: y.detach().zero_(),
        lambda y, x: y.__setitem__(0, 3.0),
        lambda y, x: y.view(3, 1)[1:].neg_(),
    ],
)
@pytest.mark.parametrize("use", [lambda y, x: y.sin(), lambda y, x: y * x, lambda y, x: y @ x])
def test_a_saved_tensor_that_was_changed_is_noticed(change, use):
    x = leaf(1.0, 2.0, 3.0)
    y = x * 1
    z = use(y, x).sum()
    change(y, x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.backward()


def test_the_error_names_the_op_and_where_it_was_saved_and_changed():
    y = leaf(1.0, 2.0).exp()
    y.mul_(2)
    text = r"ExpBackward0 saved it at \S*test_inplace.py:\d+ .*mul_ at \S*test_inplace.py:\d+"
    with pytest.raises(RuntimeError, match=text):
        y.sum().backward()


def test_a_saved_constant_that_was_changed_is_noticed():
    x, c = leaf(1.0, 2.0), torch.ones(2, dtype=torch.float64)
    y = (x * c).sum()
    c.mul_(5)
    with pytest.raises(RuntimeError, match="MulBackward0"):
        y.backward()


def test_a_mask_that_was_changed_is_noticed():
    x, mask = leaf(1.0, 2.0), torch.tensor([True, False])
    y = torch.where(mask, x, 0.0).sum()
    mask[1] = True
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_an_index_or_an_ndarray_may_be_changed_after_it_was_used():
    x, index, factor = leaf(1.0, 2.0), torch.tensor([0, 0]), np.array([2.0, 3.0])
    y = (x[index] * factor).sum() + x.index_select(0, index).sum()
    index[0] = 1
    factor[0] = 100.0
    y.backward()
    assert x.grad.tolist() == [7.0, 0.0]


@pytest.mark.parametrize(
    "f",
    [
        lambda x: (x * x * x).sum(),
        lambda x: x.sin().sum(),
        lambda x: (x @ x) * (x @ x),
        lambda x: x.prod() * x[0],
    ],
)
def test_a_change_between_first_and_second_derivative_is_noticed(f):
    x = leaf(1.0, 2.0)
    (g,) = torch.autograd.grad(f(x), x, create_graph=True)
    with torch.no_grad():
        x.mul_(5)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(g.sum(), x)


def test_what_no_rule_reads_may_be_changed():
    x = leaf(1.0, 2.0)
    y = x * 3
    z = (y + 1).sum()
    y.mul_(100)
    z.backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_replacing_data_does_not_change_what_was_saved():
    w, x = leaf(1.0, 2.0), leaf(5.0, 6.0)
    y = (w * x).sum()
    w.data = torch.zeros(2, dtype=torch.float64)
    y.backward()
    assert (w.grad.tolist(), x.grad.tolist()) == ([5.0, 6.0], [1.0, 2.0])


# ---- refusals


@pytest.mark.parametrize(
    "change", [lambda x: x.add_(1), lambda x: x.__setitem__(0, 1.0), lambda x: x.zero_()]
)
def test_a_leaf_that_requires_grad_cannot_be_changed(change):
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        change(leaf(1.0, 2.0))
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        change(leaf(1.0, 2.0)[:1])


def test_a_leaf_can_be_changed_under_no_grad_and_stays_a_leaf():
    x = leaf(1.0, 2.0)
    with torch.no_grad():
        x -= 0.5
        x[0] = 9.0
    assert x.tolist() == [9.0, 1.5]
    assert x.is_leaf and x.requires_grad


def test_a_view_made_under_no_grad_cannot_be_changed_with_history():
    y = leaf(1.0, 2.0) * 1
    with torch.no_grad():
        v = y[:1]
    with pytest.raises(RuntimeError, match="A view was created in no_grad mode and is being"):
        v.mul_(leaf(2.0))


def test_an_expanded_tensor_cannot_be_written_to():
    with pytest.raises(RuntimeError, match="clone"):
        torch.zeros(1).expand(3).add_(1)


def test_a_result_that_does_not_fit_its_place_is_refused():
    with pytest.raises(RuntimeError, match="Float can't be cast to the desired output type Long"):
        torch.ones(2, dtype=torch.int64).add_(1.5)
    with pytest.raises(RuntimeError, match="doesn't match the broadcast shape"):
        torch.ones(2).add_(torch.ones(3, 2))


def test_views_cannot_be_detached_in_place():
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        leaf(1.0, 2.0)[:1].detach_()


def test_a_view_made_under_no_grad_has_no_history_to_look_up():
    x, c = leaf(2.0, 3.0), torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        v = c[:1]
    c.add_(x)
    assert v.tolist() == [2.0]
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"made inside no_grad.*Make the view outside"):
            v * 2
    c.detach_()
    assert not v.requires_grad


ITSELF = {
    "positive": lambda y: y.positive(),
    "+y": lambda y: +y,
    "torch.positive": torch.positive,
    "real": lambda y: y.real,
    "torch.real": torch.real,
    "conj": lambda y: y.conj(),
    "conj_physical": lambda y: y.conj_physical(),
    "resolve_conj": lambda y: y.resolve_conj(),
}


@pytest.mark.parametrize("name", ITSELF)
def test_what_leaves_a_real_tensor_as_it_is_returns_it_and_no_copy(name):
    def f(x):
        y = x * 2
        ITSELF[name](y).mul_(3)
        return y * y

    np.testing.assert_allclose(gradient(f), 72 * W, rtol=1e-15)
    z = torch.tensor([1 + 2j])
    assert ITSELF[name](z) is not z or name in ("positive", "torch.positive", "+y", "resolve_conj")


SAME_ENTRIES = {
    "H": lambda y: y.H,
    "expand": lambda y: y.expand(3, 4),
    "expand with -1": lambda y: y.expand(-1, -1),
    "expand_as": lambda y: y.expand_as(y),
    "expand in front": lambda y: y.expand(1, 3, 4),
    "broadcast_to": lambda y: y.broadcast_to(3, 4),
    "broadcast_to a tuple": lambda y: y.broadcast_to((3, 4)),
    "squeeze of several": lambda y: y[None, :, None].squeeze(0, 2),
}


@pytest.mark.parametrize("name", SAME_ENTRIES)
def test_views_that_repeat_nothing_can_be_written_to(name):
    def f(x):
        y = x * 2
        SAME_ENTRIES[name](y).mul_(3)
        return y * y

    np.testing.assert_allclose(gradient(f), 72 * W, rtol=1e-15)


def test_a_view_that_repeats_entries_cannot_be_written_to():
    with pytest.raises(RuntimeError, match="more than one element"):
        torch.ones(3, 1).expand(3, 4).mul_(2)


# ---- halves of complex tensors, as torch 2.13 has them

HALVES = {
    "real": (lambda y: y.real.mul_(2), [2 + 2j, 6 - 1j], [-8j, 46 + 10j], [12 - 2j, 33 + 2j]),
    "imag": (
        lambda y: y.imag.mul_(2), [1 + 4j, 3 - 2j], [-6 - 20j, 10 + 22j], [6 + 4j, 9 - 4j]
    ),
    "an entry of imag": (
        lambda y: y.imag[0].fill_(3), [1 + 3j, 3 - 1j], [-4, 11 + 7j], [2, 8.5]
    ),
    "real from imag": (
        lambda y: y.real.copy_(y.imag), [2 + 2j, -1 - 1j], [-8j, -2j], [4j, 1j]
    ),
    "real by imag": (
        lambda y: y.real.mul_(y.imag + 1), [3 + 2j, -1j], [6 - 8j, 1j], [16 + 6j, -0.5 + 17j]
    ),
}


@pytest.mark.parametrize("name", HALVES)
def test_the_halves_of_a_complex_tensor_are_views(name):
    change, value, gradient, second = HALVES[name]
    z = torch.tensor([1 + 2j, 3 - 1j], dtype=torch.complex128, requires_grad=True)
    w = torch.tensor([1 - 1j, 2 + 0.5j], dtype=torch.complex128)
    y = z * 1
    change(y)
    (g,) = torch.autograd.grad(y * y, z, w, create_graph=True)
    (h,) = torch.autograd.grad(g, z, w)
    for t, expected in ((y, value), (g, gradient), (h, second)):
        np.testing.assert_allclose(t.detach().numpy(), expected, rtol=1e-15)


def test_a_change_of_a_half_is_one_of_the_whole():
    z = torch.tensor([1 + 2j], requires_grad=True)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable"):
        z.real.mul_(2)
    y = z * 1
    r = y.real
    y.mul_(1j)
    assert r.tolist() == [-2.0] and r.grad_fn.name() == "RealBackward0"
    saved = y.exp() * y
    y.imag.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.real.sum().backward()


def test_an_index_may_be_changed_after_it_was_used():
    x, index = torch.tensor(W, requires_grad=True), torch.tensor([0, 2])
    mask = torch.tensor([True, False, True])
    y = x * 1
    read = y[index].sum() + y[mask].sum()
    y[index] = torch.zeros(4, dtype=torch.float64)
    index.fill_(1)
    mask.fill_(False)
    (read + y.sum()).backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.array([[2.0], [1.0], [2.0]]) * np.ones(4))


def test_a_shape_is_changed_in_place_while_recording():
    x = leaf(*range(6))
    y = (x * 2).reshape(2, 3) * 1
    y.retain_grad()
    y.t_().unsqueeze_(0).squeeze_(0)
    y[0].mul_(3)
    y.transpose_(0, 1).mul_(y.detach().clone())
    y.sum().backward()
    was = np.array([0.0, 2, 4, 6, 8, 10]).reshape(2, 3)
    was[:, 0] *= 3
    assert np.array_equal(y.detach().numpy(), was * was)
    slope = 2 * was  # of 2 x in x, times the numbers it is multiplied with
    slope[:, 0] *= 3
    assert np.array_equal(x.grad.numpy(), slope.reshape(-1))
    assert np.array_equal(y.grad.numpy(), np.ones((2, 3)))


def test_a_view_of_what_has_another_shape_since_is_not_guessed():
    for first, second in [("view", "base"), ("base", "view")]:
        base = leaf(*range(4)).reshape(2, 2) * 1
        tensors = {"base": base, "view": base[0]}
        base.t_()
        with pytest.raises(RuntimeError, match="has been given another shape"):
            tensors[second].mul_(2)
            tensors[first].sum()
    plain = torch.arange(4.0).reshape(2, 2).clone()
    view = plain[0]
    plain.t_()
    plain.mul_(leaf(2.0).float())
    with pytest.raises(RuntimeError, match="has been given another shape"):
        view.sum()


class Derived(torch.Tensor):
    """With which functions look for objects that override them, in a frame more."""


@pytest.mark.parametrize("f", [
    lambda x: x.exp(), torch.exp, lambda x: torch.pow(2, x), lambda x: torch.special.expit(x)])
def test_the_error_names_the_users_line_where_classes_override_functions(f):
    y = f(leaf(1.0, 2.0))
    y.mul_(2)
    with pytest.raises(RuntimeError, match=r"saved it at \S*test_inplace.py:\d+ .*test_inplace"):
        y.sum().backward()
