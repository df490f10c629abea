"""Which tensors a node has saved: changing one in place makes its backward an error, as in torch.

``y`` stands for the output, ``a`` and ``b`` for the operands; the tables are what torch 2.13 does.
"""

import numpy as np
import pytest

import functrans.torch as torch
from functrans.torch._tensors.tensor import from_value, lift
from functrans.torch.autograd.graph import allow_mutation_on_saved_tensors, saved_tensors_hooks

F = torch.nn.functional
A = np.array([[2.0, 0.3, 0.1], [0.2, 3.0, 0.4], [0.1, 0.3, 4.0]])
B = np.array([[0.7, 0.2, 0.5], [0.3, 0.9, 0.4], [0.6, 0.1, 0.8]])

# of one operand: the function, and what must not be changed
ONE = {
    name: (getattr(torch, name), saved)
    for saved, names in {
        "a": "abs acos acosh acosh asin asinh atan atanh cos cosh log log10 log1p log2 sin sinh "
             "square",
        "y": "exp exp2 reciprocal rsqrt sigmoid sqrt tan tanh",
        "ya": "amax amin max norm prod",
        "": "ceil clone deg2rad floor frac mean neg rad2deg round sign sum trace tril trunc",
    }.items()
    for name in names.split()
} | {
    "inverse": (torch.inverse, "y"),
    "logdet": (torch.logdet, "a"),
    "svdvals": (torch.linalg.svdvals, "y"),
    "eigvalsh": (torch.linalg.eigvalsh, "y"),
    "pinv": (torch.linalg.pinv, "ya"),
    "matrix_power": (lambda a: torch.linalg.matrix_power(a, 3), "a"),
    "silu": (F.silu, "a"),
    "softmax": (lambda a: a.softmax(0), "y"),
    "cumprod": (lambda a: a.cumprod(0), "ya"),
    "cumsum": (lambda a: a.cumsum(0), ""),
    "prod dim": (lambda a: a.prod(0), "ya"),
    "norm inf": (lambda a: a.norm(np.inf), "ya"),
    "clamp": (lambda a: a.clamp(0.3, 2.5), "a"),
    "max dim": (lambda a: a.max(0)[0], ""),
    "median dim": (lambda a: a.median(0)[0], ""),
    "sort": (lambda a: a.sort()[0], ""),
    "topk": (lambda a: a.topk(2)[0], ""),
    "a**2": (lambda a: a**2, "a"),
    "a**0.5": (lambda a: a**0.5, "a"),
    "a**1": (lambda a: a**1, "a"),
    "2**a": (lambda a: 2**a, "ya"),
    "a*2": (lambda a: a * 2, ""),
    "a/2": (lambda a: a / 2, ""),
    "1-a": (lambda a: 1 - a, ""),
    "a%0.4": (lambda a: a % 0.4, ""),
    "where": (lambda a: torch.where(a.detach() > 1, a, 0), ""),
    "masked_fill": (lambda a: a.masked_fill(a.detach() > 1, 0), ""),
    "index": (lambda a: a[[0, 1]], ""),
    "index_select": (lambda a: a.index_select(0, torch.tensor([1])), ""),
    "flip": (lambda a: a.flip(0), ""),
    "cat": (lambda a: torch.cat([a, a]), ""),
    "stack": (lambda a: torch.stack([a, a]), ""),
    "repeat": (lambda a: a.repeat(2, 1), ""),
    "float": (lambda a: a.float(), ""),
}
ONE["acosh"] = (lambda a: torch.acosh(a + 1), "")  # of a + 1, which nobody can change

# of two: what must not be changed where both require gradients, only a, only b
TWO = {
    name: (getattr(torch, name), saved)
    for saved, names in {
        ("", "", ""): "add sub",
        ("ab", "b", "a"): "mul mm mv dot outer inner",
        ("ab", "b", "ab"): "div",
        ("ab", "ab", "ab"): "atan2 logaddexp logaddexp2 maximum minimum fmax fmin",
        ("ab", "", "ab"): "remainder fmod",
        # torch lets the other operand be changed; the slope's own derivative here reads it
        ("yab", "yab", "yab"): "hypot",
    }.items()
    for name in names.split()
} | {
    "where": (lambda a, b: torch.where(a.detach() > 1, a, b), ("", "", "")),
    "l1_loss": (F.l1_loss, ("", "", "")),
    "einsum": (lambda a, b: torch.einsum("ij,ij->i", a, b), ("ab", "b", "a")),
    "bmm": (lambda a, b: torch.bmm(a[None], b[None]), ("ab", "b", "a")),
    "addmm": (lambda a, b: torch.addmm(a.detach(), a, b), ("ab", "b", "a")),
    "a/b": (lambda a, b: a / b, ("ab", "b", "ab")),
    "a*b": (lambda a, b: a * b, ("ab", "b", "a")),
    "a@b": (lambda a, b: a @ b, ("ab", "b", "a")),
}
SHAPES = {"mv": ((3, 3), (3,)), "dot": ((3,), (3,)), "outer": ((3,), (3,))}


