"""Views and changes in place, where torch refuses them and where it does not."""

import numpy as np
import pytest

import functrans.torch as torch
from functrans.torch.autograd import Function, gradcheck, gradgradcheck

INPLACE = "is a view and is being modified inplace"
SEVERAL = "output of a function that returns multiple views"
NO_GRAD = "A view was created in no_grad mode and is being modified inplace"


def leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("views", [
    lambda y: y.unbind(), lambda y: y.chunk(2), lambda y: y.split(1), lambda y: y.split([1, 1]),
], ids=["unbind", "chunk", "split", "split with sizes"])
def test_one_of_several_views_is_not_written_to_while_recording(views):
    x = leaf(2.0, 3.0)
    first, second = views(x.clone())
    assert first._is_view() and second.requires_grad
    for k, v in enumerate((first, second)):
        with pytest.raises(RuntimeError, match=rf"Output {k} of \w+ {INPLACE}.*{SEVERAL}"):
            v.add_(1)
    with torch.no_grad():
        first.add_(1)
    constants = views(torch.zeros(2, dtype=torch.float64))
    constants[0].add_(1)
    with pytest.raises(RuntimeError, match=SEVERAL):
        constants[0].copy_(x[:1] if constants[0].ndim else x[0])


def test_several_views_are_outputs_of_one_node():
    x = leaf(1.0, 2.0, 3.0)
    a, b, c = (x * 1).unbind()
    assert a.grad_fn is b.grad_fn and [t.output_nr for t in (a, b, c)] == [0, 1, 2]
    seen = []
    a.register_hook(seen.append)
    b.backward(retain_graph=True)
    assert seen == [None] and x.grad.tolist() == [0.0, 1.0, 0.0]
    torch.autograd.backward([a, c], [torch.tensor(10.0, dtype=torch.float64)] * 2)
    assert x.grad.tolist() == [10.0, 1.0, 10.0]


def test_several_views_are_differentiated_twice():
    x = torch.linspace(0.1, 1.2, 6, dtype=torch.float64).reshape(2, 3).requires_grad_()

    def f(x):
        a, b = x.unbind()
        c, d = x.split([1, 2], 1)
        return a * b.exp(), c * d**2

    assert gradcheck(f, x) and gradgradcheck(f, x)


@pytest.mark.parametrize("requires", [True, False])
def test_a_view_made_under_no_grad_is_not_written_to_while_recording(requires):
    x = leaf(2.0, 3.0)
    y = x.clone() if requires else torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        views = [y.view_as(y), y.unbind()[0], y[:1]]
    for v in views:
        assert v.requires_grad == requires and v.grad_fn is None and v._is_view()
        with pytest.raises(RuntimeError, match=NO_GRAD):
            v.mul_(x[0])
    with torch.no_grad():
        views[0].mul_(2)


def test_views_of_leaves_are_not_written_to():
    x = leaf(2.0, 3.0)
    y = torch.zeros(2, dtype=torch.float64)
    view = y[:]
    view.add_(5)
    y.requires_grad_()
    for v in (x[:1], view):
        with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad is b"):
            v.add_(1)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used"):
        y.add_(1)
    assert view.requires_grad and y.tolist() == [5.0, 5.0]


def test_detaching_a_base_leaves_its_views_as_they_are():
    x = leaf(2.0, 3.0)
    view = x.narrow(0, 1, 1)
    x.detach_()
    assert not x.requires_grad and view.requires_grad and view.grad_fn is not None
    assert view._base is x
    with pytest.raises(RuntimeError, match="Can't detach views in-place"):
        view.detach_()


def test_a_view_of_memory_that_was_replaced_is_not_recorded():
    w = leaf(2.0)
    new = torch.zeros(4, dtype=torch.float64)
    for change in (lambda t: t.resize_(2, 2), lambda t: setattr(t, "data", new)):
        base = torch.zeros(4, dtype=torch.float64)
        view = base[:1]
        change(base)
        with pytest.raises(RuntimeError, match="another shape or other memory since"):
            view.mul_(w)


