"""The functional API: section B of the checklist, and L4."""

import numpy as np
import pytest

import functrans.torch as torch
from functrans.torch.autograd import Function
from functrans.torch.autograd.functional import hessian, hvp, jacobian, jvp, vhp, vjp

X = np.array([[0.3, -0.5], [1.2, 0.7]])
A, B = np.array([0.4, 0.9]), np.array([0.2, -0.6])


def t(a, **options):
    return torch.tensor(a, dtype=torch.float64, **options)


def close(found, expected):
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-14, atol=0)


# ---- the functions of the documents


def exp_reducer(x):
    return x.exp().sum(dim=1)


def exp_adder(x, y):
    return 2 * x.exp() + 3 * y


def pow_reducer(x):
    return x.pow(3).sum()


def pow_adder_reducer(x, y):
    return (2 * x.pow(2) + 3 * y.pow(2)).sum()


def adder(x, y):
    return 2 * x + 3 * y


ROWS = np.einsum("ij,ik->ijk", np.eye(2), np.exp(X))
CUBIC = np.diag(6 * X.ravel()).reshape(2, 2, 2, 2)


@pytest.mark.parametrize("vectorize", [False, True])
def test_the_jacobians_of_the_documents(vectorize):
    close(jacobian(exp_reducer, t(X), vectorize=vectorize), ROWS)
    in_x, in_y = jacobian(exp_adder, (t(A), t(B)), vectorize=vectorize)
    close(in_x, np.diag(2 * np.exp(A)))
    close(in_y, 3 * np.eye(2))


@pytest.mark.parametrize("vectorize", [False, True])
def test_the_hessians_of_the_documents(vectorize):
    close(hessian(pow_reducer, t(X), vectorize=vectorize), CUBIC)
    (xx, xy), (yx, yy) = hessian(pow_adder_reducer, (t(A), t(B)), vectorize=vectorize)
    for found, factor in ((xx, 4), (xy, 0), (yx, 0), (yy, 6)):
        close(found, factor * np.eye(2))


def test_the_vjps_of_the_documents():
    out, product = vjp(exp_reducer, t(X), t([1.0, 10.0]))
    close(out, np.exp(X).sum(1))
    close(product, np.exp(X) * [[1.0], [10.0]])
    _, (in_x, in_y) = vjp(adder, (t(A), t(B)), t([1.0, 1.0]))
    assert (in_x.tolist(), in_y.tolist()) == ([2.0, 2.0], [3.0, 3.0])


def test_the_jvps_of_the_documents():
    out, product = jvp(exp_reducer, t(X), t([[1.0, 1.0], [1.0, 10.0]]))
    close(out, np.exp(X).sum(1))
    close(product, np.exp(X) @ [[1.0, 0.0], [1.0, 0.0]] @ [1.0, 0.0] + [0, 9 * np.exp(0.7)])
    _, product = jvp(adder, (t(A), t(B)), (t([1.0, 1.0]), t([1.0, 1.0])))
    assert product.tolist() == [5.0, 5.0]


@pytest.mark.parametrize("product", [vhp, hvp])
def test_the_hessian_products_of_the_documents(product):
    V = np.array([[1.0, 2.0], [3.0, 4.0]])
    out, found = product(pow_reducer, t(X), t(V))
    close(out, (X**3).sum())
    close(found, 6 * X * V)
    _, (in_x, in_y) = product(pow_adder_reducer, (t(A), t(B)), (t([0.0, 0.0]), t([1.0, 1.0])))
    assert (in_x.tolist(), in_y.tolist()) == ([0.0, 0.0], [6.0, 6.0])


# ---- products with a matrix that is not symmetric, and mixed inputs


M = np.array([[1.0, 2.0, -1.0], [0.5, -3.0, 4.0]])


def test_vjp_and_jvp_are_products_from_the_left_and_from_the_right():
    def f(x):
        return t(M) @ x

    x, u, v = t([1.0, 2.0, 3.0]), np.array([2.0, -1.0]), np.array([1.0, 5.0, -2.0])
    close(vjp(f, x, t(u))[1], u @ M)
    close(jvp(f, x, t(v))[1], M @ v)
    close(jacobian(f, x), M)


