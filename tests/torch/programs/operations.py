"""Single functions: value, gradient and second derivative, each summed with fixed weights."""

import math

import numpy as np
import torch
import torch.nn.functional as F

__all__ = ["distances", "entries", "layers", "losses", "matrices", "orders", "shapes", "writes"]


def drawn(seed, *shape):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape)).requires_grad_()


def weighted(tensors, k):
    total = 0.0
    for i, t in enumerate(tensors):
        w = torch.cos(torch.arange(t.numel(), dtype=torch.float64) * (1.3 + k + i) + 0.5)
        products = t * w.view(t.shape)
        total = total + (products.real if t.is_complex() else products).sum()
    return total


def measured(f, *inputs):
    """The weighted sum of what ``f`` returns, of its gradient, and of the gradient of that."""
    y = f(*inputs)
    outputs = [t for t in (y if isinstance(y, (tuple, list)) else [y]) if t.requires_grad]
    first = weighted(outputs, 0)
    grads = torch.autograd.grad(first, inputs, create_graph=True, allow_unused=True)
    grads = [g for g in grads if g is not None]
    second = weighted(grads, 1)
    third = 0.0
    if second.requires_grad:
        grads = torch.autograd.grad(second, inputs, allow_unused=True)
        third = weighted([g for g in grads if g is not None], 2)
    return [first, second, third, sum(outputs[0].shape)]


def entries():
    x, y = drawn(0, 3, 4), drawn(1, 3, 4)
    p = torch.sigmoid(drawn(2, 3, 4)).detach().requires_grad_()
    return {
        name: measured(f, *inputs) for name, f, inputs in [
            ("xlogy", torch.xlogy, (p, p)), ("logit", torch.logit, (p,)),
            ("logaddexp", torch.logaddexp, (x, y)), ("hypot", torch.hypot, (x, y)),
            ("float_power", lambda a: a.float_power(2.5), (p,)),
            ("sgn", lambda a: a * a.sgn(), (x,)),
            ("clamp_min", lambda a: a.clamp_min(0.1) ** 2, (x,)), ("lerp", torch.lerp, (x, y, p)),
            ("ldexp", torch.ldexp, (x, y)), ("frac", lambda a: a.frac() ** 2, (x,)),
            ("addcdiv", lambda a, b: torch.addcdiv(a, b, b.exp(), value=0.5), (x, y)),
            ("cube", lambda a: a ** 3, (x,)), ("heaviside", lambda a: a * torch.heaviside(
                a.detach(), torch.tensor(0.5, dtype=torch.float64)), (x,)),
            ("sinc", torch.sinc, (x,)), ("atan2", torch.atan2, (x, y)),
            ("polar", torch.polar, (p, x)),
            ("angle", lambda a, b: torch.complex(a, b).angle(), (x, y)),
            ("erf", torch.erf, (x,)), ("erfc", torch.erfc, (x,)), ("lgamma", torch.lgamma, (p,)),
            ("digamma", torch.digamma, (p,)),
            ("mvlgamma", lambda a: torch.mvlgamma(a + 1, 2), (p,)),
            ("rsub", lambda a, b: torch.rsub(a, b, alpha=2), (x, y)), ("gelu", F.gelu, (x,)),
            ("gelu tanh", lambda a: F.gelu(a, approximate="tanh"), (x,)), ("selu", F.selu, (x,)),
            ("celu", lambda a: F.celu(a, 0.7), (x,)), ("mish", F.mish, (x,)),
            ("silu", F.silu, (x,)),
            ("hardswish", lambda a: F.hardswish(2 * a), (x,)), ("softsign", F.softsign, (x,)),
            ("softplus", lambda a: F.softplus(a, 2, 1), (x,)),
            ("glu", F.glu, (x,)), ("prelu", lambda a: F.prelu(a, torch.tensor(
                0.3, dtype=torch.float64)), (x,)), ("softmin", lambda a: F.softmin(a, 1), (x,)),
            ("logsigmoid", F.logsigmoid, (x,)), ("hardshrink", F.hardshrink, (x,)),
            ("log_softmax", lambda a: a.log_softmax(0), (x,)), ("sigmoid", torch.sigmoid, (x,)),
        ]
    }


