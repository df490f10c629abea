"""``autograd.forward_ad``: tangents of tensors, through custom functions, and differentiated."""

import pytest

import functrans.torch as torch
from functrans.torch.autograd import Function
from functrans.torch.autograd import forward_ad as fw

F64 = torch.float64


def t(*values, **options):
    return torch.tensor(values, dtype=F64, **options)


FUNCTIONS = {
    "polynomial": lambda x: 3 * x**2 + x, "exp of sum": lambda x: x.sum().exp() * x,
    "matrix": lambda x: torch.outer(x, x) @ x, "softmax": lambda x: x.softmax(0),
    "inverse": lambda x: torch.linalg.inv(torch.outer(x, x) + torch.eye(3, dtype=F64)),
    "views": lambda x: x.view(3, 1).expand(3, 2)[1:].t() * x[0],
    "in place": lambda x: x.clone().mul_(x).add_(1),
    "where": lambda x: torch.where(x > 0.6, x.sqrt(), -x),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_tangent_is_the_product_with_the_jacobian(name):
    f, x, v = FUNCTIONS[name], t(0.5, 0.7, 0.9), t(1.0, -2.0, 0.5)
    with fw.dual_level():
        primal, tangent = fw.unpack_dual(f(fw.make_dual(x, v)))
    jacobian = torch.autograd.functional.jacobian(f, x)
    assert torch.allclose(tangent, (jacobian * v).sum(-1), rtol=1e-12)
    assert torch.allclose(primal, f(x)) and not primal.requires_grad and not tangent.requires_grad


def test_two_duals_add_up_and_constants_have_none():
    x, y = t(2.0), t(3.0)
    with fw.dual_level():
        a, b = fw.make_dual(x, t(1.0)), fw.make_dual(y, t(10.0))
        assert fw.unpack_dual(a * b).tangent.tolist() == [23.0]
        assert fw.unpack_dual(a).tangent.tolist() == [1.0]
        assert fw.unpack_dual(y * 2).tangent is None
    assert fw.unpack_dual(x).tangent is None


def test_a_tangent_is_differentiated():
    x, v = t(2.0, 3.0, requires_grad=True), t(1.0, 10.0, requires_grad=True)
    with fw.dual_level():
        tangent = fw.unpack_dual(fw.make_dual(x, v) ** 3).tangent
    assert tangent.tolist() == [12.0, 270.0]
    gx, gv = torch.autograd.grad(tangent.sum(), (x, v))
    assert gx.tolist() == [12.0, 180.0] and gv.tolist() == [12.0, 27.0]


def test_a_gradient_has_a_tangent():
    x = t(2.0, 3.0, requires_grad=True)
    with fw.dual_level():
        d = fw.make_dual(x, t(1.0, 1.0))
        (g,) = torch.autograd.grad((d**3).sum(), d, create_graph=True)
        assert fw.unpack_dual(g).tangent.tolist() == [12.0, 18.0]


class Cube(Function):
    calls = 0

    @staticmethod
    def forward(x):
        return x**3

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g

    @staticmethod
    def jvp(ctx, v):
        Cube.calls += 1
        (x,) = ctx.saved_tensors
        return 3 * x**2 * v


def test_the_jvp_of_a_function_is_used():
    x, before = t(2.0), Cube.calls
    with fw.dual_level():
        y = Cube.apply(fw.make_dual(x, t(1.0)) * 2) + 1
        assert fw.unpack_dual(y).tangent.tolist() == [96.0]
    assert Cube.calls == before + 1
    with fw.dual_level():
        assert fw.unpack_dual(Cube.apply(x)).tangent is None
    assert Cube.calls == before + 1


class Halved(Function):
    """Two results, of which one has no tangent; and no backward."""

    @staticmethod
    def forward(ctx, x, y):
        return x / 2, y * 1

    @staticmethod
    def jvp(ctx, vx, vy):
        assert vy is None
        return vx / 2, None


def test_a_jvp_may_leave_tangents_out():
    with fw.dual_level():
        a, b = Halved.apply(fw.make_dual(t(2.0), t(1.0)), t(3.0))
        assert fw.unpack_dual(a).tangent.tolist() == [0.5]
        assert fw.unpack_dual(b).tangent.tolist() == [0.0]


def test_a_function_without_a_jvp_has_the_tangent_of_its_backward():
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return 2 * x * g

    with fw.dual_level():
        assert fw.unpack_dual(Square.apply(fw.make_dual(t(3.0), t(1.0)))).tangent.tolist() == [6.0]


def test_a_level_records_inside_no_grad():
    with torch.no_grad(), fw.dual_level():
        assert fw.unpack_dual(fw.make_dual(t(2.0), t(1.0)).exp()).tangent is not None
    assert torch.is_grad_enabled()


def test_levels_and_tangents_must_be_in_order():
    with pytest.raises(RuntimeError, match="no level exists"):
        fw.make_dual(t(1.0), t(1.0))
    with pytest.raises(RuntimeError, match="that was not entered"):
        fw.exit_dual_level()
    with fw.dual_level():
        with pytest.raises(RuntimeError, match="Nested forward mode AD is not supported"):
            fw.enter_dual_level()
        with pytest.raises(RuntimeError, match="same size and dtype as the primal"):
            fw.make_dual(t(1.0), t(1.0, 2.0))
        with pytest.raises(ValueError, match="Expected tensor to be floating point or complex"):
            fw.make_dual(torch.tensor([1]), t(1.0))


def test_functions_without_rules_say_so():
    with pytest.raises(NotImplementedError, match="must implement the jvp function"):
        Function.jvp(None)
    with pytest.raises(NotImplementedError, match="must implement the vmap function"):
        Function.vmap(None, None)
