"""Types of results, factories, copies, and what layers show; images by cubics."""

import numpy as np
import pytest

import functrans.torch as torch


def test_python_float_as_a_type_is_double_precision():
    assert torch.zeros(1, dtype=float).dtype == torch.float64
    assert torch.ones(2, dtype=complex).dtype == torch.complex128
    assert torch.tensor([1.5]).dtype == torch.float32


def test_factories_write_to_out_and_take_what_means_nothing():
    out = torch.empty(3, dtype=torch.float64)
    assert torch.linspace(0, 1, 3, out=out) is out
    assert out.tolist() == [0, 0.5, 1]
    torch.ones(3, out=out)
    assert out.tolist() == [1, 1, 1]
    assert torch.arange(2, layout=torch.strided, pin_memory=False).tolist() == [0, 1]
    assert torch.ones(1).new_zeros(1, pin_memory=False).tolist() == [0]
    with pytest.raises(NotImplementedError, match="layout is not supported here but"):
        torch.zeros(2, layout=torch.sparse_coo)


def test_reductions_of_small_integers_have_the_type_that_is_asked_for():
    x = torch.full((3,), 100, dtype=torch.uint8)
    assert torch.sum(x, dtype=torch.uint8).item() == 300 % 256
    assert x.cumsum(0, dtype=torch.uint8).tolist() == [100, 200, 44]
    assert x.bool().prod(dtype=torch.bool).dtype == torch.bool
    assert torch.full((1,), -9, dtype=torch.uint8).item() == 247
    assert torch.linspace(4.3, -3, 2, dtype=torch.int64).tolist() == [4, -3]


def test_a_random_choice_is_a_constant_of_its_probabilities():
    p = torch.tensor([0.0, 1.0], requires_grad=True)
    y = torch.bernoulli(p)
    y.sum().backward()
    assert y.tolist() == [0, 1]
    assert p.grad.tolist() == [0, 0]


def test_copies_are_functions_with_out():
    x = torch.arange(6.0).reshape(2, 3)
    out = torch.empty(3, 2)
    assert torch.transpose_copy(x, 0, 1, out=out) is out
    assert torch.equal(out, x.T)
    assert torch.slice_copy(x, 1, 0, 3, 2).tolist() == [[0, 2], [3, 5]]
    assert torch.alias_copy(x).data_ptr() != x.data_ptr()


def test_images_at_places_by_cubics():
    image = torch.arange(16, dtype=torch.float64).reshape(1, 1, 4, 4)
    grid = torch.nn.functional.affine_grid(torch.eye(2, 3, dtype=torch.float64)[None],
                                           [1, 1, 4, 4], align_corners=False)
    for padding in ("zeros", "border", "reflection"):
        y = torch.nn.functional.grid_sample(image, grid, "bicubic", padding, align_corners=False)
        np.testing.assert_allclose(y, image, rtol=1e-14)
    at = (0.3 * grid).requires_grad_()
    even = torch.nn.functional.grid_sample(torch.ones_like(image), at, "bicubic",
                                           align_corners=False)
    np.testing.assert_allclose(even.detach(), 1, rtol=1e-14)
    assert torch.autograd.gradcheck(
        lambda g: torch.nn.functional.grid_sample(image, g, "bicubic", align_corners=False), at)


def test_a_cross_entropy_of_several_problems():
    rng = np.random.default_rng(0)
    x, w = torch.tensor(rng.normal(size=(4, 3))), torch.tensor(rng.normal(size=(2, 5, 3)))
    target = torch.tensor(rng.integers(0, 2, (4, 5)))
    y = torch.nn.functional.linear_cross_entropy(x, w, target)
    each = [torch.nn.functional.cross_entropy(x @ w[:, i].T, target[:, i]) for i in range(5)]
    np.testing.assert_allclose(y, torch.stack(each).mean(), rtol=1e-14)
    with pytest.raises(RuntimeError, match="dimensionality at least 2"):
        torch.nn.functional.linear_cross_entropy(x, w[0, 0], target)


def test_complex_log_sums_of_nothing_are_minus_infinity():
    x = torch.full((2,), -float("inf"), dtype=torch.complex128)
    assert x.logsumexp(0).real == -float("inf")


