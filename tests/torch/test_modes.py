"""Grad modes: section C of the checklist."""


import pytest

import functrans.torch as torch
from tests.threads import elsewhere

X = torch.ones(2, requires_grad=True)


def recorded():
    return (X * 2).requires_grad


def test_under_no_grad_nothing_is_recorded():
    with torch.no_grad():
        assert not recorded()
    assert recorded()


@pytest.mark.parametrize("decorator", [torch.no_grad(), torch.no_grad, torch.autograd.no_grad()])
def test_no_grad_decorates_with_and_without_parentheses(decorator):
    assert not decorator(recorded)()
    assert recorded()


def test_enable_grad_records_inside_no_grad():
    with torch.no_grad():
        with torch.enable_grad():
            assert recorded()
        assert torch.enable_grad()(recorded)()
        assert not recorded()


@pytest.mark.parametrize("mode", [True, False])
def test_set_grad_enabled_is_a_context(mode):
    with torch.set_grad_enabled(mode):
        assert recorded() is mode
    assert recorded()


def test_set_grad_enabled_leaves_the_mode_that_it_met():
    with torch.no_grad():
        with torch.set_grad_enabled(True):
            assert recorded()
        assert not recorded()
    assert recorded()


def test_set_grad_enabled_takes_effect_when_called():
    torch.set_grad_enabled(False)
    try:
        assert not recorded()
    finally:
        torch.set_grad_enabled(True)
    assert recorded()


def test_set_grad_enabled_as_a_decorator_changes_nothing_outside():
    f = torch.set_grad_enabled(False)(recorded)
    assert recorded() and not f() and recorded()


def test_modes_nest_and_are_restored_by_errors():
    with pytest.raises(KeyError), torch.no_grad(), torch.enable_grad(), torch.no_grad():
        raise KeyError
    assert torch.is_grad_enabled()


def test_one_context_may_be_entered_repeatedly():
    mode = torch.no_grad()
    with mode, mode:
        assert not recorded()
    assert recorded()


def test_a_decorated_generator_has_the_mode_only_in_its_body():
    @torch.no_grad()
    def values():
        got = yield recorded()
        try:
            yield (got, recorded())
        except ValueError:
            yield recorded()

    g = values()
    assert next(g) is False
    assert recorded()
    assert g.send(5) == (5, False)
    assert recorded()
    assert g.throw(ValueError) is False
    with pytest.raises(StopIteration):
        next(g)
    assert recorded()


def test_a_mode_belongs_to_its_thread():
    with torch.no_grad():
        assert elsewhere(recorded)


def test_inference_mode_records_nothing_and_says_so():
    with torch.inference_mode():
        assert not recorded() and torch.is_inference_mode_enabled()
        with torch.inference_mode(False):
            assert recorded()
    assert recorded() and not torch.is_inference_mode_enabled()


def test_recording_is_off_inside_backward_unless_the_graph_is_created():
    seen = []
    y = X * 2
    y.register_hook(lambda g: seen.append(torch.is_grad_enabled()))
    torch.autograd.grad(y.sum(), X, retain_graph=True)
    torch.autograd.grad(y.sum(), X, create_graph=True)
    assert seen == [False, True]
    assert torch.is_grad_enabled()


def test_tensors_of_inference_mode_know_it():
    x = torch.ones(2, requires_grad=True)
    with torch.inference_mode():
        made = [x * 2, x.exp(), torch.ones(2), x.sum(), torch.ones(2)[:1]]
        assert not x[:1].is_inference()  # part of a tensor that is none
        assert not any([part.is_inference() for part in x.chunk(2)])
    assert all(t.is_inference() and torch.is_inference(t) for t in made)
    assert made[-1][0].is_inference()
    with torch.inference_mode(), torch.inference_mode(False):
        assert not (x * 2).is_inference() and (x * 2).requires_grad
    with torch.no_grad():
        assert not (x * 2).is_inference() and not x.is_inference()
