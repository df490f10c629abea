"""``NestedIOFunction`` and the helpers for nesting: H19 to H21 of the checklist."""

from collections import namedtuple

import pytest

import functrans.torch as torch
from functrans.torch.autograd import function
from functrans.torch.autograd.function import NestedIOFunction


def leaf(*values):
    return torch.tensor(values, dtype=torch.float64, requires_grad=True)


class Nested(NestedIOFunction):
    """(x, [y, None], z) -> ([x y, x z], z**2)"""

    def forward_extended(self, x, pair, z):
        y, _ = pair
        self.save_for_backward(x, [y], z)
        return [x * y, x * z], z * z

    def backward_extended(self, products, g_square):
        g_xy, g_xz = products
        x, (y,), z = self.saved_tensors
        return g_xy * y + g_xz * z, [g_xy * x, None], g_xz * x + 2 * z * g_square


def nested():
    with pytest.warns(DeprecationWarning):
        return Nested()


def test_nested_inputs_outputs_and_saved_tensors():
    x, y, z = leaf(2.0), leaf(3.0), leaf(5.0)
    (xy, xz), square = nested()(x, [y, None], z)
    assert (xy.tolist(), xz.tolist(), square.tolist()) == ([6.0], [10.0], [25.0])
    (xy + 10 * xz + 100 * square).backward()
    assert [t.grad.tolist() for t in (x, y, z)] == [[53.0], [2.0], [1020.0]]


def test_nested_functions_are_differentiated_twice():
    x, y, z = leaf(2.0), leaf(3.0), leaf(5.0)
    (xy, _), square = nested()(x, [y, None], z)
    gx, gz = torch.autograd.grad((xy * square).sum(), (x, z), create_graph=True)
    (mixed,) = torch.autograd.grad(gx.sum(), z)  # d/dz of y z^2
    assert gx.tolist() == [75.0] and gz.tolist() == [60.0] and mixed.tolist() == [30.0]


def test_nested_marks_reach_the_tensors():
    class Marks(NestedIOFunction):
        def forward_extended(self, pair):
            a, b = pair
            a.mul_(2)
            c = b * 3
            self.mark_dirty([a])
            self.mark_non_differentiable({"c": c})
            return [a], c

        def backward_extended(self, g_a, g_c):
            assert g_c.tolist() == [0.0]
            return [2 * g_a[0], None]

    x = leaf(1.0)
    a, b = x * 1, leaf(1.0)
    with pytest.warns(DeprecationWarning):
        (out,), c = Marks()([a, b])
    assert out is a and not c.requires_grad
    a.backward()
    assert x.grad.tolist() == [2.0]


def test_nested_functions_leave_their_methods_to_subclasses():
    with pytest.warns(DeprecationWarning), pytest.raises(NotImplementedError):
        NestedIOFunction()(leaf(1.0))


Point = namedtuple("Point", "x y")


def test_nesting_helpers_go_through_lists_tuples_dicts_and_none():
    proto = [1, (2, None), Point(3, {"k": 4})]

    def number(o):
        return type(o) is int

    assert function._nested_map(number, lambda n: -n)(proto) == [
        -1, (-2, None), Point(-3, {"k": -4})]
    assert list(function._iter_filter(number)(proto)) == [1, 2, 3, 4]
    assert list(function._iter_filter(number, allow_unknown=True)(["s", 1])) == ["s", 1]
    assert function._unflatten([10, 20, 30, 40], proto) == [10, (20, None), Point(30, {"k": 40})]


def test_nesting_helpers_name_the_type_that_they_do_not_know():
    helper = function._nested_map(lambda o: False, None, condition_msg="Tensors")
    message = "Auto nesting doesn't know how to process an input object of type str. Accepted"
    with pytest.raises(ValueError, match=message):
        helper(["text"])
    with pytest.raises(ValueError, match=message):
        list(function._iter_filter(lambda o: False, condition_msg="Tensors")("text"))


def test_structured_inputs_and_outputs_may_wrap_themselves():
    class Wrapped:
        def _jit_unwrap(self):
            return (torch.ones(1), torch.ones(2))

        @staticmethod
        def _jit_wrap(items):
            return list(items)

    assert len(list(function._iter_tensors([Wrapped()]))) == 2
    assert function._unflatten([1, 2], Wrapped()) == [1, 2]
