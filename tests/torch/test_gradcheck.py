"""``gradcheck`` and ``gradgradcheck``: section I of the checklist."""

import numpy as np
import pytest

import functrans.torch as torch
from functrans.torch._graph.nodes import Node
from functrans.torch._tensors.tensor import edge_of, from_array
from functrans.torch.autograd import GradcheckError, gradcheck, gradgradcheck
from functrans.torch.autograd.gradcheck import get_analytical_jacobian, get_numerical_jacobian


def point(*shape, dtype=torch.float64, seed=0):
    rng = np.random.default_rng(seed)
    a = rng.uniform(0.3, 1.5, shape)
    if dtype.is_complex:
        a = a + 1j * rng.uniform(-1, 1, shape)
    return torch.tensor(a, dtype=dtype, requires_grad=True)


X = point(2, 3)


def planted(pull, *xs, outputs=1, value=None):
    """The sum of ``xs``, once for each of the outputs, with a backward of one's own."""

    class Planted(Node):
        pass

    Planted.pull = lambda self, ct, create: pull(ct)
    node = Planted([edge_of(x) for x in xs], outputs)
    value = sum([x._array for x in xs]) if value is None else value
    ys = tuple([from_array(value + 0.0, None, node, k) for k in range(outputs)])
    return ys if outputs > 1 else ys[0]


def fails(f, *inputs, check=gradcheck, **options):
    with pytest.raises(GradcheckError) as e:
        check(f, inputs, **options)
    assert check(f, inputs, raise_exception=False, **options) is False
    return str(e.value)


# ---- what is right passes


@pytest.mark.parametrize("f", [
    torch.sin, lambda x: x.exp() / x, lambda x: (x @ x.t()).tanh(), lambda x: (x.sum(), x.prod()),
    lambda x: [x[0], x[:, 1]], lambda x: x.t().reshape(-1).cumsum(0),
], ids=["sin", "quotient", "matmul", "tuple", "list", "views"])
@pytest.mark.parametrize("fast", [False, True])
def test_right_gradients_pass(f, fast):
    options = {"check_batched_grad": True, "fast_mode": fast, "check_grad_dtypes": True}
    assert gradcheck(f, X, check_forward_ad=True, **options) is True
    assert gradgradcheck(f, X, check_fwd_over_rev=True, **options) is True


def test_inputs_are_a_tensor_or_a_tuple_and_may_hold_other_things():
    w = point(3, 2)
    assert gradcheck(lambda x, k, w: (x * k) @ w, (X, 2.5, w))
    assert gradcheck(lambda x: x * w.detach().t(), X)


def test_a_tensor_given_twice_is_moved_in_both_places():
    assert gradcheck(lambda a, b: a * b.sin(), (X, X))


@pytest.mark.parametrize("f", [
    lambda z: z * z, lambda z: z.conj() * z, lambda z: z.abs(), lambda z: z.real * z.imag,
    lambda z: (z.conj() ** 2).exp(),
], ids=["holomorphic", "square of abs", "abs", "parts", "conjugate"])
@pytest.mark.parametrize("fast", [False, True])
def test_complex_inputs_are_checked_in_the_wirtinger_sense(f, fast):
    z = point(3, dtype=torch.complex128)
    assert gradcheck(f, z, fast_mode=fast, check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(f, z, fast_mode=fast)


def test_a_real_input_of_a_complex_function_passes():
    assert gradcheck(lambda x: torch.complex(x, x * x) ** 2, X)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (2, 0, 3)])
def test_unusual_shapes_pass(shape):
    assert gradcheck(torch.exp, point(*shape))
    assert gradgradcheck(lambda x: x**3, point(*shape), gen_non_contig_grad_outputs=True)


def test_nothing_is_changed_in_the_inputs():
    x = point(3)
    x._array.setflags(write=False)
    before, version = x._array.copy(), x._version
    assert gradcheck(lambda x: x**2, x) and gradgradcheck(lambda x: x**3, x)
    assert np.array_equal(x._array, before) and x._version == version and x.grad is None


def test_strided_inputs_and_results_of_operations_pass():
    x = point(4, 3)
    assert gradcheck(lambda v: v.sin(), x[::2].t())
    assert gradcheck(lambda v: v.sin(), x * 2)


# ---- what is wrong is found


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("f", [
    lambda x: x + 0.01 * x.detach() ** 2, lambda x: x * x.detach(),
    lambda x: planted(lambda ct: [-ct], x), lambda x: planted(lambda ct: [None], x),
], ids=["term", "factor", "sign", "missing"])
def test_a_wrong_gradient_is_found(f, fast):
    assert "mismatch" in fails(f, X, fast_mode=fast)


