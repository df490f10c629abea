"""``__torch_function__`` and classes derived from tensors, as PyTorch 2.13 has them."""

import pytest

import functrans.torch as torch
import functrans.torch.nn.functional as F
from functrans.torch import overrides
from functrans.torch._C import DisableTorchFunctionSubclass, _disabled_torch_function_impl


class Told:
    """No tensor: it tells what was called with it."""

    shape = (2,)

    def __float__(self):
        return 1.0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func, types, kwargs


TOLD = Told()


@pytest.mark.parametrize("call", [
    lambda: (torch.add, torch.add(torch.ones(2), TOLD)),
    lambda: (torch.add, torch.ones(2) + TOLD),
    lambda: (torch.mul, torch.ones(2).mul(TOLD)),
    lambda: (torch.sin, torch.sin(TOLD)),
    lambda: (torch.cat, torch.cat([TOLD, torch.ones(2)])),
    lambda: (torch.mean, torch.mean(TOLD)),
    lambda: (torch.where, torch.where(torch.ones(2) > 0, TOLD, torch.ones(2))),
    lambda: (torch.clamp, torch.clamp(torch.ones(2), TOLD)),
    lambda: (torch.einsum, torch.einsum("i,i", TOLD, torch.ones(2))),
    lambda: (torch.reshape, torch.reshape(TOLD, (1,))),
    lambda: (torch.zeros_like, torch.zeros_like(TOLD)),
    lambda: (torch.linalg.solve, torch.linalg.solve(torch.eye(2), TOLD)),
    lambda: (F.linear, F.linear(torch.ones(2), TOLD)),
    lambda: (F.mse_loss, F.mse_loss(torch.ones(2), TOLD)),
    lambda: (F.relu, F.relu(TOLD)),
])
def test_an_object_overrides_each_function_that_is_called_with_it(call):
    func, (called, types, _) = call()
    assert called is func and types == (Told,)


def test_options_reach_the_handler():
    assert torch.sum(TOLD, dim=0)[2] == {"dim": 0}


def test_handlers_that_decline_end_in_an_error():
    class Declines:
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return NotImplemented

    with pytest.raises(TypeError, match=r"Multiple dispatch failed for 'torch\.add'"):
        torch.add(torch.ones(2), Declines())
    assert torch.add(Declines(), TOLD)[0] is torch.add  # the next one is asked


def test_errors_without_such_objects_are_as_they_were():
    with pytest.raises(RuntimeError, match="The size of tensor a"):
        torch.add(torch.ones(2), torch.ones(3))
    with pytest.raises(TypeError, match="must be Tensor, not object"):
        torch.add(torch.ones(2), object())


class Kind(torch.Tensor):
    pass


def test_results_are_of_the_class_of_the_operand():
    t = torch.ones(2).as_subclass(Kind)
    for y in (t + 1, 1 - t, torch.ones(2) * t, t.sin(), t[0], t.sum(), t.view(2, 1), t.detach(),
              t.clone(), t.T, t.max(0)[0], t.split(1)[0], torch.stack([t, torch.ones(2)]),
              torch.reshape(t, (1, 2)), F.relu(t), t.add_(1), torch.zeros_like(t), t.data):
        assert type(y) is Kind
    assert repr(t) == "Kind([2., 2.])"
    plain = torch.ones(2)
    assert type(plain.add_(t)) is Kind and type(plain) is torch.Tensor
    with DisableTorchFunctionSubclass():
        assert type(t + 1) is torch.Tensor


def test_gradients_pass_a_derived_class():
    x = torch.ones(2, requires_grad=True)
    ((x * 2).as_subclass(Kind) ** 2).sum().backward()
    assert x.grad.tolist() == [8, 8] and type(x.grad) is torch.Tensor
    w = torch.Tensor._make_subclass(Kind, torch.ones(2), True)
    assert w.is_leaf and w.requires_grad
    torch.func.grad(lambda w: (w * w).sum())(w)
    (w * w).sum().backward()
    assert w.grad.tolist() == [2, 2]


def test_a_derived_class_can_say_what_functions_do_and_call_super():
    called = []

    class Logs(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            called.append(func.__name__)
            return super().__torch_function__(func, types, args, kwargs or {})

    t = Logs([1.0, 2.0])
    y = torch.sin(t) + 1
    assert type(y) is Logs and called == ["sin", "add"]
    called.clear()
    assert type(t.view(2, 1)) is Logs and type(F.relu(t)) is Logs and called == ["view", "relu"]


def test_parameters_and_classes_with_the_disabled_handler_give_plain_tensors():
    class Own(torch.nn.Parameter):
        pass

    class Plain(torch.Tensor):
        __torch_function__ = _disabled_torch_function_impl

    assert type(Own(torch.ones(2)) + 1) is torch.Tensor
    assert type(torch.ones(2).as_subclass(Plain) + 1) is torch.Tensor


def test_two_derived_classes_meet_and_the_more_derived_one_is_asked():
    class More(Kind):
        pass

    a, b = torch.ones(2).as_subclass(Kind), torch.ones(2).as_subclass(More)
    assert type(a + b) is More and type(b + a) is More


def test_functions_of_other_packages_can_be_overridable():
    def double(x, times=2):
        if overrides.has_torch_function((x,)):
            return overrides.handle_torch_function(double, (x,), x, times=times)
        return x * times

    assert double(TOLD, times=3)[::2] == (double, {"times": 3})
    assert double(torch.ones(1)).item() == 2
    assert overrides.is_tensor_like(TOLD) and not overrides.is_tensor_like(1)
    assert not overrides.has_torch_function((torch.ones(1), torch.nn.Parameter(torch.ones(1))))
