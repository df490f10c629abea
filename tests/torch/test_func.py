"""``torch.func``: derivatives of functions of tensors, nested, batched, and of modules."""

import pytest

import functrans.torch as torch
from functrans.torch import func
from functrans.torch.autograd import Function

F64 = torch.float64


def t(*values, **options):
    return torch.tensor(values, dtype=F64, **options)


def loss(w, x):
    return ((x @ w).tanh() ** 2).sum()


def test_gradients_are_of_the_arguments_that_are_asked_for():
    w, x = t(1.0, 2.0), t(3.0, 4.0)
    assert func.grad(lambda w, x: (w * x).sum())(w, x).tolist() == [3.0, 4.0]
    a, b = func.grad(lambda w, x: (w * x).sum(), argnums=(0, 1))(w, x)
    assert a.tolist() == [3.0, 4.0] and b.tolist() == [1.0, 2.0]
    g, value = func.grad_and_value(lambda p: (p["w"] * p["b"]).sum())({"w": w, "b": x})
    assert g["w"].tolist() == [3.0, 4.0] and value.item() == 11.0 and not value.requires_grad
    g, aux = func.grad(lambda w: ((w * w).sum(), w * 3), has_aux=True)(w)
    assert g.tolist() == [2.0, 4.0] and aux.tolist() == [3.0, 6.0] and not aux.requires_grad
    assert w.grad is None and not g.requires_grad


def test_gradients_nest():
    cube = func.grad(func.grad(func.grad(lambda x: x**4)))
    assert cube(torch.tensor(2.0, dtype=F64)).item() == 48.0
    # what an inner gradient closes over is differentiated by the outer one
    mixed = func.grad(lambda x: func.grad(lambda y: x**2 * y**3)(x))
    assert mixed(torch.tensor(2.0, dtype=F64)).item() == 4 * 3 * 8.0


def test_results_are_differentiated_in_what_is_outside():
    w, x = t(1.0, 2.0, requires_grad=True), t(3.0, 4.0)
    g = func.grad(lambda x: (w * x**2).sum())(x)
    assert g.requires_grad
    g.sum().backward()
    assert w.grad.tolist() == [6.0, 8.0]
    (h,) = torch.autograd.grad(func.grad(lambda w: (w**3).sum())(w).sum(), w)
    assert h.tolist() == [6.0, 12.0]


def test_products_with_jacobians():
    x, v = t(1.0, 2.0), t(1.0, 10.0)
    y, pullback = func.vjp(lambda x: x**3, x)
    assert y.tolist() == [1.0, 8.0] and pullback(v)[0].tolist() == [3.0, 120.0]
    assert pullback(v)[0].tolist() == [3.0, 120.0]
    y, pullback, aux = func.vjp(lambda x, y: ((x * y, x.sum()), "aux"), x, v, has_aux=True)
    gx, gy = pullback((v, torch.tensor(1.0, dtype=F64)))
    assert gx.tolist() == [2.0, 101.0] and gy.tolist() == [1.0, 20.0] and aux == "aux"
    y, tangent = func.jvp(lambda x: x**3, (x,), (v,))
    assert y.tolist() == [1.0, 8.0] and tangent.tolist() == [3.0, 120.0]
    _, tangent = func.jvp(func.grad(lambda x: (x**3).sum()), (x,), (v,))  # hvp
    assert tangent.tolist() == [6.0, 120.0]
    y, pushforward = func.linearize(lambda x: x**3, x)
    assert y.tolist() == [1.0, 8.0] and pushforward(v).tolist() == [3.0, 120.0]
    assert func.jvp(lambda x: t(1.0), (x,), (v,))[1].tolist() == [0.0]


