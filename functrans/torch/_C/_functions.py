"""Nodes that Python code makes by name: ``AccumulateGrad``, ``DelayedError``, ``UndefinedGrad``."""

from __future__ import annotations

from typing import Any

from functrans.torch._graph.custom import DelayedError as Error
from functrans.torch._graph.custom import UndefinedGradBackward
from functrans.torch._graph.nodes import AccumulateGrad
from functrans.torch._tensors.tensor import Tensor, edge_of, from_array


class UndefinedGrad:
    """``UndefinedGrad()(x)``: ``x``, whose gradient is undefined whatever is done with it."""

    def __call__(self, x: Tensor) -> Tensor:
        return from_array(x._array, x._storage, UndefinedGradBackward((edge_of(x),)))


class DelayedError:
    """``DelayedError(message, n)(*tensors)``: the tensors, which cannot be differentiated."""

    def __init__(self, msg: Any, num_inputs: int):
        self._message = msg.decode() if isinstance(msg, bytes) else msg
        self._n = num_inputs

    def __call__(self, *tensors: Tensor | None) -> Any:
        if len(tensors) != self._n:
            raise RuntimeError(f"DelayedError was made for {self._n} tensors, got {len(tensors)}")
        out = tuple([
            None if t is None else from_array(t._array, t._storage,
                                              Error((edge_of(t),), self._message))
            for t in tensors
        ])
        return out[0] if self._n == 1 else out


__all__ = ["AccumulateGrad", "DelayedError", "UndefinedGrad"]
