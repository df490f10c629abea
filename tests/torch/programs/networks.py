"""Networks: layers by hand and from ``nn``, convolutions, recurrence, attention, embeddings."""

import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.nn.parameter import Parameter

__all__ = [
    "attention_by_hand", "autoencoder", "bag_of_words", "batch_normalisation", "character_gru",
    "contrastive", "convolution_by_unfold", "distillation", "fast_gradient_sign",
    "graph_convolution", "lenet", "lstm_by_hand", "matrix_factorisation", "module_hooks",
    "pooling_and_padding", "recurrent_cells", "residual_net", "sine_network", "style_matrices",
    "transformer_block", "triplets", "upsampling", "word_vectors",
]


def drawn(seed, *shape):
    return torch.from_numpy(np.random.RandomState(seed).randn(*shape))


def fill(module, seed=0):
    """Deterministic weights for every parameter of a module."""
    for i, p in enumerate(module.parameters()):
        p.data = 0.3 * drawn(seed + i, *p.shape)
    return module.double()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 3, 3)
        self.conv2 = nn.Conv2d(3, 4, 3, padding=1, stride=1)
        self.fc1 = nn.Linear(4 * 3 * 3, 8)
        self.fc2 = nn.Linear(8, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), (2, 2))
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = torch.flatten(x, 1)
        x = F.relu(self.fc1(x))
        return F.log_softmax(self.fc2(x), dim=1)


def lenet():
    net = fill(Net())
    x = drawn(50, 2, 1, 14, 14)
    target = torch.tensor([1, 4])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = F.nll_loss(net(x), target)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, "conv1": net.conv1.weight[0], "bias": net.conv2.bias,
            "count": len(list(net.parameters()))}


def convolution_by_unfold():
    x = drawn(51, 2, 3, 7, 6).requires_grad_()
    w = drawn(52, 4, 3, 3, 2).requires_grad_()
    b = drawn(53, 4)
    unfolded = F.unfold(x, (3, 2), padding=1, stride=2)
    out = unfolded.transpose(1, 2).matmul(w.view(w.size(0), -1).t()).transpose(1, 2)
    out = out.view(2, 4, 4, 4) + b.view(1, -1, 1, 1)
    direct = F.conv2d(x, w, b, stride=2, padding=1)
    gx, gw = torch.autograd.grad((out * direct.detach()).sum(), (x, w))
    hx, hw = torch.autograd.grad((direct ** 2).sum() / 2, (x, w))
    folded = F.fold(unfolded, (7, 6), (3, 2), padding=1, stride=2)
    return {"same": torch.allclose(out, direct), "x": torch.allclose(gx, hx),
            "w": torch.allclose(gw, hw), "out": direct[0, 0], "gw": gw[0, 0],
            "folded": folded[0, 0, :2]}


def pooling_and_padding():
    x = drawn(54, 1, 2, 6, 6).requires_grad_()
    y = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="reflect"), 2)
    z = F.max_pool2d(x, 3, stride=1, padding=1)
    p, where = F.max_pool2d(x, 2, return_indices=True)
    a = F.adaptive_avg_pool2d(x, (1, 1)).flatten()
    s = F.conv1d(x[:, :, 0], drawn(55, 2, 1, 3), groups=2, padding="same")
    c = F.pad(x[0, 0], (0, 2), value=1.5).prod(dim=1)
    loss = y.pow(2).sum() + z.sum() + p.exp().sum() + a.prod() + s.abs().sum() + c.sum()
    loss.backward()
    return {"loss": loss, "where": where, "grad": x.grad[0, 0]}