def test_jacobians_and_hessians():
    w, x = t(1.0, 0.5), torch.linspace(0.1, 1.0, 6, dtype=F64).reshape(3, 2)
    truth = torch.autograd.functional.jacobian(lambda w: (x @ w).tanh(), w)
    assert torch.allclose(func.jacrev(lambda w: (x @ w).tanh())(w), truth)
    assert torch.allclose(func.jacfwd(lambda w: (x @ w).tanh())(w), truth)
    H = torch.autograd.functional.hessian(lambda w: loss(w, x), w)
    assert torch.allclose(func.hessian(loss)(w, x), H)
    assert torch.allclose(func.jacfwd(func.grad(loss))(w, x), H)
    both = func.jacrev(lambda w, x: (w * 2, {"x": x.sum()}), argnums=(0, 1))(w, x)
    assert both[0][0].tolist() == [[2.0, 0.0], [0.0, 2.0]] and both[1]["x"][1].tolist() == [
        [1.0, 1.0]] * 3
    J, aux = func.jacrev(lambda w: (w, w * 2), has_aux=True)(w)
    assert torch.equal(J, torch.eye(2, dtype=F64)) and aux.tolist() == [2.0, 1.0]


def test_a_batch_is_mapped():
    w, x = t(1.0, 0.5), torch.linspace(0.1, 1.0, 6, dtype=F64).reshape(3, 2)
    each = func.vmap(func.grad(loss), in_dims=(None, 0))(w, x)
    truth = torch.stack([func.grad(loss)(w, row) for row in x])
    # of a batch the slope of tanh is taken by another formula
    assert torch.allclose(each, truth, rtol=1e-14, atol=0)
    assert func.vmap(torch.dot, in_dims=(1, 0))(x, torch.ones(2, 3, dtype=F64)).shape == (2,)
    assert torch.vmap(lambda r: r * 2, out_dims=1)(x).shape == (2, 3)
    out = func.vmap(lambda d, s: {"a": d["x"] * s, "b": d["y"]}, in_dims=({"x": 0, "y": None}, 0))(
        {"x": x, "y": w}, t(1.0, 2.0, 3.0))
    assert out["a"].shape == out["b"].shape == (3, 2)
    nested = func.vmap(func.vmap(torch.mul, in_dims=(None, 0)), in_dims=(0, None))(w, w)
    assert torch.equal(nested, torch.outer(w, w))
    assert func.vmap(lambda a, b: a + b)(x, b=x).shape == (3, 3, 2)


def test_a_batch_is_differentiated():
    x = torch.linspace(0.1, 1.0, 6, dtype=F64).reshape(3, 2).requires_grad_()
    func.vmap(lambda r: (r**2).sum())(x).sum().backward()
    assert torch.allclose(x.grad, 2 * x.detach())


def in_a_loop(r, generator):
    r = r.clone()
    r[0] = 1.0  # in place, which goes entry by entry
    return r + torch.rand(2, generator=generator)


@pytest.mark.parametrize("f", [lambda r, g: r + torch.rand(2, generator=g), in_a_loop],
                         ids=["at once", "in a loop"])
def test_randomness_of_a_batch_is_that_of_generators_too(f):
    x, g = torch.zeros(4, 2), torch.Generator()
    with pytest.raises(RuntimeError, match="random operation while in randomness error mode"):
        func.vmap(lambda r: f(r, g))(x)
    for chunk in (None, 2):
        same = func.vmap(lambda r: f(r, g), randomness="same", chunk_size=chunk)(x)
        assert torch.equal(same, same[:1].expand(4, 2))
        other = func.vmap(lambda r: f(r, g), randomness="different", chunk_size=chunk)(x)
        assert len({row[0] for row in other.tolist()}) == 4


def test_randomness_of_a_batch_in_a_batch_is_the_outer_ones_too():
    def f(r):
        return func.vmap(lambda v: v + torch.rand(()), randomness="different")(r)

    with pytest.raises(RuntimeError, match="random operation while in randomness error mode"):
        func.vmap(f)(torch.zeros(2, 3))


def test_randomness_of_a_batch_is_asked_for():
    x = torch.zeros(3, 2)
    with pytest.raises(RuntimeError, match="random operation while in randomness error mode"):
        func.vmap(lambda r: r + torch.rand(2))(x)
    same = func.vmap(lambda r: r + torch.rand(2), randomness="same")(x)
    assert torch.equal(same[0], same[1]) and torch.equal(same[1], same[2])
    other = func.vmap(lambda r: r + torch.rand(2), randomness="different")(x)
    assert not torch.equal(other[0], other[1])
    with pytest.raises(RuntimeError, match="Only allowed values for randomness"):
        func.vmap(torch.sin, randomness="some")