@pytest.mark.parametrize("product", [vhp, hvp])
def test_hessian_products_couple_the_inputs(product):
    v = (t([1.0, 2.0]), t([10.0]))
    out, (in_x, in_y) = product(lambda x, y: (x * x * y).sum(), (t([3.0, 4.0]), t([5.0])), v)
    assert out.item() == 125.0
    assert in_x.tolist() == [2 * 5 * 1 + 2 * 3 * 10, 2 * 5 * 2 + 2 * 4 * 10]
    assert in_y.tolist() == [2 * 3 * 1 + 2 * 4 * 2]


# ---- nesting, shapes and types


def two_outputs(x, y):
    return x * y.sum(), y.exp(), x.sum()


@pytest.mark.parametrize("vectorize", [False, True])
def test_a_jacobian_is_nested_by_outputs_then_inputs(vectorize):
    x, y = t([1.0, 2.0, 3.0]), t([4.0, 5.0])
    J = jacobian(two_outputs, (x, y), vectorize=vectorize)
    assert [[tuple(b.shape) for b in row] for row in J] == [
        [(3, 3), (3, 2)], [(2, 3), (2, 2)], [(3,), (2,)]]
    close(J[0][0], 9 * np.eye(3))
    close(J[0][1], np.outer([1.0, 2.0, 3.0], [1.0, 1.0]))
    close(J[1][1], np.diag(np.exp([4.0, 5.0])))
    assert J[1][0].tolist() == np.zeros((2, 3)).tolist()
    assert J[2][0].tolist() == [1.0, 1.0, 1.0]


def test_a_tuple_on_one_side_gives_a_tuple():
    x = t([1.0, 2.0])
    one = jacobian(lambda x: (x * x,), x)
    assert type(one) is tuple and one[0].tolist() == [[2.0, 0.0], [0.0, 4.0]]
    (other,) = jacobian(lambda x: x * x, (x,))
    assert other.tolist() == [[2.0, 0.0], [0.0, 4.0]]
    ((both,),) = jacobian(lambda x: (x * x,), (x,))
    assert both.tolist() == other.tolist()


def test_products_are_nested_as_what_they_belong_to():
    x, y = t([1.0, 2.0]), t([3.0])
    outs, products = jvp(two_outputs, (x, y), (t([1.0, 0.0]), t([1.0])))
    assert len(outs) == len(products) == 3
    assert products[0].tolist() == [3.0 + 1.0, 2.0] and products[2].item() == 1.0
    outs, (in_x, in_y) = vjp(two_outputs, (x, y), (t([1.0, 1.0]), t([0.0]), t(2.0)))
    assert in_x.tolist() == [5.0, 5.0] and in_y.tolist() == [3.0]


def test_results_have_the_type_of_the_input():
    x = torch.tensor([1.0, 2.0], dtype=torch.float32)
    assert jacobian(lambda x: x.double() ** 2, x).dtype is torch.float32
    assert jacobian(lambda x: x.float() ** 2, t([1.0])).dtype is torch.float64


@pytest.mark.parametrize("vectorize", [False, True])
def test_empty_inputs_and_outputs_have_empty_jacobians(vectorize):
    assert tuple(jacobian(lambda x: x[:0], t(A), vectorize=vectorize).shape) == (0, 2)
    empty = torch.zeros(0, dtype=torch.float64)
    assert tuple(jacobian(lambda x: x * 2, empty, vectorize=vectorize).shape) == (0, 0)
    assert tuple(jacobian(lambda x: x.sum(), empty, vectorize=vectorize).shape) == (0,)


# ---- v


def test_v_is_left_out_for_a_single_number():
    assert vjp(pow_reducer, t([2.0]))[1].tolist() == [12.0]
    assert jvp(lambda x: x * t([1.0, 2.0]), t([3.0]))[1].tolist() == [1.0, 2.0]
    assert vhp(pow_reducer, t([2.0]))[1].tolist() == [12.0]
    assert hvp(pow_reducer, t([2.0]))[1].tolist() == [12.0]


@pytest.mark.parametrize(("product", "f", "side"), [
    (vjp, exp_reducer, "user-provided function returns"), (jvp, exp_reducer, "input"),
    (vhp, pow_reducer, "input"), (hvp, pow_reducer, "input"),
])
def test_v_must_be_there_and_fit(product, f, side):
    with pytest.raises(RuntimeError, match=f"v can only be None if the {side}.*single element"):
        product(f, t(X))
    with pytest.raises(RuntimeError, match=r"v has invalid size: .*got torch.Size\(\[3\]\)"):
        product(f, t(X), t([1.0, 2.0, 3.0]))
    with pytest.raises(RuntimeError, match=r"The given v should contain a single Tensor\."):
        product(f, t(X), (t(X), t(X)))


