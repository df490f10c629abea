"""``out=``, ``save`` and ``load``, modules and optimisers, and what functions refuse."""

import io
import pickle
from collections import OrderedDict

import numpy as np
import pytest

import functrans.torch as torch
from functrans.torch import distributions as D
from functrans.torch import nn, optim
from functrans.torch.nn import functional as F

T = torch.tensor
G = torch.ones(2, requires_grad=True)


# ---- out=


def test_results_are_written_to_what_out_names():
    out = torch.zeros(3)
    view = out[:2]
    assert torch.add(T([1.0, 2.0]), 1, out=view) is view
    assert out.tolist() == [2.0, 3.0, 0.0] and out._version == 1
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.int64)
    both = torch.max(T([[1.0, 5.0], [7.0, 2.0]]), 1, out=(values, indices))
    assert both.values is values and values.tolist() == [5.0, 7.0] and indices.tolist() == [1, 0]
    wide = torch.zeros(2, dtype=torch.float64)
    torch.exp(T([0.0, 0.0]), out=wide)
    assert wide.tolist() == [1.0, 1.0]
    assert torch.linalg.det(torch.eye(2), out=torch.empty(())).item() == 1.0


def test_an_output_of_another_shape_is_resized_with_a_warning():
    out = torch.zeros(3)
    with pytest.warns(UserWarning, match="was resized since it had shape"):
        torch.sum(torch.ones(2, 2), 0, out=out)
    assert out.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: torch.exp(G, out=torch.zeros(2)), RuntimeError, "don't support automatic"),
    (lambda: torch.exp(torch.ones(2), out=G), RuntimeError, "don't support automatic"),
    (lambda: torch.div(T([1]), T([2]), out=T([0])), RuntimeError, "result type Float can't be"),
    (lambda: torch.max(torch.ones(2, 2), 0, out=(torch.ones(2),)), TypeError, "out must be 2"),
])
def test_an_output_that_does_not_fit_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


# ---- save and load


def test_what_is_saved_is_loaded(tmp_path):
    shared = torch.arange(3)
    value = {
        "p": nn.Parameter(torch.ones(2, 1)), "half": T([0.5], dtype=torch.bfloat16),
        "grad": torch.ones(1, requires_grad=True), "pair": (1, 2.5, None, True, "x"),
        "ordered": OrderedDict(a=shared, b=shared), "z": 1 + 2j, "d": torch.float64,
        3: torch.Size([2]), "scalar": T(4.0), "set": {1}, "numpy": np.float64(0.5),
    }
    torch.save(value, tmp_path / "state")
    again = torch.load(tmp_path / "state")
    assert list(again) == list(value)
    assert isinstance(again["p"], nn.Parameter) and again["p"].tolist() == [[1.0], [1.0]]
    assert again["half"].dtype is torch.bfloat16 and again["half"].tolist() == [0.5]
    assert again["grad"].requires_grad and again["scalar"].shape == ()
    assert again["ordered"]["a"] is again["ordered"]["b"]
    for name in ("pair", "z", "d", 3, "set", "numpy"):
        assert again[name] == value[name] and type(again[name]) in (type(value[name]), float)


def test_what_holds_code_is_not_saved():
    with pytest.raises(TypeError, match=r"a Linear cannot be written; .* state_dict\(\)"):
        torch.save(nn.Linear(1, 1), io.BytesIO())
    with pytest.raises(RuntimeError, match=r"no file that functrans\.torch\.save has"):
        torch.load(io.BytesIO(pickle.dumps({"a": 1})))


# ---- modules and optimisers


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(2, 3), nn.ReLU())
        self.head = nn.Linear(3, 1, bias=False)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("cache", torch.zeros(1), persistent=False)

    def forward(self, x):
        return self.head(self.body(x))


def test_a_module_names_its_parts():
    net = Net()
    assert list(net.state_dict()) == ["seen", "body.0.weight", "body.0.bias", "head.weight"]
    assert [n for n, _ in net.named_modules()] == ["", "body", "body.0", "body.1", "head"]
    assert [n for n, _ in net.named_buffers()] == ["seen", "cache"]
    assert net.get_submodule("body.0") is net.body[0]
    assert "body" in dir(net) and not net.eval().body[1].training
    assert net.double().head.weight.dtype is torch.float64
    assert repr(net).startswith("Net(\n  (body): Sequential(\n    (0): Linear(in_features=2,")
    again = pickle.loads(pickle.dumps(net))
    assert torch.equal(again(torch.ones(1, 2).double()), net(torch.ones(1, 2).double()))