def orders():
    x = drawn(3, 3, 5)
    q = torch.tensor([0.2, 0.75], dtype=torch.float64)
    return {
        name: measured(f, x) for name, f in [
            ("kthvalue", lambda a: a.kthvalue(2, dim=1)), ("mode", lambda a: a.mode(1)),
            ("cummax", lambda a: a.cummax(1)), ("cummin", lambda a: a.cummin(0)),
            ("quantile", lambda a: a.quantile(q, dim=1)), ("msort", torch.msort),
            ("nanquantile", lambda a: a.nanquantile(0.4)), ("aminmax", torch.aminmax),
            ("nanmedian", lambda a: a.nanmedian(dim=1)), ("topk", lambda a: a.topk(2)),
            ("sort", lambda a: a.sort(0, descending=True)), ("cov", torch.cov),
            ("corrcoef", torch.corrcoef), ("var_mean", lambda a: torch.var_mean(a, 1)),
            ("logcumsumexp", lambda a: a.logcumsumexp(1)), ("std", lambda a: a.std(0)),
            ("logsumexp", lambda a: a.logsumexp((0, 1))), ("prod", lambda a: a.prod(1)),
            ("norm 3", lambda a: a.norm(3, dim=0)), ("renorm", lambda a: a.renorm(2, 0, 1.0)),
        ]
    }


def matrices():
    A, B, v = drawn(4, 3, 3), drawn(5, 3, 2), drawn(6, 2, 3, 3)
    S = (A @ A.T + torch.eye(3)).detach().requires_grad_()
    L = torch.linalg.cholesky(S).detach().requires_grad_()
    la = torch.linalg
    return {
        name: measured(f, *inputs) for name, f, inputs in [
            ("solve", la.solve, (A, B)), ("solve right", lambda a, b: la.solve(a, b.T, left=False),
                                          (A, B)),
            ("solve_triangular", lambda a, b: la.solve_triangular(a.tril(), b, upper=False),
             (L, B)),
            ("inv", la.inv, (v,)), ("det", torch.det, (v,)), ("slogdet", la.slogdet, (A,)),
            ("lu", la.lu, (A,)), ("lu wide", la.lu, (B.T.detach().clone().requires_grad_(),)),
            ("lu tall", la.lu, (B,)), ("qr", la.qr, (B,)), ("pinv", la.pinv, (B,)),
            ("cholesky", la.cholesky, (S,)), ("eigvalsh", la.eigvalsh, (S,)),
            ("svdvals", la.svdvals, (B,)), ("matrix_exp", torch.matrix_exp, (A,)),
            ("matrix_power", lambda a: torch.matrix_power(a, -2), (A,)), ("cond", la.cond, (A,)),
            ("lstsq", lambda a, b: la.lstsq(a, b).solution, (B, drawn(7, 3, 1))),
            ("matrix_norm", lambda a: la.matrix_norm(a, "nuc"), (B,)),
            ("cholesky_inverse", lambda a: torch.cholesky_inverse(a.tril()), (L,)),
            ("multi_dot", lambda a, b: la.multi_dot([a, a, b]), (A, B)),
            ("addbmm", lambda a, b: torch.addbmm(a, b, b, beta=0.5, alpha=2), (A, v)),
            ("baddbmm", lambda a, b: torch.baddbmm(a, b, b, alpha=-1), (A, v)),
            ("addr", lambda a, b: torch.addr(a, b[:, 0], b[:, 1]), (A, B)),
            ("vecdot", la.vecdot, (A, A)), ("kron", torch.kron, (A, B)),
            ("cross", lambda a: la.cross(a, a.flip(0)), (A,)), ("tensordot", lambda a, b:
                torch.tensordot(a, b, dims=([0], [0])), (A, B)),
            ("fft", lambda a: torch.fft.fft(a, n=4), (A,)), ("rfft", torch.fft.rfft, (A,)),
            ("irfft", lambda a: torch.fft.irfft(torch.complex(a, 2 * a)), (A,)),
            ("fft2", torch.fft.fft2, (v,)), ("hfft", lambda a: torch.fft.hfft(
                torch.complex(a, a)), (A,)),
        ]
    }