def gradients(f, arrays, requires, change=""):
    """The gradients through ``f``, what ``change`` names being changed before the backward."""
    leaves = [torch.tensor(x, requires_grad=r) for x, r in zip(arrays, requires, strict=True)]
    operands = [x * 1 if r else x for x, r in zip(leaves, requires, strict=True)]
    y = f(*operands)
    z = y * 1
    named = dict(zip("ab", operands, strict=False)) | {"y": y}
    for name in change:
        named[name].mul_(2)
    z.sum().backward()
    return [None if x.grad is None else x.grad.numpy() for x in leaves]


def check(f, arrays, requires, saved):
    expected = gradients(f, arrays, requires)
    for name in "yab"[: 1 + len(arrays)]:
        if name in saved:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                gradients(f, arrays, requires, name)
        else:
            for got, want in zip(gradients(f, arrays, requires, name), expected, strict=True):
                if name == "a" and f in (torch.sigmoid, torch.tanh, torch.tan, torch.exp2):
                    # of an operand that is made of the result again
                    np.testing.assert_allclose(got, want, rtol=1e-12)
                else:
                    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("name", ONE)
def test_what_a_function_of_one_tensor_saves_must_not_be_changed(name):
    f, saved = ONE[name]
    check(f, [B if name in ("acos", "asin", "atanh") else A], [True], saved)


@pytest.mark.parametrize("requires", [(True, True), (True, False), (False, True)], ids=str)
@pytest.mark.parametrize("name", TWO)
def test_what_a_function_of_two_tensors_saves_must_not_be_changed(name, requires):
    f, saved = TWO[name]
    sa, sb = SHAPES.get(name, ((3, 3), (3, 3)))
    arrays = [A.reshape(-1)[: np.prod(sa)].reshape(sa), B.reshape(-1)[: np.prod(sb)].reshape(sb)]
    check(f, arrays, requires, saved[0 if all(requires) else 1 if requires[0] else 2])


@pytest.mark.parametrize(("f", "changes"), [
    (np.exp, "y"), (np.sin, "x"), (lambda x: 1.0 / x, "y"), (lambda x: x * x, "x"),
], ids=["exp", "sin", "divide", "multiply"])
def test_what_operators_inside_of_a_function_save_is_marked(f, changes):
    leaf = torch.tensor([1.0, 2.0], requires_grad=True)
    x = leaf * 1
    value = f(lift(x))
    y = from_value(value, value.storage)
    (x if changes == "x" else y).mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_an_index_that_was_saved_must_not_be_changed():
    x, index = torch.ones(3, requires_grad=True), torch.tensor([0, 1, 1])
    y = torch.zeros(2).scatter_add(0, index, x)
    index.add_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_quotient_can_be_multiplied_in_place():
    a, b = [torch.tensor(x, requires_grad=True) for x in (A, B)]
    t = a / b
    t.mul_(2)
    t.sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), 2 / B, rtol=1e-15)
    np.testing.assert_allclose(b.grad.numpy(), -2 * A / B**2, rtol=1e-15)


def test_a_square_root_cannot():
    y = torch.tensor(A, requires_grad=True).sqrt()
    y.mul_(2)
    with pytest.raises(RuntimeError, match="SqrtBackward0 saved it"):
        y.sum().backward()


def test_one_saved_tensor_has_hooks_of_its_own():
    log = []
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    w = torch.tensor([3.0, 4.0], requires_grad=True)
    y = x * w
    y.grad_fn._raw_saved_self.register_hooks(
        lambda t: (log.append(t.tolist()), t * 2)[1], lambda t: t / 2)
    gx, gw = torch.autograd.grad(y.sum(), (x, w))
    assert gx.tolist() == [3.0, 4.0] and gw.tolist() == [1.0, 2.0] and log == [[1.0, 2.0]]
    p = x.prod()
    p.grad_fn._raw_saved_self.register_hooks(lambda t: t.tolist(), torch.tensor)
    assert torch.autograd.grad(p, x)[0].tolist() == [2.0, 1.0]


def test_the_hooks_of_a_saved_tensor_are_set_once_and_in_time():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x.exp()
    saved = y.grad_fn._raw_saved_result
    saved.register_hooks(lambda t: t, lambda t: t)
    with pytest.raises(RuntimeError, match="whose hooks have already been set"):
        saved.register_hooks(lambda t: t, lambda t: t)
    y.sum().backward()
    with pytest.raises(RuntimeError, match="on a saved tensor after it has been freed"):
        saved.register_hooks(lambda t: t, lambda t: t)


def test_a_pack_hook_does_not_write_to_what_is_saved():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(RuntimeError, match="A saved tensor pack hook is modifying its input in"), \
            torch.autograd.graph.saved_tensors_hooks(lambda t: t.mul_(2), lambda t: t):
        x.exp()


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


