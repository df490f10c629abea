"""Recurrent cells, and layers of them along a sequence."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from functrans.torch._functions.table import FUNCTIONS, NN
from functrans.torch._tensors import factories
from functrans.torch._tensors.tensor import Tensor, from_array
from functrans.torch.nn import init
from functrans.torch.nn._functions.natives import gru_step, lstm_step, relu_step, rnn_step
from functrans.torch.nn._functions.sequences import (
    PackedSequence,
    pack_padded_sequence,
    pad_packed_sequence,
)
from functrans.torch.nn.modules.module import Module
from functrans.torch.nn.parameter import Parameter

empty = vars(factories)["empty"]
where: Callable = FUNCTIONS["where"]


def _parameters(module: Module, size: int, hidden: int, gates: int, bias: bool, suffix: str,
                device: Any, dtype: Any, projected: int = 0) -> None:
    bound = 1 / math.sqrt(hidden) if hidden else 0.0
    shapes: dict[str, tuple] = {"weight_ih": (gates * hidden, size),
                                "weight_hh": (gates * hidden, projected or hidden)}
    if bias:
        shapes |= {"bias_ih": (gates * hidden,), "bias_hh": (gates * hidden,)}
    if projected:
        shapes["weight_hr"] = (projected, hidden)
    for name, shape in shapes.items():
        p = Parameter(empty(shape, device=device, dtype=dtype))
        init.uniform_(p, -bound, bound)
        module.register_parameter(name + suffix, p)


def _gates(module: Module, x: Tensor, h: Tensor, suffix: str) -> tuple[Tensor, Tensor]:
    get = module._parameters.get
    return (NN["linear"](x, get("weight_ih" + suffix), get("bias_ih" + suffix)),
            NN["linear"](h, get("weight_hh" + suffix), get("bias_hh" + suffix)))


class Cell(Module):
    """One step of a recurrent layer."""

    _gate_count, _memory = 1, False
    _step: Callable = staticmethod(rnn_step)

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True,
                 nonlinearity: str = "tanh", device: Any = None, dtype: Any = None):
        super().__init__()
        self.input_size, self.hidden_size, self.nonlinearity = input_size, hidden_size, nonlinearity
        _parameters(self, input_size, hidden_size, self._gate_count, bias, "", device, dtype)

    def forward(self, input: Tensor, hx: Any = None) -> Tensor | tuple[Tensor, Tensor]:
        zero = input.new_zeros(*input.shape[:-1], self.hidden_size)
        h, c = (hx if self._memory else (hx, None)) if hx is not None else (zero, zero)
        step = relu_step if self.nonlinearity == "relu" else self._step
        h, c = step(_gates(self, input, h, ""), h, c)
        return (h, c) if self._memory else h

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}"


class RNNCell(Cell):
    """tanh(W x + U h + b)."""


class LSTMCell(Cell):
    """One step of long short-term memory."""

    _gate_count, _memory, _step = 4, True, staticmethod(lstm_step)


class GRUCell(Cell):
    """One step of a gated recurrent unit."""

    _gate_count, _step = 3, staticmethod(gru_step)


class Recurrent(Module):
    """Layers of cells along a sequence, in one direction or both."""

    _gate_count, _memory = 1, False
    _step: Callable = staticmethod(rnn_step)

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool = True,
                 batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False,
                 proj_size: int = 0, device: Any = None, dtype: Any = None):
        super().__init__()
        if proj_size and not (self._memory and 0 < proj_size < hidden_size):
            raise ValueError("proj_size has to be smaller than hidden_size" if self._memory else
                             "proj_size argument is only supported for LSTM, not RNN or GRU")
        self.input_size, self.hidden_size, self.num_layers = input_size, hidden_size, num_layers
        self.proj_size = proj_size
        self.bias, self.batch_first, self.dropout = bias, batch_first, dropout
        self.bidirectional = bidirectional
        self.suffixes = [["_l{}", "_l{}_reverse"][d].format(k) for k in range(num_layers)
                         for d in range(1 + bidirectional)]
        for i, suffix in enumerate(self.suffixes):
            first = i < 1 + bidirectional
            size = input_size if first else (proj_size or hidden_size) * (1 + bidirectional)
            _parameters(self, size, hidden_size, self._gate_count, bias, suffix, device, dtype,
                        proj_size)

    def forward(self, input: Any, hx: Any = None) -> tuple:
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        return self._pad(input, hx, None)

    def _packed(self, input: PackedSequence, hx: Any) -> tuple:
        """The layers along sequences of different lengths, each from its first to its last."""
        there, back = input.sorted_indices, input.unsorted_indices
        plain = input._replace(sorted_indices=None, unsorted_indices=None)
        if hx is not None and there is not None:
            hx = tuple([h[:, there] for h in hx]) if self._memory else hx[:, there]
        x, lengths = pad_packed_sequence(plain, self.batch_first)
        times = np.arange(len(input.batch_sizes._array))[:, None, None]
        alive = [from_array(a) for a in times < lengths._array[:, None]]
        y, last = self._pad(x, hx, alive)
        if back is not None:
            last = tuple([h[:, back] for h in last]) if self._memory else last[:, back]
        y = pack_padded_sequence(y, lengths, self.batch_first)
        return y._replace(sorted_indices=there, unsorted_indices=back), last

    def _pad(self, input: Tensor, hx: Any, alive: list[Tensor] | None) -> tuple:
        """``alive``: at each time, which sequences have not ended."""
        flat = input.dim() == 2
        x = input.unsqueeze(1) if flat else (input.transpose(0, 1) if self.batch_first else input)
        if x.shape[-1] != self.input_size:
            raise RuntimeError("input.size(-1) must be equal to input_size. Expected "
                               f"{self.input_size}, got {x.shape[-1]}")
        count = len(self.suffixes), x.shape[1]
        sizes = (*count, self.proj_size or self.hidden_size), (*count, self.hidden_size)
        if hx is None:
            hs, cs = [x.new_zeros(size) for size in sizes]
        else:
            given = [h.unsqueeze(1) if flat else h for h in (hx if self._memory else (hx,))]
            for i, (h, size) in enumerate(zip(given, sizes, strict=False)):
                if h.shape != size:
                    raise RuntimeError(f"Expected hidden{f'[{i}]' if self._memory else ''} size "
                                       f"{size}, got {list(h.shape)}")
            hs, cs = given if self._memory else (*given, given[0])
        last, directions = [], 1 + self.bidirectional
        for layer in range(self.num_layers):
            if layer and self.dropout:
                x = NN["dropout"](x, self.dropout, self.training)
            outputs = []
            for d in range(directions):
                i = layer * directions + d
                y, state = self._along(x, hs[i], cs[i], self.suffixes[i], d == 1, alive)
                outputs.append(y)
                last.append(state)
            x = FUNCTIONS["cat"](outputs, -1) if directions > 1 else outputs[0]
        stacked = [FUNCTIONS["stack"](list(s)) for s in zip(*last, strict=True)
                   if s[0] is not None]
        if flat:
            x, stacked = x.squeeze(1), [s.squeeze(1) for s in stacked]
        elif self.batch_first:
            x = x.transpose(0, 1)
        return x, tuple(stacked) if self._memory else stacked[0]

    def _along(self, x: Tensor, h: Tensor, c: Any, suffix: str, backward: bool,
               alive: list[Tensor] | None) -> tuple:
        """One layer in one direction: its outputs, and its last state."""
        weight = self._parameters.get("weight_hr" + suffix)
        outputs = []
        times = range(x.shape[0])
        steps = x.unbind(0)
        for t in reversed(times) if backward else times:
            new, memory = self._step(_gates(self, steps[t], h, suffix), h, c)
            if weight is not None:
                new = NN["linear"](new, weight)
            if alive is not None:  # a sequence that has ended, or not begun, keeps its state
                new = where(alive[t], new, h)
                memory = memory if memory is None else where(alive[t], memory, c)
            h, c = new, memory
            outputs.append(h)
        y = FUNCTIONS["stack"](outputs[::-1] if backward else outputs)
        return y, (h, c if self._memory else None)

    def flatten_parameters(self) -> None:
        """Nothing: parameters stay where they are."""

    def extra_repr(self) -> str:
        shown = {"proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False,
                 "dropout": 0.0, "bidirectional": False}
        options = [f"{k}={getattr(self, k)}" for k, v in shown.items() if getattr(self, k) != v]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *options])


class RNN(Recurrent):
    """Layers of ``RNNCell``."""

    def __init__(self, input_size: int, hidden_size: int, num_layers: int = 1,
                 nonlinearity: str = "tanh", bias: bool = True, batch_first: bool = False,
                 dropout: float = 0.0, bidirectional: bool = False, device: Any = None,
                 dtype: Any = None):
        if nonlinearity not in ("tanh", "relu"):
            raise ValueError(f"Unknown nonlinearity '{nonlinearity}'. Select from 'tanh' or "
                             "'relu'.")
        super().__init__(input_size, hidden_size, num_layers, bias, batch_first, dropout,
                         bidirectional, device=device, dtype=dtype)
        self.nonlinearity = nonlinearity
        if nonlinearity == "relu":
            self._step = relu_step


class LSTM(Recurrent):
    """Layers of ``LSTMCell``."""

    _gate_count, _memory, _step = 4, True, staticmethod(lstm_step)


class GRU(Recurrent):
    """Layers of ``GRUCell``."""

    _gate_count, _step = 3, staticmethod(gru_step)
