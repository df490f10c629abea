"""Anomaly mode of tensors: section K of the checklist."""

import warnings

import numpy as np
import pytest

import functrans.torch as torch
from functrans.torch import autograd
from functrans.torch._graph.modes import state
from functrans.torch._graph.nodes import Node
from functrans.torch._tensors.tensor import edge_of, from_array
from tests.threads import elsewhere


class Failing(Node):
    def pull(self, ct, create):
        raise RuntimeError("Some error in backward")


def failing(x):
    y = x * 2
    return from_array(y._array.copy(), None, Failing([edge_of(y)]))


def root(x):
    return (x - 1).sqrt()


def told(f, x, error=RuntimeError, **options):
    """The error and the warning of a backward in anomaly mode."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        with pytest.raises(error) as e, autograd.detect_anomaly(**options):
            f(x).sum().backward()
    texts = [str(w.message) for w in found]
    assert texts[0].startswith("Anomaly Detection has been enabled")
    return str(e.value), "\n".join(texts[1:])


def point(*values):
    return torch.tensor(values, requires_grad=True)


def test_the_mode_says_that_it_is_slow():
    with pytest.warns(UserWarning, match="will increase the runtime"), autograd.detect_anomaly():
        pass


def test_a_failing_backward_shows_the_traceback_of_the_forward():
    def f(x):
        return failing(x.exp()).exp()

    error, warning = told(f, point(1.0))
    assert error == "Some error in backward"
    assert "Error detected in Failing" in warning


def test_the_forward_traceback_is_that_of_the_operation():
    error, warning = told(root, point(0.0, 3.0))
    assert "Error detected in SqrtBackward0" in warning
    assert "Traceback of forward call that caused the error:" in warning
    assert "return (x - 1).sqrt()" in warning and "in root" in warning
    assert "functrans/torch" not in warning
    start = "Function 'SqrtBackward0' returned nan values in its 0th output. The first is at [0]"
    assert start in error
    assert f"The operation ran at {__file__}:{root.__code__.co_firstlineno + 1}" in error


def test_the_error_says_what_met_there_and_where_values_became_nan():
    error, _ = told(lambda x: x / x, point(1.0, 0.0))
    assert "DivBackward0" in error and "saved number 0 is 0" in error
    assert "the cotangent that arrived 1" in error
    assert f"a value first became NaN in div at {__file__}" in error


def test_nan_is_only_looked_for_where_asked():
    x = point(0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with autograd.detect_anomaly(check_nan=False):
            root(x).backward()
            assert autograd.is_anomaly_enabled()
            assert not autograd.is_anomaly_check_nan_enabled()
    assert np.isnan(x.grad.item())


def test_an_operation_from_outside_has_no_traceback():
    x = point(0.0)
    y = root(x)
    with pytest.raises(RuntimeError, match="nan values"), warnings.catch_warnings(record=True) as w:
        warnings.simplefilter("always")
        with autograd.detect_anomaly():
            y.backward()
    assert "No forward pass information available" in str(w[-1].message)


def test_nodes_keep_the_traceback_in_their_metadata():
    x = point(1.0)
    with autograd.set_detect_anomaly(True):
        y = x.exp()
    assert "y = x.exp()" in "".join(y.grad_fn.metadata["traceback_"])
    assert "traceback_" not in x.exp().grad_fn.metadata


def test_second_derivatives_are_looked_at():
    def f(x):
        (g,) = torch.autograd.grad((x * x / x).sum(), x, create_graph=True)
        return g

    error, _ = told(f, point(0.0))
    assert "DivBackward0" in error


def test_set_detect_anomaly_is_a_function_and_a_context():
    assert not autograd.is_anomaly_enabled()
    autograd.set_detect_anomaly(True)
    try:
        assert autograd.is_anomaly_enabled()
        with autograd.set_detect_anomaly(False):
            assert not autograd.is_anomaly_enabled()
        assert autograd.is_anomaly_enabled() and autograd.is_anomaly_check_nan_enabled()
    finally:
        autograd.set_detect_anomaly(False)
    assert state.watch is None


def test_the_mode_belongs_to_its_thread():
    with autograd.set_detect_anomaly(True):
        assert not elsewhere(autograd.is_anomaly_enabled)


def test_gradients_are_those_without_the_mode():
    def run():
        x = point(1.0, 2.0)
        y = x * 2
        y[0] = 3.0
        (y.exp() / x).sum().backward()
        return x.grad.tolist()

    expected = run()
    with autograd.set_detect_anomaly(True):
        assert run() == expected


def test_the_mode_and_a_profile_work_together():
    x = point(1.0)
    with autograd.set_detect_anomaly(True), autograd.profiler.profile() as prof:
        x.exp().backward()
    assert "ExpBackward0" in [e.name for e in prof.function_events]
    assert state.watch is None


class Boom(autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, grad):
        raise RuntimeError("boom")


def test_a_custom_function_has_a_traceback_and_is_one_step_of_a_profile():
    error, warning = told(lambda x: Boom.apply(x), point(1.0))
    assert error == "boom"
    assert "Error detected in BoomBackward" in warning
    assert "Boom.apply(x)" in warning
    with autograd.profiler.profile() as profile:
        Boom.apply(point(1.0))
    assert "Boom" in {event.key for event in profile.key_averages()}