def test_functions_take_and_return_tensors():
    with pytest.raises(TypeError, match=r"inputs given to jacobian must be either a Tensor.*float"):
        jacobian(exp_reducer, 1.0)
    with pytest.raises(TypeError, match=r"value at index 1 has type <class .int"):
        jacobian(adder, (t(A), 1))
    with pytest.raises(TypeError, match=r"user-provided function given to vjp.*has type .*float"):
        vjp(lambda x: 2.0, t(A))


@pytest.mark.parametrize("f", [exp_reducer, lambda x: (x.sum(),)], ids=["several", "tuple"])
@pytest.mark.parametrize("product", [hessian, vhp, hvp])
def test_a_hessian_is_of_one_number(product, f):
    with pytest.raises(RuntimeError, match=f"given to {product.__name__} should .*a single"):
        product(f, t(X))


# ---- create_graph


def test_results_are_plain_without_create_graph():
    x = t(X, requires_grad=True)
    assert not jacobian(exp_reducer, x).requires_grad
    assert not any(r.requires_grad for r in vjp(pow_reducer, x))
    assert x.grad is None


@pytest.mark.parametrize("vectorize", [False, True])
def test_with_create_graph_results_are_differentiated(vectorize):
    x = t(X, requires_grad=True)
    (g,) = torch.autograd.grad(
        jacobian(exp_reducer, x, create_graph=True, vectorize=vectorize).sum(), x)
    close(g, np.exp(X))
    H = hessian(pow_reducer, x, create_graph=True, vectorize=vectorize)
    (g,) = torch.autograd.grad(H.sum(), x)
    assert g.tolist() == np.full((2, 2), 6.0).tolist()


@pytest.mark.parametrize(("product", "expected"), [
    (vjp, 6 * X), (jvp, 6 * X), (vhp, np.full((2, 2), 6.0)), (hvp, np.full((2, 2), 6.0)),
])
def test_products_with_create_graph_are_differentiated(product, expected):
    x = t(X, requires_grad=True)
    v = t(1.0) if product is vjp else torch.ones(2, 2, dtype=torch.float64)
    out, found = product(pow_reducer, x, v, create_graph=True)
    (g,) = torch.autograd.grad(found.sum(), x, retain_graph=True)
    close(g, expected)
    (g,) = torch.autograd.grad(out, x)
    close(g, 3 * X**2)


def test_v_is_differentiated_too():
    v = t([1.0, 2.0], requires_grad=True)
    _, found = vjp(lambda x: t(M) @ x, t([1.0, 2.0, 3.0]), v, create_graph=True)
    (g,) = torch.autograd.grad(found.sum(), v)
    close(g, M.sum(1))


def test_a_function_may_change_its_input_in_place():
    x = t(A)
    close(jacobian(lambda x: x.mul_(2).exp(), x), np.diag(2 * np.exp(2 * A)))
    assert x.tolist() == A.tolist()


# ---- strict


def ignores_second(x, y):
    return x * x


@pytest.mark.parametrize("call", [
    lambda strict: jacobian(ignores_second, (t(A), t(B)), strict=strict)[1],
    lambda strict: vjp(ignores_second, (t(A), t(B)), t(A), strict=strict)[1][1],
    lambda strict: hessian(lambda x, y: (x * x).sum(), (t(A), t(B)), strict=strict)[1][1],
    lambda strict: vhp(lambda x, y: (x * x).sum(), (t(A), t(B)), (t(A), t(B)), strict=strict)[1][1],
    lambda strict: hvp(lambda x, y: (x * x).sum(), (t(A), t(B)), (t(A), t(B)), strict=strict)[1][1],
], ids=["jacobian", "vjp", "hessian", "vhp", "hvp"])
def test_independence_is_zero_or_an_error_when_strict(call):
    assert not call(False).any()
    with pytest.raises(RuntimeError, match=r"input 1.*strict mode"):
        call(True)


def test_an_output_that_depends_on_nothing_is_zero_or_an_error_when_strict():
    def constant(x):
        return torch.ones(2, dtype=torch.float64)

    assert jacobian(constant, t(A)).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    assert jvp(constant, t(A), t(A))[1].tolist() == [0.0, 0.0]
    for call in (lambda: jacobian(constant, t(A), strict=True),
                 lambda: jvp(constant, t(A), t(A), strict=True)):
        with pytest.raises(RuntimeError, match=r"Output 0 .* does not require gradients.*strict"):
            call()


