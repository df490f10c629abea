"""Random numbers by keys: those of Threefry, of the right distributions, in every transform."""

import numpy as np
import pytest
import scipy.stats

import functrans as ft
from functrans import random
from functrans.errors import ArgumentError, ShapeError

KEY = random.key(3)
DRAWS = {
    "random": lambda k: random.random(k, 5),
    "uniform": lambda k: random.uniform(k, -1.0, np.array([1.0, 2.0])),
    "normal": lambda k: random.normal(k, 1.0, 2.0, size=(2, 3)),
    "number": random.standard_normal,
    "exponential": lambda k: random.exponential(k, size=4),
    "integers": lambda k: random.integers(k, -3, 4, 6),
    "permutation": lambda k: random.permutation(k, 7),
    "split": lambda k: random.split(k, 3),
    "fold_in": lambda k: random.fold_in(k, 12),
    "bernoulli": lambda k: random.bernoulli(k, 0.5, 90),
    "categorical": lambda k: random.categorical(k, np.log(np.arange(1.0, 10.0)), size=30),
    "choice": lambda k: random.choice(k, np.arange(9.0), (2, 3), False, np.arange(1.0, 10.0) / 45),
    "gamma": lambda k: random.gamma(k, np.array([0.5, 3.0])),
    "truncated_normal": lambda k: random.truncated_normal(k, 4.0, 5.0, 3),
}


def words(*numbers):
    return np.array(numbers, np.uint32)


