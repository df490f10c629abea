"""Spectra of signals, alignments, windows drawn at random, and torch's own names of layers.

Each program weighs a result with cosines and returns it with its gradients.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch.signal import windows

F64 = torch.float64


def _wave(*shape, start=0.0):
    n = torch.Size(shape).numel()
    x = torch.arange(n, dtype=F64) + start
    return (torch.sin(x * 0.7) + torch.cos(x**1.3)).reshape(shape).requires_grad_()


def _with_gradients(f, *xs):
    """The results of ``f`` that are of floats, and the gradients of their sum, weighed."""
    out = f(*xs)
    ys = [y for y in (out if isinstance(out, tuple) else (out,)) if y.dtype != torch.int64]
    parts = [torch.view_as_real(y) if y.is_complex() else y for y in ys]
    loss = sum((y * torch.cos(torch.arange(y.numel(), dtype=F64).reshape(y.shape))).sum()
               for y in parts if y.requires_grad)
    return [*parts, *torch.autograd.grad(loss, xs)]


def short_time_spectra():
    """A filter of a signal by its spectrogram, with several windows and lengths."""
    x, both = _wave(40), _wave(2, 40, start=3.0)
    hann = torch.hann_window(8, dtype=F64)
    flat = torch.ones(8, dtype=F64)
    gains = torch.arange(1, 6, dtype=F64)[:, None]

    def filtered(x, **options):
        return torch.istft(torch.stft(x, 8, window=hann, return_complex=True) * gains, 8,
                           window=hann, **options)

    return {
        "plain": _with_gradients(lambda x: torch.stft(x, 8, window=flat, return_complex=True), x),
        "apart": _with_gradients(lambda x: x.stft(8, 3, 6, window=hann[1:7], center=False,
                                                  normalized=True, return_complex=True), x),
        "whole": _with_gradients(lambda x: torch.stft(
            x, 8, window=hann, onesided=False, pad_mode="constant", return_complex=True), both),
        "filtered": _with_gradients(filtered, x), "two": _with_gradients(filtered, both),
        "shorter": _with_gradients(lambda x: filtered(x, length=33), x),
    }


def window_functions():
    """The windows of ``torch``, periodic or not, and of ``torch.signal``, with their numbers."""
    old = (torch.bartlett_window, torch.blackman_window, torch.hann_window, torch.hamming_window,
           torch.kaiser_window)
    new = (windows.bartlett, windows.blackman, windows.cosine, windows.exponential,
           windows.gaussian, windows.general_hamming, windows.hamming, windows.hann,
           windows.kaiser, windows.nuttall)
    return {
        "old": [f(n, p, dtype=F64) for f in old for n in (1, 2, 7) for p in (True, False)],
        "new": [f(n, sym=s, dtype=F64) for f in new for n in (1, 6, 7) for s in (True, False)],
        "numbers": [torch.hamming_window(5, True, 0.6, 0.3, dtype=F64),
                    torch.kaiser_window(6, False, 3.0, dtype=F64),
                    windows.gaussian(7, std=2.0, dtype=F64),
                    windows.exponential(6, sym=False, center=1.0, tau=2.0, dtype=F64),
                    windows.general_cosine(5, a=[0.4, 0.3, 0.2], dtype=F64),
                    windows.general_hamming(4, alpha=0.7, dtype=F64)],
    }


def alignments():
    """The loss over all alignments of labels with an input, and its gradient in the scores."""
    x = _wave(7, 3, 5)
    labels = torch.tensor([[1, 2, 2], [3, 1, 4], [2, 0, 0]])
    lengths, counts = (7, 6, 5), (3, 2, 1)

    def loss(x, lengths=lengths, counts=counts, **options):
        return F.ctc_loss(x.log_softmax(-1), labels, lengths, counts, **options)

    joined = torch.tensor([1, 2, 2, 3, 1, 2])
    return {
        "each": _with_gradients(lambda x: loss(x, reduction="none"), x),
        "mean": _with_gradients(loss, x),
        "impossible": _with_gradients(lambda x: loss(x, (7, 2, 5), (3, 3, 1), reduction="sum",
                                                     zero_infinity=True), x),
        "no label": _with_gradients(lambda x: loss(x, lengths, (3, 0, 1)), x),
        "joined": _with_gradients(lambda x: F.ctc_loss(
            x.log_softmax(-1), joined, torch.tensor(lengths), torch.tensor(counts)), x),
        "one": _with_gradients(lambda x: F.ctc_loss(x[:, 0].log_softmax(-1), labels[0],
                                                    torch.tensor(7), torch.tensor(3)), x),
        "module": _with_gradients(lambda x: torch.nn.CTCLoss(reduction="sum")(
            x.log_softmax(-1), labels, lengths, counts), x),
    }


def fractional_windows():
    """Pooling over windows at places that samples choose."""
    plane, space = _wave(2, 3, 9, 8), _wave(1, 2, 6, 7, 8)
    u = torch.linspace(0.03, 0.97, 12, dtype=F64).reshape(2, 3, 2)
    v = torch.linspace(0.1, 0.9, 6, dtype=F64).reshape(1, 2, 3)
    best, places = F.fractional_max_pool2d(plane, (3, 2), output_ratio=(0.5, 0.6),
                                           return_indices=True, _random_samples=u)
    return {
        "plane": _with_gradients(
            lambda x: F.fractional_max_pool2d(x, 2, (4, 3), _random_samples=u), plane),
        "space": _with_gradients(
            lambda x: F.fractional_max_pool3d(x, 2, (3, 3, 4), _random_samples=v), space),
        "best": best, "places": places,
    }


def own_names():
    """The functions of layers under torch's own names, and cells of recurrent networks."""
    x, w, b, y = _wave(4, 6), _wave(6), _wave(6, start=2.0), _wave(2, 4, 3, 2)
    h, c, wide, tall, bias = _wave(2, 4), _wave(2, 4, start=1.0), _wave(16, 3), _wave(16, 4), _wave(
        16)
    steps, kernel, image = _wave(5, 2, 4), _wave(3, 4, 3), _wave(1, 2, 5, 5)
    two = _wave(2, 3)
    return {
        "layer": _with_gradients(lambda x, w, b: torch.native_layer_norm(x, (6,), w, b, 1e-5),
                                 x, w, b),
        "batch": _with_gradients(lambda x, w, b: torch.native_batch_norm(
            x, w, b, None, None, True, 0.1, 1e-5), x, w, b),
        "group": _with_gradients(lambda y: torch.native_group_norm(y, None, None, 2, 4, 6, 2, 1e-5),
                                 y),
        "lstm": _with_gradients(lambda x, h, c, w, u, b: torch.lstm_cell(x, (h, c), w, u, b, b),
                                two, h, c, wide, tall, bias),
        "gru": _with_gradients(lambda x, h, w, u: torch.gru_cell(x, h, w[:12], u[:12]), two, h,
                               wide, tall),
        "rnn": _with_gradients(lambda x, h, w, u: torch.rnn_tanh_cell(x, h, w[:4], u[:4]), two, h,
                               wide, tall),
        "time": _with_gradients(lambda x, w: torch.conv_tbc(x, w, torch.ones(3, dtype=F64), 1),
                                steps, kernel),
        "image": _with_gradients(lambda x: torch.convolution(
            x, torch.ones(3, 2, 2, 2, dtype=F64), None, [2], [1], [1], False, [0], 1), image),
        "segments": [_with_gradients(lambda x, k=k: torch.segment_reduce(
            x, k, lengths=torch.tensor([1, 3]), unsafe=True), x)
            for k in ("sum", "mean", "max", "min", "prod")],
        "losses": [_with_gradients(lambda x: torch.kl_div(x, x.detach().exp(), 2), x),
                   _with_gradients(lambda x: torch.poisson_nll_loss(
                       x, x.detach() ** 2, True, False, 1e-8, 1), x)],
        "norms": _with_gradients(lambda x: torch.norm_except_dim(x, 2, 1), x),
    }


