"""Generators, states, and what numbers drawn in place do to a graph."""

import pytest

import functrans.torch as torch

DRAWN = {
    "rand": lambda g: torch.rand(5, generator=g), "randn": lambda g: torch.randn(5, generator=g),
    "randint": lambda g: torch.randint(0, 1000, (5,), generator=g),
    "randperm": lambda g: torch.randperm(9, generator=g),
    "normal": lambda g: torch.normal(0.0, 1.0, (4,), generator=g),
    "bernoulli": lambda g: torch.bernoulli(torch.full((9,), 0.5), generator=g),
    "multinomial": lambda g: torch.multinomial(torch.ones(9), 5, generator=g),
    "poisson": lambda g: torch.poisson(torch.full((9,), 5.0), generator=g),
    "binomial": lambda g: torch.binomial(torch.full((6,), 9.0), torch.full((6,), 0.5), generator=g),
    "uniform_": lambda g: torch.empty(9).uniform_(1, 2, generator=g),
    "random_": lambda g: torch.empty(9).random_(0, 100, generator=g),
    "exponential_": lambda g: torch.empty(9).exponential_(generator=g),
    "xavier": lambda g: torch.nn.init.xavier_normal_(torch.empty(3, 3), generator=g),
    "orthogonal": lambda g: torch.nn.init.orthogonal_(torch.empty(3, 3), generator=g),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_generator_alone_decides_what_is_drawn_from_it(name):
    before = torch.get_rng_state()
    first, again = [DRAWN[name](torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(first, again)
    assert torch.equal(before, torch.get_rng_state())


def test_a_state_brings_the_same_numbers_again():
    g = torch.Generator()
    assert g.initial_seed() == 67280421310721 and g.manual_seed(5) is g and g.initial_seed() == 5
    state, copy = g.get_state(), g.clone_state()
    first = torch.rand(3, generator=g)
    assert torch.equal(first, torch.rand(3, generator=copy))
    assert torch.equal(first, torch.rand(3, generator=g.set_state(state)))
    assert g.seed() == g.initial_seed()


def test_the_random_numbers_of_all_have_a_state():
    assert torch.manual_seed(7) is torch.default_generator and torch.initial_seed() == 7
    with torch.random.fork_rng():
        first = torch.rand(3)
    state = torch.get_rng_state()
    assert torch.equal(first, torch.rand(3))
    torch.set_rng_state(state)
    assert torch.equal(first, torch.rand(3))


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: torch.rand(2, generator=3), TypeError, "expected a 'torch.Generator' object but got"),
    (lambda: torch.Generator("cuda"), RuntimeError, "Device type cuda is not supported"),
    (lambda: torch.set_rng_state(torch.ones(3)), TypeError, "must be a torch.ByteTensor"),
    (lambda: torch.set_rng_state(torch.ones(3).byte()), RuntimeError, "RNG state is wrong size"),
])
def test_what_is_no_generator_or_state_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("name", ["uniform_", "normal_", "random_", "exponential_", "bernoulli_",
                                  "cauchy_", "log_normal_"])
def test_numbers_drawn_in_place_have_no_history(name):
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    getattr(y[:2], name)()
    assert torch.autograd.grad(y.sum(), x)[0].tolist() == [0.0, 0.0, 2.0]
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        getattr(x, name)()