def residual_net():
    class Block(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.bn = nn.BatchNorm2d(channels)
            self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
            self.act = nn.LeakyReLU(0.1)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.conv(self.act(self.bn(x)))

    net = nn.Sequential(Block(2), Block(2), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    fill(net)
    x = drawn(56, 3, 2, 4, 4)
    out = net(x)
    out.square().sum().backward()
    running = net[0].bn.running_mean.clone()
    net.eval()
    with torch.no_grad():
        quiet = net(x)
    return {"out": out, "grad": net[1].conv.weight.grad[0], "running": running, "eval": quiet,
            "seen": net[1].bn.num_batches_tracked.item(), "state": len(net.state_dict())}


def batch_normalisation():
    x = drawn(57, 6, 3).requires_grad_()
    gamma, beta = drawn(58, 3).requires_grad_(), drawn(59, 3).requires_grad_()
    mu = 1.0 / 6 * torch.sum(x, axis=0)
    centred = x - mu
    var = (centred ** 2).mean(0)
    out = gamma * (centred / (var + 1e-5).sqrt()) + beta
    reference = F.batch_norm(x, None, None, gamma, beta, training=True)
    weights = drawn(60, 6, 3)
    ours = torch.autograd.grad((out * weights).sum(), (x, gamma, beta))
    theirs = torch.autograd.grad((reference * weights).sum(), (x, gamma, beta))
    layer = nn.LayerNorm(3, elementwise_affine=False)(x)
    group = F.group_norm(x.view(2, 9)[..., None], 3).flatten()
    instance = F.instance_norm(x.t().reshape(1, 3, 6))
    return {"same": torch.allclose(out, reference),
            "grads": [torch.allclose(a, b) for a, b in zip(ours, theirs)],
            "gx": ours[0], "layer": layer, "group": group, "instance": instance}


def lstm_by_hand():
    n_in, n_hidden, steps = 3, 4, 5
    W = drawn(61, 4 * n_hidden, n_in + n_hidden).requires_grad_()
    b = torch.zeros(4 * n_hidden, dtype=torch.float64, requires_grad=True)
    h = torch.zeros(2, n_hidden, dtype=torch.float64)
    c = torch.zeros_like(h)
    outputs = []
    for x in drawn(62, steps, 2, n_in).unbind(0):
        gates = torch.cat([x, h], dim=1) @ W.t() + b
        i, f, o, g = gates.chunk(4, 1)
        c = torch.sigmoid(f + 1) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * c.tanh()
        outputs.append(h)
    seq = torch.stack(outputs, dim=1)
    loss = (seq[:, -1] ** 2).sum() + seq.mean()
    loss.backward()
    return {"loss": loss, "W": W.grad[0], "b": b.grad, "seq": seq[0, 2]}


def recurrent_cells():
    x = drawn(63, 4, 2, 3)
    out = {}
    for name, cell in (("rnn", nn.RNNCell(3, 2)), ("gru", nn.GRUCell(3, 2)),
                       ("lstm", nn.LSTMCell(3, 2))):
        fill(cell, 64)
        state = None
        for step in x:
            state = cell(step, state)
        h = state[0] if isinstance(state, tuple) else state
        h.sum().backward()
        out[name] = [h, cell.weight_hh.grad[0]]
    lstm = fill(nn.LSTM(3, 2, num_layers=2, batch_first=True), 70)
    seq, (h, c) = lstm(x)
    seq.pow(2).sum().backward()
    out["layers"] = [seq[1], h, c, lstm.weight_ih_l1.grad[0]]
    gru = fill(nn.GRU(3, 2, bidirectional=True), 80)
    out["both"] = list(gru(x))
    return out


def character_gru():
    text = "hello world"
    chars = sorted(set(text))
    ids = torch.tensor([chars.index(ch) for ch in text])
    V, H = len(chars), 6
    params = [0.5 * drawn(90 + i, *shape) for i, shape in enumerate(
        [(V, H), (V, H), (V, H), (H, H), (H, H), (H, H), (H, V)])]
    for p in params:
        p.requires_grad_(True)
    Wz, Wr, Wh, Uz, Ur, Uh, Wo = params
    losses = []
    for epoch in range(4):
        h = torch.zeros(H, dtype=torch.float64)
        loss = 0
        for now, nxt in zip(ids[:-1], ids[1:]):
            x = F.one_hot(now, V).double()
            z = torch.sigmoid(x @ Wz + h @ Uz)
            r = torch.sigmoid(x @ Wr + h @ Ur)
            h = (1 - z) * h + z * torch.tanh(x @ Wh + (r * h) @ Uh)
            loss = loss + F.cross_entropy((h @ Wo).unsqueeze(0), nxt.view(1))
        grads = torch.autograd.grad(loss, params)
        params_norm = torch.sqrt(sum(g.pow(2).sum() for g in grads))
        with torch.no_grad():
            for p, g in zip(params, grads):
                p.add_(g * min(1.0, 5.0 / float(params_norm)), alpha=-0.1)
        losses.append(loss.item() / (len(ids) - 1))
    return {"losses": losses, "norm": params_norm}


def attention_by_hand():
    B, T, D, H = 2, 5, 8, 2
    x = drawn(100, B, T, D).requires_grad_()
    Wq, Wk, Wv = [drawn(101 + i, D, D) / math.sqrt(D) for i in range(3)]
    q, k, v = [(x @ w).view(B, T, H, D // H).transpose(1, 2) for w in (Wq, Wk, Wv)]
    scores = q @ k.transpose(-2, -1) / math.sqrt(D // H)
    mask = torch.tril(torch.ones(T, T)).view(1, 1, T, T)
    scores = scores.masked_fill(mask[:, :, :T, :T] == 0, float("-inf"))
    y = F.softmax(scores, dim=-1) @ v
    y = y.transpose(1, 2).contiguous().view(B, T, D)
    g, = torch.autograd.grad(y.pow(2).sum(), x, create_graph=True)
    gg, = torch.autograd.grad(g.pow(2).sum(), x)
    z = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    same = torch.allclose(z.transpose(1, 2).reshape(B, T, D), y)
    e = torch.einsum("bhid,bhjd->bhij", q, k)
    return {"y": y[0, 1], "g": g[1, 2], "gg": gg[0, 0], "same": same, "e": e[0, 1, 0]}


class TransformerBlock(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(d, 2 * d), nn.GELU(), nn.Dropout(0.0),
                                 nn.Linear(2 * d, d))
        self.register_buffer("bias", torch.zeros(d))

    def forward(self, x):
        h = self.ln1(x)
        a, _ = self.attn(h, h, h, need_weights=False)
        x = x + a + self.bias
        return x + self.mlp(self.ln2(x))


def transformer_block():
    torch.manual_seed(1)
    block = fill(TransformerBlock(8, 2), 110)
    positions = torch.arange(4).unsqueeze(1).double()
    div = torch.exp(torch.arange(0, 8, 2).double() * (-math.log(10000.0) / 8))
    pe = torch.zeros(4, 8, dtype=torch.float64)
    pe[:, 0::2] = torch.sin(positions * div)
    pe[:, 1::2] = torch.cos(positions * div)
    x = drawn(130, 3, 4, 8) + pe
    y = block(x)
    loss = F.smooth_l1_loss(y, x)
    loss.backward()
    count = sum(p.numel() for p in block.parameters() if p.requires_grad)
    return {"loss": loss, "y": y[0, 0], "grad": block.attn.in_proj_weight.grad[3],
            "ln": block.ln1.weight.grad, "count": count}


def bag_of_words():
    embedding = nn.Embedding(10, 4, padding_idx=0)
    embedding.weight.data = drawn(140, 10, 4)
    with torch.no_grad():
        embedding.weight[0].zero_()
    head = fill(nn.Linear(4, 2), 141)
    docs = torch.tensor([[1, 2, 3, 0], [4, 4, 0, 0], [9, 8, 7, 6]])
    lengths = (docs != 0).sum(1, keepdim=True)
    vectors = embedding(docs).sum(1) / lengths
    loss = F.cross_entropy(head(vectors), torch.tensor([0, 1, 1]))
    loss.backward()
    bags = F.embedding_bag(docs, embedding.weight, mode="mean")
    return {"loss": loss, "grad": embedding.weight.grad[:5], "bags": bags[2]}


def word_vectors():
    U = drawn(142, 6, 3).requires_grad_()
    V = drawn(143, 6, 3).requires_grad_()
    centre, context = torch.LongTensor([0, 1, 2]), torch.LongTensor([1, 2, 3])
    noise = torch.tensor([[4, 5], [0, 5], [5, 5]])
    for _ in range(3):
        u = F.embedding(centre, U)
        positive = F.logsigmoid((u * F.embedding(context, V)).sum(-1))
        negative = F.logsigmoid(-torch.bmm(F.embedding(noise, V), u.unsqueeze(2)).squeeze(2))
        loss = -(positive + negative.sum(-1)).mean()
        gu, gv = torch.autograd.grad(loss, [U, V])
        with torch.no_grad():
            U -= 0.5 * gu
            V -= 0.5 * gv
    nearest = F.cosine_similarity(U[0:1], U, dim=1).topk(3)
    return {"loss": loss, "u": U[1], "near": nearest.indices, "cos": nearest.values}


def matrix_factorisation():
    users, items = nn.Embedding(4, 2), nn.Embedding(5, 2)
    fill(nn.ModuleList([users, items]), 144)
    u = torch.tensor([0, 1, 1, 3, 2, 0])
    i = torch.tensor([4, 0, 2, 2, 1, 4])
    r = torch.tensor([5.0, 3.0, 1.0, 4.0, 2.0, 4.0], dtype=torch.float64)
    params = [*users.parameters(), *items.parameters()]
    optimizer = torch.optim.Adagrad(params, lr=0.3)
    for _ in range(10):
        optimizer.zero_grad()
        pred = (users(u) * items(i)).sum(dim=-1)
        loss = F.mse_loss(pred, r) + 0.01 * sum(p.norm() ** 2 for p in params)
        loss.backward()
        optimizer.step()
    return {"loss": loss, "users": users.weight, "pred": pred}


def autoencoder():
    encoder = nn.Sequential(nn.Linear(6, 3), nn.Softplus(), nn.Linear(3, 2))
    decoder = nn.Sequential(nn.Linear(2, 3), nn.ELU(), nn.Linear(3, 6), nn.Sigmoid())
    model = fill(nn.Sequential(encoder, decoder), 150)
    x = torch.sigmoid(drawn(151, 8, 6))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    for _ in range(6):
        code = encoder(x)
        penalty = code.abs().sum(1).mean()
        loss = F.binary_cross_entropy(decoder(code), x) + 1e-2 * penalty
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return {"loss": loss, "code": code[0], "children": len(list(model.children())),
            "modules": len(list(model.modules())), "bias": decoder[2].bias}


def module_hooks():
    seen = []
    model = fill(nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1)), 160)
    h1 = model[1].register_forward_hook(lambda m, args, out: seen.append(out.sum().item()))
    h2 = model[0].register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    h3 = model[2].register_full_backward_hook(
        lambda m, gin, gout: seen.append(gin[0].abs().sum().item()))
    x = drawn(161, 4, 2)
    model(x).sum().backward()
    for h in (h1, h2, h3):
        h.remove()
    model.zero_grad()
    model(x).sum().backward()
    return {"seen": seen, "grad": model[0].weight.grad, "calls": len(seen)}


def graph_convolution():
    edges = torch.tensor([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]])
    x = drawn(170, 4, 3).requires_grad_()
    W = drawn(171, 3, 2).requires_grad_()
    source, target = edges
    degree = torch.zeros(4, dtype=torch.float64).scatter_add_(
        0, target, torch.ones(6, dtype=torch.float64))
    norm = degree.pow(-0.5)
    message = (x @ W)[source] * (norm[source] * norm[target]).unsqueeze(1)
    out = torch.zeros(4, 2, dtype=torch.float64).index_add(0, target, message)
    scores = F.leaky_relu(out.sum(1)[source] - out.prod(1)[target], 0.2)
    top = torch.full((4,), float("-inf"), dtype=torch.float64).scatter_reduce(
        0, target, scores, reduce="amax")
    weight = torch.exp(scores - top[target])
    total = torch.zeros(4, dtype=torch.float64).index_put((target,), weight, accumulate=True)
    alpha = weight / total[target]
    loss = (alpha * scores).sum()
    gx, gW = torch.autograd.grad(loss, (x, W))
    A = torch.zeros(4, 4, dtype=torch.float64)
    A[target, source] = 1.0
    return {"loss": loss, "alpha": alpha, "gx": gx, "gW": gW, "dense": A @ x.detach()}


def contrastive():
    a, b = drawn(180, 4, 3).requires_grad_(), drawn(181, 4, 3)
    za, zb = F.normalize(a, dim=1), F.normalize(b, dim=-1)
    logits = za @ zb.T / 0.1
    labels = torch.arange(4)
    loss = (F.cross_entropy(logits, labels) + F.cross_entropy(logits.T, labels)) / 2
    loss.backward()
    z = torch.cat([za, zb]).detach()
    sim = torch.exp(torch.mm(z, z.t().contiguous()) / 0.5)
    mask = (torch.ones_like(sim) - torch.eye(8)).bool()
    sim = sim.masked_select(mask).view(8, -1)
    return {"loss": loss, "grad": a.grad, "row": sim.sum(dim=-1)}


def triplets():
    anchor, positive, negative = [drawn(185 + i, 5, 3).requires_grad_() for i in range(3)]
    criterion = nn.TripletMarginLoss(margin=1.0, p=2)
    loss = criterion(anchor, positive, negative)
    margin = F.margin_ranking_loss(anchor[:, 0], positive[:, 0], torch.ones(5), margin=0.5)
    hinge = F.hinge_embedding_loss(anchor, torch.sign(negative.detach()))
    cos = F.cosine_embedding_loss(anchor, negative, torch.tensor([1, -1, 1, -1, 1]), margin=0.1)
    pair = F.pairwise_distance(anchor, positive)
    distances = torch.cdist(anchor, negative)
    (loss + margin + hinge + cos + pair.mean() + distances.max()).backward()
    return {"loss": loss, "others": [margin, hinge, cos], "pair": pair, "grad": anchor.grad,
            "dist": distances[0]}


def distillation():
    teacher = drawn(190, 4, 5)
    student = drawn(191, 4, 5).requires_grad_()
    T = 2.0
    soft = nn.KLDivLoss(reduction="batchmean")(F.log_softmax(student / T, dim=1),
                                               F.softmax(teacher / T, dim=1)) * T * T
    hard = nn.CrossEntropyLoss(weight=torch.tensor([1, 2, 1, 1, 0.5], dtype=torch.float64))(
        student, torch.tensor([0, 1, 4, 4]))
    (0.7 * soft + 0.3 * hard).backward()
    return {"soft": soft, "hard": hard, "grad": student.grad}


def fast_gradient_sign():
    model = fill(nn.Sequential(nn.Linear(4, 5), nn.ReLU(inplace=True), nn.Linear(5, 3)), 195)
    x, y = drawn(196, 3, 4), torch.tensor([0, 1, 2])
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(5):
        loss = nn.CrossEntropyLoss()(model(x + delta), y)
        loss.backward()
        delta.data = (delta + 0.1 * delta.grad.detach().sign()).clamp(-0.3, 0.3)
        delta.grad.zero_()
    return {"loss": loss, "delta": delta, "size": delta.detach().abs().amax(dim=1)}


def style_matrices():
    def gram_matrix(input):
        a, b, c, d = input.size()
        features = input.view(a * b, c * d)
        return torch.mm(features, features.t()).div(a * b * c * d)

    image = drawn(197, 1, 3, 4, 4).requires_grad_()
    target = gram_matrix(drawn(198, 1, 3, 4, 4)).detach()
    optimizer = torch.optim.LBFGS([image], max_iter=3)
    run = [0]

    def closure():
        optimizer.zero_grad()
        loss = F.mse_loss(gram_matrix(image), target) * 1e3
        smooth = (image[..., 1:] - image[..., :-1]).abs().mean()
        loss = loss + smooth
        loss.backward()
        run[0] += 1
        return loss

    while run[0] < 6:
        optimizer.step(closure)
    return {"image": image[0, 0], "runs": run[0]}


class Sine(nn.Module):
    def __init__(self, n_in, n_out, omega=3.0):
        super().__init__()
        self.weight = Parameter(torch.empty(n_out, n_in))
        self.bias = nn.Parameter(torch.zeros(n_out))
        self.omega = omega
        self.reset_parameters()

    def reset_parameters(self):
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))

    def forward(self, x):
        return torch.sin(self.omega * F.linear(x, self.weight, self.bias))

    def extra_repr(self):
        return f"omega={self.omega}"


