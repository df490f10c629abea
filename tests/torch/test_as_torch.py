"""Values, types, gradients and errors of torch 2.13, where NumPy's functions give others."""

from math import inf, log, nan

import numpy as np
import pytest

import functrans.torch as torch

T = torch.tensor
BYTE = torch.uint8
M = [[1.0, -2.0], [3.0, 4.0]]
D = [[3.0, 0.0], [0.0, -4.0]]
N = [[1, 2, 3], [4, 5, 6]]

# the call, the type and the entries; of several tensors a list of both
VALUES = {
    "square of booleans": (lambda: T([True, False]).square(), "int64", [1, 0]),
    "booleans ** 2": (lambda: T([True, False]) ** 2, "int64", [1, 0]),
    "sign of booleans": (lambda: T([True, False]).sign(), "bool", [True, False]),
    "atan2": (lambda: torch.atan2(T([1, -1]), T([0, 0])), "float32", [np.pi / 2, -np.pi / 2]),
    "copysign": (lambda: torch.copysign(T([1, -2]), T([-1, 3])), "float32", [-1.0, 2.0]),
    "copysign of a number": (lambda: torch.copysign(T([1, -2]), -1.0), "float32", [-1.0, -2.0]),
    "div trunc": (
        lambda: torch.div(T([7, -7, 6]), T([2, 2, -4]), rounding_mode="trunc"), "int64",
        [3, -3, -1],
    ),
    "div trunc by an int": (
        lambda: torch.div(T([7, -7]), 2, rounding_mode="trunc"), "int64", [3, -3]
    ),
    "div trunc by a float": (
        lambda: torch.div(T([7, -7]), 2.0, rounding_mode="trunc"), "float32", [3.0, -3.0]
    ),
    "div trunc of floats": (
        lambda: torch.div(T([7.0, -7.0]), 2, rounding_mode="trunc"), "float32", [3.0, -3.0]
    ),
    "div trunc of bytes": (
        lambda: torch.div(T([7], dtype=BYTE), T([2], dtype=BYTE), rounding_mode="trunc"), "uint8",
        [3],
    ),
    "div trunc of large ints": (
        lambda: torch.div(T([2**62 + 1]), 1, rounding_mode="trunc"), "int64", [2**62 + 1]
    ),
    "div floor": (lambda: torch.div(T([7, -7]), 2, rounding_mode="floor"), "int64", [3, -4]),
    "negative powers": (
        lambda: T([1, -1, -1, 2, 0]) ** T([-1, -3, -2, -2, -1]), "int64", [1, -1, 1, 0, 0]
    ),
    "powers of bytes": (lambda: T([3, 7], dtype=BYTE) ** 3, "uint8", [27, 87]),
    "powers by bytes": (lambda: 3 ** T([3, 7], dtype=BYTE), "uint8", [27, 139]),
    "booleans ** True": (lambda: T([True, False]) ** True, "bool", [True, False]),
    "powers of a number": (lambda: 2 ** T([3, -1]), "int64", [8, 0]),
    "a number wraps": (lambda: T([3, 200], dtype=BYTE) + -1, "uint8", [2, 199]),
    "resolve_conj": (lambda: T([1 + 2j]).resolve_conj(), "complex64", [1 + 2j]),
    "resolve_conj of conj": (lambda: T([1 + 2j]).conj().resolve_conj(), "complex64", [1 - 2j]),
    "sigmoid": (lambda: torch.sigmoid(T([0j, 1j])), "complex64", [0.5, 0.5 + 0.2731512486934662j]),
    "angle": (lambda: T([-0.0, 0.0, -2.0, 3.0, nan]).angle(), "float32", [0, 0, np.pi, 0, nan]),
    "relu": (lambda: T([nan, -inf, inf]).relu(), "float32", [nan, 0.0, inf]),
    "masked_fill of booleans": (
        lambda: T([True, False]).masked_fill(T([False, True]), 3), "bool", [True, True]
    ),
    "masked_fill of ints": (lambda: T([1, 2]).masked_fill(T([False, True]), 1.5), "int64", [1, 1]),
    "where of numbers": (lambda: torch.where(T([True, False]), 1.0, 2), "float32", [1.0, 2.0]),
    "alpha of booleans": (
        lambda: torch.add(T([True, False]), T([True, True]), alpha=2), "bool", [True, True]
    ),
    "alpha of a number": (lambda: torch.add(T(3, dtype=torch.int8), 2, alpha=3), "int8", 9),
    "median of ints": (lambda: T([1, 3, 2, 2]).median(), "int64", 2),
    "median with NaN": (lambda: T([1.0, nan, 2.0]).median(), "float32", nan),
    "median along": (
        lambda: T([[1.0, nan, 2.0], [3.0, 1.0, 2.0]]).median(1), ["float32", "int64"],
        [[nan, 2.0], [1, 2]],
    ),
    "median of nothing": (lambda: T([]).median(), "float32", nan),
    "max of a boolean": (lambda: T(True).max(0), ["bool", "int64"], [True, 0]),
    "sort of a boolean": (lambda: T(True).sort(), ["bool", "int64"], [True, 0]),
    "all of bytes": (lambda: T([1, 0], dtype=BYTE).all(), "uint8", 0),
    "any of bytes": (lambda: T([1, 0], dtype=BYTE).any(0), "uint8", 1),
    "any along nothing": (lambda: T([2, 0]).any(dim=()), "bool", [True, False]),
    "nansum of bytes": (lambda: T([3, 4], dtype=BYTE).nansum(), "int64", 7),
    "trace of bytes": (lambda: T([[3, 4], [5, 200]], dtype=BYTE).trace(), "int64", 203),
    "nonzero of a number": (lambda: T(3.0).nonzero(), "int64", [[]]),
    "nonzero as a tuple": (lambda: T(0).nonzero(as_tuple=True), ["int64"], [[]]),
    "where of a number": (lambda: torch.where(T(2)), ["int64"], [[0]]),
    "masked_select of a number": (lambda: T(0.5).masked_select(T(True)), "float32", [0.5]),
    "take_along_dim": (
        lambda: torch.take_along_dim(T(N), T([[0], [2]]), 1), "int64", [[1], [6]]
    ),
    "take_along_dim, index broadcast": (
        lambda: torch.take_along_dim(T(N), T([[0, 1]]), 1), "int64", [[1, 2], [4, 5]]
    ),
    "take_along_dim, input broadcast": (
        lambda: torch.take_along_dim(T(N[:1]), T([[0, 1], [2, 0]]), dim=1), "int64",
        [[1, 2], [3, 1]],
    ),
    "take_along_dim of all": (lambda: torch.take_along_dim(T(N), T([5, 0])), "int64", [6, 1]),
    "take_along_dim as a method": (
        lambda: T(N).take_along_dim(T([[1, 0, 1]]), dim=0), "int64", [[4, 2, 6]]
    ),
    "cat with nothing": (lambda: torch.cat([T([1, 2]), torch.zeros(0)]), "float32", [1.0, 2.0]),
    "flip of two": (lambda: T(N).flip(0, 1), "int64", [[6, 5, 4], [3, 2, 1]]),
    "flip by name": (lambda: T(N).flip(dims=(1,)), "int64", [[3, 2, 1], [6, 5, 4]]),
    "linalg.norm": (lambda: torch.linalg.norm(T(M)), "float32", 30**0.5),
    "linalg.norm 1": (lambda: torch.linalg.norm(T(M), 1), "float32", 6.0),
    "linalg.norm inf": (lambda: torch.linalg.norm(T(M), inf), "float32", 7.0),
    "linalg.norm 2": (lambda: torch.linalg.norm(T(D), 2), "float32", 4.0),
    "linalg.norm along": (lambda: torch.linalg.norm(T(M), 1, dim=0), "float32", [4.0, 6.0]),
    "linalg.norm of a vector": (lambda: torch.linalg.norm(T([1.0, -2.0]), 1), "float32", 3.0),
    "linalg.norm of a stack": (
        lambda: torch.linalg.norm(T([D]), "nuc", dim=(1, 2)), "float32", [7.0]
    ),
    "logdet": (lambda: T([[2.0, 0.0], [0.0, 3.0]]).logdet(), "float32", np.log(6)),
    "logdet of a negative": (lambda: T(D).logdet(), "float32", nan),
    "logdet of zero": (lambda: torch.ones(2, 2).logdet(), "float32", -inf),
    "complex logdet": (
        lambda: T([[2.0, 0.0], [0.0, -3.0 + 0j]]).logdet(), "complex64", np.log(6) + np.pi * 1j
    ),
    "complex slogdet": (
        lambda: T([[2j, 0.0], [0.0, 1.0]]).slogdet(), ["complex64", "float32"], [1j, np.log(2)]
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values_and_types_are_torchs(name):
    call, types, values = VALUES[name]
    many = isinstance(types, list)
    found = call() if many else [call()]
    expected = zip(types, values, strict=True) if many else [(types, values)]
    for t, (kind, value) in zip(found, expected, strict=True):
        assert t.dtype.name == kind
        assert t.shape == np.shape(value)
        # single precision
        np.testing.assert_allclose(t.numpy(), value, rtol=1e-6 if kind[0] in "fc" else 0)


def doubles(x):
    return T(x, dtype=torch.complex128 if np.iscomplexobj(x) else torch.float64,
             requires_grad=True)


W = [[2 + 1j, 1.0], [0.0, 1j]]
# the function, the points, the gradient of the output, the gradients of the points
GRADIENTS = {
    "median of ties": (lambda x: x.median(), [[1, 2, 2, 3]], 1, [[0, 0.5, 0.5, 0]]),
    "median of equals": (lambda x: x.median(), [[[2, 2], [2, 2]]], 1, [[[0.25] * 2] * 2]),
    "median of a number": (lambda x: x.median(), [3], 1, [1]),
    "median of NaN": (lambda x: x.median(), [[1, nan, nan]], 1, [[0, 0.5, 0.5]]),
    "0**x": (lambda x: 0.0**x, [[0, 2, -1]], 1, [[0, 0, -inf]]),
    "x**y": (lambda x, y: x**y, [[0, 0, 2], [0, 3, 0]], 1, [[0, 0, 0], [0, 0, np.log(2)]]),
    "linalg.norm 1": (lambda x: torch.linalg.norm(x, 1), [M], 1, [[[0, -1], [0, 1]]]),
    "linalg.norm 2": (lambda x: torch.linalg.norm(x, 2), [D], 1, [[[0, 0], [0, -1]]]),
    "resolve_conj": (lambda z: z.resolve_conj(), [[1 + 2j]], 3 + 1j, [[3 + 1j]]),
    "logdet": (
        lambda A: A.logdet(), [W], 1j, [[[-0.2 + 0.4j, 0], [0.4 + 0.2j, -1]]]
    ),
    "sign of slogdet": (
        lambda A: A.slogdet()[0], [W], 1j,
        [[[0.08944271909999159 - 0.17888543819998318j, 0],
          [-0.17888543819998318 - 0.08944271909999159j, 0.4472135954999579]]],
    ),
    "take_along_dim": (
        lambda x: torch.take_along_dim(x, T([[0, 0], [2, 1]]), 1), [[[1, 2, 3]]], 1, [[[2, 1, 1]]]
    ),
    "take_along_dim of all": (
        lambda x: torch.take_along_dim(x, T([5, 0, 5])), [N], 1, [[[1, 0, 0], [0, 0, 2]]]
    ),
    "relu": (lambda x: x.relu(), [[nan, -1, 0, 2]], 1, [[1, 0, 0, 1]]),
    "angle": (lambda x: x.angle(), [[-0.0, -2, 3]], 1, [[0, 0, 0]]),
    "complex sigmoid": (
        lambda z: z.sigmoid(), [[1 + 1j]], 1, [[0.21123563908866044 + 0.11391559063073582j]]
    ),
    "div trunc": (lambda x: x.div(2, rounding_mode="trunc"), [[7, -7]], 1, [[0, 0]]),
    "repeat_interleave": (lambda x: x.repeat_interleave(T([1, 0, 2])), [[1, 2, 3]], 1, [[1, 0, 2]]),
    "masked_select": (lambda x: x.masked_select(T(True)), [0.5], 1, [1]),
    "copysign": (lambda x: x.copysign(T([-1.0, -1, 1])), [[2, 0, -3]], 1, [[-1, 0, -1]]),
    "logaddexp": (torch.logaddexp, [[-inf, 800, 0], [-inf, 0, 0]], 1, [[1, 1, 0.5], [1, 0, 0.5]]),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients_are_torchs(name):
    f, points, seed, expected = GRADIENTS[name]
    leaves = [doubles(x) for x in points]
    y = f(*leaves)
    y.backward(torch.ones_like(y) * seed)
    for x, want in zip(leaves, expected, strict=True):
        np.testing.assert_allclose(x.grad.numpy(), want, rtol=1e-14, atol=1e-16)


def test_the_median_of_ties_is_one_of_them_to_the_last_bit():
    x = T([0.1, 0.1, 0.1], dtype=torch.float64, requires_grad=True)
    assert x.median().item() == 0.1


# ---- second derivatives

MIXED = {
    "float32 * float64": (lambda x, y: x * y, torch.float32, torch.float64),
    "float64 / float32": (lambda x, y: x / y, torch.float64, torch.float32),
    "float32 ** float64": (lambda x, y: x**y, torch.float32, torch.float64),
    "float32 * complex": (lambda x, y: x * y, torch.float32, torch.complex128),
    "complex / float64": (lambda x, y: x / y, torch.complex64, torch.float64),
    "imaginary / float32": (lambda x, y: (2j / x) * y, torch.float32, torch.float32),
}


@pytest.mark.parametrize("name", MIXED)
def test_second_derivatives_have_the_types_of_their_leaves(name):
    f, *types = MIXED[name]
    x, y = [T([1.5, 2.0], dtype=t, requires_grad=True) for t in types]
    out = f(x, y)
    seed = torch.ones_like(out) * (1 + 1j if out.is_complex() else 1)
    first = torch.autograd.grad(out, (x, y), seed, create_graph=True)
    assert [g.dtype for g in first] == types
    second = torch.autograd.grad(first, (x, y), [torch.ones_like(g) for g in first])
    assert [h.dtype for h in second] == types


def test_the_second_derivative_of_a_real_factor_is_the_real_part():
    x = T([2.0], dtype=torch.float32, requires_grad=True)
    z = T([1 + 3j], dtype=torch.complex128, requires_grad=True)
    g = torch.autograd.grad(x * z, z, T([1 + 1j], dtype=torch.complex128), create_graph=True)[0]
    (h,) = torch.autograd.grad(g, x, T([1 + 2j], dtype=torch.complex128))
    assert h.dtype is torch.float32 and h.tolist() == [3.0]  # Re(conj(1 + 2i) (1 + i))


def test_the_loss_of_huber_is_curved_where_it_vanishes():
    x, target = [T([1.0, 3.0], dtype=torch.float64, requires_grad=r) for r in (True, False)]
    loss = torch.nn.functional.smooth_l1_loss(x, target, reduction="sum", beta=0.5)
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    assert torch.autograd.grad(g.sum(), x)[0].tolist() == [2.0, 2.0]


# ---- refusals

Z = T([1j])
REFUSED = {
    "ints to a negative power": (lambda: torch.arange(3) ** -1, RuntimeError, "negative integer"),
    "bytes to a negative power": (
        lambda: T([3], dtype=BYTE) ** -1, RuntimeError, "negative integer powers"
    ),
    "ints // 0": (lambda: T([1]) // 0, RuntimeError, "ZeroDivisionError"),
    "ints % 0": (lambda: T([1]) % T([0]), RuntimeError, "ZeroDivisionError"),
    "fmod": (lambda: T([1]).fmod(0), RuntimeError, "ZeroDivisionError"),
    "div trunc": (lambda: T([1]).div(0, rounding_mode="trunc"), RuntimeError, "ZeroDivisionError"),
    "alpha": (lambda: torch.add(T([1]), T([1]), alpha=0.5), RuntimeError, "alpha=0.5 does not fit"),
    "masked_fill": (
        lambda: T([1.0]).masked_fill(T([True]), 1j), RuntimeError, "cannot be converted to float32"
    ),
    "take_along_dim of another ndim": (
        lambda: torch.take_along_dim(T([[1]]), T([0]), 0), RuntimeError, "as many dimensions"
    ),
    "take_along_dim by int32": (
        lambda: torch.take_along_dim(T([1]), T([0], dtype=torch.int32), 0), RuntimeError, "int64"
    ),
    "gather": (lambda: T([1.0]).gather(0, T([-1])), RuntimeError, "index -1 is out of bounds"),
    "scatter": (lambda: T([1.0]).scatter(0, T([-1]), 2), RuntimeError, "-1 is out of bounds"),
    "index_select": (lambda: T([1.0]).index_select(0, T([-1])), IndexError, "-1 is out of bounds"),
    "linalg.norm": (lambda: torch.linalg.norm(T([[[1.0]]]), 1), RuntimeError, "name one or two"),
    "norm of ints": (lambda: T([1]).norm(), RuntimeError, "floating point"),
    "nanmean of ints": (lambda: T([1]).nanmean(), RuntimeError, "floating point"),
    "argmax of nothing": (lambda: T([]).argmax(), IndexError, "reduction dim to be specified"),
    "median of no ints": (lambda: T([0])[:0].median(), RuntimeError, "there is no entry"),
    "setitem of another shape": (
        lambda: T([1.0, 2.0]).__setitem__(slice(0, 1), T([1.0, 2.0])), RuntimeError,
        r"size of the tensor \(1\) must match the existing size \(2\)",
    ),
    "complex data": (lambda: T([1j], dtype=torch.float32), TypeError, "cannot become torch.float"),
    "complex of ints": (lambda: torch.complex(T([1]), T([2])), RuntimeError, "floats of one type"),
    "zeros": (lambda: torch.zeros(2, -1), RuntimeError, "with negative dimension -1: "),
    "arange": (lambda: torch.arange(0, 5, -1), RuntimeError, "inconsistent with step sign"),
    "arange by 0": (lambda: torch.arange(0, 5, 0), RuntimeError, "must be nonzero"),
    "unique": (
        lambda: T([1.0], requires_grad=True).unique().backward(), RuntimeError,
        "the derivative for .Unique. is not implemented",
    ),
}
NO_LOOP = {
    "-bool": (lambda: -T([True]), "Negation, the `-` operator, on a bool tensor"),
    "~float": (lambda: ~T([1.0]), "bitwise_not is not implemented for float32"),
    "float & float": (lambda: T([1.0]) & T([1.0]), "bitwise_and is not implemented for float32"),
    "gcd": (lambda: torch.gcd(T([1.0]), T([2])), "gcd is not implemented for float32"),
    "floor": (Z.floor, "floor_vml_cpu.* not implemented for 'ComplexFloat'"),
    "atan2": (lambda: torch.atan2(Z, Z), "atan2 is not implemented for complex64"),
    "softplus": (
        lambda: torch.nn.functional.softplus(Z), "softplus is not implemented for complex"
    ),
    "<": (lambda: Z < Z, "lt is not implemented for complex numbers, which have no order"),
    "< number": (lambda: T([1.0]) < 1j, "lt is not implemented for complex numbers"),
    "maximum": (lambda: torch.maximum(Z, Z), "maximum is not implemented for complex numbers"),
    "clamp": (lambda: Z.clamp(0, 1), "clamp is not implemented for complex numbers"),
    **{
        name: (lambda name=name: getattr(Z, name)(0), "is not implemented for complex numbers")
        for name in ("max", "min", "amax", "amin", "sort", "argsort", "argmax", "argmin")
    },
    "topk": (lambda: Z.topk(1), "is not implemented for complex numbers"),
    "median of all": (Z.median, "median_cpu.* not implemented for 'ComplexFloat'"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_torch_refuses_is_refused(name):
    call, error, text = REFUSED[name]
    with pytest.raises(error, match=text):
        call()


@pytest.mark.parametrize("name", NO_LOOP)
def test_a_type_that_a_function_does_not_take_is_named(name):
    call, text = NO_LOOP[name]
    with pytest.raises(NotImplementedError, match=text):
        call()


LINALG_ERRORS = {
    "inv": lambda: torch.linalg.inv(torch.zeros(2, 2)),
    "cholesky": lambda: torch.linalg.cholesky(-torch.eye(2)),
    "solve": lambda: torch.linalg.solve(torch.zeros(2, 2), torch.ones(2)),
}


@pytest.mark.parametrize("name", LINALG_ERRORS)
def test_a_matrix_that_cannot_be_dealt_with_is_an_error_of_linear_algebra(name):
    with pytest.raises(torch.linalg.LinAlgError, match=rf"linalg\.{name}: The "):
        LINALG_ERRORS[name]()
    with pytest.raises(RuntimeError):
        LINALG_ERRORS[name]()


F = torch.nn.functional
SENTENCES = {
    "a size": (lambda: T([1.0, 2.0]) + T([1.0, 2.0, 3.0]), RuntimeError,
               r"The size of tensor a \(2\) must match the size of tensor b \(3\) at non-sing"),
    "dot": (lambda: T([1.0, 2.0]) @ T([1.0, 2.0, 3.0]), RuntimeError, "inconsistent tensor size"),
    "cat": (lambda: torch.cat([torch.ones(2, 2), torch.ones(3, 3)]), RuntimeError,
            "Sizes of tensors must match except in dimension 0. Expected size 2 but got size 3"),
    "cat of others": (lambda: torch.cat([torch.ones(2, 2), torch.ones(2)]), RuntimeError,
                      "Tensors must have same number of dimensions: got 2 and 1"),
    "reshape": (lambda: torch.ones(2).reshape(3), RuntimeError, r"shape '\[3\]' is invalid for"),
    "expand to fewer": (lambda: torch.ones(2, 2).expand(2), RuntimeError, r"provided \(1\) must"),
    "an axis": (lambda: torch.ones(2).softmax(3), IndexError, r"of \[-1, 0\], but got 3"),
    "an index": (lambda: torch.ones(2)[5], IndexError, "index 5 is out of bounds for dimension 0"),
    "a list": (lambda: torch.ones(2)[[5]], IndexError, "index 5 is out of bounds for dimension 0"),
    "a mask": (lambda: T([1.0, 2.0])[torch.tensor([True, False, True])], IndexError,
               r"The shape of the mask \[3\] at index 0 does not match the shape of the indexed"),
    "gather": (lambda: torch.ones(2).gather(0, torch.tensor([5])), RuntimeError,
               "index 5 is out of bounds for dimension 0 with size 2"),
    "index_select": (lambda: torch.ones(2).index_select(0, torch.tensor([5])), IndexError,
                     "index out of range in self"),
    "float": (lambda: float(torch.ones(2)), ValueError, "only one element tensors can be convert"),
    "iteration": (lambda: iter(torch.tensor(3.0)), TypeError, "iteration over a 0-d tensor"),
    "split": (lambda: torch.ones(2).split(0), RuntimeError, "split_size can only be 0 if"),
    "chunk": (lambda: torch.ones(2).chunk(0), RuntimeError, "chunk expects `chunks` to be greater"),
    "diagonal": (lambda: torch.ones(2, 2).diagonal(0, 0, 0), RuntimeError, "cannot be identical"),
    "mean": (lambda: torch.ones(2).mean(dtype=torch.long), RuntimeError, r"mean\(\): could"),
    "where": (lambda: torch.where(torch.ones(2), 1, 2), RuntimeError, "where expected condition"),
    "types": (lambda: F.linear(torch.ones(2), torch.ones(2, 2).double()), RuntimeError,
              "expected m1 and m2 to have the same dtype"),
    "parameter": (lambda: torch.nn.Parameter(torch.ones(2).long()), RuntimeError,
                  "Only Tensors of floating point and complex dtype can require gradients"),
    "device": (lambda: torch.ones(2).to("foo"), RuntimeError, "Expected one of cpu, cuda, ipu, xp"),
    "a hook": (lambda: torch.ones(2).register_post_accumulate_grad_hook(print), RuntimeError,
               "cannot register a hook on a tensor that doesn't require gradient"),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_an_error_begins_with_the_sentence_of_torch(name):
    call, error, text = SENTENCES[name]
    with pytest.raises(error, match=f"^{text}" if name not in ("an axis", "expand to fewer",
                                                               "diagonal") else text):
        call()


def test_a_tensor_of_inference_mode_stays_as_it_is():
    with torch.inference_mode():
        x = torch.ones(2)
    with pytest.raises(RuntimeError, match="Setting requires_grad=True on inference tensor"):
        x.requires_grad_()
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside Inference"):
        x.add_(1)
    with pytest.raises(RuntimeError, match="Inference tensors do not track version counter"):
        x._version  # noqa: B018  (the error is what is tested)


def test_a_retained_input_of_backward_has_its_gradient_once():
    x = torch.ones(2, requires_grad=True)
    y = x * 3
    y.retain_grad()
    (y * y).sum().backward(inputs=[y])
    assert y.grad.tolist() == [6.0, 6.0] and x.grad is None


def test_a_boolean_index_takes_all_or_nothing():
    x = torch.tensor(2.0, requires_grad=True)
    assert x[torch.tensor(True)].tolist() == [2.0] and x[False].shape == (0,)
    y, z = x * 1, x * 3
    y[torch.tensor(True)] = x * 5
    z[torch.tensor(False)] = 7.0
    assert torch.autograd.grad(y + z, x)[0].item() == 8.0


# ---- names of arguments


@pytest.mark.parametrize("call", [
    lambda x: torch.softmax(x, axis=0), lambda x: x.sum(axis=0), lambda x: x.var(axis=0),
    lambda x: torch.amax(x, axis=0, keepdims=True), lambda x: torch.max(x, axis=0).values,
    lambda x: torch.cat([x, x], axis=0), lambda x: torch.stack([x], axis=1),
    lambda x: x.unsqueeze(axis=0), lambda x: torch.cumsum(x, axis=1),
])
def test_numpys_names_of_arguments_are_taken_too(call):
    x = torch.arange(6.0).reshape(2, 3)
    assert isinstance(call(x), torch.Tensor)


@pytest.mark.parametrize(("call", "text"), [
    (lambda x: x.std(colour=1), r"^std\(\) received an invalid combination of arguments - got "
                                r"\(Tensor, colour=int\)"),
    (lambda x: torch.clamp(x, minn=1), r"^clamp\(\) received an invalid combination .*minn=int"),
    (lambda x: torch.softmax(x, colour=1), r"^softmax\(\) got an unexpected keyword argument"),
    (lambda x: torch.nn.functional.mse_loss(x, x, colour=1), r"^mse_loss\(\) got an unexpected"),
])
def test_an_unknown_name_of_an_argument_is_refused_as_in_torch(call, text):
    with pytest.raises(TypeError, match=text):
        call(torch.ones(2, 3))


@pytest.mark.parametrize(("equation", "shapes", "text"), [
    ("ij,jk", [(2, 3), (4, 5)], "subscript j has size 4 for operand 1 which does not broadcast "
                                "with previously seen size 3"),
    ("ij,jk->il", [(2, 3), (3, 5)], "output subscript l does not appear in the equation"),
    ("ij,jk->ii", [(2, 3), (3, 5)], "output subscript i appears more than once in the output"),
    ("ij,jk,k", [(2, 3), (3, 5)], "fewer operands were provided than specified in the equation"),
    ("ij", [(2, 3), (3, 5)], "more operands were provided than specified in the equation"),
    ("ijk", [(2, 3)], r"the number of subscripts in the equation \(3\) does not match the number "
                      r"of dimensions \(2\) for operand 0 and no ellipsis was given"),
    ("...ijk", [(2, 3)], r"the number of subscripts in the equation \(3\) is more than the "),
    ("ii->i", [(2, 3)], "subscript i is repeated for operand 0 but the sizes don't match, 3 != 2"),
    ("i1", [(2, 3)], "invalid subscript given at index 1 in the equation string"),
])
def test_einsum_says_which_subscript_is_wrong(equation, shapes, text):
    with pytest.raises(RuntimeError, match=rf"^einsum\(\): {text}"):
        torch.einsum(equation, *[torch.ones(s) for s in shapes])


def test_a_node_lists_what_it_has_saved():
    x = torch.ones(2, requires_grad=True)

    def saved(y):
        return [n for n in dir(y.grad_fn) if n.startswith("_saved_")]

    assert saved(x * x) == ["_saved_other", "_saved_self"]
    assert saved(x.exp()) == ["_saved_result"]
    assert saved(x**2) == ["_saved_exponent", "_saved_self"]
    y = x * x
    y.sum().backward()
    assert saved(y) == []
    assert {"name", "next_functions", "register_hook"} <= set(dir(y.grad_fn))
    assert (x * 2).grad_fn.next_functions[0][0].name() == "torch::autograd::AccumulateGrad"


def test_the_slope_of_xlogy_at_zero_is_a_logarithm():
    x, y = (torch.tensor(v, dtype=torch.float64, requires_grad=True)
            for v in ([0.0, 0.0, 0.0, 2.0], [5.0, 0.5, -1.0, 0.0]))
    z = torch.xlogy(x, y)
    assert z.tolist() == [0.0, 0.0, 0.0, -inf]
    slope = torch.autograd.grad(z[:3].sum(), x)[0]
    assert slope.tolist() == [log(5.0), log(0.5), 0.0, 0.0]
    a = torch.tensor(1.0, dtype=torch.float64, requires_grad=True)
    b = torch.tensor(2.0, dtype=torch.float64)
    torch.distributions.Gamma(a, b).log_prob(torch.tensor(5.0, dtype=torch.float64)).backward()
    assert a.grad.item() == pytest.approx(log(2.0) + log(5.0) + 0.5772156649015329)
