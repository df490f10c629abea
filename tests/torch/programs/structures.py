"""Decompositions, orders, sets, segments and the like under a derivative."""

import numpy as np
import torch
import torch.nn.functional as F

__all__ = [
    "canonical_correlation", "count_sketch", "cumulative_extremes", "decomposition_gradients",
    "differentiable_sorting", "fisher_discriminant", "gathered_beams", "indexing_tour",
    "least_squares_tour", "masked_statistics", "outputs_in_place", "padded_sequences",
    "principal_components", "procrustes", "ranking_loss", "segment_sums", "special_functions",
    "spectral_clustering", "tensor_trains", "whitening",
]


def drawn(seed, *shape):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape))


def procrustes():
    A, R0 = drawn(0, 8, 3).requires_grad_(), torch.linalg.qr(drawn(1, 3, 3))[0]
    B = A.detach() @ R0 + 0.05 * drawn(2, 8, 3)
    U, S, Vh = torch.linalg.svd(B.T @ A, full_matrices=False)
    R = U @ Vh
    loss = (B - A @ R.T).pow(2).sum()
    loss.backward()
    return {"loss": loss, "R": R, "S": S, "grad": A.grad}


def principal_components():
    X = drawn(3, 12, 4).requires_grad_()
    centred = X - X.mean(dim=0, keepdim=True)
    C = centred.t() @ centred / 11
    w, V = torch.linalg.eigh(C)
    explained = w.flip(0)[:2].sum() / w.sum()
    projected = centred @ V[:, -2:]
    explained.backward()
    return {"w": w, "explained": explained, "grad": X.grad[:3],
            "energy": projected.pow(2).sum(0), "cov": torch.allclose(torch.cov(X.T), C)}


def whitening():
    X = drawn(4, 10, 3)
    M = drawn(5, 3, 3).requires_grad_()
    Y = X @ M
    Y = Y - Y.mean(0)
    C = Y.T @ Y / 9
    L = torch.linalg.cholesky(C)
    W = torch.linalg.solve_triangular(L, Y.T, upper=False).T
    corr = torch.corrcoef(W.T)
    loss = W.abs().sum() + torch.logdet(C)
    loss.backward()
    inverse = torch.cholesky_inverse(L.detach())
    return {"loss": loss, "grad": M.grad, "corr": corr.round(decimals=6).abs(), "inv": inverse}


def canonical_correlation():
    X, Y = drawn(6, 20, 3).requires_grad_(), drawn(7, 20, 2)
    Xc, Yc = X - X.mean(0), Y - Y.mean(0)
    Sxx, Syy = Xc.T @ Xc / 19 + 0.1 * torch.eye(3), Yc.T @ Yc / 19 + 0.1 * torch.eye(2)
    Sxy = Xc.T @ Yc / 19

    def inverse_root(S):
        w, V = torch.linalg.eigh(S)
        return V @ torch.diag(w ** -0.5) @ V.T

    T = inverse_root(Sxx) @ Sxy @ inverse_root(Syy)
    corr = torch.linalg.svdvals(T).sum()
    nuclear = torch.linalg.matrix_norm(T, "nuc")
    (-corr).backward()
    return {"corr": corr, "nuclear": nuclear, "grad": X.grad[:2]}


def fisher_discriminant():
    X = drawn(8, 15, 3)
    y = torch.arange(15) % 3
    P = drawn(9, 3, 2).requires_grad_()
    Z = X @ P
    overall, within, between = Z.mean(0), 0, 0
    for c in torch.unique(y):
        Zc = Z[y == c]
        d = Zc - Zc.mean(0)
        within = within + d.T @ d
        m = (Zc.mean(0) - overall).unsqueeze(1)
        between = between + len(Zc) * m @ m.T
    J = torch.trace(torch.linalg.pinv(within) @ between)
    J.backward()
    return {"J": J, "grad": P.grad, "rank": torch.linalg.matrix_rank(within).item()}


def spectral_clustering():
    X = drawn(10, 6, 2).requires_grad_()
    A = torch.exp(-torch.cdist(X, X, compute_mode="donot_use_mm_for_euclid_dist"))
    A = A - torch.diag_embed(A.diagonal())
    d = A.sum(1)
    L = torch.diag(d) - A
    normal = d.rsqrt()[:, None] * L * d.rsqrt()[None]
    w = torch.linalg.eigvalsh(normal)
    (w[1] + w[2]).backward()
    return {"w": w, "grad": X.grad, "pdist": F.pdist(X.detach())}


