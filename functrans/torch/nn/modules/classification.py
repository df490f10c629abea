"""Losses of many classes that hold the linear maps to their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from functrans.torch._functions.table import FUNCTIONS, METHODS, NN
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn.modules.containers import ModuleList, Sequential
from functrans.torch.nn.modules.layers import Linear
from functrans.torch.nn.modules.module import Module

log_softmax, where = METHODS["log_softmax"], FUNCTIONS["where"]


class _ASMoutput(NamedTuple):
    """The log-probabilities of the targets, and minus their mean."""

    output: Tensor
    loss: Tensor


class AdaptiveLogSoftmaxWithLoss(Module):
    """log p(class): of a frequent class from the head, of another log p(cluster) + log p(class in
    the cluster), the i-th cluster through ``in_features // div_value**(i + 1)`` features.

    ``cutoffs``: the first class of each cluster. The input is (N, in_features) or (in_features).
    """

    def __init__(self, in_features: int, n_classes: int, cutoffs: Sequence[int],
                 div_value: float = 4.0, head_bias: bool = False, device: Any = None,
                 dtype: Any = None):
        super().__init__()
        first = list(cutoffs)
        if not first:
            raise ValueError("cutoffs should be a sequence of length larger than 0")
        if first != sorted(set(first)) or first[0] < 1 or first[-1] >= n_classes or any(
                int(c) != c for c in first):
            raise ValueError(
                "cutoffs should be a sequence of unique, positive integers sorted in an "
                "increasing order, where each value is between 1 and n_classes-1")
        self.in_features, self.n_classes, self.div_value = in_features, n_classes, div_value
        self.cutoffs, self.head_bias = [*first, n_classes], head_bias
        self.shortlist_size, self.n_clusters = first[0], len(first)
        self.head_size = self.shortlist_size + self.n_clusters
        made: Any = {"device": device, "dtype": dtype}
        self.head = Linear(in_features, self.head_size, head_bias, **made)
        self.tail = ModuleList()
        for i, (low, high) in enumerate(zip(first, self.cutoffs[1:], strict=True)):
            narrow = int(in_features // div_value ** (i + 1))
            self.tail.append(Sequential(Linear(in_features, narrow, False, **made),
                                        Linear(narrow, high - low, False, **made)))

    def reset_parameters(self) -> None:
        """Draw the weights anew."""
        for layer in (self.head, *[part for pair in self.tail for part in pair]):
            layer.reset_parameters()

    def _log_probs(self, head: Tensor, input: Tensor, low: int, cluster: int) -> Tensor:
        """Of the classes of a cluster."""
        inside = log_softmax(self.tail[cluster](input), -1)
        return inside + head[:, low : low + 1]

    def forward(self, input: Tensor, target: Tensor) -> _ASMoutput:
        single = target.dim() == 0
        if target.dim() > 1:
            raise RuntimeError("0D or 1D target tensor expected, multi-target not supported")
        if input.dim() != target.dim() + 1:
            raise RuntimeError(
                f"{target.dim()}D target tensor expects {target.dim() + 1}D input tensors, but "
                f"found inputs with size {input.shape}")
        x, t = (input.unsqueeze(0), target.unsqueeze(0)) if single else (input, target)
        if len(x) != len(t):
            raise RuntimeError("Input and target should have the same size in the batch dimension.")
        if t.numel() and not 0 <= int(t.min()) <= int(t.max()) < self.n_classes:
            raise RuntimeError(
                f"Target values should be in [0, {self.n_classes - 1}], but values in range "
                f"[{int(t.min())}, {int(t.max())}] were found. ")
        head = log_softmax(self.head(x), -1)
        frequent = t < self.shortlist_size
        of_head = head.gather(1, where(frequent, t, 0).unsqueeze(1)).squeeze(1)
        output = where(frequent, of_head, 0.0)
        for i, (low, high) in enumerate(zip(self.cutoffs, self.cutoffs[1:], strict=False)):
            (rows,) = METHODS["nonzero"]((t >= low) & (t < high), as_tuple=True)
            if len(rows):
                logs = self._log_probs(head[rows], x[rows], self.shortlist_size + i, i)
                own = logs.gather(1, (t[rows] - low).unsqueeze(1)).squeeze(1)
                output = output.index_add(0, rows, own)
        return _ASMoutput(output.squeeze(0) if single else output, -output.mean())

    def log_prob(self, input: Tensor) -> Tensor:
        """log p of all classes, (N, n_classes)."""
        head = log_softmax(self.head(input), 1)
        parts = [self._log_probs(head, input, self.shortlist_size + i, i)
                 for i in range(self.n_clusters)]
        return FUNCTIONS["cat"]([head[:, : self.shortlist_size], *parts], 1)

    def predict(self, input: Tensor) -> Tensor:
        """The likeliest class of each row."""
        return self.log_prob(input).argmax(1)


class LinearCrossEntropyLoss(Module):
    """``nn.functional.linear_cross_entropy`` with a linear map of its own."""

    def __init__(self, in_features: int, num_classes: int, *, bias: bool = False,
                 device: Any = None, dtype: Any = None, **options: Any):
        super().__init__()
        self.linear = Linear(in_features, num_classes, bias, device=device, dtype=dtype)
        self.options = options

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        return NN["linear_cross_entropy"](input, self.linear.weight, target,
                                          linear_bias=self.linear.bias, **self.options)