def test_a_constant_derivative_cannot_be_differentiated_in_strict_mode():
    x = t(A, requires_grad=True)
    assert not jacobian(lambda x: 2 * x, x, create_graph=True).requires_grad
    with pytest.raises(RuntimeError, match=r"jacobian of the .*independent of input 0"):
        jacobian(lambda x: 2 * x, x, create_graph=True, strict=True)


# ---- what is special


@pytest.mark.parametrize("vectorize", [False, True])
def test_custom_functions_and_hooks_have_jacobians_too(vectorize):
    class Cube(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx, g):
            return g * 3 * ctx.saved_tensors[0] ** 2

    close(jacobian(lambda x: Cube.apply(x).flip(0), t(A), vectorize=vectorize),
          np.diag(3 * A**2)[::-1])

    def hooked(x):
        y = x * x
        y.register_hook(lambda g: g * 10)
        return y

    close(jacobian(hooked, t(A), vectorize=vectorize), np.diag(20 * A))


@pytest.mark.parametrize("product", [lambda x: jvp(torch.sqrt, x, t([1.0, 1.0]))[1],
                                     lambda x: vjp(torch.sqrt, x, t([1.0, 1.0]))[1]])
def test_products_at_an_infinite_slope_agree(product):
    assert product(t([0.0, 4.0])).tolist() == [np.inf, 0.25]


@pytest.mark.parametrize("vectorize", [False, True])
def test_real_jacobians_of_complex_inputs_follow_the_convention(vectorize):
    z = torch.tensor([3 + 4j, 1 - 1j], dtype=torch.complex128)
    J = jacobian(lambda z: z.real**2 + z.imag**2, z, vectorize=vectorize)
    close(J, np.diag([6 + 8j, 2 - 2j]))


@pytest.mark.parametrize("vectorize", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_jacobians_of_complex_outputs_are_taken_in_parts(dtype, vectorize):
    x = torch.tensor([0.5, 2.0], dtype=dtype)

    def f(x):
        return x * x * (1 + 2j)

    with pytest.raises(RuntimeError, match="only half the derivative"):
        jacobian(f, x, vectorize=vectorize)
    real = jacobian(lambda x: f(x).real, x, vectorize=vectorize)
    imag = jacobian(lambda x: f(x).imag, x, vectorize=vectorize)
    slope = np.diag([1.0, 4.0])
    if dtype is torch.float64:
        close(real, slope)
        close(imag, 2 * slope)
    else:  # f' = 2 z (1 + 2i): conj(f') and its gradient of the imaginary part, i conj(f')
        close(real, slope * (1 - 2j))
        close(imag, slope * (1 - 2j) * 1j)


def overwritten(x):
    y = x * 1
    y[0] = x[1] * x[2]
    y.view(-1)[2:5].mul_(x.view(-1)[:3])
    return y


@pytest.mark.parametrize("f", [
    overwritten, torch.sum, torch.mean, torch.prod, torch.linalg.inv, torch.sigmoid, torch.relu,
    lambda x: x @ x, lambda x: x.sum(0), lambda x: x[[0, 2]], lambda x: x[x > 0.5],
    lambda x: torch.cat([x, x * x], 1), lambda x: x.max(1)[0], lambda x: x.sort(0)[0],
    lambda x: x.clamp(0.2, 0.6), lambda x: x.gather(1, torch.tensor([[0, 1], [2, 2], [1, 0]])),
    lambda x: torch.log_softmax(x, 1), lambda x: x.cumprod(1), lambda x: x.float().double() ** 2,
    lambda x: torch.complex(x, x * x).abs(), lambda x: torch.where(x > 0.5, x.sqrt(), x),
    lambda x: x[0].expand(4, 3) * x[1], lambda x: torch.linalg.solve(x, x.t()),
])
def test_rows_at_once_are_the_rows_one_by_one_also_differentiated(f):
    x = t(np.random.default_rng(0).normal(size=(3, 3)) * 0.3 + 0.5, requires_grad=True)
    for g in (f, lambda x: jacobian(f, x, create_graph=True)):
        expected = jacobian(g, x).numpy()
        found = jacobian(g, x, vectorize=True)
        np.testing.assert_allclose(found.numpy(), expected, rtol=1e-13, atol=1e-13)
    H = [
        jacobian(lambda x, v=v: jacobian(f, x, create_graph=True, vectorize=v), x).numpy()
        for v in (False, True)
    ]
    np.testing.assert_allclose(*H, rtol=1e-13, atol=1e-13)