def test_a_state_that_does_not_fit_is_named():
    state = Net().state_dict()
    state["more"] = state.pop("head.weight")
    with pytest.raises(RuntimeError, match=r'Missing key.*"head.weight"(?s:.*)Unexpected.*"more"'):
        Net().load_state_dict(state)
    assert Net().load_state_dict(state, strict=False).unexpected_keys == ["more"]
    with pytest.raises(RuntimeError, match="size mismatch for weight"):
        nn.Linear(2, 2).load_state_dict(nn.Linear(2, 1).state_dict(), strict=False)


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: nn.Module()(1), NotImplementedError, "missing the required"),
    (lambda: setattr(nn.Linear(1, 1), "weight", torch.ones(1)), TypeError, "as parameter 'weight'"),
    (lambda: nn.Linear(1, 1).register_buffer("a.b", None), KeyError, "buffer name can.*t contain"),
    (lambda: nn.Linear(1, 1).nothing, AttributeError, "no attribute 'nothing'"),
    (lambda: nn.MSELoss(wrong=1), TypeError, "unexpected keyword argument 'wrong'"),
    (lambda: nn.MaxPool2d(), TypeError, "missing required argument: 'kernel_size'"),
    (lambda: nn.Conv2d(3, 4, 1, groups=2), ValueError, "divisible by groups"),
    (lambda: nn.BatchNorm1d(2)(torch.ones(2)), ValueError, "expected 2D or 3D input"),
    (lambda: optim.SGD(G, lr=0.1), TypeError, "should be an iterable"),
    (lambda: optim.SGD([], lr=0.1), ValueError, "empty parameter list"),
    (lambda: optim.SGD([G * 2], lr=0.1), ValueError, "non-leaf"),
    (lambda: optim.SGD([G, G], lr=-1.0), ValueError, "Invalid learning rate: -1.0"),
    (lambda: optim.SGD([G], nesterov=True), ValueError, "Nesterov"),
    (lambda: optim.Adam([G], betas=(1.0, 0.9)), ValueError, "beta parameter at index 0"),
    (lambda: optim.LBFGS([G], line_search_fn="x"), RuntimeError, "only 'strong_wolfe'"),
    (lambda: D.Normal(0.0, -1.0), ValueError, "constraint GreaterThan"),
    (lambda: D.Normal(0.0, 1.0).log_prob(1.0), ValueError, "must be a Tensor"),
    (lambda: D.Bernoulli(0.5).log_prob(T(0.5)), ValueError, "within the support"),
    (lambda: D.Categorical(), ValueError, "Either `probs` or `logits`"),
    (lambda: D.Bernoulli(0.5).rsample(), NotImplementedError, "has no rsample"),
    (lambda: D.kl_divergence(D.Cauchy(0.0, 1.0), D.Normal(0.0, 1.0)), NotImplementedError,
     "No KL"),
])
def test_an_optimiser_refuses_what_it_cannot_change(call, error, text):
    with pytest.raises(error, match=text):
        call()


# ---- samples


@pytest.mark.parametrize("d", [
    D.Normal(T(1.0), 2.0), D.Uniform(T(-1.0), 3.0), D.Exponential(T(2.0)), D.Laplace(T(0.5), 1.0),
    D.Gamma(T(2.0), 3.0), D.Beta(T(2.0), 3.0), D.Bernoulli(T(0.3)), D.Poisson(T(2.5)),
    D.Binomial(5, T(0.4)), D.Geometric(T(0.5)), D.Gumbel(T(0.0), 1.0), D.LogNormal(T(0.0), 0.5),
    D.HalfNormal(T(2.0)), D.Dirichlet(T([1.0, 2.0])), D.StudentT(T(9.0), 1.0, 0.5),
    D.MultivariateNormal(T([1.0, 2.0]), T([[2.0, 0.5], [0.5, 1.0]])),
], ids=lambda d: type(d).__name__)
def test_samples_have_the_moments_of_their_distribution(d):
    torch.manual_seed(0)
    x = d.sample((40000,)).double().numpy()
    # 5 standard deviations of a mean of 40000 numbers
    np.testing.assert_allclose(x.mean(0), d.mean.numpy(), atol=5 * x.std(0).max() / 200)
    # heavy tails let the variance of a sample vary by some percent
    np.testing.assert_allclose(x.var(0), d.variance.numpy(), rtol=0.15)


def test_samples_of_the_gamma_distribution_move_with_its_shape():
    torch.manual_seed(1)
    a = torch.full((20000,), 2.0, dtype=torch.float64, requires_grad=True)
    x = D.Gamma(a, torch.ones((), dtype=torch.float64)).rsample()
    (g,) = torch.autograd.grad((x * x).sum(), a)
    # E[x**2] = a (a + 1), of which the slope is 2 a + 1; 5 standard deviations of the mean
    assert abs(g.mean().item() - 5.0) < 5 * g.std().item() / 20000**0.5


# ---- what functions refuse