def decomposition_gradients():
    A = drawn(11, 4, 4).requires_grad_()
    Q, R = torch.linalg.qr(A)
    LU, pivots = torch.linalg.lu_factor(A)
    P, L, U = torch.linalg.lu(A)
    x = torch.linalg.lu_solve(LU, pivots, drawn(12, 4, 1))
    sign, logabs = torch.linalg.slogdet(A)
    parts = [Q[0, 0].abs() + R.diagonal().abs().sum(), (L * U.T).sum(), x.norm(), logabs,
             torch.linalg.cond(A), torch.linalg.multi_dot([A, A, A[:, :1]]).sum(),
             torch.matrix_power(A, 3).trace(), torch.linalg.eigvals(A).abs().sum()]
    grads = [torch.autograd.grad(p, A, retain_graph=True)[0] for p in parts]
    return {"values": parts, "grads": [g[0] for g in grads],
            "same": torch.allclose(P @ L @ U, A), "sign": sign}


def least_squares_tour():
    A, b = drawn(13, 7, 3).requires_grad_(), drawn(14, 7, 1).requires_grad_()
    x1 = torch.linalg.lstsq(A, b).solution
    x2 = torch.linalg.pinv(A) @ b
    x3 = torch.cholesky_solve(A.T @ b, torch.linalg.cholesky(A.T @ A))
    Q, R = torch.linalg.qr(A)
    x4 = torch.linalg.solve_triangular(R, Q.T @ b, upper=True)
    grads = [torch.autograd.grad(x.pow(2).sum(), A, retain_graph=True)[0] for x in (x1, x2, x3, x4)]
    return {"x": x1, "same": [torch.allclose(x1, x) for x in (x2, x3, x4)], "grad": grads[0],
            "grads": [torch.allclose(grads[0], g) for g in grads]}


def differentiable_sorting():
    s = drawn(15, 5).requires_grad_()
    values, order = torch.sort(s, descending=True)
    ones = torch.ones(5, 1, dtype=torch.float64)
    gaps = (s[:, None] - s[None, :]).abs() @ ones
    scaling = (5 + 1 - 2 * (torch.arange(5) + 1)).double()
    P = torch.softmax((scaling[:, None] * s[None, :] - gaps.T) / 0.5, dim=-1)
    soft = P @ s
    k, where = torch.kthvalue(s, 2)
    loss = (soft - values.detach()).square().sum() + k + torch.msort(s)[0]
    loss.backward()
    return {"loss": loss, "order": order, "where": where, "grad": s.grad,
            "ranks": s.argsort().argsort()}


def ranking_loss():
    scores, relevance = drawn(16, 2, 5).requires_grad_(), torch.tensor([[3, 0, 1, 2, 0],
                                                                        [0, 1, 0, 0, 2]])
    order = relevance.argsort(dim=1, descending=True, stable=True)
    sorted_scores = scores.gather(1, order)
    listmle = (torch.logcumsumexp(sorted_scores.flip(1), dim=1).flip(1) - sorted_scores).sum(1)
    pairs = scores.unsqueeze(2) - scores.unsqueeze(1)
    wanted = (relevance.unsqueeze(2) > relevance.unsqueeze(1)).double()
    ranknet = F.softplus(-pairs).mul(wanted).sum((1, 2))
    (listmle.mean() + ranknet.mean()).backward()
    return {"listmle": listmle, "ranknet": ranknet, "grad": scores.grad}


def cumulative_extremes():
    x = drawn(17, 3, 6).requires_grad_()
    top, where = torch.cummax(x, dim=1)
    low = x.cummin(1).values
    total = torch.cumprod(x[0], 0)
    q = torch.quantile(x, torch.tensor([0.25, 0.5], dtype=torch.float64), dim=1)
    m = x.median(dim=1).values + torch.nanmedian(x) + x.mode(dim=1)[0]
    lo, hi = torch.aminmax(x, dim=0)
    loss = (top * low).sum() + total.sum() + q.pow(2).sum() + m.prod() + (hi - lo).exp().mean()
    loss.backward()
    return {"loss": loss, "where": where, "grad": x.grad, "q": q}


