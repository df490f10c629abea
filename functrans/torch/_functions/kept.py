"""What torch saves for the backward and the rules here do not: a change of it is refused all the
same, so that a program runs here if it runs there.

``keeping`` has for a function the places of operands, and whether its result, are saved.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from functrans.torch._functions.totals import TotalNode
from functrans.torch._graph.graph import ElementwiseNode, RowNode
from functrans.torch._graph.modes import state
from functrans.torch._graph.nodes import caller
from functrans.torch._tensors.tensor import Tensor

# places of the operands that are saved -> functions
OPERANDS = {
    (0,): "adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d "
          "adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices "
          "adaptive_max_pool3d_with_indices angle avg_pool1d avg_pool2d avg_pool3d batch_norm "
          "bilinear celu conv1d conv2d conv3d cummax cummin elu erfinv fft fft2 fftn gather "
          "group_norm hardshrink hardsigmoid hardtanh hfft ifft ifft2 ifftn ihfft instance_norm "
          "irfft layer_norm leaky_relu logsigmoid masked_select matrix_exp max_pool1d_with_indices "
          "max_pool2d_with_indices max_pool3d_with_indices median_all multi_margin_loss "
          "multilabel_margin_loss mvlgamma nan_to_num nanmean nansum nll_loss pdist relu6 rfft "
          "rfft2 rfftn selu sgn sinc softplus softshrink std std_mean take take_along_dim "
          "threshold var var_mean",
    (0, 1): "cdist complex dist grid_sample huber_loss mse_loss smooth_l1_loss vdot xlog1py xlogy",
    (0, 3): "scatter_reduce",
    (2,): "put",
    (3,): "index_add index_copy",
}
# functions that save their result
RESULT = frozenset({
    "cdist", "det", "i0e", "i1", "i1e", "ldexp", "log_ndtr", "logcumsumexp", "logsumexp",
    "median_all", "norm", "scatter_reduce", "sgn", "vector_norm",
})
_PLACES = {name: places for places, names in OPERANDS.items() for name in names.split()}


def keeping(name: str) -> tuple[tuple[int, ...], bool] | None:
    """What the function ``name`` saves: places of operands, and whether its result."""
    places = _PLACES.get(name, ())
    return (places, name in RESULT) if places or name in RESULT else None


def mark(y: Any, args: Sequence, saved: tuple[tuple[int, ...], bool]) -> None:
    """Tell the node of the result ``y`` of a function of ``args`` what torch saves in its place."""
    first = y[0] if isinstance(y, tuple) else y
    node = first._node if type(first) is Tensor else None
    if node is None or state.saving is not None:
        return
    places, result = saved
    before = [x._node for x in args if isinstance(x, Tensor)]
    while node is not None and type(node) is TotalNode:  # it saves nothing
        node = node.edges[0][0] if node.edges[0] else None
    if node in before or not isinstance(node, RowNode | ElementwiseNode):
        return
    tensors = [args[i] for i in places if i < len(args) and isinstance(args[i], Tensor)]
    if result:
        tensors.append(first)
    node.marks = [*node.marks, *[(x._storage, x._storage.version) for x in tensors]]
    node.where = caller()


def mark_row(y: Tensor, *tensors: Tensor) -> Tensor:
    """``y``, the result of a row, whose node saves ``tensors`` in torch."""
    node: Any = y._node
    if node is not None and type(node.marks) is list:  # not where what is saved was packed
        for x in tensors:
            storage = x._storage
            node.marks.append((storage, storage.version))
    return y