@pytest.mark.parametrize(("call", "error", "text"), [
    (lambda: torch.linalg.det(torch.ones(2, 3)), RuntimeError, "must be batches of square"),
    (lambda: torch.linalg.svd(torch.ones(2)), RuntimeError, "at least 2 dimensions"),
    (lambda: torch.linalg.inv(torch.zeros(2, 2)), RuntimeError, "diagonal element 1 is zero"),
    (lambda: torch.linalg.solve(torch.eye(2), torch.ones(3, 1)), RuntimeError, "Incompatible"),
    (lambda: torch.linalg.qr(torch.eye(2), "full"), RuntimeError, "unrecognized mode 'full'"),
    (lambda: torch.kthvalue(torch.ones(3), 4), RuntimeError, "out of range for dimension"),
    (lambda: torch.quantile(torch.ones(3), 1.5), RuntimeError, r"range \[0, 1\]"),
    (lambda: torch.bincount(T([-1])), RuntimeError, "1-d non-negative integral"),
    (lambda: torch.ones(2).scatter(0, T([0]), T([1])), RuntimeError, "equal to src.dtype"),
    (lambda: torch.ones(2).scatter_reduce(0, T([0]), torch.ones(1), "max"), RuntimeError,
     "must be either sum"),
    (lambda: torch.ones(4).unfold(0, 5, 1), RuntimeError, "maximum size for tensor"),
    (lambda: torch.ones(4).unfold(0, 2, 1).add_(1), RuntimeError, "single memory location"),
    (lambda: torch.diff(T(1.0)), RuntimeError, "at least one-dimensional"),
    (lambda: torch.cdist(torch.ones(2, 2), torch.ones(2, 3)), RuntimeError, "same number of col"),
    (lambda: torch.fft.rfft(T([1j])), RuntimeError, "expects a real input"),
    (lambda: torch.multinomial(T([0.0, 0.0]), 1), RuntimeError, "sum of probabilities <= 0"),
    (lambda: torch.bernoulli(T(2.0)), RuntimeError, "p_in <= 1"),
    (lambda: F.conv2d(torch.ones(1, 2, 3, 3), torch.ones(1, 1, 2, 2)), RuntimeError,
     "to have 1 channels, but got 2 channels"),
    (lambda: F.conv1d(torch.ones(1, 1, 2), torch.ones(1, 1, 3)), RuntimeError,
     "Kernel size can't be greater"),
    (lambda: F.max_pool2d(torch.ones(1, 1, 4, 4), 2, padding=2), RuntimeError, "pad should be at"),
    (lambda: F.pad(torch.ones(1, 1, 2), (2, 0), "reflect"), RuntimeError, "less than the corre"),
    (lambda: F.embedding(T([5]), torch.ones(2, 2)), IndexError, "index out of range in self"),
    (lambda: F.one_hot(T([-1])), RuntimeError, "must be non-negative"),
    (lambda: F.interpolate(torch.ones(1, 1, 2), 4, mode="bilinear"), NotImplementedError, "3D"),
    (lambda: F.binary_cross_entropy(T([2.0]), T([1.0])), RuntimeError, "between 0 and 1"),
    (lambda: F.mse_loss(G, G, reduction="max"), ValueError, "not a valid value"),
    (lambda: torch.special.polygamma(-1, G), RuntimeError, "does not support negative n"),
])
def test_what_functions_do_not_take_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


def test_a_signal_that_is_too_short_for_its_length_is_padded_with_a_warning():
    spectrum = torch.stft(torch.ones(16), 8, return_complex=True)
    with pytest.warns(UserWarning, match="The length of signal is shorter than the length param"):
        assert torch.istft(spectrum, 8, length=30).shape == (30,)