def masked_statistics():
    x = drawn(18, 3, 5).requires_grad_()
    lengths = torch.tensor([5, 2, 3])
    mask = torch.arange(5)[None, :] < lengths[:, None]
    mean = (x * mask).sum(1) / mask.sum(1)
    var = (((x - mean[:, None]) * mask) ** 2).sum(1) / (mask.sum(1) - 1).clamp(min=1)
    holes = torch.where(mask, x, torch.full_like(x, float("nan")))
    soft = x.masked_fill(~mask, -1e9).softmax(1)
    loss = mean.sum() + var.sqrt().sum() + torch.nansum(holes ** 2) + soft[:, 0].log().sum()
    loss.backward()
    return {"loss": loss, "mean": mean, "nanmean": torch.nanmean(holes, dim=1), "grad": x.grad,
            "any": mask.all(dim=0), "count": torch.count_nonzero(mask, dim=1)}


def padded_sequences():
    a, b, c = [drawn(19 + i, n, 2).requires_grad_() for i, n in enumerate((4, 2, 3))]
    padded = torch.nn.utils.rnn.pad_sequence([a, b, c], batch_first=True, padding_value=0.5)
    last = padded[torch.arange(3), torch.tensor([3, 1, 2])]
    (padded.prod(dim=-1).sum() + last.pow(2).sum()).backward()
    return {"padded": padded, "last": last, "grads": [a.grad, b.grad, c.grad]}


def segment_sums():
    x = drawn(22, 7, 2).requires_grad_()
    segment = torch.tensor([0, 0, 1, 3, 3, 3, 1])
    sums = torch.zeros(4, 2, dtype=torch.float64).index_add_(0, segment, x)
    count = torch.bincount(segment, minlength=4).double().clamp(min=1)
    means = sums / count.unsqueeze(1)
    high = torch.full((4, 2), -5.0, dtype=torch.float64).scatter_reduce_(
        0, segment[:, None].expand(-1, 2), x, "amax", include_self=True)
    centred = x - means.index_select(0, segment)
    loss = centred.pow(3).sum() + high.sum() + means.norm()
    loss.backward()
    return {"means": means, "high": high, "grad": x.grad}


def gathered_beams():
    logp = F.log_softmax(drawn(23, 4, 3, 5), dim=-1).requires_grad_()
    scores = torch.zeros(4, 1, dtype=torch.float64)
    history = []
    for t in range(3):
        total = scores.unsqueeze(-1) + logp[:, t].unsqueeze(1)
        scores, flat = total.flatten(1).topk(2, dim=-1)
        beam, token = torch.div(flat, 5, rounding_mode="floor"), flat % 5
        scores = scores + 0 * beam
        history.append(token)
    loss = -scores.logsumexp(1).mean()
    loss.backward()
    return {"scores": scores, "tokens": torch.stack(history), "grad": logp.grad[0, 0]}


def indexing_tour():
    x = drawn(24, 4, 5).requires_grad_()
    idx = torch.tensor([2, 0, 2])
    parts = [
        x[idx], x[:, idx], x[[0, 1], [2, 3]], x[x > 0], x[None, ..., -1], x[1:3, ::2],
        x[idx[:, None], torch.tensor([0, 4])], x.take(torch.tensor([0, 7, 19])),
        x.unfold(1, 3, 2), x.index_fill(1, idx, 2.0), x.masked_scatter(x > 1, drawn(25, 20)),
        x.index_copy(0, torch.tensor([3, 1]), drawn(26, 2, 5)), x.diagonal(1), x.tril(-1),
        x.rot90(), x.repeat_interleave(2, dim=0), x.tensor_split(3, dim=1)[1], x.movedim(0, 1),
        x.scatter(1, idx.view(1, 3), 9.0), torch.take_along_dim(x, x.argsort(dim=1), dim=1),
        x.unflatten(1, (5, 1)), x.narrow(1, 1, 3), torch.combinations(x[0], 2),
        torch.cartesian_prod(x[0, :2], x[1, :2]), x.put(idx, drawn(27, 3), accumulate=True),
        torch.select(x, 1, 2), x.swapaxes(0, 1), torch.triu(x, 1), torch.broadcast_to(x, (2, 4, 5)),
        x.fliplr(), x.flipud(), torch.column_stack((x, x[:, 0])),
        torch.dstack((x, x)), torch.atleast_3d(x), torch.tile(x, (2,)), x.ravel()[:3],
        torch.diag_embed(x), torch.select_scatter(x, drawn(28, 5), 0, 1),
        torch.slice_scatter(x, drawn(29, 4, 2), 1, 0, 2), torch.diagonal_scatter(x, drawn(30, 4)),
    ]
    weights = [torch.cos(torch.arange(p.numel(), dtype=torch.float64)).view(p.shape)
               for p in parts]
    values = [(p * w).sum() for p, w in zip(parts, weights)]
    sum(values).backward()
    return {"values": values, "grad": x.grad, "shapes": [sum(p.shape) for p in parts]}