def test_layers_show_their_options():
    nn = torch.nn
    shown = [repr(m) for m in (
        nn.Conv2d(4, 4, 3, dilation=2, groups=2, padding_mode="circular"), nn.GroupNorm(2, 4),
        nn.BatchNorm1d(2, bias=False), nn.Upsample(scale_factor=2), nn.RMSNorm(4),
        nn.EmbeddingBag(5, 3), nn.LocalResponseNorm(2), nn.ParameterList([torch.ones(1)]))]
    assert shown == [
        "Conv2d(4, 4, kernel_size=(3, 3), stride=(1, 1), dilation=(2, 2), groups=2, "
        "padding_mode=circular)",
        "GroupNorm(2, 4, eps=1e-05, affine=True, bias=True)",
        "BatchNorm1d(2, eps=1e-05, momentum=0.1, affine=True, bias=False, "
        "track_running_stats=True)",
        "Upsample(scale_factor=2.0, mode='nearest')",
        "RMSNorm((4,), eps=None, elementwise_affine=True)",
        "EmbeddingBag(5, 3, mode='mean')",
        "LocalResponseNorm(2, alpha=0.0001, beta=0.75, k=1.0)",
        "ParameterList(  (0): Parameter containing: [torch.float32 of size 1])"]


def test_sparse_tensors_are_added_and_scaled():
    values = torch.tensor([3.0, 4.0], dtype=torch.float64, requires_grad=True)
    s = torch.sparse_coo_tensor([[0, 1], [2, 0]], values, (2, 3))
    dense = ((-s * 3 + s.clone() / 2) - s).to_dense()
    assert dense.tolist() == [[0, 0, -10.5], [-14, 0, 0]]
    dense.sum().backward()
    assert values.grad.tolist() == [-3.5, -3.5]
    m, d = torch.eye(2, dtype=torch.float64), torch.ones(3, 2, dtype=torch.float64)
    assert torch.sparse.addmm(m, s, d, alpha=2).tolist() == [[7, 6], [8, 9]]
    assert torch.equal(torch.spmm(s, d), torch.sparse.mm(s, d))
    with pytest.raises(NotImplementedError, match="multiplied by numbers"):
        s * d
    with pytest.raises(NotImplementedError, match="added to one of its size"):
        s + d


