"""Functions against NumPy and the functional core: value, gradient, second derivative."""

import numpy as np
import pytest

import functrans as ft
import functrans.torch as torch
from tests.drawing import generator

RNG = generator(1)
P = RNG.uniform(0.2, 0.9, (3, 4))
S = RNG.standard_normal((3, 4))
Q = RNG.standard_normal((4, 4))
SPD = Q @ Q.T + 4 * np.eye(4)
V = RNG.standard_normal(4)


def logsumexp(x, axis):
    return np.logaddexp.reduce(x, axis=axis)


def softmax(x, axis):
    e = np.exp(x)
    return e / np.sum(e, axis=axis, keepdims=True)


def lower_median(x):
    return np.sort(x, axis=1)[:, 1]


def index_added(x, y):
    return x.at[np.array([0, 0])].add(y)


# name -> (the shim's function, the same in NumPy, operands)
CASES = {
    name: (getattr(torch, name), getattr(np, other or name), (P,))
    for name, other in {
        "exp": "", "exp2": "", "expm1": "", "log": "", "log2": "", "log10": "", "log1p": "",
        "sqrt": "", "reciprocal": "", "sin": "", "cos": "", "tan": "", "asin": "arcsin",
        "acos": "arccos", "atan": "arctan", "sinh": "", "cosh": "", "tanh": "",
        "asinh": "arcsinh", "atanh": "arctanh", "square": "", "neg": "negative", "abs": "",
        "sinc": "", "deg2rad": "", "rad2deg": "", "sign": "", "floor": "", "ceil": "", "trunc": "",
        "round": "",
    }.items()
}
CASES |= {
    name: (getattr(torch, name), getattr(np, other or name), (P, P[::-1] + 0.05))
    for name, other in {
        "add": "", "sub": "subtract", "mul": "multiply", "div": "divide", "pow": "power",
        "atan2": "arctan2", "hypot": "", "maximum": "", "minimum": "", "fmod": "",
        "remainder": "", "logaddexp": "", "copysign": "",
    }.items()
}
CASES |= {
    "broadcast": (lambda x, y: x * y + y / x, lambda x, y: x * y + y / x, (P, P[0])),
    "numbers": (lambda x: 2 - 3 / x + 2**x - x**3, lambda x: 2 - 3 / x + 2**x - x**3, (P,)),
    "alpha": (lambda x, y: x.add(y, alpha=2), lambda x, y: x + 2 * y, (P, S)),
    "rsqrt": (torch.rsqrt, lambda x: 1 / np.sqrt(x), (P,)),
    "sigmoid": (torch.sigmoid, lambda x: 1 / (1 + np.exp(-x)), (S,)),
    "softplus": (torch.softplus, lambda x: np.log1p(np.exp(x)), (S,)),
    "relu": (torch.relu, lambda x: np.where(x > 0, x, 0), (S,)),
    "elu": (torch.elu, lambda x: np.where(x > 0, x, np.exp(np.minimum(x, 0)) - 1), (S,)),
    "silu": (torch.silu, lambda x: x / (1 + np.exp(-x)), (S,)),
    "clamp": (lambda x: x.clamp(0.3, 0.7), lambda x: np.clip(x, 0.3, 0.7), (P,)),
    "clamp min": (lambda x: x.clamp(min=0.3), lambda x: np.clip(x, 0.3, None), (P,)),
    "lerp": (lambda x, y: torch.lerp(x, y, 0.3), lambda x, y: x + 0.3 * (y - x), (P, S)),
    "addcmul": (lambda x, y: torch.addcmul(x, y, y, value=2), lambda x, y: x + 2 * y * y, (P, S)),
    "addcdiv": (lambda x, y: torch.addcdiv(x, x, y), lambda x, y: x + x / y, (P, P)),
    "where": (lambda x, y: torch.where(x > 0, x, y), lambda x, y: np.where(x > 0, x, y), (S, P)),
    "masked_fill": (lambda x: x.masked_fill(x > 0.5, 2), lambda x: np.where(x > 0.5, 2, x), (P,)),
    "sum": (lambda x: x.sum(), np.sum, (S,)),
    "sum dim": (lambda x: x.sum(dim=(0, 1)), np.sum, (S,)),
    "sum keepdim": (
        lambda x: x.sum(-1, keepdim=True), lambda x: np.sum(x, axis=-1, keepdims=True), (S,)
    ),
    "mean": (lambda x: x.mean(), np.mean, (S,)),
    "mean dim": (lambda x: torch.mean(x, 0), lambda x: np.mean(x, axis=0), (S,)),
    "var": (lambda x: x.var(1), lambda x: np.var(x, axis=1, ddof=1), (S,)),
    "var biased": (lambda x: x.var(0, unbiased=False), lambda x: np.var(x, axis=0), (S,)),
    "var of all": (lambda x: x.var(False), np.var, (S,)),
    "std": (lambda x: x.std(), lambda x: np.std(x, ddof=1), (S,)),
    "std correction": (lambda x: x.std(0, correction=0), lambda x: np.std(x, axis=0), (S,)),
    "prod": (lambda x: x.prod(), np.prod, (P,)),
    "prod dim": (lambda x: x.prod(1), lambda x: np.prod(x, axis=1), (P,)),
    "cumsum": (lambda x: x.cumsum(1), lambda x: np.cumsum(x, axis=1), (S,)),
    "cumprod": (lambda x: x.cumprod(0), lambda x: np.cumprod(x, axis=0), (P,)),
    "amax": (lambda x: x.amax(1), lambda x: np.max(x, axis=1), (S,)),
    "amin": (lambda x: x.amin((0, 1)), np.min, (S,)),
    "max": (lambda x: x.max(), np.max, (S,)),
    "max dim": (lambda x: x.max(dim=0).values, lambda x: np.max(x, axis=0), (S,)),
    "min dim": (lambda x: x.min(1)[0], lambda x: np.min(x, axis=1), (S,)),
    "max of two": (torch.max, np.maximum, (S, P)),
    "median": (lambda x: x.median(dim=1)[0], lower_median, (S,)),
    "sort": (lambda x: x.sort()[0], np.sort, (S,)),
    "topk": (
        lambda x: x.topk(2, dim=1).values, lambda x: np.sort(x, axis=1)[:, ::-1][:, :2], (S,)
    ),
    "norm": (lambda x: x.norm(), lambda x: np.sqrt(np.sum(x * x)), (S,)),
    "norm 3": (
        lambda x: x.norm(3, dim=1), lambda x: np.sum(np.abs(x) ** 3, axis=1) ** (1 / 3), (S,)
    ),
    "logsumexp": (lambda x: x.logsumexp(1), lambda x: logsumexp(x, 1), (S,)),
    "softmax": (lambda x: x.softmax(-1), lambda x: softmax(x, -1), (S,)),
    "log_softmax": (lambda x: x.log_softmax(0), lambda x: np.log(softmax(x, 0)), (S,)),
    "reshape": (lambda x: x.reshape(2, -1), lambda x: x.reshape(2, 6), (S,)),
    "flatten": (lambda x: x.t().flatten(), lambda x: x.T.reshape(-1), (S,)),
    "permute": (lambda x: x.permute(1, 0), lambda x: x.T, (S,)),
    "transpose": (lambda x: x.transpose(0, -1), lambda x: x.T, (S,)),
    "expand": (lambda x: x.unsqueeze(1).expand(3, 2, -1), lambda x: np.stack([x, x], 1), (S,)),
    "squeeze": (lambda x: x[None].squeeze(0), lambda x: x, (S,)),
    "index": (lambda x: x[1:, ::2], lambda x: x[1:, ::2], (S,)),
    "index list": (lambda x: x[[0, 0, 2], 1:], lambda x: x[np.array([0, 0, 2]), 1:], (S,)),
    "index mask": (lambda x: x[x > 0], lambda x: x[x > 0], (S,)),
    "chunk": (lambda x: x.chunk(2, 1)[1], lambda x: x[:, 2:], (S,)),
    "last chunk": (lambda x: x.chunk(2)[1], lambda x: x[2:], (S,)),
    "flip": (lambda x: x.flip(0), lambda x: x[::-1], (S,)),
    "roll": (lambda x: x.roll(1, 0), lambda x: np.roll(x, 1, 0), (S,)),
    "repeat": (lambda x: x.repeat(2, 1), lambda x: np.tile(x, (2, 1)), (S,)),
    "tril": (lambda x: x.tril(), np.tril, (S,)),
    "diagonal": (lambda x: x.diagonal(1), lambda x: np.diagonal(x, 1), (S,)),
    "contiguous": (lambda x: x.t().contiguous() ** 2, lambda x: x.T**2, (S,)),
    "clone": (lambda x: x.clone() ** 2, lambda x: x**2, (S,)),
    "cat": (lambda x, y: torch.cat([x, y], 1), lambda x, y: np.concatenate([x, y], 1), (S, P)),
    "stack": (lambda x, y: torch.stack([x, y], dim=1), lambda x, y: np.stack([x, y], 1), (S, P)),
    "gather": (
        lambda x: x.gather(1, torch.tensor([[0, 1], [2, 2]])),
        lambda x: x[np.array([[0, 0], [1, 1]]), np.array([[0, 1], [2, 2]])], (S,),
    ),
    "gather last": (
        lambda x: x.gather(-1, torch.tensor([[0, 1], [3, 2]])),
        lambda x: x[np.array([[0, 0], [1, 1]]), np.array([[0, 1], [3, 2]])], (S,),
    ),
    "index_select": (
        lambda x: x.index_select(1, torch.tensor([0, 0, 3])), lambda x: x[:, [0, 0, 3]], (S,)
    ),
    "scatter": (
        lambda x, y: x.scatter(1, torch.tensor([[0], [2], [3]]), y),
        lambda x, y: x.at[np.arange(3), np.array([0, 2, 3])].set(y[:, 0]), (S, P),
    ),
    "scatter_add": (
        lambda x, y: x.scatter_add(0, torch.tensor([[0, 0, 1, 2]] * 3), y),
        lambda x, y: x.at[np.array([[0, 0, 1, 2]] * 3), np.arange(4)[None] + 0 * np.ones(
            (3, 1), int)].add(y), (S, P),
    ),
    "index_add": (
        lambda x, y: x.index_add(0, torch.tensor([0, 0]), y), index_added, (S, P[:2])
    ),
    "matmul": (lambda x, y: x @ y, lambda x, y: x @ y, (S, Q)),
    "matmul batch": (
        lambda x, y: x.reshape(1, 3, 4) @ y, lambda x, y: x.reshape(1, 3, 4) @ y, (S, Q)
    ),
    "mv": (torch.mv, lambda x, y: x @ y, (S, V)),
    "dot": (torch.dot, np.dot, (V, V + 1)),
    "outer": (torch.outer, np.outer, (V, V + 1)),
    "addmm": (
        lambda z, x, y: torch.addmm(z, x, y, beta=0.5, alpha=2), lambda z, x, y: z / 2 + 2 * x @ y,
        (S, P, Q),
    ),
    "einsum": (
        lambda x, y: torch.einsum("ij,jk->ki", x, y), lambda x, y: (x @ y).T, (S, Q)
    ),
    "inverse": (torch.inverse, np.linalg.inv, (SPD,)),
    "det": (torch.det, np.linalg.det, (SPD,)),
    "logdet": (torch.logdet, lambda x: np.linalg.slogdet(x)[1], (SPD,)),
    "solve": (torch.linalg.solve, np.linalg.solve, (SPD, V)),
    "cholesky": (torch.linalg.cholesky, lambda a: np.linalg.cholesky((a + a.T) / 2), (SPD,)),
    "eigvalsh": (torch.linalg.eigvalsh, lambda a: np.linalg.eigvalsh((a + a.T) / 2), (SPD,)),
    "svdvals": (torch.linalg.svdvals, np.linalg.svdvals, (S,)),
    "trace": (torch.trace, np.trace, (Q,)),
}


