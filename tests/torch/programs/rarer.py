"""Names that programs use now and then: attention with every option, clusters of classes, ..."""

import torch
import torch.nn as nn
import torch.nn.functional as F

__all__ = [
    "adaptive_softmax",
    "attention_forward",
    "attention_layers",
    "linear_cross_entropy",
    "low_rank",
    "recurrent_layers",
    "softmax_at_infinity",
    "sparse_products",
]


def spread(*shape):
    """Numbers of both signs."""
    count = 1
    for n in shape:
        count *= n
    return (torch.linspace(-1.3, 1.7, count, dtype=torch.float64).sin() * 1.3
            + torch.linspace(0, 1, count, dtype=torch.float64)).reshape(shape)


def filled(module):
    module.double()
    with torch.no_grad():
        for _, p in sorted(module.named_parameters()):
            p.copy_(spread(*p.shape) * 0.3)
    return module


def attention_layers():
    out = {}
    hidden = torch.zeros(2, 6, dtype=torch.bool)
    hidden[0, 3:] = True
    mask = torch.zeros(4, 6, dtype=torch.bool)
    mask[1, 2] = True
    for name, options in (("biases", {"add_bias_kv": True}), ("plain", {"bias": False}),
                          ("zeros", {"add_zero_attn": True, "add_bias_kv": True}),
                          ("sizes", {"kdim": 3, "vdim": 5})):
        layer = filled(nn.MultiheadAttention(8, 2, **options))
        q = spread(4, 2, 8).requires_grad_()
        k, v = spread(6, 2, options.get("kdim", 8)), spread(6, 2, options.get("vdim", 8))
        y, w = layer(q, k, v, key_padding_mask=hidden, attn_mask=mask)
        y.square().sum().backward()
        each = layer(q, k, v, attn_mask=mask.expand(4, 4, 6), average_attn_weights=False)
        one = layer(q[:, 0], k[:, 0], v[:, 0], attn_mask=spread(4, 6))
        unseen = torch.ones_like(hidden)
        lost = layer(q, k, v, key_padding_mask=unseen)
        none = layer(q, k, v, key_padding_mask=unseen, need_weights=False)[0]
        out[name] = [y, w, q.grad, each, one, lost, none,
                     [p.grad for _, p in sorted(layer.named_parameters())]]
    return out


def attention_forward():
    x = spread(5, 2, 8).requires_grad_()
    inner, bias, outer = spread(24, 8) * 0.3, spread(24) * 0.1, spread(8, 8) * 0.3
    y, w = F.multi_head_attention_forward(
        x, x, x, 8, 2, inner, bias, spread(1, 1, 8), spread(1, 1, 8) * 0.5, True, 0.0, outer, None)
    own, _ = F.multi_head_attention_forward(
        x, x, x, 8, 2, None, bias, None, None, False, 0.0, outer, bias[:8],
        use_separate_proj_weight=True, q_proj_weight=outer, k_proj_weight=outer * 0.5,
        v_proj_weight=outer * 2)
    fixed, _ = F.multi_head_attention_forward(
        x, x, x, 8, 2, inner, bias, None, None, False, 0.0, outer, None,
        static_k=spread(4, 3, 4), static_v=spread(4, 3, 4))
    (y.sum() + own.square().sum() + fixed.sum()).backward()
    return {"y": y, "w": w, "own": own, "fixed": fixed, "grad": x.grad}


def adaptive_softmax():
    layer = filled(nn.AdaptiveLogSoftmaxWithLoss(6, 12, [3, 7], div_value=2.0))
    x, t = spread(5, 6).requires_grad_(), torch.tensor([0, 2, 3, 8, 11])
    out = layer(x, t)
    out.loss.backward()
    single = layer(x[3], t[3])
    return {"output": out.output, "loss": out.loss, "grad": x.grad, "single": single,
            "grads": [p.grad for p in layer.parameters()], "log_prob": layer.log_prob(x),
            "predict": layer.predict(x)}


def linear_cross_entropy():
    x, w = spread(4, 3).requires_grad_(), spread(7, 3).requires_grad_()
    t = torch.tensor([0, 3, 6, 1])
    y = F.linear_cross_entropy(x, w, t, linear_bias=spread(7), ignore_index=6, label_smoothing=0.1)
    return {"y": y, "grads": torch.autograd.grad(y, (x, w)),
            "each": F.linear_cross_entropy(x, w, t, reduction="none")}


def low_rank():
    a = (spread(6, 2) @ (spread(2, 5) + torch.eye(2, 5))).requires_grad_()
    u, s, v = torch.svd_lowrank(a, q=2)
    ((u * s) @ v.mT * torch.arange(5)).sum().backward(retain_graph=True)
    (values,) = torch.autograd.grad(s.sum(), a)
    pu, ps, pv = torch.pca_lowrank(a.detach(), q=3)
    less = torch.svd_lowrank(a.detach(), q=2, M=a.detach()[0])[1]
    return {"s": s, "same": (u * s) @ v.mT, "values": values, "less": less[:1],
            "pca": ps[:2], "centred": (pu * ps) @ pv.mT}


def softmax_at_infinity():
    inf = float("inf")
    rows = torch.tensor([[-inf, -inf, -inf], [-inf, 0.0, 1.0], [float("nan"), 0.0, 1.0],
                         [1e300, -1e300, 0.0]], dtype=torch.float64)
    many = rows.repeat_interleave(20, 1).repeat(200, 1)
    x = rows.clone().requires_grad_()
    y = torch.softmax(x, 1)
    (g,) = torch.autograd.grad(y[:, 2].sum(), x)
    return {"rows": y, "columns": torch.softmax(rows.t(), 0), "single": rows[:1].float().softmax(1),
            "many": torch.softmax(many, 1)[-4:, ::20], "grad": g}


def sparse_products():
    values = torch.tensor([3.0, 4.0, 5.0], dtype=torch.float64, requires_grad=True)
    s = torch.sparse_coo_tensor(torch.tensor([[0, 1, 1], [2, 0, 2]]), values, (2, 3),
                                check_invariants=True)
    d = spread(3, 2).requires_grad_()
    products = [torch.mm(s, d), torch.matmul(s, d), s @ d, torch.sparse.mm(s, d)]
    vectors = [torch.mv(s, d[:, 0]), torch.matmul(s, d[:, 1])]
    total = sum([p.sum() for p in products]) + sum([v.square().sum() for v in vectors])
    return {"products": products, "vectors": vectors,
            "grads": torch.autograd.grad(total, (values, d))}


def recurrent_layers():
    out = {}
    for name, kind, options in (
            ("projected", nn.LSTM, {"proj_size": 2}), ("free", nn.GRU, {"bias": False}),
            ("relu", nn.RNN, {"nonlinearity": "relu"}),
            ("both", nn.LSTM, {"bidirectional": True, "num_layers": 2, "proj_size": 3})):
        layer = filled(kind(3, 4, **options))
        x = spread(4, 2, 3).requires_grad_()
        y, state = layer(x)
        again = layer(x, state)
        (y.square().sum() + again[0].sum()).backward()
        out[name] = [y, state, again, x.grad, [p.grad for _, p in sorted(layer.named_parameters())]]
    packed = nn.utils.rnn.pack_padded_sequence(spread(4, 2, 3), [4, 3])
    layer = filled(nn.LSTM(3, 4, proj_size=2))
    y, state = layer(packed)
    out["packed"] = [y.data, state]
    return out
