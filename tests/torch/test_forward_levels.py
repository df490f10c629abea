"""Forward mode does not depend on ``no_grad``: tangents arrive where gradients do not."""

import pytest

import functrans.torch as torch
from functrans.torch.autograd import Function
from functrans.torch.autograd import forward_ad as fw
from functrans.torch.func import grad, hessian, jacfwd, jacrev, jvp, linearize
from functrans.torch.utils.checkpoint import checkpoint


def t(*values, **options):
    return torch.tensor(values, dtype=torch.float64, **options)


X, V = t(1.0, 2.0, 3.0), t(1.0, 0.5, -1.0)


def scaled(x):
    """x**3, whose first factor is no constant in forward mode alone."""
    with torch.no_grad():
        c = x**2
    return c * x


class Square(Function):
    """By its backward alone."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g if ctx.needs_input_grad[0] else None


def test_what_is_computed_under_no_grad_has_a_tangent_and_no_gradient():
    w = X.clone().requires_grad_()
    with fw.dual_level():
        d = fw.make_dual(w, V)
        with torch.no_grad():
            c = d**2
            assert not torch.is_grad_enabled() and not c.requires_grad
            assert fw.unpack_dual(c).tangent.tolist() == [2.0, 2.0, -6.0]
        (g,) = torch.autograd.grad((c * d).sum(), w)
        assert g.tolist() == [1.0, 4.0, 9.0]
        assert fw.unpack_dual(c * d).tangent.tolist() == [3.0, 6.0, -27.0]
    assert torch.is_grad_enabled()


def test_functions_that_pass_tangents_forward_do_not_see_no_grad():
    assert jvp(scaled, (X,), (V,))[1].tolist() == [3.0, 6.0, -27.0]
    assert linearize(scaled, X)[1](V).tolist() == [3.0, 6.0, -27.0]
    assert jacfwd(scaled)(X).diagonal().tolist() == [3.0, 12.0, 27.0]
    assert jacrev(scaled)(X).diagonal().tolist() == [1.0, 4.0, 9.0]
    (j,) = torch.autograd.functional.jacobian(
        scaled, (X,), vectorize=True, strategy="forward-mode")
    assert j.diagonal().tolist() == [3.0, 12.0, 27.0]


# which derivative of x**2 * x, the square being constant in reverse mode, as PyTorch has them
SECOND = {
    "hessian": (hessian(lambda x: scaled(x).sum()), [2.0, 4.0, 6.0]),
    "reverse over forward": (lambda x: jacrev(jacfwd(lambda x: scaled(x).sum()))(x),
                             [2.0, 4.0, 6.0]),
    "forward over forward": (jacfwd(jacfwd(lambda x: scaled(x).sum())), [6.0, 12.0, 18.0]),
    "reverse over reverse": (jacrev(jacrev(lambda x: scaled(x).sum())), [0.0, 0.0, 0.0]),
}


@pytest.mark.parametrize("name", SECOND)
def test_each_mode_sees_no_grad_in_its_own_way(name):
    f, expected = SECOND[name]
    assert f(X).diagonal().tolist() == expected


def test_a_function_derived_within_no_grad_is_constant_to_what_is_outside():
    def inner(x):
        with torch.no_grad():
            return grad(lambda z: (z**3).sum())(x)

    assert jacrev(inner)(X).diagonal().tolist() == [0.0, 0.0, 0.0]
    assert jacfwd(inner)(X).diagonal().tolist() == [6.0, 12.0, 18.0]


def test_a_gradient_without_create_graph_has_a_tangent():
    with fw.dual_level():
        d = fw.make_dual(X.clone().requires_grad_(), V)
        y = (d**3).sum()
        (g,) = torch.autograd.grad(y, d)
        assert fw.unpack_dual(g).tangent.tolist() == [6.0, 6.0, -18.0]
        assert not g.requires_grad and fw.unpack_dual(y).tangent.item() == -18.0
    assert jvp(lambda x: torch.autograd.grad((x**3).sum(), x)[0], (X,), (V,))[1].tolist() == [
        6.0, 6.0, -18.0]


def test_a_gradient_of_a_batch_has_tangents():
    with fw.dual_level():
        d = fw.make_dual(X.clone().requires_grad_(), V)
        (g,) = torch.autograd.grad(d**2, d, torch.eye(3, dtype=torch.float64),
                                   is_grads_batched=True)
        assert torch.equal(fw.unpack_dual(g).tangent, torch.diag(2 * V))


def test_grad_has_no_tangent_and_a_step_is_not_recorded():
    p = torch.nn.Parameter(X.clone())
    with fw.dual_level():
        (fw.make_dual(p, V) ** 2).sum().backward()
        torch.optim.SGD([p], lr=0.5).step()
        assert fw.unpack_dual(p.grad).tangent is None and p.grad.grad_fn is None
    assert p.tolist() == [0.0, 0.0, 0.0] and p.is_leaf


def test_a_node_is_called_with_tangents():
    with fw.dual_level():
        y = fw.make_dual(X.clone().requires_grad_(), V).exp()
        with torch.no_grad():
            g = y.grad_fn(torch.ones_like(X))
        assert torch.allclose(fw.unpack_dual(g).tangent, V * X.exp(), rtol=1e-13)


def test_constants_stay_constants():
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)
    with fw.dual_level():
        d = fw.make_dual(X, V)
        with torch.no_grad():
            w.mul_(2)  # an initialisation, say
            y = w * 3
            assert y.grad_fn is None and fw.unpack_dual(y).tangent is None
            assert (w * 2).numpy().tolist() == [4.0, 4.0, 4.0]
        assert fw.unpack_dual(w * d).tangent.tolist() == [2.0, 1.0, -2.0]
    assert w.is_leaf and w.requires_grad


def test_what_is_written_under_no_grad_has_a_tangent():
    with fw.dual_level():
        d, b = fw.make_dual(X, V), torch.zeros(3, dtype=torch.float64)
        with torch.no_grad():
            b[0] = d[1] * 2
            b.add_(d)
            part = b[1:]
            part *= d[:2]
        assert fw.unpack_dual(b).tangent.tolist() == [2.0, 2.5, -0.5]
        with torch.no_grad():
            b.zero_()
        assert fw.unpack_dual(b).tangent.tolist() == [0.0, 0.0, 0.0]


def test_a_tensor_with_a_gradient_gets_no_tangent_under_no_grad():
    w = X.clone().requires_grad_()
    with fw.dual_level(), torch.no_grad():
        d = fw.make_dual(X, V)
        with pytest.raises(RuntimeError, match="mul_: a tensor that requires gradients would get"):
            w.mul_(d)
        with torch.enable_grad():
            y = w * 2
        with pytest.raises(RuntimeError, match="__setitem__: a tensor that requires gradients"):
            y[0] = d[0]
        with pytest.raises(RuntimeError, match=r"out=\.\.\. arguments don't support"):
            torch.add(d, d, out=torch.zeros(3, dtype=torch.float64))
        with pytest.raises(RuntimeError, match="was computed inside no_grad and has a tangent"):
            (d * 2).requires_grad_()
        with torch.enable_grad():
            (d * w).sum().backward(create_graph=True)
        with pytest.raises(RuntimeError, match="step: a tensor that requires gradients would get"):
            torch.optim.SGD([w], lr=1.0).step()
    assert w.tolist() == X.tolist()


def test_a_function_without_a_jvp_is_passed_backward_under_no_grad():
    def f(x):
        with torch.no_grad():
            return Square.apply(x)

    assert jvp(f, (X,), (V,))[1].tolist() == [2.0, 2.0, -6.0]
    assert jacfwd(f)(X).diagonal().tolist() == [2.0, 4.0, 6.0]
    assert jacfwd(jacrev(lambda x: (f(x) * x).sum()))(X).diagonal().tolist() == [2.0, 4.0, 6.0]
    with pytest.raises(RuntimeError, match="can only be passed backward, and through what"):
        jacrev(jacfwd(lambda x: f(x) * x))(X)


def test_a_checkpoint_under_no_grad_is_its_function():
    def f(x):
        with torch.no_grad():
            return checkpoint(torch.sin, x, use_reentrant=False)

    assert torch.allclose(jvp(f, (X,), (V,))[1], X.cos() * V, rtol=1e-13)


def test_inference_mode_and_the_forward_of_a_function_have_no_tangents():
    seen = []

    class Looks(Function):
        @staticmethod
        def forward(ctx, x):
            with torch.no_grad():
                seen.append(fw.unpack_dual(x * 2).tangent)
            return x * 2

        @staticmethod
        def jvp(ctx, v):
            return v * 2

    with fw.dual_level():
        d = fw.make_dual(X, V)
        with torch.inference_mode(), torch.no_grad():
            assert fw.unpack_dual(d * 2).tangent is None
        assert fw.unpack_dual(Looks.apply(d)).tangent.tolist() == [2.0, 1.0, -2.0]
    assert seen == [None]


def test_a_tangent_ends_with_its_level():
    with fw.dual_level():
        y = fw.make_dual(X, V) * 2
    with fw.dual_level():
        assert fw.unpack_dual(y).tangent is None and fw.unpack_dual(y * 3).tangent is None


def test_the_mode_set_inside_a_level_is_kept_after_it():
    def f(x):
        torch.set_grad_enabled(False)
        return x * x

    try:
        assert jvp(f, (X,), (V,))[1].tolist() == [2.0, 2.0, -6.0]
    finally:
        torch.set_grad_enabled(True)
    with torch.no_grad():
        with fw.dual_level():
            assert not torch.is_grad_enabled()
        assert not torch.is_grad_enabled() and not (X.clone().requires_grad_() * 2).requires_grad


def test_normalising_by_what_is_computed_under_no_grad():
    matrix = t([2.0, 1.0], [1.0, 3.0])

    def normalised(w):  # as spectral normalisation does, by three steps of the power iteration
        u = torch.ones(2, dtype=torch.float64)
        with torch.no_grad():
            for _ in range(3):
                u = w @ u
                u = u / u.norm()
        return w / (u @ w @ u)

    plus, minus = [normalised(matrix + s * torch.eye(2, dtype=torch.float64))
                   for s in (1e-6, -1e-6)]
    tangent = jvp(normalised, (matrix,), (torch.eye(2, dtype=torch.float64),))[1]
    # central differences: the error is of the order of the square of the step
    assert torch.allclose(tangent, (plus - minus) / 2e-6, rtol=1e-8)
