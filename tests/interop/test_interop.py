"""Functions of other libraries here, and ours there: values and derivatives are those of both.

What needs PyTorch, JAX or PyTensor is skipped where they are not installed; the mechanism itself is
tried with a library made of functrans.
"""

import importlib
import pickle
import threading
import types

import numpy as np
import pytest
from numpy.testing import assert_allclose

import functrans as ft
import functrans.numpy as fnp
from functrans._interop import of_jax, of_torch
from functrans._interop.leaves import LeafFunction, Leaves, writable
from functrans._transforms.rules.foreign import foreign
from functrans.errors import ArgumentError, NotDifferentiable

A, B = np.array([0.3, 0.7, -0.2]), np.array([1.0, 2.0, 3.0])
Z = np.array([1.0 + 2.0j, 0.5 - 1.0j])


def energy(p, k=2.0):
    x, y = p["x"], p["y"]
    return {"sum": np.sum(np.sin(x) * y**2) * k, "n": np.argmax(x), "each": x * y[0]}


def total(out):
    return out["sum"] + (out["each"] ** 2).sum()


def plain_energy(x, y):
    return total(energy({"x": x, "y": y}, 3.0))


def library(name):
    return pytest.importorskip(name, exc_type=ImportError)


# ---- without any other library


def test_a_function_for_another_library_pickles_as_its_call():
    again = pickle.loads(pickle.dumps(ft.torch_function(product)))
    assert repr(again) == "<torch_function of product>" and again.__wrapped__ is product


OF_LIST = types.SimpleNamespace(
    arrays=lambda xs: [np.array(x) for x in xs],
    numbers=lambda ys: [np.asarray(y) for y in ys],
    push=lambda g, xs, ts: list(ft.jvp(lambda *v: tuple(g(*v)), tuple(xs), tuple(ts))[1]),
    pulled_back=lambda g, xs, cts: [
        np.conjugate(c) for c in
        ft.vjp(lambda *v: tuple(g(*v)), *xs)[1](tuple(map(np.conjugate, cts)))
    ],
)


def product(a, b):
    return np.sum(np.sin(a) * b**2)