@pytest.mark.parametrize("f", [
    lambda x: x * x, lambda x: x.softmax(0) * 3, lambda x: (x[:, None] @ x[None])[0], Twice.apply,
])
@pytest.mark.parametrize("hooks", [
    lambda: saved_tensors_hooks(lambda t: t.clone(), lambda t: t), allow_mutation_on_saved_tensors,
])
def test_what_was_packed_apart_may_be_changed(f, hooks):
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    (expected,) = torch.autograd.grad(f(x)[0], x)
    y = x.clone()
    context = hooks()
    with context:
        z = f(y)
    y.mul_(7)
    assert torch.equal(torch.autograd.grad(z[0], x)[0], expected)
    if hasattr(context, "clear"):
        context.clear()


def test_what_was_packed_as_it_is_must_not_be_changed():
    y = torch.ones(2, requires_grad=True).clone()
    with saved_tensors_hooks(lambda t: t, lambda t: t):
        z = y * y
    y.mul_(7)
    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        z.sum().backward()


def test_a_hook_of_one_saved_tensor_does_not_write_to_it():
    y = torch.ones(2, requires_grad=True).exp()
    with pytest.raises(RuntimeError, match="A saved tensor pack hook is modifying its input in"):
        y.grad_fn._raw_saved_result.register_hooks(lambda t: t.mul_(2), lambda kept: kept)
    with pytest.raises(RuntimeError, match="Trying to create a SavedTensor object from Python"):
        torch.autograd.SavedTensor()


def test_hooks_cannot_be_forbidden_where_they_are_set():
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda kept: kept), \
            pytest.raises(RuntimeError, match="not here"), \
            torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        pass


def test_a_hook_of_one_of_two_equal_operands_is_of_that_one():
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t * 2, lambda kept: kept)
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 6.0]


# calls that save an operand or their result in torch 2.13, where a rule here needs neither
REFUSED = {  # name -> the call, and what may not be changed before the backward
    "leaky_relu": (F.leaky_relu, "a"), "elu": (F.elu, "a"), "logsigmoid": (F.logsigmoid, "a"),
    "nan_to_num": (torch.nan_to_num, "a"), "sinc": (torch.sinc, "a"), "celu": (F.celu, "a"),
    "hardtanh": (F.hardtanh, "a"),
    "std": (torch.std, "a"), "var_mean": (lambda a: torch.var_mean(a)[0], "a"),
    "median": (torch.median, "ay"), "cummax": (lambda a: torch.cummax(a, 0)[0], "a"),
    "logsumexp": (lambda a: torch.logsumexp(a, 0), "ay"), "sgn": (torch.sgn, "ay"),
    "norm": (lambda a: a.norm(3), "ay"), "det": (lambda a: torch.det(a.view(2, 2)), "ay"),
    "fft": (torch.fft.fft, "a"), "nansum": (torch.nansum, "a"), "gather": (
        lambda a: a.gather(0, torch.tensor([1, 0])), "a"),
    "mse_loss": (lambda a: F.mse_loss(a, a.detach() * 2), "a"),
    "pool": (lambda a: F.avg_pool1d(a.view(1, 1, 4), 2), "a"),
    "layer_norm": (lambda a: F.layer_norm(a, (4,)), "a"),
    "scatter_reduce": (lambda a: a.scatter_reduce(0, torch.tensor([0]), a[:1], "amax"), "ay"),
    "expm1": (torch.expm1, "y"), "ldexp": (lambda a: torch.ldexp(a, torch.tensor(2)), "y"),
    "tanhshrink": (F.tanhshrink, ""), "ndtr": (torch.special.ndtr, ""),
    "normalize": (lambda a: F.normalize(a, dim=0), "a"), "quantile": (
        lambda a: a.quantile(0.5), ""),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("what", ["a", "y"])
def test_a_change_of_what_torch_saves_is_refused(name, what):
    call, saved = REFUSED[name]
    x = torch.tensor([0.6, 0.2, 0.3, 0.7], dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(call(x).abs().sum(), x)
    a = x * 1
    y = call(a)
    loss = y.abs().sum() if what == "a" else y
    (a if what == "a" else y).mul_(2)
    if what in saved:
        with pytest.raises(RuntimeError, match=r"saved it at .* and mul_ at .*test_saved"):
            torch.autograd.grad(loss.sum().abs(), x)
    elif what == "a":
        assert torch.autograd.grad(loss, x)[0].tolist() == pytest.approx(expected.tolist())


def test_what_torch_saves_is_freed_by_a_backward():
    x = torch.ones(2, requires_grad=True)
    y = F.hardtanh(x * 0.5).sum()
    y.backward()
    with pytest.raises(RuntimeError, match="Trying to backward through the graph a second time"):
        y.backward()


def test_of_expm1_that_was_followed_by_a_change_the_tail_is_kept():
    x = torch.tensor([-40.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.grad(x.expm1(), x)[0].item() == pytest.approx(np.exp(-40.0))