def distances():
    x, y = drawn(8, 4, 3), drawn(9, 2, 3)
    t = torch.tensor([0.0, 0.5, 1.5, 2.0], dtype=torch.float64)
    return {
        name: measured(f, x, y) for name, f in [
            ("cdist", lambda a, b: torch.cdist(a, b)),
            ("cdist 1", lambda a, b: torch.cdist(a, b, 1)),
            ("cdist 3", lambda a, b: torch.cdist(a, b, 3.0)), ("pdist", lambda a, b: F.pdist(a)),
            ("dist", lambda a, b: torch.dist(a[:2], b)), ("diff", lambda a, b: torch.diff(a, 2, 0)),
            ("diff ends", lambda a, b: torch.diff(a, dim=0, prepend=b, append=b)),
            ("trapezoid", lambda a, b: torch.trapezoid(a, t, dim=0)),
            ("cumulative_trapezoid", lambda a, b: torch.cumulative_trapezoid(a, dx=0.5, dim=0)),
            ("gradient", lambda a, b: list(torch.gradient(a, spacing=0.5, edge_order=2, dim=0))),
            ("cosine_similarity", lambda a, b: F.cosine_similarity(a[:2], b)),
            ("normalize", lambda a, b: F.normalize(a, dim=0)),
            ("pairwise_distance", lambda a, b: F.pairwise_distance(a[:2], b)),
        ]
    }


def shapes():
    x = drawn(10, 2, 3, 4)
    return {
        name: measured(lambda a, f=f: f(a ** 2), x) for name, f in [
            ("unfold", lambda a: a.unfold(2, 2, 1)), ("diag_embed", lambda a: a.diag_embed(1)),
            ("block_diag", lambda a: torch.block_diag(a[0], a[1])), ("rot90", lambda a: a.rot90()),
            ("tensor_split", lambda a: list(a.tensor_split(3, 2))),
            ("flip", lambda a: a.flip(0, 2)),
            ("hsplit", lambda a: list(a.hsplit(3))), ("movedim", lambda a: a.movedim(0, 2)),
            ("column_stack", lambda a: torch.column_stack((a[0], a[1]))), ("mT", lambda a: a.mT),
            ("repeat_interleave", lambda a: a.repeat_interleave(torch.tensor([1, 2]), 0)),
            ("pad reflect", lambda a: F.pad(a, (1, 2), mode="reflect")), ("tril", torch.tril),
            ("pad circular", lambda a: F.pad(a, (1, 2), mode="circular")),
            ("pad negative", lambda a: F.pad(a, (-1, 1, 1, 0), value=2.0)),
            ("as_strided", lambda a: a.as_strided((2, 3), (4, 2), 1)),
            ("view_as_real", lambda a: torch.view_as_real(torch.complex(a, a * 2))),
            ("pixel_shuffle", lambda a: F.pixel_shuffle(a.reshape(4, 2, 3), 2)),
            ("sum_to_size", lambda a: a.sum_to_size(3, 1)),
            ("roll", lambda a: a.roll((1, 1), (0, 2))),
            ("take_along_dim", lambda a: a.take_along_dim(a.argsort(2), 2)),
        ]
    }


