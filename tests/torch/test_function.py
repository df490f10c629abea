"""Custom functions: section H of the checklist, A1 and E5."""

import gc
import weakref
from collections import OrderedDict

import numpy as np
import pytest

import functrans.torch as torch
from functrans.torch.autograd import Function, function
from functrans.torch.autograd.function import (
    InplaceFunction,
    once_differentiable,
    traceable,
)


def leaf(*values, dtype=torch.float64):
    return torch.tensor(values, dtype=dtype, requires_grad=True)


class Exp(Function):
    @staticmethod
    def forward(ctx, i):
        result = i.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, grad_output):
        (result,) = ctx.saved_tensors
        return grad_output * result


class Cube(Function):
    """Saves its input; the second derivative goes through what was saved."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


def made_of(forward, backward):
    """A Function of two plain functions."""
    return type("Made", (Function,), {
        "forward": staticmethod(forward), "backward": staticmethod(backward),
    })


# ---- forward and backward


def test_the_names_of_autograd_are_there():
    names = {"Variable", "Function", "backward", "grad_mode"}
    assert names <= set(torch.autograd.__all__)
    assert torch.autograd.Function is function.Function


def test_the_exponential_of_the_documents_has_its_derivatives():
    x = leaf(0.5, -1.0)
    y = Exp.apply(x)
    np.testing.assert_array_equal(y.detach().numpy(), np.exp([0.5, -1.0]))
    (g,) = torch.autograd.grad(y.sum(), x)
    np.testing.assert_array_equal(g.numpy(), np.exp([0.5, -1.0]))


@pytest.mark.parametrize(("f", "order", "expected"), [
    (Exp.apply, 3, np.exp([0.5, -2.0])),
    (Cube.apply, 1, 3 * np.array([0.25, 4.0])),
    (Cube.apply, 2, 6 * np.array([0.5, -2.0])),
    (Cube.apply, 3, np.array([6.0, 6.0])),
])
def test_a_custom_function_is_differentiated_again_through_its_backward(f, order, expected):
    x = leaf(0.5, -2.0)
    y = f(x)
    for _ in range(order):
        (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-15)


def test_second_derivatives_join_those_of_ordinary_operations():
    x = leaf(0.7)
    (g,) = torch.autograd.grad((Exp.apply(x * x) * Cube.apply(x)).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x)
    v = 0.7  # d2/dx2 of exp(x^2) x^3
    expected = np.exp(v * v) * (4 * v**5 + 14 * v**3 + 6 * v)
    np.testing.assert_allclose(h.numpy(), [expected], rtol=1e-13)


def test_arguments_that_are_no_tensors_have_gradient_none():
    f = made_of(lambda ctx, x, n, name: x * n, lambda ctx, g: (g * 3, None, None))
    x = leaf(1.0, 2.0)
    f.apply(x, 3, "three").sum().backward()
    assert x.grad.tolist() == [3.0, 3.0]


def test_gradients_that_are_left_off_at_the_end_or_too_many_nones_are_judged():
    x = leaf(1.0)
    extra = made_of(lambda ctx, x: x * 2, lambda ctx, g: (g * 2, None, None))
    extra.apply(x).backward()
    assert x.grad.tolist() == [2.0]
    short = made_of(lambda ctx, x, y: x * y, lambda ctx, g: g)
    with pytest.raises(RuntimeError, match=r"expected 2, got 1"):
        short.apply(x, leaf(1.0)).backward()


def test_a_gradient_for_what_is_no_tensor_is_an_error():
    f = made_of(lambda ctx, x, n: x * n, lambda ctx, g: (g, g))
    with pytest.raises(RuntimeError, match="different from None at position 2"):
        f.apply(leaf(1.0), 3.0).backward()


def test_a_gradient_that_is_no_tensor_is_an_error():
    f = made_of(lambda ctx, x: x * 2, lambda ctx, g: 2.0)
    wrong = r"expected Variable or None \(got float\) .* of function MadeBackward"
    with pytest.raises(RuntimeError, match=wrong):
        f.apply(leaf(1.0)).backward()


def test_a_gradient_of_another_shape_is_summed_or_refused():
    x = leaf(1.0)
    spread = made_of(lambda ctx, x: x.expand(3).clone(), lambda ctx, g: g)
    spread.apply(x).backward(torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64))
    assert x.grad.tolist() == [6.0]
    wrong = made_of(lambda ctx, x: x * 2, lambda ctx, g: g[:1])
    with pytest.raises(RuntimeError, match=r"invalid gradient at index 0 - got \[1\]"):
        wrong.apply(leaf(1.0, 2.0)).sum().backward()


def test_a_gradient_has_the_type_of_its_tensor():
    f = made_of(lambda ctx, x: x * 2, lambda ctx, g: g.double() * 2)
    x = leaf(1.0, dtype=torch.float32)
    f.apply(x).backward()
    assert x.grad.dtype is torch.float32


def test_none_is_no_gradient():
    f = made_of(lambda ctx, x, y: x * y, lambda ctx, g: (None, g))
    x, y = leaf(2.0), leaf(3.0)
    f.apply(x, y).backward()
    assert x.grad is None and y.grad.tolist() == [1.0]


def test_complex_gradients_are_seen_in_the_documented_convention():
    seen = []

    def backward(ctx, g):
        seen.append(g)
        return g * 2

    z = leaf(3 + 4j, dtype=torch.complex128)
    y = made_of(lambda ctx, z: z * 2, backward).apply(z)
    y.backward(torch.tensor([1 + 1j], dtype=torch.complex128))
    assert seen[0].tolist() == [1 + 1j]
    assert z.grad.tolist() == [2 + 2j]


def test_forward_runs_without_recording_and_backward_records_on_demand():
    modes = []

    def note(value):
        modes.append(torch.is_grad_enabled())
        return value

    f = made_of(lambda ctx, x: note(x * 2), lambda ctx, g: note(g * 2))
    x = leaf(1.0)
    f.apply(x).backward()
    f.apply(x).backward(create_graph=True)
    assert modes == [False, False, False, True]


def test_under_no_grad_nothing_is_recorded():
    with torch.no_grad():
        y = Exp.apply(leaf(1.0))
    assert y.grad_fn is None and not y.requires_grad


def test_a_name_that_forward_does_not_have_is_refused():
    with pytest.raises(TypeError, match="no_such"):
        Exp.apply(leaf(1.0), no_such=1)


# ---- several outputs


class Pair(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, "label", x + 2 * y

    @staticmethod
    def backward(ctx, g1, label, g2):
        assert label is None
        x, y = ctx.saved_tensors
        return g1 * y + g2, g1 * x + 2 * g2


def test_backward_gets_a_gradient_for_each_output_and_none_for_other_objects():
    x, y = leaf(3.0), leaf(5.0)
    a, label, b = Pair.apply(x, y)
    assert label == "label"
    (a * 10 + b).backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([51.0], [32.0])


def test_gradients_of_unused_outputs_are_zeros():
    x, y = leaf(3.0), leaf(5.0)
    Pair.apply(x, y)[2].backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([1.0], [2.0])


def test_without_materialized_gradients_unused_outputs_have_none():
    seen = []

    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    def backward(ctx, *grads):
        seen.append([g is None for g in grads])
        return grads[1] * 3

    x = leaf(1.0)
    made_of(forward, backward).apply(x)[1].backward()
    assert seen == [[True, False]] and x.grad.tolist() == [3.0]


# ---- undefined gradients: what torch 2.13 does


Nothing = made_of(lambda ctx, x: x * 2, lambda ctx, g: None)


def watched(materialize=True):
    """A function that doubles, and the list of the gradients that its backward is given."""
    seen = []

    def forward(ctx, x):
        ctx.set_materialize_grads(materialize)
        return x * 2

    def backward(ctx, g):
        seen.append(g if g is None else g.tolist())
        return None if g is None else g * 2

    return made_of(forward, backward), seen


def test_a_function_before_one_that_returns_none_is_given_zeros():
    f, seen = watched()
    x = leaf(1.0, 2.0)
    Nothing.apply(f.apply(x)).sum().backward()
    assert seen == [[0.0, 0.0]] and x.grad.tolist() == [0.0, 0.0]


def test_without_materialized_gradients_it_is_given_none():
    f, seen = watched(materialize=False)
    x = leaf(1.0, 2.0)
    Nothing.apply(f.apply(x)).sum().backward()
    assert seen == [None] and x.grad is None


def test_zeros_are_given_to_each_of_several_outputs():
    x, y = leaf(3.0), leaf(5.0)
    Nothing.apply(Pair.apply(x, y)[0]).backward()
    assert (x.grad.tolist(), y.grad.tolist()) == ([0.0], [0.0])


def test_none_for_one_operand_is_zeros_for_the_function_before_it():
    f, seen = watched()
    x, w = leaf(1.0), leaf(3.0)
    made_of(lambda ctx, x, y: x * y, lambda ctx, g: (g, None)).apply(x, f.apply(w)).backward()
    assert (x.grad.tolist(), w.grad.tolist(), seen) == ([1.0], [0.0], [[0.0]])


def test_none_and_a_gradient_are_the_gradient():
    f, seen = watched()
    x = leaf(1.0)
    y = f.apply(x)
    (Nothing.apply(y) + 3 * y).backward()
    assert seen == [[3.0]] and x.grad.tolist() == [6.0]


@pytest.mark.parametrize("between", [
    lambda x: x * 3, lambda x: x.exp(), lambda x: x[0], lambda x: x.sum(), lambda x: x.sort()[0],
    lambda x: x @ x,
])
def test_operations_pass_on_that_there_is_no_gradient(between):
    f, seen = watched()
    x, z = leaf(1.0, 2.0), leaf(1.0, 2.0)
    Nothing.apply(between(x)).sum().backward()
    Nothing.apply(between(f.apply(z))).sum().backward()
    assert x.grad is None
    assert seen == [[0.0, 0.0]] and z.grad.tolist() == [0.0, 0.0]


def test_grad_returns_the_zeros_too():
    f, _ = watched()
    x = leaf(1.0, 2.0)
    assert torch.autograd.grad(Nothing.apply(f.apply(x)).sum(), x)[0].tolist() == [0.0, 0.0]
    assert torch.autograd.grad(Nothing.apply(x * 3).sum(), x, allow_unused=True) == (None,)


def test_zeros_reach_a_function_inside_a_checkpoint():
    f, seen = watched()
    x = leaf(1.0, 2.0)
    Nothing.apply(torch.utils.checkpoint.checkpoint(f.apply, x)).sum().backward()
    assert seen == [[0.0, 0.0]] and x.grad.tolist() == [0.0, 0.0]


def test_what_an_undefined_gradient_passes_is_freed():
    x = leaf(1.0)
    y = x.exp()
    Nothing.apply(y).backward()
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_hooks_see_that_a_gradient_is_undefined():
    x, seen = leaf(1.0), []
    y = x * 3
    y.retain_grad()
    y.register_hook(lambda g: seen.append(("result", g)))
    y.grad_fn.register_prehook(lambda gs: seen.append(("before", gs)))
    y.grad_fn.register_hook(lambda ins, outs: seen.append(("after", ins[0], outs)))
    x.register_hook(lambda g: seen.append(("leaf", g)))
    x.register_post_accumulate_grad_hook(lambda t: seen.append(("done", t.grad)))
    Nothing.apply(y).backward()
    assert seen == [("result", None), ("before", (None,)), ("after", None, (None,)),
                    ("leaf", None), ("done", None)]
    assert y.grad is None


def test_the_hook_of_an_unused_output_sees_that_its_gradient_is_undefined():
    x, y, seen = leaf(3.0), leaf(5.0), []
    outs = Pair.apply(x, y)
    for name, out in (("used", outs[0]), ("unused", outs[2])):
        out.register_hook(lambda g, name=name: seen.append((name, g is None)))
    outs[0].backward()
    assert sorted(seen) == [("unused", True), ("used", False)]


REPLACING = {
    "tensor": lambda y: y.register_hook(lambda g: torch.ones(1)),
    "before": lambda y: y.grad_fn.register_prehook(lambda gs: (torch.ones(1),)),
    "after": lambda y: y.grad_fn.register_hook(lambda ins, outs: (torch.ones(1), None)),
}


@pytest.mark.parametrize("name", REPLACING)
def test_no_hook_puts_a_gradient_where_there_is_none(name):
    y = leaf(1.0) * 3
    REPLACING[name](y)
    with pytest.raises(RuntimeError, match="can't replace a None gradient with a non-None value"):
        Nothing.apply(y).backward()


def test_a_complex_gradient_of_a_real_input_is_refused():
    f = made_of(lambda ctx, x: x * 2, lambda ctx, g: g * 1j)
    with pytest.raises(RuntimeError, match="returned a complex gradient at index 0 for a real"):
        f.apply(leaf(1.0)).backward()


def test_a_tensor_returned_twice_collects_both_gradients():
    def forward(ctx, x):
        y = x * 2
        return y, y

    x = leaf(1.0)
    a, b = made_of(forward, lambda ctx, g, h: 2 * g + 2 * h).apply(x)
    (a + 10 * b).backward()
    assert x.grad.tolist() == [22.0]


def test_non_differentiable_outputs_require_nothing_and_receive_zeros():
    seen = []

    def forward(ctx, x):
        values, indices = x.max(0)
        ctx.mark_non_differentiable(values)
        return values, indices, x * 2

    def backward(ctx, g_values, g_indices, g):
        seen.append((g_values.tolist(), g_indices.tolist()))
        return 2 * g

    x = leaf(1.0, 5.0)
    values, indices, y = made_of(forward, backward).apply(x)
    assert not values.requires_grad and not indices.requires_grad and y.requires_grad
    y.sum().backward()
    assert seen == [(0.0, 0)] and x.grad.tolist() == [2.0, 2.0]


# ---- the context


def test_what_was_saved_may_be_none_and_comes_back_in_order():
    def forward(ctx, x, w):
        ctx.save_for_backward(None, w, x)
        return x * w

    def backward(ctx, g):
        none, w, x = ctx.saved_tensors
        assert none is None
        return g * w, g * x

    x, w = leaf(2.0), leaf(7.0)
    made_of(forward, backward).apply(x, w).backward()
    assert (x.grad.tolist(), w.grad.tolist()) == ([7.0], [2.0])


def test_only_tensors_can_be_saved():
    f = made_of(lambda ctx, x: ctx.save_for_backward(x, 3) or x * 2, lambda ctx, g: g)
    with pytest.raises(TypeError, match="argument 1 is of type int"):
        f.apply(leaf(1.0))


@pytest.mark.parametrize("which", ["input", "output"])
def test_a_saved_tensor_that_was_changed_is_noticed(which):
    x = leaf(1.0)
    a = x * 2
    y = (Cube if which == "input" else Exp).apply(a)
    (a if which == "input" else y).add_(1)
    with pytest.raises(RuntimeError, match=r"modified by an inplace operation.*Backward.*add_"):
        y.sum().backward()


def test_what_was_saved_is_freed_by_the_first_walk():
    x = leaf(1.0)
    y = Exp.apply(x)
    y.backward(retain_graph=True)
    y.backward()
    with pytest.raises(RuntimeError, match=r"second time .*what ExpBackward had saved"):
        y.backward()


def test_a_function_that_saved_nothing_can_be_walked_again():
    x = leaf(1.0)
    y = made_of(lambda ctx, x: x * 2, lambda ctx, g: g * 2).apply(x)
    y.backward()
    y.backward()
    assert x.grad.tolist() == [4.0]


def test_the_context_takes_any_attribute_and_none_disturbs_the_walk():
    taken = ("edges", "outputs", "seq", "name", "extras", "pull", "marks", "constant")

    def forward(ctx, x):
        for name in taken:
            setattr(ctx, name, name)
        return x * 2

    def backward(ctx, g):
        assert [getattr(ctx, name) for name in taken] == list(taken)
        return g * 2

    x = leaf(1.0)
    y = made_of(forward, backward).apply(x)
    assert y.grad_fn.constant == "constant"
    y.backward()
    assert x.grad.tolist() == [2.0]


def test_needs_input_grad_says_which_arguments_require_gradients():
    def backward(ctx, g):
        assert ctx.needs_input_grad == (False, True, False)
        return None, g, None

    f = made_of(lambda ctx, x, y, n: x * y * n, backward)
    y = leaf(2.0)
    f.apply(torch.ones(1, dtype=torch.float64), y, 1).backward()
    assert y.grad.tolist() == [1.0]


def test_mark_shared_storage_is_deprecated():
    f = made_of(lambda ctx, x: ctx.mark_shared_storage((x, x)) or x * 2, lambda ctx, g: g)
    with pytest.warns(UserWarning, match="mark_shared_storage is deprecated"):
        f.apply(leaf(1.0))


def test_setup_context_may_be_a_method_of_its_own():
    class Square(Function):
        @staticmethod
        def forward(x, n):
            return x**n

        @staticmethod
        def setup_context(ctx, inputs, output):
            x, ctx.n = inputs
            ctx.save_for_backward(x)

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * ctx.n * x ** (ctx.n - 1), None

    x = leaf(3.0)
    Square.apply(x, 3).backward()
    assert x.grad.tolist() == [27.0]


def test_no_reference_cycles_are_left_behind():
    gc.collect()
    x = leaf(1.0)
    y = Exp.apply(Cube.apply(x))
    node = weakref.ref(y.grad_fn)
    gc.disable()
    try:
        del y
        assert node() is None
    finally:
        gc.enable()


# ---- changes in place


class Doubled(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 2


def test_a_dirty_input_becomes_the_output():
    x = leaf(1.0, 2.0)
    a = x * 3
    b = Doubled.apply(a)
    assert b is a and type(a.grad_fn).__name__ == "DoubledBackward"
    (a * a).sum().backward()
    assert x.grad.tolist() == [72.0, 144.0]


def test_a_dirty_view_reaches_the_history_of_its_base():
    x = leaf(1.0, 2.0)
    a = x * 3
    Doubled.apply(a[0])
    a.sum().backward()
    assert x.grad.tolist() == [6.0, 3.0]


def test_a_dirty_tensor_that_someone_saved_is_noticed():
    x = leaf(1.0)
    a = x * 3
    b = a * a
    Doubled.apply(a)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        b.backward()


def test_what_is_marked_dirty_counts_as_changed_even_if_numpy_changed_it():
    def forward(ctx, x):
        x.detach().numpy()[...] *= 2
        ctx.mark_dirty(x)
        return x

    x = leaf(1.0)
    a = x * 3
    before = a._version
    made_of(forward, lambda ctx, g: g * 2).apply(a)
    assert a._version > before


def test_dirty_tensors_are_inputs_and_are_returned():
    lost = made_of(lambda ctx, x: ctx.mark_dirty(x) or x * 2, lambda ctx, g: g)
    with pytest.raises(RuntimeError, match="must all be outputs"):
        lost.apply(leaf(1.0) * 1)

    def forward(ctx, x):
        y = x * 2
        ctx.mark_dirty(y)
        return y

    with pytest.warns(UserWarning, match="mark_dirty.*not an input"):
        made_of(forward, lambda ctx, g: g).apply(leaf(1.0))


def test_a_dirty_view_is_the_only_tensor_that_is_returned():
    def forward(ctx, x):
        ctx.mark_dirty(x.add_(1))
        return x, x * 2

    with pytest.raises(RuntimeError, match="cannot return more than one Tensor, as MadeBackward"):
        made_of(forward, lambda ctx, g, h: g).apply((leaf(1.0) * 1)[:])


def test_a_leaf_cannot_be_dirty():
    with pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        Doubled.apply(leaf(1.0))


@pytest.mark.parametrize("forward", [
    lambda ctx, x: x, lambda ctx, x: x.view(-1), lambda ctx, x: x.clone().view(-1),
], ids=["input", "view", "view of a temporary"])
def test_a_view_that_is_returned_cannot_be_written_to(forward):
    x = leaf(1.0, 2.0)
    y = made_of(forward, lambda ctx, g: -g).apply(x)
    assert y is not x and y._is_view()
    with pytest.raises(RuntimeError, match=(
            r"Output 0 of Made is a view and is being modified inplace\. This view was "
            "created inside a custom Function")):
        y.mul_(5)
    y.sum().backward()
    assert x.grad.tolist() == [-1.0, -1.0]


def test_one_of_several_views_that_are_returned_cannot_be_written_to():
    y, _ = made_of(lambda ctx, x: (x.view(-1), x * 2), lambda ctx, g, h: g).apply(leaf(1.0))
    with pytest.raises(RuntimeError, match="output of a function that returns multiple views"):
        y.add_(1)


def test_a_detached_input_that_is_returned_is_a_copy():
    x = leaf(1.0, 2.0)
    y = made_of(lambda ctx, x: x.detach(), lambda ctx, g: -g).apply(x)
    y.mul_(5)
    y.sum().backward()
    assert x.grad.tolist() == [-5.0, -5.0] and x.tolist() == [1.0, 2.0]


def test_a_constant_that_is_returned_is_a_view_without_a_history_to_look_up():
    c, x = torch.zeros(2, dtype=torch.float64), leaf(1.0, 2.0)
    alias = made_of(lambda ctx, x: x, lambda ctx, g: -g).apply(c)
    assert alias is not c and not alias.requires_grad
    with pytest.raises(RuntimeError, match="created inside a custom Function"):
        alias.add_(x)
    c.add_(x)
    assert alias.tolist() == [1.0, 2.0]
    with pytest.raises(RuntimeError, match="its history is not known"):
        alias * 3


def test_a_saved_input_that_is_returned_keeps_its_own_history():
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return -g * x  # whatever it stands for: its derivative in x is -g

    x = leaf(3.0)
    (g,) = torch.autograd.grad(made_of(forward, backward).apply(x), x, create_graph=True)
    (h,) = torch.autograd.grad(g, x)
    assert h.tolist() == [-1.0]


def test_no_attribute_of_a_context_is_mistaken_for_a_leaf():
    def forward(ctx, x):
        ctx.variable = 3.0
        ctx.save_for_backward(x)
        return 2 * x

    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * g + 0 * x

    doubled = made_of(forward, backward)
    x = leaf(1.0)
    y = doubled.apply(x)
    assert y.grad_fn is not None  # from now on the node has the attributes of its context
    assert torch.autograd.grad(doubled.apply(y), x)[0].tolist() == [4.0]


# ---- differentiable once


class Once(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        assert not torch.is_grad_enabled()
        return g * 2 * x


def test_a_backward_marked_once_differentiable_is_right_once():
    x = leaf(3.0)
    Once.apply(x).backward()
    assert x.grad.tolist() == [6.0]


@pytest.mark.parametrize("walk", [
    lambda g, x: g.backward(), lambda g, x: torch.autograd.grad(g, x),
], ids=["backward", "grad"])
def test_differentiating_a_once_differentiable_backward_is_an_error(walk):
    x = leaf(3.0)
    (g,) = torch.autograd.grad(Once.apply(x), x, create_graph=True)
    with pytest.raises(RuntimeError, match="twice a function that was marked"):
        walk(g, x)


# ---- classes


def test_each_class_has_a_class_of_nodes_that_knows_it():
    y = Exp.apply(leaf(1.0))
    assert Exp._backward_cls.__name__ == "ExpBackward"
    assert Exp._backward_cls._forward_cls is Exp
    assert y.grad_fn._forward_cls is Exp
    assert isinstance(y.grad_fn, Exp._backward_cls)
    assert not isinstance(y.grad_fn, Cube._backward_cls)
    assert isinstance(Cube._backward_cls(), Cube._backward_cls)
    assert y.grad_fn.name() == "ExpBackward"
    assert repr(y) == "tensor([2.7183], dtype=torch.float64, grad_fn=<ExpBackward>)"


def test_the_context_applies_the_backward():
    ctx = Pair._backward_cls()
    ctx._forward_cls = made_of(None, lambda ctx, g: (ctx, g))
    assert ctx.apply(7) == (ctx, 7)


def test_functions_should_not_be_instantiated():
    with pytest.warns(DeprecationWarning, match="should not be instantiated"):
        Exp()


def test_calling_an_instance_is_the_legacy_way():
    with pytest.warns(DeprecationWarning):
        f = Exp()
    with pytest.raises(RuntimeError, match="Legacy autograd function with non-static forward"):
        f(leaf(1.0))


def test_forward_and_backward_must_be_there():
    class Nothing(Function):
        pass

    with pytest.raises(NotImplementedError, match="You must implement the forward function"):
        Nothing.apply(leaf(1.0))
    half = type("Half", (Function,), {"forward": staticmethod(lambda ctx, x: x * 2)})
    with pytest.raises(NotImplementedError, match="You must implement either the backward or vjp"):
        half.apply(leaf(1.0)).backward()


def test_hooks_are_entered_into_an_ordered_dict():
    hooks, handle = Function._register_hook(None, print)
    assert isinstance(hooks, OrderedDict) and list(hooks.values()) == [print]
    again, other = Function._register_hook(hooks, len)
    assert again is hooks and len(hooks) == 2
    handle.remove()
    assert list(hooks.values()) == [len]
    other.remove()


def test_a_tensor_hook_and_a_node_hook_see_the_gradients_of_a_custom_function():
    x = leaf(2.0)
    y = Cube.apply(x)
    seen = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    y.grad_fn.register_hook(lambda gi, go: seen.append((gi[0].tolist(), go[0].tolist())))
    y.backward()
    assert seen == [[1.0], ([12.0], [1.0])]


def test_traceable_marks_a_class():
    @traceable
    class Marked(Function):
        pass

    assert Marked.is_traceable and not Function.is_traceable


def test_an_inplace_function_knows_whether_it_shall_work_in_place():
    with pytest.warns(DeprecationWarning):
        assert InplaceFunction(inplace=True).inplace
    with pytest.warns(DeprecationWarning):
        assert not InplaceFunction().inplace


def test_vjp_is_another_name_for_backward():
    class Twice(Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def vjp(ctx, g):
            return g * 2

    class Both(Twice):
        @staticmethod
        def backward(ctx, g):
            return g

    x = leaf(1.0)
    Twice.apply(x).backward()
    assert x.grad.tolist() == [2.0]
    with pytest.raises(RuntimeError, match=r"both 'backward' and 'vjp'.* in Both"):
        Both.apply(x).backward()


def test_a_leaf_that_is_a_view_is_not_changed_by_a_function():
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

    x = torch.ones(2, 2).view(4).requires_grad_()
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad has been used in"):
        Doubled.apply(x)