class Shifted(Function):
    @staticmethod
    def forward(ctx, a, b):
        ctx.mark_dirty(a.add_(b))
        return a

    @staticmethod
    def backward(ctx, g):
        return g, g


def test_a_dirty_view_takes_part_of_its_base():
    x, b = leaf(2.0, 3.0), leaf(10.0)
    base = x * 2
    view = base[:1]
    assert Shifted.apply(view, b) is view
    view.mul_(3)
    base.sum().backward()
    assert base.tolist() == [42.0, 6.0] and x.grad.tolist() == [6.0, 2.0] and b.grad.item() == 3.0


def test_a_result_that_is_returned_twice_is_the_last_output():
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            y = x * 2
            return y, y

        @staticmethod
        def backward(ctx, g, h):
            return 2 * g + 2 * h

    def f(x):
        a, b = Twice.apply(x)
        assert a is b and a.output_nr == 1
        return a + b

    assert gradcheck(f, leaf(1.0, 2.0)) and gradgradcheck(f, leaf(1.0, 2.0))


def test_a_grad_that_will_not_come_is_warned_of():
    x = leaf(1.0)
    y = x * 2
    with pytest.warns(UserWarning, match="a Tensor that is not a leaf Tensor is being accessed"):
        assert y.grad is None
    y.retain_grad()
    assert y.grad is None and x.grad is None


def test_attributes_that_hold_a_tensor_together_are_not_deleted():
    x = leaf(1.0)
    for name in ("data", "requires_grad", "_grad_fn", "_backward_hooks"):
        with pytest.raises(RuntimeError):
            delattr(x, name)
    del x.grad
    with pytest.raises(TypeError, match="Variable data has to be a tensor, but got NoneType"):
        x.data = None
    with pytest.raises(RuntimeError, match="must be floating point or complex dtype"):
        x.data = torch.tensor([1])


@pytest.mark.parametrize("create", [False, True])
def test_a_dense_gradient_replaces_a_sparse_one_by_the_sum(create):
    x = leaf(1.0, 2.0)
    x.grad = sparse = torch.sparse_coo_tensor([[1, 1]], [10.0, 5.0], (2,), dtype=torch.float64)
    (x * x).sum().backward(create_graph=create)
    assert x.grad is not sparse and x.grad.tolist() == [2.0, 19.0]


@pytest.mark.parametrize("change", [torch.Tensor.add_, torch.Tensor.copy_, torch.Tensor.mul_])
def test_an_operand_on_part_of_the_written_memory_is_refused(change):
    for x in (torch.arange(4.0), leaf(0.0, 1.0, 2.0, 3.0).clone()):
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            change(x[1:], x[:-1])
        change(x[2:], x[:2])
        change(x, x)
    with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
        change(torch.ones(1).expand(3), 2.0 if change is not torch.Tensor.copy_ else torch.ones(3))


def test_a_view_that_was_made_a_leaf_is_not_written_to():
    a = torch.arange(6.0).reshape(2, 3).requires_grad_()
    for write in (lambda: a[0].mul_(2), lambda: a.mul_(2), lambda: a.view(-1).add_(1)):
        with pytest.raises(RuntimeError, match="of a leaf Variable that requires grad is being"):
            write()
    with torch.no_grad():
        a[0].mul_(2)
    (a * a).sum().backward()
    assert a.tolist() == [[0, 2, 4], [3, 4, 5]] and a.is_leaf
    assert a.grad.tolist() == [[0, 4, 8], [6, 8, 10]]


def test_a_view_that_was_made_a_leaf_follows_its_base():
    base, w = torch.zeros(4), torch.ones(4, requires_grad=True)
    v = base[:2].requires_grad_()
    base[0] = w[0] * 3
    v.sum().backward()
    assert w.grad.tolist() == [3, 0, 0, 0] and not v.is_leaf


@pytest.mark.parametrize("join", [torch.vstack, torch.hstack, torch.column_stack, torch.cat])
def test_one_tensor_that_is_joined_is_copied(join):
    x = torch.ones(2, 2, dtype=torch.float64, requires_grad=True)
    y = x * 2
    join([y]).mul_(5.0)
    assert y.tolist() == [[2.0, 2.0], [2.0, 2.0]]
    (y * y).sum().backward()
    assert x.grad.tolist() == [[8.0, 8.0], [8.0, 8.0]]