def writes():
    x, y = drawn(11, 4, 3), drawn(12, 4, 3)
    i = torch.tensor([[0, 1, 1], [3, 0, 1], [0, 1, 2], [3, 3, 3]])
    rows, mask = torch.tensor([2, 0, 2]), torch.tensor([[True, False, True]] * 4)
    return {
        name: measured(f, x, y) for name, f in [
            ("scatter", lambda a, b: (a ** 2).scatter(0, i[:1], b[:1])),
            ("scatter_add", lambda a, b: a.scatter_add(0, i, b ** 2)),
            ("scatter_reduce sum", lambda a, b: a.scatter_reduce(0, i, b ** 2, "sum")),
            ("scatter_reduce mean", lambda a, b: a.scatter_reduce(0, i, b ** 2, "mean",
                                                                 include_self=False)),
            ("scatter_reduce prod", lambda a, b: a.scatter_reduce(0, i, b, "prod")),
            ("scatter_reduce amax", lambda a, b: a.scatter_reduce(0, i, b, "amax")),
            ("scatter_reduce amin", lambda a, b: a.scatter_reduce(0, i, b, "amin",
                                                                 include_self=False)),
            ("index_add", lambda a, b: a.index_add(0, rows, b[:3] ** 2, alpha=2)),
            ("index_copy", lambda a, b: a.index_copy(0, rows[:2], b[:2] ** 2)),
            ("index_fill", lambda a, b: (a * b).index_fill(1, rows[:1], 0.5)),
            ("index_put", lambda a, b: a.index_put((rows,), b[:3] ** 2, accumulate=True)),
            ("put", lambda a, b: (a * 1).put(rows, b[0] ** 2, accumulate=True)),
            ("masked_scatter", lambda a, b: a.masked_scatter(mask, b ** 2)),
            ("masked_fill", lambda a, b: (a * b).masked_fill(mask, 2.0)),
            ("select_scatter", lambda a, b: a.select_scatter(b[0] ** 2, 0, 1)),
            ("slice_scatter", lambda a, b: a.slice_scatter(b[:2] ** 2, 0, 0, 4, 2)),
            ("diagonal_scatter", lambda a, b: a.diagonal_scatter(b[0] ** 2)),
            ("embedding", lambda a, b: F.embedding(i, b ** 2, padding_idx=1)),
            ("embedding_bag", lambda a, b: F.embedding_bag(i, a * b, mode="max")),
            ("where", lambda a, b: torch.where(mask, a ** 2, b ** 3)),
        ]
    }