@pytest.mark.parametrize("derive", [
    lambda f: f(A, B),
    lambda f: ft.grad(f, (0, 1))(A, B),
    lambda f: ft.hessian(f, (0, 1))(A, B),
    lambda f: ft.jacfwd(ft.jacfwd(ft.grad(f)))(A, B),
    lambda f: ft.jacrev(ft.jacfwd(ft.jacrev(f, 1)), 1)(A, B),
    lambda f: ft.jvp(ft.grad(f), (A, B), (B, A))[1],
    lambda f: ft.vmap(ft.grad(f))(np.stack([A, B]), np.stack([B, A])),
    lambda f: ft.jit(ft.grad(f))(A, B),
])
def test_derivatives_of_any_order_are_those_of_the_library(derive):
    got, want = derive(foreign(product, OF_LIST, 1)), derive(product)
    for x, y in zip(ft.tree.leaves(got), ft.tree.leaves(want), strict=True):
        assert_allclose(x, y, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("module", [of_torch, of_jax])
def test_each_library_has_what_the_made_one_has(module):
    assert [name for name in vars(OF_LIST) if not callable(getattr(module, name, None))] == []


def test_several_results_and_complex_ones():
    f = foreign(lambda a, n: (a * n, np.cumsum(a)), OF_LIST, 2)
    first, last = ft.jacobian(f)(A, 2)
    assert_allclose(first, 2 * np.eye(3))
    assert_allclose(last, np.tri(3))
    g = foreign(lambda z: z**3 * (1 + 1j), OF_LIST, 1)
    assert_allclose(ft.vjp(g, Z)[1](Z)[0], ft.vjp(lambda z: z**3 * (1 + 1j), Z)[1](Z)[0])
    assert_allclose(ft.jvp(g, (Z,), (Z,))[1], 3 * Z**3 * (1 + 1j))


def energy_of_one(x):
    return np.sum(x**2)


def leaf_function(f=energy):
    return Leaves(f).split(({"x": A, "y": B},), {"k": 3.0}, lambda x: isinstance(x, np.ndarray))


@pytest.mark.parametrize("wrap", [lambda f: f, ft.jit])
def test_a_function_of_leaves_has_derivatives_that_are_such_functions(wrap):
    g, arrays = leaf_function(wrap(energy))
    assert [(a.shape, a.dtype.kind) for a in g.types(arrays)] == [((3,), "f"), ((), "i"), ((), "f")]
    ys = g(*arrays)
    assert_allclose(total(ft.tree.unflatten(g.result, ys)), plain_energy(A, B))
    cts = 2 * ys[0], np.array(1.0)
    back = g.pulled_back((0, 1))
    assert back is g.pulled_back((0, 1))
    for got, want in zip(back(*arrays, *cts), ft.grad(plain_energy, (0, 1))(A, B), strict=True):
        assert_allclose(got, want, rtol=1e-14)
    again = back.pulled_back((1,))(*arrays, *cts, B, np.zeros(3))[0]
    assert_allclose(again, ft.grad(lambda y: B @ back(A, y, *cts)[0])(B), rtol=1e-13)
    tangents = g.pushed((1,))(*arrays, A)
    assert_allclose(tangents[1], ft.jvp(lambda y: plain_energy(A, y), (B,), (A,))[1]
                    - ft.jvp(lambda y: np.sum((A * y[0]) ** 2), (B,), (A,))[1], rtol=1e-13)


def test_complex_gradients_are_conjugated_where_that_is_asked_for():
    g, arrays = Leaves(lambda z: z**3 * (1 + 1j)).split((Z,), {}, lambda x: True)
    (y,) = g(*arrays)
    want = ft.vjp(lambda z: z**3 * (1 + 1j), Z)[1](y)[0]
    assert_allclose(g.pulled_back((0,))(Z, y)[0], want)
    other, arrays = Leaves(lambda z: z**3 * (1 + 1j)).split((Z,), {}, lambda x: True)
    other(*arrays)
    plain = other.pulled_back((0,), conjugate=True)(Z, y)[0]
    assert_allclose(plain, y * 3 * Z**2 * (1 + 1j))


def running(x, k):
    y = fnp.zeros(3)
    for i in range(3):
        y[i] = x[i] * k + (y[i - 1] if i else 0.0)
    return fnp.sum(y**2)


def test_functions_for_another_library_may_write_into_arrays():
    g, arrays = Leaves(running).split((A, 2.0), {}, lambda x: True)
    assert [a.shape for a in g.types(list(map(np.asarray, arrays)))] == [()]
    dx, dk = g.pulled_back((0, 1))(*map(np.asarray, arrays), 1.0)
    expected = ft.grad(running, (0, 1))(A, 2.0)
    assert_allclose(dx, expected[0])
    assert_allclose(dk, expected[1])
    ft.testing.check_grads(running, (A, 2.0), order=2)
    kept = A.copy()
    ft.testing.numerical_jacobian(lambda x: x.__iadd__(1.0), kept)
    assert_allclose(kept, A)


def test_an_array_of_another_library_is_to_be_converted():
    x = types.SimpleNamespace(__dlpack__=None)
    with pytest.raises(NotDifferentiable, match=r"for example functrans\.numpy\.from_dlpack\(x\)"):
        ft.grad(fnp.sum)(x)


def test_types_of_a_function_that_decides_by_values_come_from_a_run():
    g, arrays = Leaves(lambda x: x if x[0] > 0 else x[:1]).split((A,), {}, lambda x: True)
    assert [a.shape for a in g.types(arrays)] == [(3,)]


def test_functions_of_leaves_are_kept_by_what_is_not_an_array():
    known = Leaves(lambda x, k: x)

    def numbers(x):
        return isinstance(x, np.ndarray)

    first = known.split((A, 1), {}, numbers)[0]
    assert known.split((B, 1), {}, numbers)[0] is first
    assert known.split((B, 1.0), {}, numbers)[0] is not first
    assert known.split((B, 0.0), {}, numbers)[0] is not known.split((B, -0.0), {}, numbers)[0]
    assert known.split((B, bytearray(b"a")), {}, numbers)[0] is not first


def test_other_libraries_get_memory_of_their_own():
    x, own = ft.array([1.0, 2.0]), np.ones(2)
    assert writable(x).flags.writeable
    assert not np.shares_memory(writable(x), x)
    assert not np.shares_memory(writable(own), own)


def test_threads_of_one_function_do_not_share_how_results_nest():
    g = LeafFunction(lambda x: {"a": x} if x.size == 1 else [x, x], False)
    g(np.ones(1))
    other = threading.Thread(target=g, args=(np.ones(2),))
    other.start()
    other.join()
    assert ft.tree.unflatten(g.result, [3.0]) == {"a": 3.0}


@pytest.mark.parametrize("transform", [lambda f: f, ft.vmap])
def test_an_external_function_may_use_its_memory_again(transform):
    buffer = np.zeros(3)

    def fill(x):
        buffer[:] = x
        return buffer

    f, xs = ft.external(fill), np.arange(6.0).reshape(2, 3)
    found = ft.vmap(f)(xs) if transform is ft.vmap else [f(x) for x in xs]
    assert_allclose(found, xs)


@pytest.mark.parametrize("name", [
    "torch_function", "jax_function", "from_torch", "from_jax", "pytensor_function",
])
def test_what_is_no_function_is_refused(name):
    with pytest.raises(ArgumentError, match=rf"{name} needs a function, but got int 3"):
        getattr(ft.interop, name)(3)


def test_a_graph_of_pytensor_needs_examples():
    with pytest.raises(ArgumentError, match="needs arrays like those it will get, as examples"):
        ft.interop.pytensor_function(energy)


# ---- PyTorch


@pytest.mark.parametrize("wrap", [lambda f: f, ft.jit])
def test_pytorch_differentiates_ours(wrap):
    torch = library("torch")
    f = ft.torch_function(wrap(energy))
    x, y = (torch.tensor(v, requires_grad=True) for v in (A, B))
    out = f({"x": x, "y": y}, k=3.0)
    assert not out["n"].requires_grad
    total(out).backward()
    for got, want in zip((x.grad, y.grad), ft.grad(plain_energy, (0, 1))(A, B), strict=True):
        assert_allclose(got, want, rtol=1e-13)

    def loss(x, y):
        return total(f({"x": x, "y": y}, k=3.0))

    x, y = x.detach(), y.detach()
    assert_allclose(torch.func.hessian(loss)(x, y), ft.hessian(plain_energy)(A, B), rtol=1e-13)
    pushed = torch.func.jvp(loss, (x, y), (y, x))[1]
    assert_allclose(pushed, ft.jvp(plain_energy, (A, B), (B, A))[1], rtol=1e-13)
    batch = torch.func.vmap(torch.func.grad(loss))(torch.stack([x, y]), torch.stack([y, x]))
    assert_allclose(batch[1], ft.grad(plain_energy)(B, A), rtol=1e-13)


def test_pytorch_gets_complex_gradients_in_its_convention():
    torch = library("torch")
    grads = []
    for f in (ft.torch_function(lambda z: z**3 * (1 + 1j)), lambda z: z**3 * (1 + 1j)):
        z = torch.tensor(Z, requires_grad=True)
        (f(z).abs() ** 2 * z.real).sum().backward()
        grads.append(z.grad)
    assert_allclose(grads[0], grads[1], rtol=1e-13)


def test_results_in_pytorch_share_memory_with_nothing():
    torch = library("torch")
    held = np.ones(3)
    t = torch.ones(3, dtype=torch.float64)
    weight = t.clone().requires_grad_()
    same, a, b = ft.torch_function(lambda x: (x.reshape(3), held, held))(t)
    loss = (weight * same).sum()
    for x in (t, a):
        x.mul_(100)
    loss.backward()
    assert weight.grad.tolist() == held.tolist() == b.tolist() == [1, 1, 1]


def test_a_function_of_pytorch_may_use_its_memory_again():
    torch = library("torch")
    buffer = torch.zeros(3, dtype=torch.float64)
    f, xs = ft.interop.from_torch(lambda t: buffer.copy_(t)), np.arange(6.0).reshape(2, 3)
    assert_allclose(ft.vmap(f)(xs), xs)
    assert_allclose(f(xs[0]) + f(xs[1]), xs[0] + xs[1])


def test_batches_without_rows_in_pytorch():
    torch = library("torch")
    f = ft.torch_function(lambda x: (np.sum(x**2), x))
    total, same = torch.func.vmap(f)(torch.ones(0, 3))
    assert (total.shape, same.shape) == ((0,), (0, 3))
    assert torch.func.vmap(torch.func.grad(lambda x: f(x)[0]))(torch.ones(0, 3)).shape == (0, 3)


def test_bfloat16_in_pytorch():
    torch = library("torch")
    x = torch.full((3,), 2.0, dtype=torch.bfloat16, requires_grad=True)
    y = ft.torch_function(lambda x: np.sum(x**2))(x)
    y.backward()
    assert (y.dtype, x.grad.dtype) == (torch.bfloat16,) * 2
    assert x.grad.tolist() == [4, 4, 4]


def test_functions_of_pytorch_are_differentiated_here():
    library("torch")
    f = ft.interop.from_torch(lambda a, b: (a.sin() * b**2).sum())
    assert_allclose(ft.jit(ft.grad(f))(A, B), ft.grad(product)(A, B), rtol=1e-14)
    third = ft.jacfwd(ft.hessian(f))(A, B)
    assert_allclose(third, ft.jacfwd(ft.hessian(product))(A, B), atol=1e-14)


# ---- JAX


@pytest.mark.parametrize("wrap", [lambda f: f, ft.jit])
def test_jax_differentiates_ours(wrap):
    jax = library("jax")
    f = ft.jax_function(wrap(energy))
    x, y = A.astype(np.float32), B.astype(np.float32)

    def loss(x, y):
        return total(f({"x": x, "y": y}, k=np.float32(3.0)))

    want = ft.grad(plain_energy, (0, 1))(A, B)
    for g, w in zip(jax.jit(jax.grad(loss, (0, 1)))(x, y), want, strict=True):
        assert_allclose(g, w, rtol=1e-5)
    hessian = jax.jacrev(jax.jacrev(loss))(x, y)
    assert_allclose(hessian, ft.hessian(plain_energy)(A, B), rtol=1e-5, atol=1e-5)
    batch = jax.vmap(jax.grad(loss))(np.stack([x, y]), np.stack([y, x]))
    assert_allclose(batch[1], ft.grad(plain_energy)(B, A), rtol=1e-5, atol=1e-5)


def test_bfloat16_in_jax_has_its_derivative():
    jax = library("jax")
    x = jax.numpy.full(3, 2.0, jax.numpy.bfloat16)
    g = jax.grad(ft.jax_function(lambda x: np.sum(x**2)))(x)
    assert g.dtype == jax.numpy.bfloat16
    assert g.tolist() == [4, 4, 4]


def test_forward_mode_of_jax_is_refused_by_name():
    jax = library("jax")
    f = ft.jax_function(energy_of_one)
    for derive in (jax.jacfwd, jax.hessian):
        with pytest.raises(NotDifferentiable, match=r"`energy_of_one` has .* reverse mode only"):
            derive(f)(jax.numpy.ones(3))


def test_integers_that_jax_does_not_hold_raise():
    jax = library("jax")
    if jax.config.jax_enable_x64:
        pytest.skip("JAX holds int64")
    f = ft.jax_function(lambda n: np.sum(np.asarray(n, np.int64)) * 2**33)
    with pytest.raises(Exception, match=r"returned 25769803776, which int32.*does not hold"):
        jax.block_until_ready(f(jax.numpy.ones(3, int)))


def test_functions_of_jax_are_differentiated_here():
    jax = library("jax")
    f = ft.interop.from_jax(lambda a, b: (jax.numpy.sin(a) * b**2).sum())
    x, y = A.astype(np.float32), B.astype(np.float32)
    assert ft.grad(f)(x, y).dtype == np.float32
    assert_allclose(ft.jit(ft.grad(f))(x, y), ft.grad(product)(A, B), rtol=1e-5)
    assert_allclose(ft.hessian(f)(x, y), ft.hessian(product)(A, B), rtol=1e-5, atol=1e-5)
    with pytest.raises(ArgumentError, match="compute in float32 what is float64 here"):
        f(A, B)


# ---- PyTensor


def test_pytensor_differentiates_ours():
    pytensor = library("pytensor")
    tensor = importlib.import_module("pytensor.tensor")
    f = ft.interop.pytensor_function(lambda x, y: (np.sum(np.sin(x) * y**2), x * y[0]), A, B)
    x, y = tensor.dvector("x"), tensor.dvector("y")
    first, each = f(x, y)
    loss = 3.0 * first + (each**2).sum()
    outputs = [*pytensor.grad(loss, [x, y]), pytensor.gradient.hessian(loss, x)]
    *slopes, hessian = pytensor.function([x, y], outputs, mode="FAST_COMPILE")(A, B)
    for got, want in zip(slopes, ft.grad(plain_energy, (0, 1))(A, B), strict=True):
        assert_allclose(got, want, rtol=1e-13)
    assert_allclose(hessian, ft.hessian(plain_energy)(A, B), rtol=1e-13)
    with pytest.raises(ArgumentError, match=r"array 0 of `<lambda>` has 0 axes, but 1"):
        f(tensor.dscalar("s"), y)
    with pytest.raises(ArgumentError, match=r"made for 2 arrays .*, but was called with 1"):
        f(x)