def test_the_message_names_entry_and_both_values():
    weights = torch.ones(2, 3, dtype=torch.float64)
    weights[1, 2] = 1.5
    message = fails(lambda x: planted(lambda ct: [ct * weights._array], x), X)
    assert message.startswith("Jacobian mismatch for output 0 with respect to input 0,\nnumerical:")
    assert "most in entry [1, 2] of the output" in message
    assert "entry [1, 2] of the input" in message
    assert "numerical:0.99999999" in message and "analytical:1.5" in message
    assert "1 of 36 entries" in message


def test_the_wrong_one_of_two_inputs_is_named():
    w = point(2, 3, seed=1)
    assert "input 1" in fails(lambda x, w: planted(lambda ct: [ct, 2 * ct], x, w), X, w)


@pytest.mark.parametrize("fast", [False, True])
def test_a_missing_conjugate_is_found(fast):
    z = point(3, dtype=torch.complex128)
    text = fails(lambda z: planted(lambda ct: [np.conj(ct)], z * 1j), z, fast_mode=fast)
    assert "part of complex outputs only, Jacobian mismatch" in text


def test_only_a_wrong_second_derivative_is_found_by_gradgradcheck():
    def cube(x):
        # the slope is a constant to the second derivative
        return planted(lambda ct: [ct * (3 * x._array**2)], x, value=x._array**3)

    assert gradcheck(cube, X)
    assert "input 0" in fails(cube, X, check=gradgradcheck)
    assert gradgradcheck(lambda x: x**3, X)


def test_tolerances_and_step_are_those_given():
    def off(x):
        return planted(lambda ct: [ct * 1.01], x)

    assert gradcheck(off, X, rtol=0.02)
    assert gradcheck(off, X, atol=0.02)
    fails(off, X)
    assert gradcheck(lambda x: x**2, X, eps=1e-2)  # central differences of squares are exact


def test_a_function_that_changes_without_requiring_gradients_is_found():
    message = fails(lambda x: (x.detach() ** 2, x.sum()), X)
    assert "output 0 does not require gradients, but it changes with input 0" in message
    assert gradcheck(lambda x: (torch.ones(2, dtype=torch.float64), x.sum()), X)
    assert gradcheck(lambda x: (x > 0, x.sum()), X)


# ---- what else a backward must do


def test_a_backward_that_varies_is_found_unless_tolerated():
    calls = iter(range(10**6))

    def shaken(x):
        return planted(lambda ct: [ct * (1 + 1e-7 * next(calls) % 1e-6)], x)

    assert "not reentrant" in fails(shaken, X)
    assert gradcheck(shaken, X, nondet_tol=1e-5)


def test_a_function_that_varies_is_found():
    calls = iter(range(10**6))
    assert "not deterministic" in fails(lambda x: x * (1 + next(calls)), X)


def given(cts):
    return sum([ct for ct in cts if ct is not None])


def test_an_undefined_gradient_must_be_as_good_as_zeros():
    def doubled(x):
        def pull(cts):
            return [given(cts) * (2 - any([ct is None for ct in cts]))]

        return planted(pull, x, outputs=2)

    assert gradcheck(lambda x: planted(lambda cts: [given(cts)], x, outputs=2), X)
    assert "undefined gradient is not treated as zeros" in fails(doubled, X)
    assert gradcheck(doubled, X, check_undefined_grad=False)


class OnesForNone(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return torch.ones(3, dtype=torch.float64) if g is None else g * 2


class FailsForNone(OnesForNone):
    @staticmethod
    def backward(ctx, g):
        return g * 2


class NoneForNone(OnesForNone):
    @staticmethod
    def backward(ctx, g):
        return g if g is None else g * 2


def test_a_single_undefined_gradient_must_be_as_good_as_zeros():
    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    assert "Expected all input grads to be undefined or zero when all output grads are" in fails(
        OnesForNone.apply, x)
    with pytest.warns(UserWarning, match="New undefined gradient support checking feature"):
        text = fails(FailsForNone.apply, x)
    assert text.startswith("Expected backward function to handle undefined output grads. It fails")
    assert gradcheck(OnesForNone.apply, x, check_undefined_grad=False)
    assert gradcheck(NoneForNone.apply, x)


def test_right_functions_pass_the_check_of_batched_gradients():
    class Square(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            return 2 * ctx.saved_tensors[0] * g

    x = torch.tensor([1.0, 2.0, 3.0], dtype=torch.float64, requires_grad=True)
    for f in (Square.apply, lambda x: Square.apply(x.sin()).exp()):
        assert gradcheck(f, x, check_batched_grad=True)
        assert gradgradcheck(f, x, check_batched_grad=True)


def test_what_a_backward_raises_is_raised():
    def fragile(x):
        return planted(lambda cts: [cts[0] + cts[1]], x, outputs=2)

    with pytest.raises(TypeError, match="NoneType"):
        gradcheck(fragile, X)


def test_zeros_must_give_zeros():
    message = fails(lambda x: planted(lambda ct: [ct + 1e-6], x), X)
    assert "backward not multiplied by grad_output: where that of output 0" in message


def test_batched_gradients_are_checked_where_asked():
    def reads(x):
        return planted(lambda ct: [ct * (2.0 if float(ct.sum()) < -1e300 else 1.0)], x)

    assert gradcheck(reads, X)
    text = fails(reads, X, check_batched_grad=True)
    assert "testing batched gradient computation. Those of output 0 fail" in text


def test_gradients_have_the_type_of_their_input_where_asked():
    def narrow(x):
        return planted(lambda ct: [ct.astype(np.float32)], x)

    assert gradcheck(narrow, X)
    text = fails(narrow, X, check_grad_dtypes=True)
    assert "Gradient has dtype mismatch: that of input 0 is torch.float32" in text


def test_a_gradient_of_another_size_is_found():
    message = fails(lambda x: planted(lambda ct: [ct[:1]], x), X)
    assert "Analytical gradient has incorrect size" in message


# ---- sparse inputs


def sparse(**kwargs):
    return torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 0]], [3.0, 4.0, 5.0], (2, 3),
                                   dtype=torch.float64, requires_grad=True, **kwargs)


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("f", [lambda s: s.to_dense() ** 2,
                               lambda s: s.coalesce().values().sin()], ids=["dense", "values"])
