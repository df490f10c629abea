"""Generators of functrans.numpy.random: the numbers of NumPy's, under every transform."""

import copy
import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
import functrans.numpy as fnp
from functrans.errors import UnsupportedError

X = np.ones(3)


class Model:
    """Draws that depend on what was drawn before."""

    def __init__(self, rng):
        self.rng = rng

    def __call__(self, x):
        y = x * self.rng.normal(size=3)
        if y[0] > 0:
            y = y + self.rng.uniform(2.0, 3.0)
            if self.rng.random() < 0.5:
                y = y * 2
        else:
            y = y - self.rng.integers(0, 10)
        self.rng.random()  # unused
        return np.sum(y * y) + self.rng.standard_normal((2, 2))[0, 1]


def pair(seed=0):
    """A generator of ours and one of NumPy's, in one state."""
    return fnp.random.default_rng(seed), np.random.default_rng(seed)


@pytest.mark.parametrize("transform", [
    ft.jit, lambda f: ft.jit(ft.jit(f)), lambda f: ft.grad(ft.jit(f)),
    lambda f: ft.jit(ft.grad(f)), lambda f: ft.hessian(ft.jit(f)),
], ids=["jit", "jit_jit", "grad_jit", "jit_grad", "hessian_jit"])
def test_each_call_draws_what_the_function_would_in_python(transform, unoptimised):
    ours, theirs = pair()
    compiled, f = transform(Model(ours)), Model(theirs)
    f = [f, ft.grad(f), ft.hessian(f)][np.ndim(compiled(X))]
    f(X)
    for _ in range(20):  # on several paths
        assert_allclose(compiled(X), f(X), rtol=1e-13)
    assert ours.random() == theirs.random()


def test_functions_of_the_module_draw_from_numpys_own_generator(unoptimised):
    f = ft.jit(lambda x: x + fnp.random.normal(size=2) + fnp.random.rand())
    np.random.seed(3)
    drawn = f(0.0), f(0.0)
    np.random.seed(3)
    for y in drawn:
        assert_array_equal(y, np.random.normal(size=2) + np.random.rand())


def test_a_call_that_needs_strong_zero_draws_once(unoptimised):
    ours, theirs = pair()

    def f(x):
        return np.sum(np.where(x > 0, np.sqrt(x), 0.0) * ours.normal())

    slope = ft.jit(ft.grad(f))
    assert_allclose(slope(np.array([0.0, 1.0])), np.array([0.0, 0.5]) * theirs.normal())
    assert ours.random() == theirs.random()


def test_a_call_that_python_has_to_run_draws_once(unoptimised):
    ours, theirs = pair()

    def f(x):
        n, x = 0, x + ours.random()
        while x < 10 and n < 2000:
            n, x = n + 1, x + 0.001
        return x

    compiled = ft.jit(f)
    with pytest.warns(RuntimeWarning, match="decides by a traced value"):
        y = compiled(0.0)
    assert y > theirs.random()
    assert ours.random() == theirs.random()


def test_a_run_for_warnings_draws_the_same(unoptimised):
    ours, theirs = pair()
    f = ft.jit(lambda x: np.log(x) + ours.normal())
    with ft.config(warnings=True), pytest.warns(RuntimeWarning, match="divide by zero"):
        f(0.0)
    theirs.normal()
    assert ours.random() == theirs.random()


def test_another_generator_in_its_place_is_drawn_from(unoptimised):
    model = Model(fnp.random.default_rng(0))
    f = ft.jit(lambda x: x + model.rng.normal())
    f(0.0)
    model.rng = fnp.random.default_rng(5)
    assert f(0.0) == np.random.default_rng(5).normal()


def test_a_generator_that_the_function_makes_begins_anew_at_each_call(unoptimised):
    def f(x):
        return x * fnp.random.default_rng(3).normal(size=3)

    compiled = ft.jit(f)
    assert_array_equal(compiled(X), f(X))
    assert_array_equal(compiled(X), f(X))
    assert_array_equal(ft.vmap(f)(X)[1], f(1.0))