@pytest.mark.parametrize("indexing", ["ij", "xy"])
def test_grids_and_diagonals_are_views(indexing):
    x, m = leaf(1.0, 2.0), torch.ones(2, 2, dtype=torch.float64)
    y = x * 1
    grid = torch.meshgrid(y, torch.zeros(3, dtype=torch.float64), indexing=indexing)[0]
    y.mul_(2.0)
    assert grid.shape == ((2, 3) if indexing == "ij" else (3, 2))
    assert grid.sum().item() == 18.0
    grid.sum().backward()
    assert x.grad.tolist() == [6.0, 6.0]
    torch.linalg.diagonal(m).zero_()
    assert m.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    with pytest.raises(RuntimeError, match='indexing must be one of "xy" or "ij"'):
        torch.meshgrid(y, indexing="ji")


def test_a_view_of_one_of_several_views_is_not_written_to_either():
    y = torch.ones(3, requires_grad=True) * 1
    part = y.unbind()[0].view(1)
    with pytest.raises(RuntimeError, match="This view is the output of a function that returns m"):
        part.mul_(2)


WINDOWS = {  # a view that no index makes, of six entries; each in torch 2.13
    "windows": lambda y: y.unfold(0, 2, 2),
    "overlapping windows": lambda y: y.unfold(0, 3, 1),
    "windows of windows": lambda y: y.reshape(2, 3).unfold(1, 3, 1).unfold(0, 2, 1),
    "strided": lambda y: y.as_strided((2, 2), (2, 1), 1),
    "strided and overlapping": lambda y: y.as_strided((3, 2), (1, 2)),
    "strided beyond a view": lambda y: y[1:3].as_strided((2, 2), (3, 1), 0),
    "strided of a transpose": lambda y: y.reshape(2, 3).t().as_strided((3,), (2,)),
    "as pairs": lambda y: torch.view_as_complex(y.view(3, 2)).abs(),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_view_follows_its_base(name):
    x = torch.arange(1.0, 7.0, dtype=torch.float64, requires_grad=True)
    y = x * 1
    seen = WINDOWS[name](y)
    stale = seen.tolist()
    y.mul_(3)
    fresh = WINDOWS[name](x * 3)
    if name != "as pairs":  # whose absolute values are new memory
        assert seen.tolist() == fresh.tolist() != stale
        (got,) = torch.autograd.grad((seen**2).sum(), x)
        (expected,) = torch.autograd.grad((fresh**2).sum(), x)
        if name != "strided beyond a view":  # ``fresh`` has no history of what is beyond
            assert got.tolist() == expected.tolist()
    with torch.no_grad():
        plain = torch.arange(6.0)
        seen = WINDOWS[name](plain)
        plain.zero_()
    assert name == "as pairs" or not seen.any()


@pytest.mark.parametrize(("name", "expected"), [
    ("windows", [2, 3, 2, 3, 2, 3]), ("strided", [1, 2, 3, 2, 3, 1]),
    ("strided beyond a view", [2, 3, 1, 2, 3, 1]), ("strided of a transpose", [1] * 6)])
def test_writes_to_such_a_view_reach_its_base(name, expected):
    x = torch.zeros(6, dtype=torch.float64, requires_grad=True)
    y = x * 1
    seen = WINDOWS[name](y)
    factors = torch.tensor([2.0, 3.0], dtype=torch.float64)
    seen.mul_(factors if seen.ndim == 2 else torch.ones(3, dtype=torch.float64))
    y.sum().backward()
    assert x.grad.tolist() == expected
    plain = torch.zeros(6)
    WINDOWS[name](plain).add_(1)
    assert plain.sum() == (6 if name == "windows" else 4 if "transpose" not in name else 3)


@pytest.mark.parametrize("name", ["overlapping windows", "strided and overlapping"])
def test_entries_that_share_a_place_are_not_written_to(name):
    y = torch.zeros(6)
    for write in (lambda t: t.add_(1), lambda t: t.zero_(), lambda t: t.__setitem__(0, 1.0)):
        with pytest.raises(RuntimeError, match="refers to a single memory location"):
            write(WINDOWS[name](y))
    assert not y.any()


def test_numbers_and_their_parts_are_one_memory():
    z = torch.zeros(2, dtype=torch.complex64)
    pairs = torch.view_as_real(z)
    pairs[0, 1] = 5
    z[1] = 2 + 3j
    assert z.tolist() == [5j, 2 + 3j] and pairs.tolist() == [[0, 5], [2, 3]]
    torch.view_as_complex(pairs)[0] = 7
    assert z.tolist() == [7, 2 + 3j]
    x = torch.ones(2, dtype=torch.complex128, requires_grad=True)
    y = x * 1
    pairs = torch.view_as_real(y)
    y.mul_(3)
    pairs[:, 1].sum().backward()
    assert x.grad.tolist() == [3j, 3j]
    with pytest.raises(RuntimeError, match=r"is not recorded\. Call mul_ on a clone"):
        pairs.mul_(2)
    with pytest.raises(RuntimeError, match="must have a last dimension with stride 1"):
        torch.view_as_complex(torch.ones(2, 2).t())


@pytest.mark.parametrize("name", [
    n for n in WINDOWS if n not in ("as pairs", "strided beyond a view")])
def test_such_views_are_differentiated_twice_and_in_batches(name):
    def f(x):
        return WINDOWS[name](x * 1) ** 3

    x = torch.linspace(0.5, 1.0, 6, dtype=torch.float64).requires_grad_()
    assert gradcheck(f, x, check_forward_ad=True) and gradgradcheck(f, x)
    rows = torch.linspace(0.1, 1.2, 12, dtype=torch.float64).reshape(2, 6)
    batched = torch.func.vmap(torch.func.grad(lambda x: f(x).sum()))(rows)
    for row, found in zip(rows, batched, strict=True):
        assert found.tolist() == torch.func.grad(lambda x: f(x).sum())(row).tolist()


def test_a_tensor_that_has_turned_is_no_view():
    y = torch.ones(2, 3, requires_grad=True) * 1
    assert not y.t_()._is_view() and y[0]._is_view()


def test_a_copy_does_not_share_the_changes_of_what_it_was_made_of():
    x = torch.ones(4, requires_grad=True)
    y = x * 1
    turned = y.flip(0)
    loss = turned.exp()
    y.mul_(3)
    assert turned._version == 0
    (g,) = torch.autograd.grad((loss + turned.square()).sum(), x)
    assert g.tolist() == pytest.approx([np.e + 2] * 4)


@pytest.mark.parametrize("name", ["exp_", "sigmoid_", "sqrt_", "tanh_"])
def test_a_result_that_was_saved_in_place_must_not_be_changed(name):
    y = torch.full((3,), 0.5, requires_grad=True) * 1
    getattr(y, name)()
    y.mul_(2)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.* and mul_ at"):
        y.sum().backward()


@pytest.mark.parametrize("name", ["mT", "mH"])
def test_transposes_of_matrices_want_matrices(name):
    with pytest.raises(RuntimeError, match=rf"tensor\.{name} is only supported on matrices"):
        getattr(torch.ones(3), name)
    assert torch.ones(()).movedim(0, -1).shape == ()
    with pytest.raises(RuntimeError, match="number of dimensions in the tensor input does not"):
        torch.ones(3).permute(1, 0)


def test_one_of_several_views_is_not_read_once_its_base_has_changed():
    y = torch.ones(3, requires_grad=True) * 1
    first, second = y.split([1, 2])
    y.mul_(2)
    with pytest.raises(RuntimeError, match=r"Output 1 of SplitWithSizes is a view and its base or"):
        second.sin()
    plain = torch.ones(3)
    part = plain.split(1)[0]
    plain.mul_(2)
    assert part.tolist() == [2] and first.shape == (1,)
