"""``torch.autograd.functional``: errors begin with torch's sentences, graphs are as there."""

import pytest

import functrans.torch as torch
from functrans.torch.autograd import functional, gradcheck, gradgradcheck

F64 = torch.float64
PRODUCTS = ("vjp", "jvp", "vhp", "hvp")
SCALAR = ("vhp", "hvp", "hessian")
ALL = (*PRODUCTS, "jacobian", "hessian")


def point(*shape, requires_grad=False):
    x = torch.linspace(0.2, 0.9, max(1, torch.Size(shape).numel()), dtype=F64).reshape(shape)
    return x.requires_grad_(requires_grad)


def head(a):
    return 3 * a.narrow(0, 0, 3)


def total(a):
    return head(a).exp().sum()


def vector(name):
    return point(3) if name == "vjp" else point(4)


def call(name, f, x, **options):
    """The derivative of ``f`` at ``x`` by ``name``; if it is a product, with ones."""
    if name not in PRODUCTS:
        return getattr(functional, name)(f, x, **options)
    v = torch.ones(4, dtype=F64)
    return getattr(functional, name)(f, x, v, **options)[1]


@pytest.mark.parametrize("name", ALL)
def test_inputs_and_outputs_are_tensors(name):
    f, g = (total if name in SCALAR else head), getattr(functional, name)
    args = (vector(name),) if name in PRODUCTS else ()
    start = f"The inputs given to {name} must be either a Tensor or a tuple of Tensors"
    with pytest.raises(TypeError, match=f"{start} but the value at index 1 has type .*int"):
        g(f, (point(4), 2), *args)
    with pytest.raises(TypeError, match=f"{start} but the given inputs has type .*int"):
        g(f, 2, *args)
    with pytest.raises(TypeError, match=f"outputs of the user-provided function given to {name}"):
        g(lambda a: (f(a), "bar"), point(4), *args)


@pytest.mark.parametrize(("name", "start"), [
    ("vjp", "if the user-provided function returns a single Tensor"),
    ("jvp", "if the input to the user-provided function is a single Tensor"),
])
def test_a_vector_is_there_and_fits(name, start):
    x, f = point(4), getattr(functional, name)
    with pytest.raises(RuntimeError, match=f"The vector v can only be None {start}"):
        f(head, x)
    with pytest.raises(RuntimeError, match=r"The given v should contain a single Tensor\."):
        f(head, x, (vector(name), vector(name)))
    with pytest.raises(RuntimeError, match=r"^v has invalid size: should be torch\.Size"):
        f(head, x, vector(name)[:2])


def test_vectors_are_nested_as_what_they_are_multiplied_with():
    def add(a, b):
        return a + b

    x = (point(2), point(2))
    with pytest.raises(RuntimeError, match="v is a tuple of invalid length: should be 2 but got 1"):
        functional.jvp(add, x, (point(2),))
    with pytest.raises(RuntimeError, match=r"Entry 1 in v has invalid size: should be torch\.Size"):
        functional.jvp(add, x, (point(2), point(3)))
    with pytest.raises(TypeError, match="The v given to hvp must be either a Tensor or a tuple"):
        functional.hvp(total, point(4), (point(4), 2))


@pytest.mark.parametrize("name", SCALAR)
def test_second_derivatives_are_of_a_tensor_of_one_element(name):
    with pytest.raises(RuntimeError, match=(
            f"The Tensor returned by the function given to {name} should contain a single elem")):
        call(name, head, point(4))
    with pytest.raises(RuntimeError, match=(
            f"The function given to {name} should return a single Tensor")):
        call(name, lambda a: (head(a), head(a)), point(4))
    shape = call(name, lambda a: a.sum().view(1, 1, 1), point(4)).shape
    assert shape == ((4,) if name in PRODUCTS else (4, 4))