def weights(shape):
    return np.cos(np.arange(int(np.prod(shape))).reshape(shape))


def scalar(f):
    """``f`` weighed and summed, so that its gradient sees every output."""
    return lambda *xs: np.sum(f(*xs) * weights(np.shape(f(*xs))))


@pytest.mark.parametrize("name", CASES)
def test_a_function_has_the_value_and_gradient_of_numpys(name):
    ours, theirs, operands = CASES[name]
    tensors = [torch.tensor(x, requires_grad=True) for x in operands]
    y = ours(*tensors)
    value = theirs(*map(ft.array, operands))
    assert y.shape == np.shape(value)
    assert y.detach().numpy() == pytest.approx(np.asarray(value), rel=1e-13, abs=1e-15)
    (y * torch.tensor(weights(y.shape))).sum().backward()
    expected = ft.grad(scalar(theirs), tuple(range(len(operands))))(*operands)
    for t, g in zip(tensors, expected, strict=True):
        # sums are taken in another order
        assert t.grad.numpy() == pytest.approx(np.asarray(g), rel=1e-11, abs=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_a_function_has_the_second_derivative_of_numpys(name):
    ours, theirs, operands = CASES[name]
    x = torch.tensor(operands[0], requires_grad=True)
    rest = [torch.tensor(v) for v in operands[1:]]
    y = ours(x, *rest)
    (g,) = torch.autograd.grad((y * torch.tensor(weights(y.shape))).sum(), x, create_graph=True)
    v = np.sin(np.arange(x.numel())).reshape(x.shape)
    h = np.zeros(x.shape)
    if g.requires_grad:
        (found,) = torch.autograd.grad((g * torch.tensor(v)).sum(), x, materialize_grads=True)
        h = found.numpy()
    truth = ft.hvp(lambda z: scalar(theirs)(z, *operands[1:]), operands[0], v)[1]
    # sums are taken in another order, and what cancels is not
    assert h == pytest.approx(np.asarray(truth), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_a_function_records_nothing_where_nothing_requires_gradients(name):
    ours, _, operands = CASES[name]
    y = ours(*[torch.tensor(x) for x in operands])
    assert y.grad_fn is None and not y.requires_grad


@pytest.mark.parametrize("name", CASES)
def test_results_are_on_memory_of_their_own_or_are_views(name):
    ours, _, operands = CASES[name]
    for requires in (False, True):
        tensors = [torch.tensor(x, requires_grad=requires) for x in operands]
        y = ours(*tensors)
        for x in tensors:
            shared = np.may_share_memory(x._array, y._array)
            assert not shared or y._storage is x._storage


NODES = {
    "AddBackward0": lambda x: x + 1, "SubBackward0": lambda x: x - 1,
    "MulBackward0": lambda x: x * 2, "DivBackward0": lambda x: x / 2,
    "PowBackward0": lambda x: x**2, "ExpBackward0": lambda x: x.exp(),
    "SumBackward0": lambda x: x.sum(), "SumBackward1": lambda x: x.sum(0),
    "MeanBackward0": lambda x: x.mean(), "MeanBackward1": lambda x: x.mean(0),
    "MmBackward0": lambda x: x @ x.t(), "TBackward0": lambda x: x.t(),
    "ViewBackward0": lambda x: x.view(-1), "SelectBackward0": lambda x: x[0],
    "SliceBackward0": lambda x: x[:1], "IndexBackward0": lambda x: x[[0]],
    "MaxBackward1": lambda x: x.max(), "MaxBackward0": lambda x: x.max(0)[0],
    "VarBackward0": lambda x: x.var(), "StdBackward0": lambda x: x.std(),
    "SoftmaxBackward0": lambda x: x.softmax(0), "CatBackward0": lambda x: torch.cat([x, x]),
    "StackBackward0": lambda x: torch.stack([x, x]), "CloneBackward0": lambda x: x.clone(),
    "ToCopyBackward0": lambda x: x.double(), "WhereBackward0": lambda x: torch.where(x > 0, x, 0),
}


@pytest.mark.parametrize("name", NODES)
def test_nodes_are_named_after_their_function(name):
    assert NODES[name](torch.ones(2, 3, requires_grad=True)).grad_fn.name() == name


# ---- results without derivatives


def test_functions_that_count_and_compare():
    x = torch.tensor([[3.0, 1.0], [2.0, 5.0]], requires_grad=True)
    assert x.argmax().item() == 3
    assert x.argmin(dim=1).tolist() == [1, 0]
    assert (x > 1.5).tolist() == [[True, False], [True, True]]
    assert (x > 1.5).any() and not (x > 1.5).all()
    assert torch.count_nonzero(x).item() == 4
    assert torch.nonzero(x > 2.5).tolist() == [[0, 0], [1, 1]]
    assert torch.unique(torch.tensor([3, 1, 3])).tolist() == [1, 3]
    assert x.sort(descending=True)[1].tolist() == [[0, 1], [1, 0]]
    assert torch.allclose(x, x) and torch.equal(x, x)
    assert torch.isnan(x / x).any().item() is False


# ---- edge points


@pytest.mark.parametrize(
    ("f", "at", "slope"),
    [
        (lambda x: x.abs(), [0.0], [0.0]),
        (lambda x: x.relu(), [0.0], [0.0]),
        (lambda x: x.clamp(0, 1), [0.0, 1.0], [1.0, 1.0]),
        (lambda x: x.norm(), [0.0, 0.0], [0.0, 0.0]),
        (lambda x: x.max(), [1.0, 1.0, 0.0], [0.5, 0.5, 0.0]),
        (lambda x: x.prod(), [0.0, 2.0, 3.0], [6.0, 0.0, 0.0]),
        (lambda x: x.std(), [2.0, 2.0], [0.0, 0.0]),
        (lambda x: torch.sinc(x), [0.0], [0.0]),
        (lambda x: x.sum(), [], []),
        (lambda x: x.softmax(0)[0], [1000.0, 0.0], [0.0, 0.0]),
    ],
)
def test_edge_points_have_the_useful_subgradient(f, at, slope):
    x = torch.tensor(at, dtype=torch.float64, requires_grad=True)
    f(x).sum().backward()
    assert x.grad.tolist() == slope


# ---- refusals


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: torch.ones(2) + torch.ones(3), RuntimeError, r"a \(2\) must .* b \(3\)"),
        (lambda: torch.ones(2, 3) @ torch.ones(2, 3), RuntimeError, "cannot be multiplied"),
        (lambda: torch.mm(torch.ones(2), torch.ones(2)), RuntimeError, "mm: self must be a matrix"),
        (lambda: torch.ones(2) @ torch.ones(2).double(), RuntimeError, "float != double"),
        (lambda: torch.ones(2).view(3), RuntimeError, "invalid for input of size 2"),
        (lambda: torch.ones(2, 3).t().view(-1), RuntimeError, r"Use .reshape\(...\) instead"),
        (lambda: torch.ones(2).expand(3), RuntimeError, "The expanded size of the tensor"),
        (lambda: torch.ones(2).sum(5), IndexError, r"of \[-1, 0\], but got 5"),
        (lambda: torch.ones(2).transpose(0, 4), IndexError, "Dimension out of range"),
        (lambda: torch.ones(2)[::-1], ValueError, "step must be greater than zero"),
        (lambda: torch.ones(2)[torch.ones(1)], IndexError, "used as indices"),
        (lambda: torch.ones(2)[5], IndexError, "out of bounds"),
        (lambda: torch.arange(3).mean(), RuntimeError, r"Got: Long. Use x.float\(\)"),
        (lambda: torch.cat([]), ValueError, "non-empty list"),
        (lambda: torch.mul(torch.ones(1), None), TypeError, "must be Tensor, not NoneType"),
        (lambda: torch.ones(1).exp(out=torch.ones(1)), TypeError, "out"),
        (lambda: torch.ones(1).sum(0, out=torch.ones(1)), TypeError, "out"),
        (lambda: torch.div(torch.ones(1), 2, rounding_mode="up"), RuntimeError, "'up'"),
        (lambda: torch.ones(1).clamp(), RuntimeError, "must not be None"),
        (lambda: torch.ones(3).split([1, 1]), RuntimeError, "sum exactly to 3"),
        (lambda: torch.inverse(torch.zeros(2, 2)), RuntimeError,
         "linalg.inv: The diagonal element 1 is zero"),
    ],
)
def test_what_cannot_be_done_is_refused(call, error, text):
    with pytest.raises(error, match=text):
        call()