def layers():
    x, w, s = drawn(13, 2, 4, 6, 5), drawn(14, 4, 2, 3, 2), drawn(15, 2, 4, 7)
    k = drawn(16, 4, 3, 3)
    return {
        name: measured(f, *inputs) for name, f, inputs in [
            ("conv2d", lambda a, b: F.conv2d(a, b, stride=2, padding=1, groups=2), (x, w)),
            ("conv2d dilated", lambda a, b: F.conv2d(a, b, dilation=(2, 1), groups=2), (x, w)),
            ("conv1d", lambda a, b: F.conv1d(a, b.transpose(0, 1)), (s, k)),
            ("conv_transpose1d", lambda a, b: F.conv_transpose1d(a, b, stride=2, padding=1),
             (s, k)),
            ("conv_transpose2d", lambda a, b: F.conv_transpose2d(
                a, b, stride=2, output_padding=1, groups=2), (x, w)),
            ("avg_pool2d", lambda a: F.avg_pool2d(a ** 2, 3, 2, 1, ceil_mode=True,
                                                  count_include_pad=False), (x,)),
            ("max_pool2d", lambda a: F.max_pool2d(a ** 2, 3, 2, 1), (x,)),
            ("max_pool1d", lambda a: F.max_pool1d(a ** 2, 3, dilation=2), (s,)),
            ("lp_pool1d", lambda a: F.lp_pool1d(a ** 2, 2.0, 2), (s,)),
            ("adaptive_avg_pool2d", lambda a: F.adaptive_avg_pool2d(a ** 2, (4, 3)), (x,)),
            ("adaptive_max_pool1d", lambda a: F.adaptive_max_pool1d(a ** 2, 3), (s,)),
            ("unfold", lambda a: F.unfold(a ** 2, (2, 3), stride=2, padding=1), (x,)),
            ("fold", lambda a: F.fold(a.reshape(2, 8, 15)[:, :, :12] ** 2, (5, 4), 2), (x,)),
            ("batch_norm", lambda a: F.batch_norm(a, None, None, training=True), (x,)),
            ("layer_norm", lambda a: F.layer_norm(a, (5,)), (x,)),
            ("group_norm", lambda a: F.group_norm(a, 2), (x,)),
            ("instance_norm", F.instance_norm, (x,)),
            ("rms_norm", lambda a: F.rms_norm(a, (7,)), (s,)),
            ("local_response_norm", lambda a: F.local_response_norm(a, 3, alpha=0.1), (s,)),
            ("bilinear", lambda a: F.bilinear(a[0], a[1], torch.ones(
                2, 7, 7, dtype=torch.float64) * 0.1), (s,)),
            ("interpolate bicubic", lambda a: F.interpolate(a ** 2, scale_factor=1.5,
                                                            mode="bicubic"), (x,)),
            ("interpolate linear", lambda a: F.interpolate(a ** 2, 4, mode="linear"), (s,)),
            ("interpolate area", lambda a: F.interpolate(a ** 2, (4, 3), mode="area"), (x,)),
            ("grid_sample", lambda a: F.grid_sample(a, torch.tanh(a[:, :2].permute(0, 2, 3, 1)),
                                                    align_corners=False), (x,)),
        ]
    }


def losses():
    x, y = drawn(17, 4, 3), drawn(18, 4, 3)
    target, sign = torch.tensor([0, 2, 1, -100]), torch.tensor([1, -1, 1, -1])
    p = torch.softmax(y.detach(), 1)
    w = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    return {
        name: measured(f, x, y) for name, f in [
            ("mse", F.mse_loss), ("l1", F.l1_loss), ("smooth_l1", F.smooth_l1_loss),
            ("huber", lambda a, b: F.huber_loss(a, b, delta=0.5, reduction="sum")),
            ("cross_entropy", lambda a, b: F.cross_entropy(a, target, w, label_smoothing=0.1)),
            ("cross_entropy of shares", lambda a, b: F.cross_entropy(a, p, w)),
            ("nll", lambda a, b: F.nll_loss(a.log_softmax(1), target, w, reduction="none")),
            ("bce", lambda a, b: F.binary_cross_entropy(a.sigmoid(), p)),
            ("bce of logits", lambda a, b: F.binary_cross_entropy_with_logits(a, p, pos_weight=w)),
            ("kl_div", lambda a, b: F.kl_div(a.log_softmax(1), b.log_softmax(1), log_target=True,
                                             reduction="batchmean")),
            ("poisson", lambda a, b: F.poisson_nll_loss(a, p * 3, full=True)),
            ("gaussian", lambda a, b: F.gaussian_nll_loss(a, p, b ** 2 + 0.1, full=True)),
            ("hinge", lambda a, b: F.hinge_embedding_loss(a, sign[:, None].expand(4, 3))),
            ("margin", lambda a, b: F.margin_ranking_loss(a[:, 0], b[:, 0], sign, 0.3)),
            ("soft margin", lambda a, b: F.soft_margin_loss(a, sign[:, None].expand(4, 3))),
            ("cosine", lambda a, b: F.cosine_embedding_loss(a, b, sign, 0.1)),
            ("triplet", lambda a, b: F.triplet_margin_loss(a, b, a.flip(0) * math.pi, swap=True)),
            ("multilabel", lambda a, b: F.multilabel_soft_margin_loss(a, p.round())),
        ]
    }