@pytest.mark.parametrize(("call", "kind", "text"), [
    (lambda: torch.linalg.inv(torch.tensor([[[1.0, 0], [0, 1]], [[1, 2], [2, 4]]])), RuntimeError,
     r"linalg.inv: \(Batch element 1\): The diagonal element 2 is zero"),
    (lambda: torch.linalg.cholesky(torch.tensor([[1.0, 2], [2, 1]])), RuntimeError,
     r"linalg.cholesky: .*\(the leading minor of order 2 is not positive-definite\)"),
    (lambda: torch.linalg.solve(torch.eye(3), torch.ones(2)), RuntimeError,
     r"linalg.solve: Incompatible shapes of A and B for the equation AX = B \(3x3 and 2x1\)"),
    (lambda: torch.ones(2, 2).permute(0, 0), RuntimeError,
     r"permute\(\): duplicate dims are not allowed"),
    (lambda: torch.ones(2, 2).permute(0), RuntimeError, "number of dimensions in the tensor"),
    (lambda: torch.eye(3).index_select(0, torch.tensor([0.5])), RuntimeError,
     r"index_select\(\): Expected dtype int32 or int64 for index"),
    (lambda: torch.ones(3).take(torch.tensor([0.5])), RuntimeError,
     r"take\(\): Expected a long tensor for index, but got Float"),
    (lambda: torch.masked_select(torch.ones(2), torch.ones(2)), RuntimeError,
     "masked_select: expected BoolTensor for mask"),
    (lambda: torch.repeat_interleave(torch.ones(2), torch.tensor([1, -1])), RuntimeError,
     "repeats can not be negative"),
    (lambda: torch.tensor(3.0)[0], IndexError, "invalid index of a 0-dim tensor"),
    (lambda: torch.roll(torch.ones(2), (1, 2), 0), RuntimeError,
     "shifts and dimensions must align. shifts: 2, dims:1"),
    (lambda: torch.roll(torch.ones(2), ()), RuntimeError, "`shifts` required"),
    (lambda: torch.ones(2).fill_(torch.ones(2)), RuntimeError,
     "fill_ only supports 0-dimension value tensor"),
    (lambda: torch.diag(torch.ones(1, 1, 1)), RuntimeError, "Supports 1D or 2D tensors. Got 3D"),
    (lambda: torch.dot(torch.ones(2, 2), torch.ones(3)), RuntimeError,
     "1D tensors expected, but got 2D and 1D tensors"),
    (lambda: torch.histc(torch.ones(2), 0), RuntimeError, "bins must be > 0"),
    (lambda: torch.randint(5, 3, (2,)), RuntimeError, "'from' to be less than 'to'"),
    (lambda: torch.randperm(-1), RuntimeError, "negative dimension -1"),
    (lambda: torch.ones(2).uniform_(3, 1), RuntimeError, "found from=3 > to=1"),
    (lambda: torch.cumsum(torch.ones(2)), TypeError,
     r'cumsum\(\) missing 1 required positional arguments: "dim"'),
    (lambda: torch.ones(2).long().var(), RuntimeError, "std and var only support floating point"),
    (lambda: torch.linspace(torch.ones(1), 2, 3), RuntimeError, "0-dimensional start and end"),
    (lambda: torch.nn.functional.cosine_similarity(torch.ones(2), torch.ones(3)), RuntimeError,
     r"tensor a \(2\) must match the size of tensor b \(3\)"),
    (lambda: torch.nn.functional.batch_norm(torch.ones(2, 3), torch.zeros(2), torch.ones(3)),
     RuntimeError, "running_mean should contain 3 elements not 2"),
    (lambda: torch.nn.utils.rnn.pad_sequence([]), RuntimeError, "empty list of sequences"),
    (lambda: torch.nn.Linear(1, 1).register_buffer("weight", torch.ones(1)), KeyError,
     "attribute 'weight' already exists"),
    (lambda: torch.zeros(2, 2).scatter(0, torch.tensor([0]), 1.0), RuntimeError,
     "Index tensor must have the same number of dimensions as self tensor"),
    (lambda: torch.nn.functional.linear_cross_entropy(
        torch.ones(1, 2, 3), torch.ones(2, 3), torch.tensor([0])), RuntimeError,
     "expected input with dimensionality 1 or 2, got 3"),
])
def test_what_does_not_fit_is_refused_in_the_words_of_torch(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


def test_backward_of_nothing_does_nothing():
    torch.autograd.backward([])


def test_nodes_of_views_are_named_after_their_last_index():
    x = torch.ones(3, 4, 2, requires_grad=True)
    names = [v.grad_fn.name() for v in (
        x[:], x[0, :], x[0, 0, :1], x[:2, 0], x[None], x[0, None], x[None, 0], x[...])]
    assert names == [f"{name}Backward0" for name in (
        "Slice", "Select", "Slice", "Select", "Unsqueeze", "Unsqueeze", "Select", "Alias")]


def test_chebyshev_polynomials_of_the_third_and_fourth_kind():
    x, n = torch.tensor(0.3, dtype=torch.float64), torch.arange(-1, 5)
    t = np.arccos(0.3)
    third = np.cos((np.arange(5) + 0.5) * t) / np.cos(t / 2)
    fourth = np.sin((np.arange(5) + 0.5) * t) / np.sin(t / 2)
    np.testing.assert_allclose(torch.special.chebyshev_polynomial_v(x, n), [0, *third], rtol=1e-12)
    np.testing.assert_allclose(torch.special.chebyshev_polynomial_w(x, n), [0, *fourth], rtol=1e-12)
    shifted = torch.special.shifted_chebyshev_polynomial_w((x + 1) / 2, n)
    np.testing.assert_allclose(shifted, [0, *fourth], rtol=1e-12)


def test_control_flow_of_torch_runs_in_python():
    assert torch.cond(torch.tensor(False), lambda x: x, lambda x: -x, (2,)) == -2
    assert torch.while_loop(lambda i: i < 5, lambda i: (i + 2,), (0,)) == (6,)
    assert torch.sym_not(0) and torch.sym_ite(True, 1, 2) == torch.sym_sum([1]) == 1


def test_sparse_initial_weights():
    w = torch.nn.init.sparse_(torch.empty(4, 3), 0.5)
    assert ((w == 0).sum(0) == 2).all()
    with pytest.raises(ValueError, match="Only tensors with 2 dimensions"):
        torch.nn.init.sparse_(torch.empty(4), 0.5)


def test_modules_of_one_name_are_attributes_too():
    assert torch.distributions.normal.Normal is torch.distributions.Normal
    assert torch.optim.adam.Adam is torch.optim.Adam


def test_results_are_not_written_over_part_of_what_they_are_computed_from():
    x = torch.arange(6.0)
    with pytest.raises(RuntimeError, match="refer to a single memory location"):
        torch.add(x[:4], 1, out=x[2:])
    assert torch.add(x, 1, out=x) is x and x.tolist() == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("call", "dim"), [
    (lambda x: torch.unbind(x, 0), 0), (torch.fft.fft, -1),
    (lambda x: torch.fft.fftn(x, dim=0), 0)])