class Sorted(Function):
    generate_vmap_rule = False
    batches = 0

    @staticmethod
    def forward(x, dim):
        return torch.sort(x, dim)[0]

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g, None

    @staticmethod
    def vmap(info, in_dims, x, dim):
        Sorted.batches += info.batch_size
        x = x.movedim(in_dims[0], 0)
        return Sorted.apply(x, dim + 1 if dim >= 0 else dim), 0


def test_a_function_with_a_rule_gets_the_whole_batch():
    x = t(3.0, 1.0, 2.0, 0.0).reshape(2, 2)
    assert func.vmap(Sorted.apply, in_dims=(1, None))(x, 0).tolist() == [[2.0, 3.0], [0.0, 1.0]]
    assert Sorted.batches == 2
    assert func.vmap(Sorted.apply, in_dims=(1, None), out_dims=1)(x, 0).tolist() == [
        [2.0, 0.0], [3.0, 1.0]]
    assert func.vmap(lambda r: Sorted.apply(r, 0))(x).tolist() == [[1.0, 3.0], [0.0, 2.0]]


class Layer:
    """As much of a module as a call with other parameters needs."""

    def __init__(self, *values):
        self._parameters = {"weight": t(*values, requires_grad=True)}
        self._buffers = {"shift": t(1.0)}
        self.inner = None

    def __call__(self, x, scale=1.0):
        y = x * self._parameters["weight"] * scale + self._buffers["shift"]
        return y if self.inner is None else self.inner(y)

    def named_parameters(self):
        inner = self.inner.named_parameters() if self.inner else []
        return [*self._parameters.items(), *[(f"inner.{k}", v) for k, v in inner]]

    def named_buffers(self):
        return [*self._buffers.items()]


def test_a_module_is_called_with_other_parameters():
    layer = Layer(2.0)
    layer.inner = Layer(3.0)
    x = t(1.0)
    other = {"weight": t(5.0), "inner.weight": t(7.0)}
    assert func.functional_call(layer, other, (x,)).tolist() == [43.0]
    assert func.functional_call(layer, ({"weight": t(5.0)}, {"shift": t(0.0)}), x,
                                {"scale": 2.0}).tolist() == [31.0]
    assert layer(x).tolist() == [10.0]
    g = func.grad(lambda p: func.functional_call(layer, p, x).sum())(dict(layer.named_parameters()))
    assert g["weight"].tolist() == [3.0] and g["inner.weight"].tolist() == [3.0]
    with pytest.raises(KeyError, match="no parameter or buffer 'bias'"):
        func.functional_call(layer, {"bias": x}, x)
    with pytest.raises(RuntimeError, match=r"missing key\(s\) \['inner.weight', 'shift'\]"):
        func.functional_call(layer, {"weight": x}, x, strict=True)


def test_the_parameters_of_several_modules_are_stacked():
    parameters, buffers = func.stack_module_state([Layer(2.0), Layer(3.0)])
    assert parameters["weight"].tolist() == [[2.0], [3.0]] and parameters["weight"].is_leaf
    assert parameters["weight"].requires_grad and buffers["shift"].tolist() == [[1.0], [1.0]]
    with pytest.raises(RuntimeError, match="at least one model, got 0"):
        func.stack_module_state([])


