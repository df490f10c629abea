"""Modules of modules, lists and dicts of parameters, and losses that hold linear maps."""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import (
    Callable,
    ItemsView,
    Iterable,
    Iterator,
    KeysView,
    Mapping,
    Sequence,
    ValuesView,
)
from typing import Any, NamedTuple, Self, TypeVar

from functrans.torch._functions.table import FUNCTIONS, METHODS, NN
from functrans.torch._tensors.tensor import Tensor
from functrans.torch.nn.modules.layers import Linear
from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.parameter import Parameter

# ---- Modules of modules, and lists and dicts of parameters

T = TypeVar("T")


class _List(Module):
    """Parts by number."""

    _part = "_modules"

    def __init__(self, parts: Iterable[Any] | None = None):
        super().__init__()
        self.extend(parts or [])

    @property
    def _parts(self) -> list:
        return list(self.__dict__[self._part].values())

    def _set(self, parts: Iterable[Any]) -> None:
        self.__dict__[self._part].clear()
        self.extend(parts)

    def __len__(self) -> int:
        return len(self._parts)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts)

    def __getitem__(self, i: Any) -> Any:
        return type(self)(self._parts[i]) if isinstance(i, slice) else self._parts[i]

    def __setitem__(self, i: int, part: Any) -> None:
        parts = self._parts
        parts[i] = part
        self._set(parts)

    def __delitem__(self, i: int | slice) -> None:
        parts = self._parts
        del parts[i]
        self._set(parts)

    def append(self, part: Any) -> Self:
        """Add a part at the end."""
        if not isinstance(part, Module | Parameter) and part is not None:
            raise TypeError(f"{type(part).__name__} is not a Module subclass")
        setattr(self, str(len(self)), part)
        return self

    def extend(self, parts: Iterable[Any]) -> Self:
        """Add parts at the end."""
        for part in parts:
            self.append(part)
        return self

    def insert(self, index: int, part: Any) -> None:
        """Add a part before another."""
        parts = self._parts
        parts.insert(index, part)
        self._set(parts)

    __iadd__ = extend


class Sequential(_List):
    """Modules one after another.

    >>> from functrans import torch
    >>> torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.ReLU())
    Sequential(
      (0): Linear(in_features=2, out_features=1, bias=True)
      (1): ReLU()
    )
    """

    def __init__(self, *modules: Any):
        if len(modules) == 1 and isinstance(modules[0], OrderedDict):
            super().__init__()
            for name, module in modules[0].items():
                self.add_module(name, module)
        else:
            super().__init__(modules)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return Sequential(OrderedDict(list(self._modules.items())[i]))
        return self._parts[i]

    def __setitem__(self, i: int, part: Module) -> None:
        self._modules[list(self._modules)[i]] = part

    def forward(self, input: Any) -> Any:
        for module in self:
            input = module(input)
        return input


class ModuleList(_List):
    """Modules in a list."""

    def _shown(self) -> list[tuple[str, str]]:
        """Neighbours that print alike are shown once."""
        out = []
        for text, group in itertools.groupby(super()._shown(), lambda pair: pair[1]):
            names = [name for name, _ in group]
            many = len(names) > 1
            out.append((f"{names[0]}-{names[-1]}", f"{len(names)} x {text}") if many
                       else (names[0], text))
        return out


class ParameterList(_List):
    """Parameters in a list."""

    _part = "_parameters"

    def append(self, part: Any) -> Self:
        """Add a parameter at the end."""
        part = part if isinstance(part, Parameter) else Parameter(part)
        self._parameters[str(len(self))] = part  # type: ignore[assignment]
        return self

    def extra_repr(self) -> str:
        return _list(self._parameters, lambda p: str(p.dtype))


class _Dict(Module):
    """Parts by name."""

    _part = "_modules"

    def __init__(self, parts: Mapping[str, Any] | None = None):
        super().__init__()
        self.update(parts or {})

    def __getitem__(self, key: str) -> Any:
        return self.__dict__[self._part][key]

    def __setitem__(self, key: str, part: Any) -> None:
        self.__dict__[self._part][key] = part

    def __delitem__(self, key: str) -> None:
        del self.__dict__[self._part][key]

    def __len__(self) -> int:
        return len(self.__dict__[self._part])

    def __iter__(self) -> Iterator[str]:
        return iter(self.__dict__[self._part])

    def __contains__(self, key: str) -> bool:
        return key in self.__dict__[self._part]

    def keys(self) -> KeysView[str]:
        """The names."""
        return self.__dict__[self._part].keys()

    def values(self) -> ValuesView[Any]:
        """The parts."""
        return self.__dict__[self._part].values()

    def items(self) -> ItemsView[str, Any]:
        """Names and parts."""
        return self.__dict__[self._part].items()

    def update(self, parts: Mapping[str, Any]) -> None:
        """Enter parts under their names."""
        for name, part in parts.items():
            self[name] = part

    def pop(self, key: str) -> Any:
        """Take a part out."""
        part = self[key]
        del self[key]
        return part


class ModuleDict(_Dict):
    """Modules by name."""


class ParameterDict(_Dict):
    """Parameters by name."""

    _part = "_parameters"

    def update(self, parts: Mapping[str, Any]) -> None:
        """Enter parameters under their names, those of a plain dict in order of these."""
        plain = type(parts) is dict
        for name in sorted(parts) if plain else parts:
            self[name] = parts[name]

    def __setitem__(self, key: str, part: Any) -> None:
        part = part if isinstance(part, Parameter) else Parameter(part)
        self._parameters[key] = part  # type: ignore[assignment]

    def extra_repr(self) -> str:
        return _list(self._parameters, lambda p: p.type())


def _list(parameters: Mapping[str, Any], kind: Callable[[Any], str]) -> str:
    """Parameters by name, with their type and size."""
    return "\n".join([f"  ({name}): Parameter containing: [{kind(p)} of size "
                      f"{'x'.join(map(str, p.shape))}]" for name, p in parameters.items()])


class DataParallel(Module):
    """A module, which the CPU runs alone."""

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None,
                 dim: int = 0):
        super().__init__()
        self.module, self.dim = module, dim

    def forward(self, *inputs: Any, **kwargs: Any) -> Any:
        return self.module(*inputs, **kwargs)


class Identity(Module):
    """Its input, whatever the arguments."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()

    def forward(self, input: T) -> T:
        return input


# ---- Losses of many classes that hold the linear maps to their scores

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