def test_sparse_inputs_are_checked_at_their_values(f, fast):
    assert gradcheck(f, sparse(), check_sparse_nnz=True, fast_mode=fast)
    assert gradcheck(f, sparse(), masked=True, fast_mode=fast)


def test_a_wrong_gradient_of_a_sparse_input_is_found():
    message = fails(lambda s: s.to_dense() * s.to_dense().detach(), sparse(),
                    check_sparse_nnz=True)
    assert "of the values of the input" in message


def test_sparse_inputs_are_refused_unless_asked_for():
    with pytest.raises(RuntimeError, match="expects all tensor inputs are dense when"):
        gradcheck(lambda s: s.to_dense(), sparse())
    with pytest.raises(ValueError, match="Sparse output is not supported at gradcheck yet"):
        gradcheck(lambda s: s, sparse(), check_sparse_nnz=True)


def test_sparse_tensors_hold_values_at_places():
    s = sparse()
    assert s.is_sparse and s.layout is torch.sparse_coo and repr(s.layout) == "torch.sparse_coo"
    assert not s.to_dense().is_sparse and s.to_dense().layout is torch.strided
    assert s.shape == (2, 3) and s.size(1) == 3 and s.dim() == s.ndim == 2
    assert s.sparse_dim() == 2 and s.dense_dim() == 0 and s._nnz() == 3
    assert s.to_dense().tolist() == [[0, 0, 3], [9, 0, 0]]
    c = s.coalesce()
    assert c.is_coalesced() and not s.is_coalesced() and c._nnz() == 2
    assert c.indices().tolist() == [[0, 1], [2, 0]] and c.values().tolist() == [3, 9]
    assert c.coalesce() is c
    with pytest.raises(RuntimeError, match=r"values: places .* call coalesce"):
        s.values()
    (s.to_dense() * torch.tensor([[1.0, 2, 3], [4, 5, 6]], dtype=torch.float64)).sum().backward()
    assert s.grad.to_dense().tolist() == [[0, 0, 3], [8, 0, 0]]
    assert s._values().grad.tolist() == [3, 4, 4]
    assert "nnz=3, layout=torch.sparse_coo, requires_grad=True" in repr(s)
    assert not s.detach().requires_grad


@pytest.mark.parametrize("args, text", [
    (([[0, 1]], [1.0]), "2 places"),
    (([[0, 5]], [1.0, 2.0], (3,)), "index of axis 0 is 5"),
    (([[0, -1]], [1.0, 2.0], (3,)), "index of axis 0 is -1"),
    (([[0, 1]], [1.0, 2.0], (3, 3)), "do not fit the size"),
])
def test_sparse_tensors_that_do_not_fit_raise(args, text):
    with pytest.raises(RuntimeError, match=text):
        torch.sparse_coo_tensor(*args)


def test_sparse_tensors_may_be_empty_or_hold_rows():
    empty = torch.sparse_coo_tensor(np.zeros((2, 0), int), np.zeros(0), (2, 2))
    assert empty.coalesce().to_dense().tolist() == [[0, 0], [0, 0]]
    rows = torch.sparse_coo_tensor([[1, 1]], [[1.0, 2.0], [3.0, 4.0]])
    assert rows.size() == (2, 2) and rows.dense_dim() == 1
    assert rows.coalesce().to_dense().tolist() == [[0, 0], [4, 6]]


# ---- bad input


