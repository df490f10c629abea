"""What programs meet around derivatives: complex parameters, sparse factors, precision, texts."""

import numpy as np
import pytest

import functrans.torch as torch
from functrans.torch.cuda.amp import GradScaler, autocast


def test_complex_parameters_move_as_their_parts():
    w = torch.tensor([1 + 2j, 0.5 - 1j], requires_grad=True)
    parts = torch.tensor([[1.0, 2.0], [0.5, -1.0]], requires_grad=True)
    for x, pairs in ((w, torch.view_as_real), (parts, lambda x: x)):
        for cls in (torch.optim.Adam, torch.optim.RMSprop, torch.optim.LBFGS):
            optimizer = cls([x], lr=0.1)

            def closure(x=x, pairs=pairs, optimizer=optimizer):
                optimizer.zero_grad()
                loss = (pairs(x) ** 2 * torch.tensor([[1.0, 3.0], [0.5, 2.0]])).sum()
                loss.backward()
                return loss

            for _ in range(2):
                optimizer.step(closure)
    assert torch.equal(torch.view_as_real(w.detach()), parts.detach())


def test_entries_of_a_leaf_that_is_a_view_have_a_gradient():
    x = torch.arange(1.0, 7.0).reshape(2, 3).requires_grad_()
    torch.as_strided(x, (2, 2), (1, 2)).pow(2).sum().backward()
    assert x.grad.tolist() == [[2, 4, 6], [8, 0, 0]]
    assert not x.detach().as_strided((2,), (1,)).requires_grad


def test_a_sparse_matrix_has_gradients_in_values_and_factor():
    v = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
    x = torch.ones(2, 2, requires_grad=True)
    s = torch.sparse_coo_tensor([[0, 1, 1], [1, 0, 0]], v * 2, (2, 2))
    y = torch.sparse.mm(s, x)
    assert y.tolist() == [[2, 2], [10, 10]]
    assert torch.equal(s @ x[:, 0], y[:, 0])
    y.sum().backward()
    assert v.grad.tolist() == [4, 4, 4]
    assert x.grad.tolist() == [[10, 10], [2, 2]]
    assert s.t().to_dense().tolist() == [[0, 10], [2, 0]]
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        torch.sparse.mm(s, torch.ones(3, 2))
    with pytest.raises(RuntimeError, match="a sparse and a dense matrix"):
        s.mm(torch.ones(2))


@pytest.mark.parametrize("shape", [(4, 4), (5, 3), (3, 5)])
@pytest.mark.parametrize("kind", ["matrix_exp", "cayley", "householder"])
@pytest.mark.parametrize("start", [True, False])
def test_an_orthogonal_weight_has_orthonormal_columns(shape, kind, start):
    layer = torch.nn.Linear(shape[1], shape[0], dtype=torch.float64)
    given = layer.weight.detach().clone()
    orthogonal = torch.nn.utils.parametrizations.orthogonal
    if not start and kind != "householder":
        with pytest.raises(NotImplementedError, match="It is not possible to assign"):
            orthogonal(layer, orthogonal_map=kind, use_trivialization=False)
        return
    orthogonal(layer, orthogonal_map=kind, use_trivialization=start)
    W = layer.weight if shape[0] >= shape[1] else layer.weight.mT
    A = given if shape[0] >= shape[1] else given.mT
    np.testing.assert_allclose((W.mT @ W).detach(), np.eye(min(shape)), atol=1e-12)
    np.testing.assert_allclose((W @ W.mT @ A).detach(), A, atol=1e-12)  # the same columns
    assert torch.autograd.gradcheck(
        lambda X: layer.parametrizations.weight[0](X),
        [layer.parametrizations.weight.original.detach().requires_grad_()])


def test_reflections_are_applied_from_both_sides():
    A = torch.arange(1.0, 16.0, dtype=torch.float64).reshape(5, 3) ** 0.5
    a, tau = torch.geqrf(A)
    C = torch.eye(5, dtype=torch.float64, requires_grad=True)
    Q = torch.ormqr(a, tau, C)
    np.testing.assert_allclose((Q[:, :3] @ a[:3].triu()).detach(), A, atol=1e-13)
    np.testing.assert_allclose(torch.ormqr(a, tau, C, transpose=True).detach(), Q.mT.detach())
    np.testing.assert_allclose(torch.ormqr(a, tau, C, left=False).detach(), Q.detach())
    assert torch.autograd.gradcheck(torch.ormqr, (a.requires_grad_(), tau.requires_grad_(), C))
    with pytest.raises(NotImplementedError, match="geqrf has no derivative"):
        torch.geqrf(A.requires_grad_())


def test_precision_is_that_of_the_tensors():
    with torch.autocast("cpu", enabled=False), torch.device("cpu"):
        assert torch.ones(1).dtype is torch.float32
    with pytest.raises(NotImplementedError, match="precision of their operands"):
        torch.autocast("cpu")
    with pytest.raises(RuntimeError, match="there is no cuda here"), torch.device("cuda"):
        pass
    with pytest.warns(UserWarning, match="Disabling"):
        scaler = GradScaler()
    x = torch.tensor([2.0], requires_grad=True)
    sgd = torch.optim.SGD([x], lr=0.5)
    double = autocast(enabled=False)(lambda x: (x * x).sum())
    scaler.scale(double(x)).backward()
    scaler.unscale_(sgd)
    scaler.step(sgd)
    scaler.update()
    assert x.tolist() == [0]
    assert not scaler.is_enabled()
    assert scaler.get_scale() == 1


def test_a_dict_of_parameters_is_in_order_of_names():
    one = torch.nn.Parameter(torch.ones(1))
    assert list(torch.nn.ParameterDict({"b": one, "a": one})) == ["a", "b"]


def test_a_plateau_is_saved_and_loaded():
    sgd = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.1)
    first, second = [torch.optim.lr_scheduler.ReduceLROnPlateau(sgd, patience=1) for _ in "ab"]
    first.step(1.0)
    first.step(2.0)
    second.load_state_dict(first.state_dict())
    assert (second.best, second.num_bad_epochs) == (1.0, 1)


def test_what_follows_the_entries_is_broken_as_in_torch():
    x = torch.ones(5, dtype=torch.float64, requires_grad=True) * 1.5
    assert repr(x) == ("tensor([1.5000, 1.5000, 1.5000, 1.5000, 1.5000], dtype=torch.float64,\n"
                       "       grad_fn=<MulBackward0>)")


@pytest.mark.parametrize("name", ["chebyshev_polynomial_t", "hermite_polynomial_h",
                                  "legendre_polynomial_p", "shifted_chebyshev_polynomial_u"])
def test_polynomials_of_negative_degree_are_zero(name):
    x = torch.tensor([0.3, 2.0, -1.5], requires_grad=True)
    y = getattr(torch.special, name)(x, torch.tensor([-1, 0, -3]))
    assert y.tolist() == [0, 1, 0]
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [0, 0, 0]


def test_factories_take_a_device():
    x = torch.ones(2, dtype=torch.float64)
    powers = torch.logspace(0, 0, 2, device="cpu").double()
    for y in (torch.full_like(x, 3, device="cpu"), x.new_full((2,), 3, device="cpu"),
              x.new_tensor([3, 3], device="cpu"), 3 * powers):
        assert y.tolist() == [3, 3]
        assert y.dtype is torch.float64
    with pytest.raises(RuntimeError, match="cuda"):
        torch.full_like(x, 3, device="cuda")