X = t(1.0, 2.0)
REFUSED = {
    "a scalar": (lambda: func.grad(lambda x: x * 2)(X), "a scalar Tensor, got tensor with 1 dims"),
    "outputs": (lambda: func.grad(lambda x: (x, x))(X), "to return a Tensor, got .*tuple"),
    "argnum": (lambda: func.grad(torch.sum, argnums=1)(X), "Got argnum=1, but only 1 positional"),
    "numbers": (
        lambda: func.grad(lambda x: x)(1.0),
        r"Thing passed to transform API must be Tensor, got .*float"
    ),
    "a number": (
        lambda: func.jacrev(lambda x: 1.0)(X), "to return only tensors, got unsupported type"
    ),
    "aux": (lambda: func.vjp(lambda x: x, X, has_aux=True), r"a tuple: \(output, aux\)"),
    "cotangents": (lambda: func.vjp(torch.sin, X)[1]((X, X)), "Expected pytree structure of cotan"),
    "shape": (lambda: func.vjp(torch.sin, X)[1](X[:1]), r"Mismatch in shape: grad_output\[0\]"),
    "primals": (lambda: func.jvp(torch.sin, X, X), "Expected primals to be a tuple"),
    "tangents": (lambda: func.jvp(torch.sin, (X,), (X, X)), "to have the same python structure"),
    "complex": (lambda: func.jacrev(lambda x: x * 1j)(X), "Expected all outputs to be real"),
    "in_dims": (lambda: func.vmap(torch.mul, in_dims=(0,))(X, X), "1 of them for 2 arguments"),
    "nested in_dims": (
        lambda: func.vmap(lambda d: d[0], in_dims=([0, 0],))([X]), "structure of `inputs`: list"),
    "no dims": (lambda: func.vmap(torch.sin, in_dims=None)(X), "expected `in_dims` to be int or a"),
    "a dimension": (lambda: func.vmap(torch.sin, in_dims=1)(X), "Tensor of dimensionality 1 so"),
    "no tensor": (lambda: func.vmap(torch.mul)(X, 2.0), "cannot vmap over non-Tensor arguments"),
    "none mapped": (
        lambda: func.vmap(torch.sin, in_dims=(None,))(X), "at least one input must be mapped over"),
    "sizes": (lambda: func.vmap(torch.mul)(X, t(1.0)), r"got sizes \[2, 1\] for the mapped"),
    "no argument": (lambda: func.vmap(lambda: X)(), r"got no inputs\. Maybe you forgot"),
    "a list": (lambda: func.vmap(torch.sin, in_dims=[0])(X), "structure of inputs, got: .*list"),
    "a word": (lambda: func.vmap(torch.sin, in_dims=("a",))(X), "an integer dimension or None"),
    "chunks": (lambda: func.vmap(torch.sin, chunk_size=0), r"greater than 0\. \(got 0\)"),
    "out_dims": (lambda: func.vmap(torch.sin, out_dims=(0, 0))(X), "out_dims is not compatible"),
    "out_dim": (lambda: func.vmap(torch.sin, out_dims=3)(X), r"range of \[-1, 0\], but got 3"),
    "tangent": (lambda: func.jvp(torch.sin, (X,), (X[:1],)), r"Tensor is of size \[2\] while"),
    "no tangent": (lambda: func.jvp(torch.sin, (X,), (1.0,)), "Expected tangents to only contain"),
    "no primal": (lambda: func.jvp(torch.sin, (1.0,), (X,)), "Expected primals to only contain"),
    "no primals": (lambda: func.jvp(torch.sin, (), ()), "contain at least one Tensor"),
    "complex input": (lambda: func.jacfwd(torch.sin)(X * 1j), "Expected all inputs to be real"),
    "no dicts": (lambda: func.functional_call(None, 3), "to be a dict, or a list/tuple of dicts"),
    "out": (lambda: func.vmap(lambda x: 1.0)(X), "must only return Tensors, got type"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_refused(name):
    call, text = REFUSED[name]
    with pytest.raises((RuntimeError, ValueError, IndexError), match=text):
        call()


def test_a_batch_of_nothing_has_the_shape_of_its_entries():
    out = func.vmap(lambda x: (x.outer(x), x.sum()), out_dims=(1, 0))(torch.zeros(0, 3))
    assert [y.shape for y in out] == [(3, 0, 3), (0,)]


def test_a_function_is_functionalized():
    def f(x):
        y = x.clone()
        y.mul_(x)
        return y.sum()

    assert torch.func.grad(torch.func.functionalize(f))(torch.tensor([3.0])).tolist() == [6.0]
    with pytest.raises(RuntimeError, match="received invalid argument for remove="):
        torch.func.functionalize(f, remove="views")