ALONG = {
    "sum": lambda x, d: x.sum(d),
    "sum of a tuple": lambda x, d: x.sum((d,)),
    "mean": lambda x, d: x.mean(d),
    "mean kept": lambda x, d: x.mean(d, keepdim=True),
    "prod": lambda x, d: x.prod(d),
    "amax": lambda x, d: x.amax(d),
    "norm": lambda x, d: x.norm(dim=d),
    "vector_norm": lambda x, d: torch.linalg.vector_norm(x, dim=d),
    "median": lambda x, d: x.median(d).values,
    "cumsum": lambda x, d: x.cumsum(d),
    "cumprod": lambda x, d: x.cumprod(d),
    "topk": lambda x, d: x.topk(1, d).values,
    "sort": lambda x, d: x.sort(d).values,
    "logsumexp": lambda x, d: x.logsumexp(d),
    "flip": lambda x, d: x.flip(d),
    "index_select": lambda x, d: x.index_select(d, torch.tensor([0])),
}


@pytest.mark.parametrize("dim", [0, -1])
@pytest.mark.parametrize("name", ALONG)
def test_a_number_has_one_dimension_for_those_who_ask(name, dim):
    x = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    y = ALONG[name](x, dim)
    assert y.shape == () and y.item() == pytest.approx(0.7, rel=1e-15)
    y.backward()
    assert x.grad.item() == 1.0


@pytest.mark.parametrize("dim", [0, -1])
def test_a_number_has_no_spread(dim):
    x = torch.tensor(0.7, dtype=torch.float64)
    assert x.std(dim, correction=0).item() == x.var(dim, correction=0).item() == 0.0


@pytest.mark.parametrize("name", ["sum", "mean", "cumsum", "median", "topk", "sort", "logsumexp"])
def test_a_number_has_no_second_dimension(name):
    with pytest.raises(IndexError, match=r"range of \[-1, 0\], but got 1"):
        ALONG[name](torch.tensor(0.7), 1)


def test_tile_takes_its_counts_one_by_one():
    x = torch.tensor(S)
    for y in (x.tile(2, 1), x.tile((2, 1)), torch.tile(x, (2, 1))):
        np.testing.assert_array_equal(y.numpy(), np.tile(S, (2, 1)))
    np.testing.assert_array_equal(x.tile(2).numpy(), np.tile(S, 2))
