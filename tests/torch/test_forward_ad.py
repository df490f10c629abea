"""``autograd.forward_ad``: tangents of tensors, through custom functions, and differentiated."""

import pytest

import functrans.torch as torch
from functrans.torch._graph import dual
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
        assert vy.tolist() == [0.0]  # not a dual tensor
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
        with pytest.raises(RuntimeError, match="has a different size than that of the original"):
            fw.make_dual(t(1.0), t(1.0, 2.0))
        with pytest.raises(RuntimeError, match="same size and dtype as the primal"):
            fw.make_dual(t(1.0), t(1.0).float())
        with pytest.raises(RuntimeError, match="has a forward gradient at the same level"):
            fw.make_dual(t(1.0), fw.make_dual(t(1.0), t(1.0)))
        with pytest.raises(ValueError, match="Expected primal to be floating point or complex"):
            fw.make_dual(torch.tensor([1]), t(1.0))


def test_functions_without_rules_say_so():
    with pytest.raises(NotImplementedError, match="must implement the jvp function"):
        Function.jvp(None)
    with pytest.raises(NotImplementedError, match="must implement the vmap function"):
        Function.vmap(None, None)


def both_ways(f, x, v):
    """J v in forward mode, which must not go back, and by going back twice."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(dual, "_there_and_back")
        forward = torch.func.jvp(f, (x,), (v,))[1]
    start, seed = x.clone().requires_grad_(), torch.ones_like(f(x)).requires_grad_()
    (back,) = torch.autograd.grad(f(start), start, seed, create_graph=True)
    return forward, torch.autograd.grad(back, seed, v)[0]


EYE = torch.eye(3, dtype=F64)
FORWARD = FUNCTIONS | {
    "product of matrices": lambda x: torch.outer(x, x) @ (torch.outer(x, x.sin()) + EYE),
    "mean": lambda x: (x * x).mean() + x.var(), "extremes": lambda x: x.max() * x.cummax(0).values,
    "products": lambda x: x.prod() * x.cumprod(0), "logsumexp": lambda x: x.logsumexp(0),
    "cholesky": lambda x: torch.linalg.cholesky(torch.outer(x, x) + EYE),
    "eigenvalues": lambda x: torch.linalg.eigvalsh(torch.diag(x) + torch.outer(x, x)),
    "singular values": lambda x: torch.linalg.svdvals(torch.diag(x) + torch.outer(x, x)),
    "lu": lambda x: torch.linalg.lu(torch.outer(x, x) + EYE)[2],
    "several views": lambda x: torch.stack([a * b for a, b in zip(x.unbind(), x.split(1),
                                                                  strict=True)]),
    "parts written": lambda x: torch.zeros(2, 3, dtype=F64).index_put(
        (torch.tensor([1]),), x * x) * x, "broadcast": lambda x: (x + EYE[0][:, None]) * x[0],
    "types": lambda x: (x.float() * 2).double(),
    "complex": lambda x: (torch.complex(x, x * x).exp() * torch.complex(x, x).conj()).real,
    "spectrum": lambda x: torch.fft.rfft(x).abs(),
}


@pytest.mark.parametrize("name", FORWARD)
def test_one_pass_forward_is_as_going_back_twice(name):
    x, v = t(0.5, 0.7, 0.9), t(1.0, -2.0, 0.5)
    forward, back = both_ways(FORWARD[name], x, v)
    assert torch.allclose(forward, back, rtol=1e-12, atol=1e-14)


def written(x):
    y = torch.complex(x, x * 2)
    y.real[1:].mul_(x[0])
    y.imag[0] = x[2]
    z = x.clone()
    z[:2] = x[1:] * x[0]
    return torch.view_as_real(y).sum(1) * z


def test_what_is_written_has_a_tangent():
    forward, back = both_ways(written, t(0.5, 0.7, 0.9), t(1.0, -2.0, 0.5))
    assert torch.allclose(forward, back, rtol=1e-13)


@pytest.mark.parametrize("name", FORWARD)
def test_columns_are_rows(name):
    x = t(0.5, 0.7, 0.9)
    columns, rows = torch.func.jacfwd(FORWARD[name])(x), torch.func.jacrev(FORWARD[name])(x)
    assert torch.allclose(columns, rows, rtol=1e-12, atol=1e-14)


def test_forward_mode_is_asked_for_by_name():
    x = t(1.0, 2.0)
    options = {"vectorize": True, "strategy": "forward-mode"}
    jacobian = torch.autograd.functional.jacobian
    (a, b), (c, d) = jacobian(lambda x, y: (x * y, x.sum()), (x, x[:1]), **options)
    assert a.tolist() == [[1.0, 0.0], [0.0, 1.0]] and b.tolist() == [[1.0], [2.0]]
    assert c.tolist() == [1.0, 1.0] and d.tolist() == [0.0]
    h = torch.autograd.functional.hessian(
        lambda x: (x**3).sum(), x, vectorize=True, outer_jacobian_strategy="forward-mode")
    assert h.tolist() == [[6.0, 0.0], [0.0, 12.0]]
    with pytest.raises(NotImplementedError, match="only implemented for `vectorize=True`"):
        jacobian(torch.sin, x, strategy="forward-mode")
    with pytest.raises(NotImplementedError, match="are not supported together"):
        jacobian(torch.sin, x, create_graph=True, **options)


def test_the_jvp_of_a_function_is_used_by_func():
    before = Cube.calls
    assert torch.func.jvp(Cube.apply, (t(2.0),), (t(1.0),))[1].tolist() == [12.0]
    assert torch.func.jacfwd(Cube.apply)(t(2.0, 3.0)).tolist() == [[12.0, 0.0], [0.0, 27.0]]
    assert Cube.calls == before + 3


def test_a_jvp_of_another_size_is_an_error():
    class Wrong(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def jvp(ctx, v):
            return v[:1]

    class Many(Wrong):
        @staticmethod
        def jvp(ctx, v):
            return v, v

    x = t(1.0, 2.0)
    with fw.dual_level(), pytest.raises(RuntimeError, match=r"size \[2\] while .* \[1\], from"):
        Wrong.apply(fw.make_dual(x, x))
    with pytest.raises(RuntimeError, match=r"number of gradients \(expected 1, got 2\)"):
        torch.func.jvp(Many.apply, (x,), (x,))


def test_a_gradient_by_func_has_a_tangent():
    x = t(2.0, 3.0)
    with fw.dual_level():
        g = torch.func.grad(lambda x: (x**3).sum())(fw.make_dual(x, t(1.0, 10.0)))
        assert fw.unpack_dual(g).tangent.tolist() == [12.0, 180.0]


@pytest.mark.parametrize("writes", [True, False])
def test_the_tangent_of_a_function_in_place_is_of_what_its_argument_was(writes):
    class Double(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def jvp(ctx, v):
            return v.mul_(2) if writes else v * 2

    with fw.dual_level():
        x = fw.make_dual(t(3.0, 4.0), t(1.0, 10.0))
        assert fw.unpack_dual(Double.apply(x.clone())).tangent.tolist() == [2.0, 20.0]
        assert fw.unpack_dual(x).tangent.tolist() == [1.0, 10.0]


def test_the_level_that_is_open_has_a_number():
    assert fw._current_level == -1
    with fw.dual_level() as level:
        assert fw._current_level == level == 0