N = torch.nn.functional
SCORES, LABELS = torch.zeros(4, 2, 3), torch.ones(2, 1).long()
WAVE, SPECTRUM = torch.ones(16), torch.stft(torch.ones(16), 8, return_complex=True)
WINDOWS = torch.signal.windows
UNFIT = {
    "input lengths": (lambda: N.ctc_loss(SCORES, LABELS, (9, 4), (1, 1)), "value at most 4, but"),
    "fewer lengths": (lambda: N.ctc_loss(SCORES, LABELS, (4,), (1, 1)), "input_lengths must be"),
    "fewer targets": (lambda: N.ctc_loss(SCORES, LABELS, (4, 4), (1,)), "target_lengths must"),
    "blank": (lambda: N.ctc_loss(SCORES, LABELS, (4, 4), (1, 1), 3), "blank must be in label"),
    "a row": (lambda: N.ctc_loss(SCORES, LABELS[:1], (4, 4), (1, 1)), "to have size 2 at dim"),
    "joined": (lambda: N.ctc_loss(SCORES, LABELS[:, 0], (4, 4), (1, 2)), "but target_lengths add"),
    "reduction": (lambda: N.ctc_loss(SCORES, LABELS, (4, 4), (1, 1), reduction="max"),
                  "max is not a valid value"),
    "no size": (lambda: N.fractional_max_pool2d(SCORES, 2), "either an output_size or an output"),
    "pool size": (lambda: N.fractional_max_pool2d(SCORES, 2, 3), "too large relative to input"),
    "pool dims": (lambda: N.fractional_max_pool2d(WAVE, 2, 3), "Expected 3D or 4D tensor, but"),
    "no complex": (lambda: torch.stft(WAVE, 8), "stft requires the return_complex parameter"),
    "hop": (lambda: torch.stft(WAVE, 8, 0, return_complex=True), "expected hop_length > 0, but"),
    "win": (lambda: torch.stft(WAVE, 8, 2, 9, return_complex=True), "expected 0 < win_length <="),
    "window": (lambda: torch.stft(WAVE, 8, window=WAVE, return_complex=True), "expected a 1D win"),
    "short": (lambda: torch.stft(WAVE[:4], 8, center=False, return_complex=True), "0 < n_fft < 4"),
    "half": (lambda: torch.stft(WAVE * 1j, 8, onesided=True), "Cannot have onesided output if"),
    "dims": (lambda: torch.stft(SCORES, 8, return_complex=True), "expected a 1D or 2D tensor, but"),
    "real": (lambda: torch.istft(WAVE, 8), "istft requires a complex-valued input tensor"),
    "frequencies": (lambda: torch.istft(SPECTRUM, 6), "expected the frequency dimension"),
    "gaps": (lambda: torch.istft(SPECTRUM, 8, 4, window=torch.zeros(8)), "window overlap add min"),
    "negative": (lambda: torch.hann_window(-1), "requires non-negative window_length"),
    "M": (lambda: WINDOWS.hann(-1), "hann requires non-negative window length, got M=-1"),
    "integers": (lambda: torch.hann_window(3, dtype=torch.int64), "expects floating point dtypes"),
    "doubles": (lambda: WINDOWS.hann(3, dtype=torch.int64), "expects float32 or float64 dtypes"),
    "std": (lambda: WINDOWS.gaussian(3, std=0), "Standard deviation must be positive, got: 0"),
    "tau": (lambda: WINDOWS.exponential(3, tau=0), "Tau must be positive, got: 0 instead"),
    "center": (lambda: WINDOWS.exponential(3, center=1), "Center must be None for symmetric"),
    "weights": (lambda: WINDOWS.general_cosine(3, a=()), "Coefficients must be a list/tuple"),
    "segments": (lambda: torch.segment_reduce(WAVE, "sum"), "Either lengths or offsets must"),
    "segment sort": (lambda: torch.segment_reduce(WAVE, "std", lengths=LABELS[0]), "unknown red"),
    "removed": (lambda: torch.symeig(WAVE), "in favor of `torch.linalg.eigh`"),
    "reinforce": (lambda: WAVE.reinforce(1), r"reinforce\(\) was removed"),
    "map_": (lambda: WAVE.clone().requires_grad_().map_(WAVE, max), r"Can't call map_\(\) on"),
    "no class": (lambda: WAVE.as_subclass(int), "derives from torch.Tensor, but it is"),
    "no copy": (lambda: torch.asarray([1], copy=False), "can't alias arbitrary sequence"),
    "range": (lambda: torch.range(0, 1, 0), "step must be nonzero"),
    "expand": (lambda: torch.func.vmap(torch.sin, randomness="all")(WAVE), "Only allowed values"),
}


@pytest.mark.parametrize("name", UNFIT)
def test_what_does_not_fit_is_refused_by_name(name):
    call, text = UNFIT[name]
    with pytest.raises((RuntimeError, ValueError, TypeError, IndexError), match=text):
        call()


WAVES = torch.sin(torch.arange(12.0, dtype=torch.float64) ** 2).reshape(3, 4)
# what torch 2.13 returns
AS_TORCH = {
    "an ellipsis that is not in the output is summed over": lambda: (
        torch.einsum("...ik,...j->ij", WAVES.reshape(2, 3, 2), WAVES[0]),
        torch.outer(WAVES.reshape(2, 3, 2).sum((0, 2)), WAVES[0])),
    "one entry goes with each of the other's": lambda: (
        torch.tensordot(WAVES[:1], WAVES, ([0], [0])), torch.outer(WAVES[0], WAVES.sum(0))),
    "half of the frequencies is read": lambda: (
        torch.istft(torch.complex(WAVES.T, WAVES.T.cos()), 4, center=False),
        torch.istft(torch.complex(WAVES.T, WAVES.T.cos())[:3], 4, center=False)),
    "no residuals by the default driver": lambda: (
        torch.linalg.lstsq(WAVES.T, WAVES.T).residuals, torch.zeros(0).double()),
    "residuals by another": lambda: (
        torch.linalg.lstsq(WAVES.T, WAVES.T, driver="gelsd").residuals.round(decimals=9),
        torch.zeros(3).double()),
    "nothing is picked by an empty index of any type": lambda: (
        WAVES.gather(0, torch.zeros(0, 2, dtype=torch.uint8)), torch.zeros(0, 2).double()),
    "the type of shares is the third argument": lambda: (
        torch.log_softmax(WAVES.float(), 1, torch.float64),
        WAVES.float().double().softmax(1, torch.float64).log()),
    "no differences are the numbers themselves": lambda: (
        torch.diff(WAVES, 0, 0, WAVES[:1], WAVES), WAVES),
    "places along the first dimension": lambda: (
        WAVES.to_sparse(1).to_dense() + WAVES.to_sparse(1)._nnz(), WAVES + 3),
    "formats of memory are accepted": lambda: (
        WAVES.float(memory_format=torch.preserve_format), WAVES.to(torch.float32)),
}