# Salmon et al., Random123, kat_vectors: threefry2x32, 20 rounds.
@pytest.mark.parametrize(("counters", "key", "want"), [
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 2, (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
])
def test_the_words_are_those_that_the_authors_publish(counters, key, want):
    found = random._threefry(words(*key), words(counters[0]), words(counters[1]))
    assert [int(w[0]) for w in found] == list(want)


@pytest.mark.parametrize("draw", DRAWS.values(), ids=DRAWS)
def test_a_draw_is_the_same_in_every_transform(draw):
    keys = random.split(KEY, 3)
    want = np.stack([draw(k) for k in keys])
    # compiled code has logarithms and cosines of its own, right to a rounding or two
    np.testing.assert_allclose(ft.jit(ft.vmap(draw))(keys), want, rtol=1e-14, atol=1e-15)
    # SciPy's truncnorm on plain numbers, ours on traced ones
    exact = draw is not DRAWS["truncated_normal"]
    np.testing.assert_allclose(ft.vmap(draw)(keys), want, rtol=0 if exact else 1e-15)
    assert np.unique(want, axis=0).shape == want.shape


@pytest.mark.parametrize(("draw", "law"), [
    (lambda k: random.random(k, 4000), scipy.stats.uniform),
    (lambda k: random.uniform(k, 2.0, 5.0, 4000), scipy.stats.uniform(2, 3)),
    (lambda k: random.normal(k, 1.0, 2.0, 4000), scipy.stats.norm(1, 2)),
    (lambda k: random.exponential(k, 3.0, 4000), scipy.stats.expon(scale=3)),
    (lambda k: random.gamma(k, 0.7, 2.0, 4000), scipy.stats.gamma(0.7, scale=2)),
    (lambda k: random.beta(k, 0.7, 2.0, 4000), scipy.stats.beta(0.7, 2.0)),
    (lambda k: random.gumbel(k, 1.0, 2.0, 4000), scipy.stats.gumbel_r(1, 2)),
    (lambda k: random.laplace(k, 1.0, 2.0, 4000), scipy.stats.laplace(1, 2)),
    (lambda k: random.logistic(k, 1.0, 2.0, 4000), scipy.stats.logistic(1, 2)),
    (lambda k: random.truncated_normal(k, 4.0, 6.0, 4000), scipy.stats.truncnorm(4, 6)),
], ids=["random", "uniform", "normal", "exponential", "gamma", "beta", "gumbel", "laplace",
        "logistic", "truncated normal"])
def test_draws_have_their_distribution(draw, law):
    assert scipy.stats.kstest(draw(KEY), law.cdf).pvalue > 0.01


def test_integers_are_uniform_and_permutations_hold_each_once():
    counts = np.bincount(random.integers(KEY, 2, 8, 6000), minlength=8)
    assert counts[:2].tolist() == [0, 0]
    assert scipy.stats.chisquare(counts[2:]).pvalue > 0.01
    assert sorted(random.permutation(KEY, 50).tolist()) == list(range(50))
    assert random.permutation(KEY, 50).tolist() != list(range(50))


P = np.array([0.1, 0.2, 0.3, 0.4, 0.0])


@pytest.mark.parametrize("draw", [
    lambda k: random.choice(k, 5, 6000, p=P), lambda k: random.categorical(k, LOGITS, size=6000),
    lambda k: ft.vmap(lambda k: random.choice(k, 5, (), False, P))(random.split(k, 3000)),
    lambda k: random.choice(k, np.arange(5), 6000, True, P),
], ids=["choice", "categorical", "first without replacement", "of an array"])
def test_entries_are_drawn_with_their_probabilities(draw):
    drawn = draw(KEY)
    counts = np.bincount(drawn, minlength=5)
    assert counts[4] == 0
    assert scipy.stats.chisquare(counts[:4], P[:4] * drawn.size).pvalue > 0.01


with np.errstate(divide="ignore"):
    LOGITS = np.log(P)


def test_categorical_draws_along_an_axis_and_for_each_row():
    logits = np.where(np.eye(3) > 0, 0.0, -1e9)
    assert random.categorical(KEY, logits).tolist() == [0, 1, 2]
    assert random.categorical(KEY, logits, axis=0).tolist() == [0, 1, 2]
    assert random.categorical(KEY, logits[:2], size=(4, 2)).tolist() == [[0, 1]] * 4


def test_nothing_is_drawn_twice_without_replacement():
    assert sorted(random.choice(KEY, 30, 30, replace=False).tolist()) == list(range(30))
    x = np.arange(12.0).reshape(4, 3)
    rows = random.permutation(KEY, x)
    assert sorted(rows.tolist()) == x.tolist() and rows.tolist() != x.tolist()


def test_a_tuple_in_the_place_of_a_parameter_is_the_size():
    for draw in (random.normal, random.uniform, random.exponential, random.gumbel):
        assert draw(KEY, (2, 3)).tolist() == draw(KEY, size=(2, 3)).tolist()
    assert random.gamma(KEY, 2.0, (3,)).tolist() == random.gamma(KEY, 2.0, size=3).tolist()
    assert random.normal(KEY, ()).shape == ()


def test_gamma_is_differentiated_in_its_shape():
    def draw(a):
        return random.gamma(KEY, a)

    step = 1e-5
    slope = (draw(2.5 + step) - draw(2.5 - step)) / (2 * step)
    # central differences are right to some 1e-10
    np.testing.assert_allclose([ft.grad(draw)(2.5), ft.jit(ft.grad(draw))(2.5)], slope, rtol=1e-8)


def test_draws_are_differentiated_in_their_parameters():
    def f(p):
        return np.sum(random.normal(KEY, p[0], p[1], 4) + random.exponential(KEY, p[2], 2).sum()
                      + random.uniform(KEY, p[0], p[1]))

    p = np.array([0.5, 2.0, 3.0])
    want = [f(p + e) - f(p) for e in np.eye(3)]  # f is linear
    for g in (ft.grad(f), ft.jit(ft.grad(f)), ft.jacfwd(f)):
        np.testing.assert_allclose(g(p), want, rtol=1e-13)


def test_a_compiled_loop_draws_anew_in_each_step():
    def steps(key):
        def step(carry, i):
            return carry, random.normal(random.fold_in(key, i))

        return ft.scan(step, 0.0, np.arange(4))[1]

    want = [float(random.normal(random.fold_in(KEY, i))) for i in range(4)]
    assert len(set(want)) == 4
    np.testing.assert_allclose(ft.jit(steps)(KEY), want, rtol=1e-14)
    assert steps(KEY).tolist() == want


def test_what_is_drawn_may_be_written_into():
    def f(t):
        y = random.normal(KEY, t, size=3)
        z = y
        y += 1
        y[0] = 0
        return z.sum()

    assert ft.jvp(f, (1.0,), (1.0,)) == (f(1.0), 2.0)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: random.key(1.5), ArgumentError, "takes an integer, but got 1.5"),
    (lambda: random.key(-1), ArgumentError, r"from 0 to 2\*\*64 - 1, but got -1"),
    (lambda: random.normal(3), ArgumentError, "random.standard_normal takes a key"),
    (lambda: random.random(random.split(KEY)), ArgumentError, "take one, or use vmap"),
    (lambda: random.fold_in(KEY, 0.5), ArgumentError, "fold_in takes an integer"),
    (lambda: random.random(KEY, 1 << 32), ArgumentError, r"fewer than 2\*\*32"),
    (lambda: random.normal(KEY, np.zeros(2), size=3), ShapeError, r"size is \(3,\), the shapes"),
    (lambda: random.normal(KEY, np.zeros(2), size=()), ShapeError, r"size is \(\), .* \[\(2,\), "),
    (lambda: random.uniform(KEY, np.zeros(2), np.ones(3)), ShapeError, "size is None"),
    (lambda: random.choice(KEY, 3, 4, replace=False), ArgumentError, "cannot draw 4 of 3 entries"),
    (lambda: random.choice(KEY, 3, 4, p=np.ones(2)), ShapeError, r"3 entries, but p has shape \(2"),
    (lambda: random.choice(KEY, 0), ArgumentError, "a is empty"),
])
def test_what_is_no_key_number_or_size_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()