def test_some_input_must_require_gradients():
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        gradcheck(torch.sin, (torch.ones(2, dtype=torch.float64), torch.arange(3)))


def test_inputs_of_less_precision_are_warned_of():
    with pytest.warns(UserWarning, match="Input #0 requires gradient and is not a double"):
        assert gradcheck(lambda x: x * 2, torch.ones(2, requires_grad=True), eps=0.25)


def test_overlapping_memory_is_refused():
    row = point(3)
    with pytest.raises(RuntimeError, match="The 0th input has a dimension with stride 0"):
        gradcheck(lambda x: x * 2, row.expand(2, 3))
    assert gradcheck(lambda x: x * 2, row.expand(2, 3).contiguous())


def test_functions_that_change_their_input_are_refused():
    def grow(x):
        x._array[...] += 1
        return x * 2

    with pytest.raises(ValueError, match="changed input 0"):
        gradcheck(grow, point(3))
    with pytest.raises(RuntimeError, match="leaf"):
        gradcheck(lambda x: x.add_(1), point(3))


@pytest.mark.parametrize("out", [3.0, np.ones(2), None, "text"])
def test_outputs_must_be_tensors(out):
    with pytest.raises(ValueError, match="return a Tensor or a tuple of Tensors"):
        gradcheck(lambda x: out, X)


def test_options_that_exclude_each_other_or_are_missing_raise():
    with pytest.raises(AssertionError, match="Expected at least one of check_forward_ad"):
        gradcheck(torch.sin, X, check_backward_ad=False)
    with pytest.raises(AssertionError, match="needs check_backward_ad"):
        gradcheck(torch.sin, X, check_backward_ad=False, check_forward_ad=True,
                  check_batched_grad=True)
    with pytest.raises(NotImplementedError, match="check_batched_forward_grad"):
        gradcheck(torch.sin, X, check_batched_forward_grad=True)
    assert gradcheck(torch.sin, X, check_backward_ad=False, check_forward_ad=True)


def test_grad_outputs_may_be_given():
    v = point(2, 3, seed=3)
    assert gradgradcheck(lambda x: x**3, X, v)
    assert gradgradcheck(lambda x: (x**3, x.sum()), (X,), (v, point()))


def test_a_hundred_by_a_hundred_is_checked_entry_by_entry():
    x, w = point(100), torch.tensor(np.random.default_rng(0).standard_normal((100, 100)))
    assert gradcheck(lambda x: (w @ x).tanh(), x)


def test_a_function_returns_outputs_of_one_shape_and_type():
    x = torch.ones(1, dtype=torch.float64, requires_grad=True)

    def longer(x):
        return torch.cat([x, x]) if x.item() >= 1 else x

    def narrower(x):
        return x.float() if x.item() >= 1 else x

    for fast in (False, True):
        with pytest.raises(AssertionError, match="same shape when inputs are perturbed"):
            gradcheck(longer, x, fast_mode=fast)
        with pytest.raises(AssertionError, match="same dtype when inputs are perturbed"):
            gradcheck(narrower, x, fast_mode=fast)


def test_a_function_without_outputs_passes():
    assert gradcheck(lambda x: (), point(2))


def test_jacobians_have_older_functions_too():
    def f(x, y):
        return 2 * x + y, x + 2 * y

    a, b = point(2, 2), point(2, 2)
    eye = torch.eye(4, dtype=torch.float64)
    with pytest.warns(FutureWarning, match="get_numerical_jacobian was part of PyTorch's private"):
        numerical = get_numerical_jacobian(
            lambda inputs: f(*inputs), (a, b), eps=1e-6)
    assert all(torch.allclose(j, k * eye) for j, k in zip(numerical, (2, 1), strict=True))
    with pytest.warns(FutureWarning, match="get_analytical_jacobian was part of PyTorch's private"):
        analytical, *rest = get_analytical_jacobian((a, b), f(a, b)[0])
    assert all(torch.equal(j, k * eye) for j, k in zip(analytical, (2, 1), strict=True))
    assert rest == [True, True, True]
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="grad_out to be 1"):
        get_numerical_jacobian(lambda xs: f(*xs), (a, b), grad_out=2.0)


def test_a_wrong_jvp_is_found_and_a_backward_is_not_needed():
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, slope):
            ctx.slope = slope
            return x * 2

        @staticmethod
        def jvp(ctx, v, _):
            return v * ctx.slope

    for fast in (False, True):
        assert gradcheck(Scaled.apply, (X, 2), check_forward_ad=True, check_backward_ad=False,
                         fast_mode=fast)
        with pytest.raises(GradcheckError, match="Jacobian computed with forward mode mismatch"):
            gradcheck(Scaled.apply, (X, 3), check_forward_ad=True, check_backward_ad=False,
                      fast_mode=fast)