def sine_network():
    net = fill(nn.Sequential(Sine(2, 4), Sine(4, 4), nn.Linear(4, 1)), 200)
    coordinates = torch.stack(torch.meshgrid(*[torch.linspace(-1, 1, 3, dtype=torch.float64)] * 2,
                                             indexing="ij"), -1).reshape(-1, 2)
    coordinates.requires_grad_(True)
    y = net(coordinates)
    gradient, = torch.autograd.grad(y, coordinates, torch.ones_like(y), create_graph=True)
    laplace = 0.0
    for i in range(2):
        laplace = laplace + torch.autograd.grad(
            gradient[:, i].sum(), coordinates, create_graph=True)[0][:, i]
    loss = (laplace ** 2).mean()
    loss.backward()
    return {"loss": loss, "laplace": laplace, "grad": net[0].weight.grad,
            "text": len(repr(net)) > 20}


def upsampling():
    x = drawn(210, 1, 2, 3, 3).requires_grad_()
    up = F.interpolate(x, scale_factor=2, mode="nearest")
    smooth = F.interpolate(x, size=(5, 5), mode="bilinear", align_corners=True)
    back = F.conv_transpose2d(x, drawn(211, 2, 1, 2, 2), stride=2)
    shuffled = F.pixel_shuffle(drawn(212, 1, 4, 2, 2), 2)
    loss = up.pow(2).mean() + smooth.pow(3).sum() + back.exp().mean()
    loss.backward()
    return {"loss": loss, "grad": x.grad[0, 0], "back": back[0, 0], "shuffled": shuffled}