@pytest.mark.parametrize("name", AS_TORCH)
def test_results_are_those_of_torch(name):
    got, expected = AS_TORCH[name]()
    assert got.dtype == expected.dtype and got.shape == expected.shape
    assert torch.allclose(got, expected, rtol=1e-12, atol=1e-12)


def test_parts_that_are_made_unsafely_are_on_memory_of_their_own():
    x = WAVES.clone().requires_grad_()
    first, second, third = (x * 1).unsafe_split(1)
    first.mul_(second)
    first.sum().backward()
    assert torch.equal(x.grad[0], WAVES[1]) and torch.equal(x.grad[1], WAVES[0])
    assert torch.equal(x.grad[2], torch.zeros_like(third[0]))


def test_the_next_number_has_the_slope_of_the_number():
    x = WAVES.clone().requires_grad_()
    torch.nextafter(x, torch.tensor(9.0).double()).sum().backward()
    assert torch.equal(x.grad, torch.ones_like(WAVES))


@pytest.mark.parametrize("f", [torch.unique, torch.unique_consecutive])
def test_what_has_no_derivative_says_so_in_the_backward(f):
    x = torch.tensor([1.0, 1.0, 2.0], requires_grad=True)
    y, counts = f(x, return_counts=True)
    assert y.requires_grad and counts.tolist() == [2, 1]
    with pytest.raises(NotImplementedError, match=r"the derivative for 'Unique.* is not implem"):
        (y.sum() + x.sum()).backward()


def test_gradients_of_a_sparse_form_are_at_its_places():
    x = torch.tensor([[0.0, 2.0], [3.0, 0.0]], requires_grad=True)
    (x.to_sparse().to_dense() ** 2).sum().backward()
    assert x.grad.to_dense().tolist() == [[0.0, 4.0], [6.0, 0.0]]


def test_nothing_but_nan_shares_the_derivative_of_a_median():
    x = torch.full((4,), torch.nan, requires_grad=True)
    torch.nanmedian(x).backward()
    assert x.grad.tolist() == [0.25] * 4


# call, error, the beginning of torch's sentence
REFUSED_BY_TORCH = {
    "trace": (lambda: torch.trace(WAVES[0]), RuntimeError, "trace: expected a matrix"),
    "tril": (lambda: WAVES[0].tril(), RuntimeError, "tril: input tensor must have at least 2"),
    "cross dims": (lambda: torch.linalg.cross(WAVES[:, :3], WAVES[0, :3]), RuntimeError,
                   "linalg.cross: inputs must have the same number of dimensions"),
    "cross length": (lambda: torch.linalg.cross(WAVES[:, :2], WAVES[:, :2]), RuntimeError,
                     "linalg.cross: inputs dimension -1 must have length 3. Got 2 and 2"),
    "mv": (lambda: torch.mv(WAVES, WAVES), RuntimeError, "mv: vec must be 1D tensors, got 2-D"),
    "solve left": (lambda: torch.linalg.solve(WAVES[:, :3], WAVES[0, :3], left=False),
                   RuntimeError, "linalg.solve: Vector broadcasting of the left hand side"),
    "gradient twice": (lambda: torch.gradient(WAVES, dim=(1, -1)), RuntimeError,
                       "dim 1 appears multiple times"),
    "gradient spacing": (lambda: torch.gradient(WAVES, dim=(0, 1), spacing=[1.0]), RuntimeError,
                         "torch.gradient expected spacing to be"),
    "gradient order": (lambda: torch.gradient(WAVES, edge_order=3), RuntimeError,
                       "torch.gradient only supports edge_order=1"),
    "masked_fill": (lambda: WAVES.masked_fill(WAVES > 0, WAVES[:1, :1]), RuntimeError,
                    "masked_fill_ only supports a 0-dimensional value"),
    "isclose": (lambda: torch.isclose(WAVES, WAVES, rtol=-1), RuntimeError, "rtol must be greater"),
    "cov dims": (lambda: torch.cov(WAVES, fweights=torch.ones(2, 2).int()), RuntimeError,
                 r"cov\(\): expected fweights to have one or fewer"),
    "cov type": (lambda: torch.cov(WAVES, aweights=torch.ones(4).int()), RuntimeError,
                 r"cov\(\): expected aweights to have floating point"),
    "cov size": (lambda: torch.cov(WAVES, aweights=torch.ones(3)), RuntimeError,
                 r"cov\(\): expected aweights to have the same numel"),
    "cov sign": (lambda: torch.cov(WAVES, aweights=-torch.ones(4)), RuntimeError,
                 r"cov\(\): aweights cannot be negative"),
    "movedim": (lambda: WAVES.movedim((0, 1), 0), RuntimeError, "movedim: Invalid source or dest"),
    "movedim twice": (lambda: WAVES.movedim((0, 0), (0, 1)), RuntimeError,
                      "movedim: repeated dim in `source`"),
    "narrow number": (lambda: WAVES[0, 0].narrow(0, 0, 1), RuntimeError, r"narrow\(\) cannot be"),
    "narrow start": (lambda: WAVES.narrow(0, -4, 1), IndexError, "start out of range"),
    "narrow length": (lambda: WAVES.narrow(0, 0, -1), RuntimeError, r"narrow\(\): length must be"),
    "index_add": (lambda: WAVES.index_add(0, torch.tensor([0]), WAVES[0]), RuntimeError,
                  "source tensor shape must match self tensor shape"),
    "rrelu": (lambda: F.rrelu(WAVES, 0.3, 0.1), RuntimeError, "Lower bound should be less"),
    "embedding": (lambda: F.embedding(torch.tensor([0]), WAVES[0]), RuntimeError, "'weight' must"),
    "margin": (lambda: F.triplet_margin_loss(WAVES, WAVES, WAVES, -1.0), ValueError, "margin must"),
    "dilation": (lambda: F.conv1d(WAVES[None], WAVES[None], dilation=-1), RuntimeError,
                 "dilation should be greater than zero"),
    "layer_norm": (lambda: F.layer_norm(WAVES, ()), RuntimeError, "Expected normalized_shape to"),
    "logspace": (lambda: torch.logspace(0, 1, -1), RuntimeError, "number of steps must be non-neg"),
    "exponential": (lambda: WAVES.clone().exponential_(0), RuntimeError, "exponential_ expects la"),
    "cauchy": (lambda: WAVES.clone().cauchy_(0, 0), RuntimeError, "cauchy_ expects sigma"),
    "geometric": (lambda: WAVES.clone().geometric_(-1), RuntimeError, "geometric_ expects p"),
    "log_normal": (lambda: WAVES.clone().log_normal_(0, 0), RuntimeError, "log_normal_ expects"),
    "normal": (lambda: WAVES.clone().normal_(0, -1), RuntimeError, "normal expects std >= 0.0"),
}


