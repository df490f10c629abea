"""Anomaly mode: warnings and errors that begin with torch's sentences, and nested backwards."""

import sys
import warnings
import weakref
from io import StringIO

import pytest

import functrans.torch as torch
from functrans.torch.autograd import Function, detect_anomaly


class NaNAt(Function):
    """Sums; its backward is NaN for the first or the second argument."""

    @staticmethod
    def forward(ctx, x, y, first):
        ctx.first, ctx.n = first, len(x)
        return x.sum(0, keepdim=True)

    @staticmethod
    def backward(ctx, g):
        part = g.clone().expand(ctx.n).clone()
        part[0] = 0
        part[0] /= 0
        return (part, None, None) if ctx.first else (None, part, None)


def test_without_the_mode_nan_passes():
    x = torch.ones(3, requires_grad=True)
    NaNAt.apply(x, x, True).backward()
    assert x.grad[0].isnan()


def test_an_operation_before_the_mode_has_no_forward_pass_information():
    x = torch.ones(3, requires_grad=True)
    out = NaNAt.apply(x, x, True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match=(
                r"Function 'NaNAtBackward' returned nan values in its 0th output\.")), (
                detect_anomaly()):
            out.backward()
    assert str(said[0].message) == (
        "Anomaly Detection has been enabled. This mode will increase the runtime and should only "
        "be enabled for debugging.")
    assert str(said[1].message).startswith(
        "Error detected in NaNAtBackward. No forward pass information available.")


def test_an_operation_in_the_mode_shows_its_traceback():
    x = torch.ones(3, requires_grad=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match=(
                r"Function 'NaNAtBackward' returned nan values in its 1th output\.")), (
                detect_anomaly()):
            NaNAt.apply(x, x, False).backward()
    assert "Traceback of forward call that caused the error" in str(said[1].message)
    assert "NaNAt.apply" in str(said[1].message)


class Outer(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sum(0, keepdim=True)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return Inner.apply(g.clone().expand(3) * x)


class Inner(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * float("nan")


def test_a_nested_backward_shows_both_tracebacks():
    x = torch.ones(3, requires_grad=True)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="Function 'InnerBackward' returned nan values"), (
                detect_anomaly()):
            (g,) = torch.autograd.grad(Outer.apply(x), x, create_graph=True)
            g.sum().backward()
    assert "Inner.apply" in str(said[1].message)
    assert str(said[2].message).strip().startswith(
        "Previous calculation was induced by OuterBackward. Traceback of forward call")
    assert "Outer.apply" in str(said[2].message)


def change_what_was_saved(error_filter):
    with detect_anomaly():
        if error_filter:
            warnings.simplefilter("error")
        x = torch.ones(5, requires_grad=True)
        y = x + 1
        z = y**2
        y += 1
        torch.autograd.grad(z.sum(), x)


def test_a_failing_backward_is_named_before_its_error():
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            change_what_was_saved(False)
    assert "Error detected in PowBackward0" in str(said[1].message)


def test_where_warnings_are_errors_the_text_is_written(monkeypatch):
    monkeypatch.setattr(sys, "stderr", StringIO())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            change_what_was_saved(True)
    assert len(said) == 1 and "Error detected in PowBackward0" in sys.stderr.getvalue()


def test_the_mode_keeps_no_node_alive():
    class Kept:
        pass

    def grad_and_reference():
        x = torch.ones(2, requires_grad=True)
        y = x.exp()
        with pytest.warns(UserWarning, match="Anomaly Detection"), detect_anomaly():
            (g,) = torch.autograd.grad(y, x, torch.ones(2), create_graph=True)
        y.grad_fn.metadata[0] = kept = Kept()
        return g, weakref.ref(kept), y

    g, reference, y = grad_and_reference()
    assert reference() is not None
    del y, g
    assert reference() is None