@pytest.mark.parametrize("name", ALL)
def test_a_strict_derivative_is_not_of_a_constant(name):
    def end(a):
        return a.sum() if name in SCALAR else a

    def detached(a):
        return end(a.detach())

    def unconnected(a):
        return end(a.long().double().requires_grad_().clone())

    x = point(4)
    with pytest.raises(RuntimeError, match=(
            r"Output 0 of the user-provided function does not require gradients\.")):
        call(name, detached, x, strict=True)
    independent = {
        "jacobian": "Output 0 of the user-provided function is independent of input 0",
        "hessian": "jacobian of the user-provided function with respect to input 0 is independent",
    }.get(name, "The output of the user-provided function is independent of input 0")
    with pytest.raises(RuntimeError, match=independent):
        call(name, unconnected, x, strict=True)
    for f in (detached, unconnected):
        assert not call(name, f, x).any()


@pytest.mark.parametrize("name", SCALAR)
def test_a_strict_hessian_is_not_of_a_linear_function(name):
    with pytest.raises(RuntimeError, match=(
            "While computing the hessian, found that the jacobian of the user-provided function "
            "with respect to input 0 is independent of the input")):
        call(name, lambda a: (3 * a).sum(), point(4), strict=True)


@pytest.mark.parametrize("name", ["vjp", "jvp", "jacobian"])
def test_a_strict_derivative_with_a_graph_is_not_constant(name):
    x = point(4, requires_grad=True)
    with pytest.raises(RuntimeError, match=(
            "The jacobian of the user-provided function is independent of input 0")):
        call(name, lambda a: a.clone(), x, create_graph=True, strict=True)


@pytest.mark.parametrize("name", ["jacobian", "hessian"])
def test_strict_and_vectorize_exclude_each_other(name):
    with pytest.raises(RuntimeError, match=r"`vectorized=True`.*are not supported together"):
        call(name, lambda x: (x**3).sum(), point(4), strict=True, vectorize=True)


@pytest.mark.parametrize("name", ALL)
def test_derivatives_are_taken_inside_no_grad(name):
    def f(x):
        return x.exp().sum() if name in SCALAR else x.exp()

    x = point(4)
    with torch.no_grad():
        assert call(name, f, x).grad_fn is None
        assert call(name, f, x.requires_grad_(), create_graph=True).grad_fn is not None


def couple(x, y):
    return 2 * x + 3 * y, x * y


@pytest.mark.parametrize("product", [functional.vjp, functional.jvp])
def test_products_within_a_function_are_differentiated_twice(product):
    def f(*args):
        x, y = args[:2]
        x = x.cos()
        values, found = product(couple, (x, y), args[2:], create_graph=True)
        return sum([t.exp() for t in (*values, *found, x, y)])

    xs = [point(2, requires_grad=True) for _ in range(4)]
    assert gradcheck(f, xs) and gradgradcheck(f, xs)


@pytest.mark.parametrize("vectorize", [True, False])
@pytest.mark.parametrize("name", ["jacobian", "hessian"])
def test_matrices_within_a_function_are_differentiated_twice(name, vectorize):
    def inner(x, y):
        return (x + y).pow(3).sum() if name == "hessian" else (x + y).exp().sum(dim=1)

    def f(x, y):
        x = x.cos()
        first, second = call(name, inner, (x, y), create_graph=True, vectorize=vectorize)
        return first[0].cos().sum() + second[1].cos().sum() + x.sum() + y.exp().sum()

    xs = [point(2, 2, requires_grad=True) for _ in range(2)]
    assert gradcheck(f, xs) and gradgradcheck(f, xs)


def test_the_strategy_has_a_name_and_changes_no_number():
    def f(x):
        return x**3

    x = point(3)
    forward = functional.jacobian(f, x, strategy="forward-mode", vectorize=True)
    assert torch.equal(forward, functional.jacobian(f, x))
    hessian = functional.hessian(lambda x: f(x).sum(), x, outer_jacobian_strategy="forward-mode",
                                 vectorize=True)
    assert torch.equal(hessian, functional.hessian(lambda x: f(x).sum(), x))
    with pytest.raises(AssertionError, match="Expected strategy to be either"):
        functional.jacobian(f, x, strategy="sideways")


def test_the_basis_of_several_tensors_is_cut_from_a_unit_matrix():
    tensors = (torch.zeros(2, dtype=F64), torch.zeros(3))
    rows = functional._construct_standard_basis_for(tensors, (2, 3))
    assert [t.dtype for t in rows] == [F64, torch.float32]
    assert torch.equal(torch.cat([t.float() for t in rows], dim=1), torch.eye(5))