def test_numbers_have_no_dimension_to_work_along(call, dim):
    with pytest.raises(IndexError, match=f"Dimension specified as {dim} but tensor has no dim"):
        call(torch.tensor(1.0))


FULL = np.array([[4.0, 1.0, 0.15], [1.0, 6.0, -1.0], [0.15, -1.0, 5.0]])


@pytest.mark.parametrize(("f", "triangle"), [
    (lambda A: torch.linalg.cholesky(A, upper=True), np.triu),
    (lambda A: torch.cholesky(A, upper=True), np.triu),
    (lambda A: torch.linalg.cholesky_ex(A, upper=True)[0], np.triu),
    (torch.linalg.cholesky, np.tril),
    (lambda A: torch.linalg.pinv(A, hermitian=True), np.tril),
    (torch.linalg.eigvalsh, np.tril),
    (lambda A: torch.linalg.eigvalsh(A, UPLO="U"), np.triu),
], ids=["cholesky upper", "old cholesky upper", "cholesky_ex upper", "cholesky", "pinv", "eigvalsh",
        "eigvalsh upper"])
def test_the_triangle_that_is_not_read_does_not_matter(f, triangle):
    whole, part = [torch.tensor(a, requires_grad=True) for a in (FULL, triangle(FULL) + 0.0)]
    y, z = f(whole), f(part)
    torch.testing.assert_close(y, z, rtol=1e-12, atol=1e-12)
    ct = torch.cos(torch.arange(y.numel(), dtype=torch.float64)).reshape(y.shape)
    grads = [torch.autograd.grad((v * ct).sum(), x)[0] for v, x in ((y, whole), (z, part))]
    torch.testing.assert_close(*grads, rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(grads[0], grads[0].mT)


def test_nearest_pixels_have_no_slope_in_their_places():
    image = torch.arange(4.0).reshape(1, 1, 2, 2)
    grid = torch.zeros(1, 1, 1, 2, requires_grad=True)
    y = torch.nn.functional.grid_sample(image, grid, "nearest", align_corners=False)
    (g,) = torch.autograd.grad(y.sum(), grid)
    assert g.tolist() == [[[[0, 0]]]]


def test_random_choices_and_sigmoids_are_written_to_out():
    out = torch.empty(2)
    assert torch.bernoulli(torch.tensor([0.0, 1.0]), out=out).tolist() == [0, 1]
    assert torch.sigmoid(torch.zeros(2), out=out).tolist() == [0.5, 0.5]
    places = torch.empty(3, dtype=torch.int64)
    torch.multinomial(torch.tensor([0.0, 1.0]), 3, True, out=places)
    assert places.tolist() == [1, 1, 1]


LETTERS = {"b": torch.bool, "u": torch.uint8, "i": torch.int64, "h": torch.float16,
           "w": torch.bfloat16, "f": torch.float32, "c": torch.complex64}
# types that torch 2.13 refuses on CPU, by letters: of functions of one operand, and of two
REFUSED_OF_ONE = {
    "b": "abs cov trapezoid trace nn.functional.tanhshrink nn.functional.softsign",
    "bc": "ceil floor trunc round relu topk kthvalue median nanmedian nn.functional.relu6",
    "c": "sign digamma erf erfc i0 logit isposinf nansum unique special.i1 special.ndtr",
    "": "sigmoid exp",
    "bui": "logcumsumexp nn.functional.silu nn.functional.normalize",
    "bu": "gradient",
    "buc": "nn.functional.hardtanh",
    "buic": "frac selu celu softmax log_softmax histc frexp nn.functional.gelu nn.functional.elu "
            "nn.functional.hardsigmoid nn.functional.hardswish nn.functional.hardshrink "
            "nn.functional.softshrink nn.functional.mish nn.functional.logsigmoid "
            "nn.functional.leaky_relu nn.functional.glu nn.functional.softmin "
            "nn.functional.layer_norm",
    "buihw": "linalg.eigh linalg.qr linalg.det",
    "buihwc": "quantile nanquantile",
    "hwc": "fft.rfft special.erfcx special.log_ndtr special.ndtri special.bessel_j0 "
           "special.airy_ai special.spherical_bessel_j0",
    "hw": "fft.ifft2",
}
REFUSED_OF_TWO = {
    "b": "mm nn.functional.pairwise_distance",
    "bc": "isin",
    "bui": "dist nn.functional.l1_loss nn.functional.soft_margin_loss",
    "buic": "hypot logaddexp2 nextafter floor_divide remainder fmod special.gammainc "
            "nn.functional.mse_loss nn.functional.smooth_l1_loss nn.functional.huber_loss "
            "nn.functional.binary_cross_entropy nn.functional.binary_cross_entropy_with_logits "
            "nn.functional.kl_div nn.functional.hinge_embedding_loss "
            "nn.functional.cosine_similarity nn.functional.cross_entropy",
    "buihwc": "cdist",
    "buihwfc": "nn.functional.multilabel_margin_loss",
    "c": "atan2 maximum special.xlog1py",
    "hwfc": "bitwise_and",
    "bhwfc": "bitwise_left_shift gcd",
    "hwc": "special.zeta",
}
ARGUMENTS = {"topk": (1,), "kthvalue": (1,), "quantile": (0.5,), "nanquantile": (0.5,),
             "nn.functional.layer_norm": ((2,),)}
ARGUMENTS |= dict.fromkeys(["logcumsumexp", "softmax", "log_softmax", "nn.functional.softmin"],
                           (0,))


def _numbers(letter):
    numbers = [[0, 1], [2, 0]] if letter in "ui" else [[0.25, 0.5], [0.75, 0.25]]
    return torch.tensor(numbers).to(LETTERS[letter])


def _named(path):
    found = torch
    for name in path.split("."):
        found = getattr(found, name)
    return found


def _refuses(f, *args):
    try:
        f(*args)
    except (RuntimeError, TypeError, IndexError):
        return True
    return False


@pytest.mark.parametrize(("name", "letters"), [
    (name, letters) for letters, names in REFUSED_OF_ONE.items() for name in names.split()])
def test_types_that_torch_refuses_are_refused(name, letters):
    more = ARGUMENTS.get(name, ())
    assert "".join(x for x in LETTERS if _refuses(_named(name), _numbers(x), *more)) == "".join(
        x for x in LETTERS if x in letters)


@pytest.mark.parametrize(("name", "letters"), [
    (name, letters) for letters, names in REFUSED_OF_TWO.items() for name in names.split()])
def test_types_of_pairs_that_torch_refuses_are_refused(name, letters):
    found = [x for x in LETTERS if _refuses(_named(name), _numbers(x), _numbers(x))]
    assert "".join(found) == "".join(x for x in LETTERS if x in letters)


@pytest.mark.parametrize("name", ["atan2", "hypot", "maximum", "fmin", "logaddexp", "gcd", "ldexp",
                                  "logical_and", "nextafter", "kron", "dist", "heaviside"])
def test_an_operand_that_must_be_a_tensor_is_no_number(name):
    x = torch.ones(2)
    with pytest.raises(TypeError, match=r"\(position 2\) must be Tensor, not float"):
        _named(name)(x, 1.5)
    with pytest.raises(TypeError, match="must be Tensor, not float"):
        getattr(x, name)(1.5)


F = torch.nn.functional
RESULTS = {  # of two operands: types, "0" of one without axes, and the type in torch
    "kron": (torch.kron, "f 0d d, h 0f f, u 0i i, b b b"),
    "ldexp": (torch.ldexp, "h 0f h, u 0i f, i 0d d"),
    "dist": (torch.dist, "h 0f h, w 0d w, f d d"),
    "huber_loss": (F.huber_loss, "f d f, h w h, d f d"),
    "soft_margin_loss": (F.soft_margin_loss, "f d f, h w h, d f d"),
    "logits": (F.binary_cross_entropy_with_logits, "f d d, d f f, h w w"),
    "kl_div": (F.kl_div, "h 0f h, f d d"),
    "poisson_nll_loss": (F.poisson_nll_loss, "h 0f h, i h f, i 0d d, f d d"),
    "smooth_l1_loss": (F.smooth_l1_loss, "h 0f f, w i w, f d d"),
    "cosine_similarity": (F.cosine_similarity, "h 0f f, f 0d d, w w w, i w w"),
    "einsum": (lambda x, y: torch.einsum("ij,jk", x, y), "w w w, h h h"),
    "inner": (torch.inner, "f 0d f, u 0i u, h 0w h"),
}


@pytest.mark.parametrize("name", RESULTS)
def test_results_have_torchs_type(name):
    f, cases = RESULTS[name]
    kinds = LETTERS | {"d": torch.float64}
    for case in cases.split(", "):
        first, second, expected = case.split()
        x = _numbers("f").to(kinds[first])
        y = _numbers("f").to(kinds[second[-1]])
        y = y[0, 1] if second[0] == "0" else y
        assert f(x, y).dtype == kinds[expected], case


def test_a_variance_that_is_a_number_is_not_cut_to_an_integer():
    loss = F.gaussian_nll_loss(torch.tensor([1]), torch.tensor([2]), 2.5)
    assert loss.item() == pytest.approx(0.5 * (np.log(2.5) + 1 / 2.5), rel=1e-6)  # float32


# in float16 and bfloat16: the call, and the size of the numbers where it loses most
HALVES = {
    "sinc": (torch.sinc, 100), "normalize": (F.normalize, 100), "sigmoid": (torch.sigmoid, 1),
    "cosine_similarity": (lambda x: F.cosine_similarity(x, x.flip(0)), 100),
    "softmax": (lambda x: x.softmax(1), 1), "silu": (F.silu, 100), "mish": (F.mish, 100),
    "glu": (F.glu, 1), "gelu": (lambda x: F.gelu(x, approximate="tanh"), 1),
    "rms_norm": (lambda x: F.rms_norm(x, (8,)), 100), "cumprod": (lambda x: x.cumprod(0), 1),
    "layer_norm": (lambda x: F.layer_norm(x, (8,)), 100), "selu": (F.selu, 1),
    "sum": (torch.sum, 1), "mse_loss": (lambda x: F.mse_loss(x, x.flip(0)), 1),
    "norm": (torch.norm, 100), "softsign": (F.softsign, 1), "hardswish": (F.hardswish, 1),
    "softplus": (F.softplus, 1), "tanhshrink": (F.tanhshrink, 1),
    "logits": (lambda x: F.binary_cross_entropy_with_logits(x, x.abs()), 1),
    "cross_entropy": (lambda x: F.cross_entropy(x, torch.arange(8)), 1),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), 1),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", HALVES)