def count_sketch():
    x = drawn(31, 9).requires_grad_()
    h = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 0])
    s = torch.tensor([1, -1, 1, 1, -1, -1, 1, -1, 1]).double()
    sketch = torch.zeros(4, dtype=torch.float64).scatter_add(0, h, s * x)
    edges = torch.linspace(-2, 2, 5, dtype=torch.float64)
    bins = torch.bucketize(x.detach(), edges)
    found = torch.searchsorted(edges, x.detach(), right=True)
    sketch.pow(2).sum().backward()
    return {"sketch": sketch, "grad": x.grad, "bins": bins, "found": found,
            "hist": torch.histc(x.detach(), 4, -2, 2), "isin": torch.isin(h, torch.tensor([1, 3]))}


def tensor_trains():
    G1, G2, G3 = [drawn(32 + i, *s).requires_grad_() for i, s in
                  enumerate([(1, 3, 2), (2, 4, 2), (2, 3, 1)])]
    full = torch.tensordot(torch.tensordot(G1, G2, dims=([2], [0])), G3, dims=1).squeeze()
    other = torch.einsum("aib,bjc,ckd->ijk", G1, G2, G3)
    batch = torch.baddbmm(torch.ones(2, 2, 2, dtype=torch.float64), G2.transpose(1, 2)[:, :, :3],
                          G3.squeeze(-1).unsqueeze(0).transpose(1, 2).expand(2, 3, 2), beta=0.5)
    loss = (full - 1).square().mean() + batch.tanh().sum() + torch.inner(G1[0], G3[..., 0].T).sum()
    loss.backward()
    return {"loss": loss, "same": torch.allclose(full, other), "g1": G1.grad, "g3": G3.grad}


def special_functions():
    x = torch.tensor([0.3, 1.2, 2.7], dtype=torch.float64, requires_grad=True)
    parts = [
        torch.erf(x), torch.erfc(x), torch.erfinv(x / 3), torch.lgamma(x), torch.digamma(x),
        torch.polygamma(1, x), torch.special.expit(x), torch.logit(x / 3), torch.special.i0(x),
        torch.special.i1(x), torch.special.multigammaln(x + 1, 2),
        torch.xlogy(x, x + 1), torch.special.entr(x),
        torch.special.ndtr(x), torch.special.ndtri(x / 3), torch.special.xlog1py(x, x),
        torch.special.log_ndtr(x), torch.sinc(x), torch.special.logsumexp(x, 0),
        torch.special.zeta(x + 1.5, 2.0).detach(), torch.mvlgamma(x + 2, 2),
        torch.special.erfcx(x), torch.special.softmax(x, 0),
    ]
    grads = [torch.autograd.grad(p.sum(), x, allow_unused=True, retain_graph=True)[0]
             if p.requires_grad else x for p in parts]
    return {"values": [p.sum() for p in parts], "grads": grads}


def outputs_in_place():
    a, b = drawn(40, 3), drawn(41, 3)
    out = torch.empty(3, dtype=torch.float64)
    r = torch.add(a, b, out=out)
    torch.mul(a, 2.0, out=a)
    torch.cat([a, b], out=(c := torch.empty(0, dtype=torch.float64)))
    m = torch.empty(2, dtype=torch.float64)
    torch.sum(c.view(2, 3), dim=1, out=m)
    v, i = torch.empty(0, dtype=torch.float64), torch.empty(0, dtype=torch.long)
    torch.max(c.view(2, 3), 1, out=(v, i))
    w = drawn(42, 3).requires_grad_()
    try:
        torch.exp(w, out=out)
        refused = False
    except RuntimeError as failure:
        refused = "don't support automatic differentiation" in str(failure)
    return {"same": r is out, "out": out, "a": a, "c": c, "m": m, "v": v, "i": i,
            "refused": refused}
