"""Affine forms, and what is proved of them, against enumeration of small boxes."""

import itertools
import pickle
import random

import pytest

from functrans._compile.nest.forms import Form, Index, feasible, proves

BOX = range(-2, 4)
INDICES = [Index(name) for name in "ijk"]


def drawn(rng, indices):
    return Form.total(rng.randint(-4, 4), [(v, rng.randint(-3, 3)) for v in indices])


def solutions(domain, zero, indices):
    for values in itertools.product(BOX, repeat=len(indices)):
        at = dict(zip(indices, values, strict=True))
        if all(a.at(at) >= 0 for a in domain) and all(a.at(at) == 0 for a in zero):
            yield at


@pytest.mark.parametrize("seed", range(4))
def test_what_is_called_infeasible_has_no_solution_in_a_box_and_what_is_proved_holds_in_it(seed):
    rng, wrong, decided = random.Random(seed), [], 0
    for _ in range(150):
        indices = INDICES[: rng.randint(1, 3)]
        box = [f for v in indices for f in (Form.of(v) + 2, 3 - Form.of(v))]
        more = [drawn(rng, indices) for _ in range(rng.randint(0, 2))]
        zero = [drawn(rng, indices) for _ in range(rng.randint(0, 2))]
        found = any(True for _ in solutions(more, zero, indices))
        said = feasible([*box, *more], zero)
        claim = drawn(rng, indices)
        holds = all(claim.at(at) >= 0 for at in solutions(more, (), indices))
        proved = proves([*box, *more], claim)
        wrong += [(more, zero)] * (found and not said) + [(more, claim)] * (proved and not holds)
        decided += (said == found) + (proved == holds)
    assert not wrong
    assert decided >= 290  # elimination with rounding is seldom unsure of small forms


def test_forms_add_multiply_replace_and_print():
    i, j, _ = INDICES
    f = 2 * Form.of(i) - j + 3
    assert f == Form.of(i) + i + (3 - Form.of(j))
    assert (f - f).constant == 0
    assert f.constant is None
    assert f.replaced({i: Form.of(j) + 1}) == Form.of(j) + 5
    assert f.at({i: 4, j: 1}) == 10
    assert repr(f) == "2*i-j+3"
    assert hash(f) == hash(2 * Form.of(i) + 3 - j)


def test_a_pickled_form_keeps_its_indices_apart():
    i, j, _ = INDICES
    a, b = pickle.loads(pickle.dumps((Form.of(i) - j, Form.of(j) + 1)))
    assert len(a.indices | b.indices) == 2
    assert repr(a + b) == "i+1"