def test_half_precision_is_rounded_once(name, dtype):
    call, size = HALVES[name]
    x = torch.tensor(np.random.default_rng(3).standard_normal((8, 8)) * size).to(dtype)
    y, exact = call(x), call(x.float()).double()
    assert y.dtype is dtype
    found = np.abs(y.double().numpy() - exact.numpy())
    # an ulp of the type at its largest, and of subnormal numbers
    assert (found <= torch.finfo(dtype).eps * (np.abs(exact.numpy()) + 6.2e-5)).all()
    a, b = x.requires_grad_(), x.detach().float().requires_grad_()
    (g,), (h,) = [torch.autograd.grad(call(v).sum(), v) for v in (a, b)]
    bound = 2 * torch.finfo(dtype).eps * np.abs(h.numpy()).max() + 1e-3
    assert (np.abs(g.float().numpy() - h.numpy()) <= bound).all()  # a cotangent is rounded too


@pytest.mark.parametrize("call", [
    lambda i: F.gelu(input=i), lambda i: F.mse_loss(input=i, target=i),
    lambda i: F.mse_loss(i, target=i), lambda i: torch.hypot(other=i, input=i),
])
def test_types_are_refused_of_operands_given_by_name_too(call):
    with pytest.raises(NotImplementedError, match="not implemented for 'Long'"):
        call(torch.tensor([1, 2]))


def test_what_is_saved_of_an_operand_given_by_name_must_not_be_changed():
    x = torch.ones(2, requires_grad=True)
    a = x * 1
    y = F.gelu(input=a)
    a.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