@pytest.mark.parametrize("name", REFUSED_BY_TORCH)
def test_what_torch_refuses_has_no_value(name):
    call, error, text = REFUSED_BY_TORCH[name]
    with pytest.raises(error, match=f"^{text}"):
        call()


def test_functions_of_sparse_tensors_are_their_own_methods_or_refused():
    s = torch.sparse_coo_tensor([[0, 1], [2, 0]], [3.0, 4.0], (2, 3))
    assert torch.sparse.sum(s) == s.sum() == 7
    np.testing.assert_array_equal(torch.matmul(s, torch.ones(3)), [3, 4])
    for refused in (torch.exp, torch.sum, torch.flatten, lambda s: torch.matmul(s, s.t())):
        with pytest.raises(NotImplementedError, match=r"Could not run .* with arguments from "
                                                      "the 'SparseCPU' backend.*to_dense"):
            refused(s)
    with pytest.raises(NotImplementedError, match=r"have .*coalesce.* here"):
        s.cumsum(0)
    assert not hasattr(s, "__array__")


def test_schedulers_of_schedulers_take_over_the_states_inside():
    def made():
        sgd = optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
        inner = [optim.lr_scheduler.ConstantLR(sgd, 0.1, 2),
                 optim.lr_scheduler.ExponentialLR(sgd, 0.5)]
        return sgd, inner

    for make in (lambda sgd, inner: optim.lr_scheduler.SequentialLR(sgd, inner, [2]),
                 lambda sgd, inner: optim.lr_scheduler.ChainedScheduler(inner)):
        (one, first), (other, second) = made(), made()
        a, b = make(one, first), make(other, second)
        for _ in range(3):
            a.step()
        state = pickle.loads(pickle.dumps(a.state_dict()))
        assert "optimizer" not in state
        b.load_state_dict(state)
        other.load_state_dict(one.state_dict())
        for _ in range(3):
            a.step()
            b.step()
            assert a.get_last_lr() == b.get_last_lr()