@pytest.mark.parametrize("transform", [
    ft.vmap, lambda f: ft.vmap(ft.jit(f)), lambda f: ft.jit(ft.vmap(f)),
], ids=["vmap", "vmap jit", "jit vmap"])
def test_each_row_of_a_batch_has_a_draw_of_its_own(transform, unoptimised):
    ours, theirs = pair()
    f = transform(lambda x: x + ours.normal(1.0, 2.0, size=2))
    for _ in range(3):
        assert_array_equal(f(np.zeros(4)), theirs.normal(1.0, 2.0, size=(4, 2)))
    nested = ft.vmap(transform(lambda x: x + ours.multinomial(5, [0.2, 0.8])))
    rows = nested(np.zeros((2, 3)))
    assert_array_equal(rows, theirs.multinomial(5, [0.2, 0.8], size=(2, 3)))


def test_parameters_of_what_is_scaled_and_moved_may_be_traced(unoptimised):
    ours, theirs = pair()

    def f(m, s):
        return ours.normal(m, s, size=2).sum() + ours.uniform(high=s) + ours.exponential(s)

    y, slopes = ft.value_and_grad(f, (0, 1))(1.0, 2.0)
    drawn = theirs.normal(size=2).sum(), theirs.random(), theirs.standard_exponential()
    assert_allclose(slopes, (2.0, sum(drawn)), rtol=1e-15)
    state = np.random.default_rng(0)
    assert_allclose(y, state.normal(1.0, 2.0, size=2).sum() + state.uniform(high=2.0)
                    + state.exponential(2.0), rtol=1e-15)
    assert_allclose(ft.jit(ft.grad(f))(1.0, 2.0), 2.0)
    with pytest.raises(UnsupportedError, match=r"`beta` of a generator got a traced value"):
        ft.grad(lambda a: ours.beta(a, 1.0))(1.0)


def test_draws_are_arrays_that_can_be_written_into(unoptimised):
    ours, theirs = pair()

    def f(rng, p):
        x = rng.normal(size=(4, 2))
        x[:2] += p
        rng.shuffle(x)
        x[:, 0] *= p
        return np.sum(x * x) + rng.permutation(x)[0, 0] + rng.choice(x[:, 1])

    y, slope = ft.value_and_grad(lambda p: f(ours, p))(1.0)
    assert_allclose(y, f(theirs, 1.0), rtol=1e-14)
    assert slope != 0
    assert_allclose(ft.jit(lambda p: f(ours, p))(1.0), f(theirs, 1.0), rtol=1e-13)


@pytest.mark.parametrize(("make", "text"), [
    (lambda r: ft.jit(lambda x: ft.fori_loop(0, 3, lambda i, c: c + r.normal(), x)),
     r"`normal` of a generator draws in .*staged once and run many times"),
    (lambda r: ft.vmap(lambda x: x + r.normal(), chunk_size=2), r"would depend on chunk_size"),
    (lambda r: ft.jit(lambda x: r.spawn(2) and x), r"`spawn` of a generator would be called once"),
    (lambda r: ft.jit(lambda x: len(r.bytes(3)) + x), r"gave bytes.*and no numbers"),
    (lambda r: ft.jit(lambda x: r.normal() * (r.bit_generator.advance(1) is r) + r.normal()),
     r"state of a generator was set or moved"),
    (lambda r: lambda x: ft.export(lambda x: x + r.normal(), x), r"export: .* draws random"),
    (lambda r: ft.jit(lambda x: x + fnp.random.default_rng().normal()), "without a seed"),
    (lambda r: ft.jit(lambda x: x + fnp.random.RandomState().normal()), "without a seed"),
], ids=["loop", "chunks", "spawn", "bytes", "advance", "export", "unseeded", "RandomState"])
def test_what_cannot_be_drawn_says_so(make, text):
    with pytest.raises(UnsupportedError, match=text):
        make(fnp.random.default_rng(0))(np.ones(3))


@pytest.mark.parametrize("make", [fnp.random.default_rng, fnp.random.RandomState])
def test_generators_are_copied_and_pickled_as_what_they_are(make):
    rng = make(0)
    rng.normal()
    copies = pickle.loads(pickle.dumps(rng)), copy.deepcopy(rng)
    x = rng.normal(size=3)
    for other in copies:
        assert type(other) is type(rng)
        assert_array_equal(other.normal(size=3), x)


def test_code_of_others_draws_so_in_a_block_of_patch(unoptimised):
    def f(p):
        rng = np.random.RandomState(3)
        x = np.random.default_rng(1).normal(size=3)
        x[0] = p
        x += rng.rand()
        return np.sum(x * x)

    with ft.patch():
        assert ft.jit(f)(2.0) == f(2.0)
        assert_allclose(ft.grad(f)(2.0), 2 * (2.0 + np.random.RandomState(3).rand()))