def forward_derivatives():
    """Tangents of tensors, forward over reverse, and Jacobians by columns."""
    from torch.autograd import forward_ad

    x, v = _wave(4).detach(), _wave(4, start=5.0).detach()

    def f(x):
        y = torch.outer(x, x.sin()) + 3 * torch.eye(4, dtype=F64)
        z = torch.linalg.solve(y, x)
        w = z.clone()
        w[1:3] = z[:2] * x[2:]
        return w.cumsum(0) * torch.linalg.norm(y)

    with forward_ad.dual_level():
        y = forward_ad.unpack_dual(f(forward_ad.make_dual(x, v)))
    return {
        "tangent": [y.primal, y.tangent],
        "jvp": torch.func.jvp(f, (x,), (v,)),
        "nested": torch.func.jvp(lambda x: torch.func.jvp(f, (x,), (v,))[1], (x,), (v,))[1],
        "columns": torch.func.jacfwd(f)(x),
        "hessian": torch.func.hessian(lambda x: f(x).sum())(x),
        "hvp": torch.func.jvp(torch.func.grad(lambda x: f(x).sum()), (x,), (v,))[1],
        "by name": torch.autograd.functional.jacobian(f, x, vectorize=True,
                                                      strategy="forward-mode"),
    }


def saved_and_changed():
    """One saved tensor packed by hand, gradients between hooks, and values drawn over others."""
    x, w = _wave(4), _wave(4, start=2.0)
    y = x * w
    y.grad_fn._raw_saved_self.register_hooks(lambda t: t * 4, lambda t: t / 4)
    z = y.exp()
    z.register_hook(lambda g: g * 2)
    z.retain_grad()
    z.sum().backward(inputs=[x, w, z])
    drawn = x * 3
    drawn[1:].uniform_()
    return {"gradients": [x.grad, w.grad, z.grad],
            "drawn": torch.autograd.grad(drawn.sum(), x)[0]}


__all__ = [
    "alignments", "forward_derivatives", "fractional_windows", "own_names",
    "saved_and_changed", "short_time_spectra", "window_functions",
]