def test_what_layers_compute_of_single_precision_is_of_single_precision():
    x = torch.linspace(-1, 1, 48).reshape(1, 2, 4, 6)
    at = torch.linspace(-0.9, 0.9, 18).reshape(1, 3, 3, 2)
    for mode in ("bilinear", "nearest"):
        for padding in ("zeros", "border", "reflection"):
            y = F.grid_sample(x, at, mode, padding, align_corners=False)
            assert y.dtype is torch.float32, (mode, padding)
    counts = torch.tensor([1, 2, 1, 3, 1, 1])
    for weights in ({}, {"fweights": counts}, {"aweights": counts.float()},
                    {"fweights": counts, "aweights": counts.float()}):
        assert torch.cov(x[0, 0], **weights).dtype is torch.float32
        np.testing.assert_allclose(torch.cov(x[0, 0], **weights),
                                   np.cov(x[0, 0].numpy(), **{k: w.numpy() for k, w in
                                                              weights.items()}), rtol=1e-5)
    logs = torch.zeros(4, 2, 3).log_softmax(2)
    for reduction in ("none", "mean"):
        loss = F.ctc_loss(logs, torch.tensor([[1], [2]]), [4, 3], [1, 1], reduction=reduction)
        assert loss.dtype is torch.float32


def test_recurrent_layers_take_arguments_in_torchs_order_and_check_what_they_get():
    assert nn.RNN(3, 4, 1, "relu", False).nonlinearity == "relu"
    assert nn.LSTM(3, 4, 1, True, False, 0.0, False, 2).proj_size == 2
    with pytest.raises(ValueError, match="Unknown nonlinearity"):
        nn.RNN(3, 4, nonlinearity="sin")
    with pytest.raises(ValueError, match="proj_size argument is only supported for LSTM"):
        nn.GRU(3, 4, proj_size=2)
    lstm, x = nn.LSTM(3, 4), torch.ones(5, 2, 3)
    with pytest.raises(RuntimeError, match=r"input.size\(-1\) must be equal to input_size. Expect"):
        lstm(torch.ones(5, 2, 4))
    with pytest.raises(RuntimeError, match=r"Expected hidden\[1\] size \(1, 2, 4\), got"):
        lstm(x, (torch.ones(1, 2, 4), torch.ones(1, 1, 4)))
    with pytest.raises(RuntimeError, match=r"Expected hidden size \(1, 2, 4\), got \[2, 4\]"):
        nn.GRU(3, 4)(x, torch.ones(2, 4))


A = torch.linspace(0.1, 0.9, 9).reshape(3, 3)
WHOLE = torch.tensor([[0, 2, 1], [1, 1, 0], [2, 0, 0]])


@pytest.mark.parametrize("f", [
    lambda: torch.dist(A, WHOLE), lambda: torch.kron(A, WHOLE),
    lambda: F.pairwise_distance(A, WHOLE), lambda: F.soft_margin_loss(A, WHOLE),
    lambda: F.multilabel_soft_margin_loss(A, WHOLE),
    lambda: torch.xlogy(A, 2), lambda: torch.xlogy(0.5, A), lambda: F.softsign(WHOLE),
])
def test_integers_beside_single_precision_leave_it_single(f):
    y = f()
    assert y.dtype is torch.float32 and np.isfinite(y).all()


def test_special_entries_are_torchs():
    odd = torch.tensor([float("nan"), 0.5, float("inf"), -float("inf")])
    np.testing.assert_allclose(F.hardsigmoid(odd), [np.nan, 3.5 / 6, 1, 0], rtol=1e-6)
    np.testing.assert_array_equal(torch.vander(odd)[:, -1], 1)
    np.testing.assert_array_equal(torch.linalg.vander(odd)[:, 0], 1)
    np.testing.assert_array_equal(torch.gradient(odd)[0], [np.nan, np.nan, -np.inf, -np.inf])
    found = torch.diff(torch.tensor([True, False, False]))
    assert found.dtype is torch.bool and found.tolist() == [True, False]


def test_what_is_not_positive_definite_has_the_order_of_its_minor():
    good, bad = torch.eye(3) * 4, torch.tensor([[1.0, 2, 0], [2, 1, 0], [0, 0, 1]])
    x = torch.stack([good, bad]).requires_grad_()
    L, info = torch.linalg.cholesky_ex(x)
    assert info.tolist() == [0, 2] and L[1].isnan().all()
    np.testing.assert_array_equal(L[0].detach(), 2 * np.eye(3))
    (g,) = torch.autograd.grad(L[0].sum(), x)
    assert np.isfinite(g[0]).all()
    with pytest.raises(torch.linalg.LinAlgError, match="not positive"):
        torch.linalg.cholesky_ex(bad, check_errors=True)


def test_a_complex_number_of_two_parts_has_both():
    parts = torch.tensor([[1.0, float("inf")], [-0.0, 2.0]])
    for z in (torch.complex(parts[:, 0], parts[:, 1]), torch.view_as_complex(parts)):
        assert torch.equal(torch.view_as_real(z), parts)
        assert torch.signbit(z.real[1])


SINGULAR = torch.tensor([[[1.0, 2.0], [2.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]],
                         [[0.0, 0.0], [0.0, 3.0]]])


@pytest.mark.parametrize("found", [
    lambda **o: torch.linalg.inv_ex(SINGULAR, **o),
    lambda **o: torch.linalg.solve_ex(SINGULAR, torch.eye(2), **o),
    lambda **o: torch.linalg.solve_ex(SINGULAR, torch.eye(2), left=False, **o)])
def test_where_a_matrix_is_singular_is_said_in_the_place_of_an_error(found):
    X, info = found()
    assert info.dtype == torch.int32 and info.tolist() == [2, 0, 1]
    assert X[1].tolist() == [[1.0, 0.0], [0.0, 0.5]] and not X[[0, 2]].isfinite().any()
    with pytest.raises(torch.linalg.LinAlgError, match=r"\(Batch element 0\): .* singular"):
        found(check_errors=True)


def test_a_vector_is_solved_for_where_the_matrix_is_not_singular():
    x, info = torch.linalg.solve_ex(SINGULAR, torch.ones(3, 2))
    assert x[1].tolist() == [1.0, 0.5] and x[0].isnan().all() and info.tolist() == [2, 0, 1]


def test_a_factorisation_tells_a_zero_pivot():
    LU, pivots, info = torch.linalg.lu_factor_ex(SINGULAR)
    assert info.tolist() == [2, 0, 1] == torch.lu(SINGULAR, get_infos=True)[2].tolist()
    assert LU[0].tolist() == [[2.0, 4.0], [0.5, 0.0]] and pivots[0].tolist() == [2, 2]
    for call in (torch.linalg.lu_factor, lambda A: torch.linalg.lu_factor_ex(A, check_errors=True)):
        with pytest.raises(RuntimeError, match=r"\(Batch element 0\): U\[2,2\] is zero"):
            call(SINGULAR)
    assert torch.linalg.inv_ex(torch.eye(2)).inverse.equal(torch.eye(2))
    assert torch.linalg.cholesky_ex(torch.eye(2)).L.equal(torch.eye(2))


def test_a_gradient_over_uneven_steps_is_numpys():
    at = np.array([0.0, 0.3, 1.1, 1.5])
    for order in (1, 2):
        found = torch.gradient(WAVES, spacing=[torch.tensor(at)], dim=1, edge_order=order)[0]
        np.testing.assert_allclose(
            found, np.gradient(WAVES.numpy(), at, axis=1, edge_order=order), rtol=1e-13)


def test_entries_of_memory_are_read_of_what_is_not_contiguous():
    a = torch.from_numpy(np.arange(6.0).reshape(2, 3).T).requires_grad_()
    y = a.as_strided((2, 2), (3, 1))
    np.testing.assert_array_equal(y.detach(), [[0, 1], [3, 4]])
    (y * torch.tensor([[1.0, 2.0], [3.0, 4.0]])).sum().backward()
    np.testing.assert_array_equal(a.grad, [[1, 3], [2, 4], [0, 0]])


def test_the_last_window_of_a_fractional_pool_is_at_the_end():
    x = torch.arange(10.0).repeat(10, 1)[None]
    samples = torch.tensor([[[2 / 3, 2 / 3]]], dtype=torch.float64)
    assert F.fractional_max_pool2d(x, 1, (1, 2), _random_samples=samples)[0, 0, 1] == 9


def test_entries_that_alpha_dropout_drops_have_the_value_of_selu_far_below():
    x, low = torch.linspace(1, 2, 50, dtype=torch.float64), -1.7580993408473766
    y = F.alpha_dropout(x, 0.25, training=True)
    scale = ((1 - 0.25) * (1 + 0.25 * low**2)) ** -0.5
    dropped = (y - scale * low * (1 - 0.25)).abs() < 1e-12
    assert 0 < dropped.sum() < 50
    np.testing.assert_allclose(y[~dropped], (x[~dropped] - 0.25 * low) * scale, rtol=1e-13)


def test_old_names_of_reductions_are_understood():
    for old, new in (({"reduce": False}, "none"), ({"reduce": False, "size_average": True}, "none"),
                     ({"size_average": False}, "sum"), ({"reduce": True}, "mean")):
        assert nn.L1Loss(**old).reduction == new
        loss = nn.MSELoss(**old)(WAVES, 0 * WAVES)
        assert loss.equal(F.mse_loss(WAVES, 0 * WAVES, reduction=new))


def test_a_layer_without_running_statistics_normalises_by_the_batch_in_evaluation_too():
    y = nn.BatchNorm1d(2, eps=0.0, track_running_stats=False).eval()(WAVES[:2, :2].float())
    np.testing.assert_allclose(y.detach().abs(), 1, rtol=1e-4)


def test_running_logarithms_of_sums_of_complex_numbers():
    z = torch.tensor([1 + 2j, 0.5 - 1j, 3j, 2 - 1j], dtype=torch.complex128)
    np.testing.assert_allclose(torch.logcumsumexp(z, 0), np.log(np.cumsum(np.exp(z.numpy()))),
                               rtol=1e-14)


def test_products_under_no_grad_are_not_recorded():
    A = torch.ones(2, 2).requires_grad_()
    with torch.no_grad():
        assert not (A @ A).requires_grad and not (A @ A[0]).requires_grad
    assert (A @ A).requires_grad and (A @ A[0]).requires_grad
