"""Errors in ``functrans.torch``."""

from tests.planted.error import Planted

ERRORS = (
    Planted(
        "torch: hooks run in the opposite order",
        "functrans/torch/_graph/walk.py",
        "    for hook in list(hooks.values()):\n        new = hook(None if ct",
        "    for hook in reversed(list(hooks.values())):\n        new = hook(None if ct",
        "tests/torch/test_engine.py::test_hooks_see_what_those_registered_before_have_made",
    ),
    Planted(
        "torch: batched gradients leave the graph",
        "functrans/torch/_graph/walk.py",
        "retain or i < n - 1",
        "retain or i < n",
        "tests/torch/test_engine.py::test_gradients_may_be_batched",
    ),
    Planted(
        "torch: complex halves written are lost",
        "functrans/torch/_graph/views.py",
        "base = np.where(self.written(), self.kept(ct), ct)",
        "base = np.where(self.written(), 0, ct)",
        "tests/torch/test_inplace.py::test_the_halves_of_a_complex_tensor_are_views",
    ),
    Planted(
        "torch: a part written to .imag has the wrong sign",
        "functrans/torch/_graph/views.py",
        "part = -np.imag(part) if",
        "part = np.imag(part) if",
        "tests/torch/test_inplace.py::test_the_halves_of_a_complex_tensor_are_views",
    ),
    Planted(
        "torch: a view of a view has the view for a base",
        "functrans/torch/_graph/views.py",
        "seen._base = t if t._base is None else t._base",
        "seen._base = t",
        "tests/torch/test_inplace.py::test_a_view_shares_memory_and_knows_its_base",
    ),
    Planted(
        "torch: views do not notice a recorded change",
        "functrans/torch/_graph/views.py",
        "    t._storage.history += 1\n",
        "",
        "tests/torch/test_inplace.py::"
        "test_a_write_through_a_view_reaches_the_base_and_its_other_views",
    ),
    Planted(
        "torch: a change outside of the graph has no version",
        "functrans/torch/_functions/inplace.py",
        "        self._storage.version += 1\n",
        "",
        "tests/torch/test_inplace.py::"
        "test_versions_count_changes_and_are_shared_by_views_and_detached_tensors",
    ),
    Planted(
        "torch: the old content of a tensor is not copied",
        "functrans/torch/_graph/views.py",
        "array = t._array.copy()",
        "array = t._array",
        "tests/torch/test_inplace.py::"
        "test_an_operation_in_place_has_the_gradient_of_the_one_that_is_not",
    ),
    Planted(
        "torch: a view of a leaf can be written to",
        "functrans/torch/_graph/views.py",
        "for x in (t, root)):",
        "for x in (t,)):",
        "tests/torch/test_inplace.py::test_a_leaf_that_requires_grad_cannot_be_changed",
    ),
    Planted(
        "torch: the second derivative of a mean is that of a sum",
        "functrans/torch/_functions/totals.py",
        "        if self.scale != 1:\n            ct = ct * self.scale\n",
        "",
        "tests/torch/test_functional.py::"
        "test_rows_at_once_are_the_rows_one_by_one_also_differentiated",
    ),
    Planted(
        "torch: a product watches the wrong factor",
        "functrans/torch/_functions/algebra.py",
        "marks.append((other._storage, other._storage.version))",
        "marks.append((input._storage, input._storage.version))",
        "tests/torch/test_saved.py::test_what_a_function_of_two_tensors_saves_must_not_be_changed",
    ),
    Planted(
        "torch: an index can be changed before the backward",
        "functrans/torch/_functions/indexing.py",
        "array.copy() if array.ndim else",
        "array if array.ndim else",
        "tests/torch/test_inplace.py::test_an_index_may_be_changed_after_it_was_used",
    ),
    Planted(
        "torch: chunks are rounded down",
        "functrans/torch/_functions/shapes.py",
        "-(-input._array.shape[dim] // chunks) or 1",
        "input._array.shape[dim] // chunks or 1",
        "tests/torch/test_functions.py::"
        "test_a_function_has_the_value_and_gradient_of_numpys[last chunk]",
    ),
    Planted(
        "torch: a checkpoint does not compare",
        "functrans/torch/utils/checkpoint.py",
        "if [_sample(t) for t in outs] != self.samples:",
        "if len(outs) != len(self.samples):",
        "tests/torch/test_checkpoint.py::test_other_values_in_the_second_run_are_noticed",
    ),
    Planted(
        "torch: a checkpoint draws other random numbers",
        "functrans/torch/utils/checkpoint.py",
        "random = random_state() if preserve_rng_state else None",
        "random = None",
        "tests/torch/test_checkpoint.py::test_random_numbers_are_the_same_again",
    ),
    Planted(
        "torch: arguments of a checkpoint can be changed",
        "functrans/torch/utils/checkpoint.py",
        "        check(self)\n",
        "",
        "tests/torch/test_checkpoint.py::test_an_argument_that_was_changed_in_between_is_noticed",
    ),
    Planted(
        "torch: a backward can write to its gradient",
        "functrans/torch/_graph/custom.py",
        "grad._array.flags.writeable = False",
        "grad._array.flags.writeable = True",
        "tests/torch/test_function.py::test_a_gradient_that_is_handed_out_cannot_be_overwritten",
    ),
    Planted(
        "torch: a saved input loses its place in the graph",
        "functrans/torch/_graph/custom.py",
        "            places[id(x)] = x, edge, None\n",
        "            places[id(x)] = x, None, None\n",
        "tests/torch/test_function.py::"
        "test_a_custom_function_is_differentiated_again_through_its_backward",
    ),
    Planted(
        "torch: functional changes what it is given",
        "functrans/torch/autograd/functional.py",
        "x.detach().requires_grad_()).clone()",
        "x.detach().requires_grad_())",
        "tests/torch/test_functional.py::test_a_function_may_change_its_input_in_place",
    ),
    Planted(
        "torch: logaddexp of infinities",
        "functrans/torch/_functions/own.py",
        "np.where(x == y, 0, x - y)",
        "x - y",
        "tests/torch/test_as_torch.py::test_gradients_are_torchs",
    ),
    Planted(
        "torch: a node keeps its output without a mark",
        "functrans/torch/_functions/rows.py",
        "marks = [(own, 0)] if y_kept else []",
        "marks = []",
        "tests/torch/test_saved.py::test_what_a_function_of_one_tensor_saves_must_not_be_changed",
    ),
    Planted(
        "torch: an op of the recorder keeps its output without a mark",
        "functrans/torch/_graph/graph.py",
        "            marks.append((own, own.version))\n",
        "            pass\n",
        "tests/torch/test_saved.py::test_what_a_function_of_one_tensor_saves_must_not_be_changed",
    ),
    Planted(
        "torch: a negative dimension of gather",
        "functrans/torch/_functions/indexing.py",
        "    dim = dim % x.ndim\n    return x[",
        "    return x[",
        "tests/torch/test_functions.py::"
        "test_a_function_has_the_value_and_gradient_of_numpys[gather last]",
    ),
    Planted(
        "torch: set_grad_enabled forgets the mode before",
        "functrans/torch/_graph/modes.py",
        "        state.grad = self._previous[0]\n\n    def __call__",
        "        state.grad = True\n\n    def __call__",
        "tests/torch/test_modes.py::test_set_grad_enabled_leaves_the_mode_that_it_met",
    ),
    Planted(
        "torch: a rank is not checked",
        "functrans/torch/_functions/inplace.py",
        "if have.rank > want.rank:",
        "if have.rank > want.rank + 1:",
        "tests/torch/test_inplace.py::test_a_result_that_does_not_fit_its_place_is_refused",
    ),
    Planted(
        "torch: a sum is made in an array that others hold",
        "functrans/torch/_graph/walk.py",
        "elif parent in sums and type(c) is np.ndarray and c.dtype is old.dtype:",
        "elif type(c) is type(old) is np.ndarray and c.dtype is old.dtype:",
        "tests/torch/test_engine.py::"
        "test_a_contribution_that_two_operands_received_is_not_added_into",
    ),
    Planted(
        "torch: a NaN where the bare walk has stopped is overlooked",
        "functrans/torch/_graph/walk.py",
        "*seen.values(), *here.values()]",
        "*seen.values()]",
        "tests/torch/test_engine.py::test_hooks_see_each_cotangent_once_where_a_nan_arrives",
    ),
    Planted(
        "torch: a gradient is handed over although others refer to it",
        "functrans/torch/_tensors/tensor.py",
        "getrefcount(xs[i]) == 2 and (",
        "getrefcount(xs[i]) > 0 and (",
        "tests/torch/test_direct.py::test_a_gradient_does_not_share_memory_with_its_seed",
        "tests/torch/test_direct.py::test_no_two_gradients_share_memory",
    ),
    Planted(
        "torch: a sum is along another dimension",
        "functrans/torch/_functions/reductions.py",
        "row_along(_sum_kept if keepdim else _sum, x, dim)",
        "row_along(_sum_kept if keepdim else _sum, x, 0)",
        "tests/torch/test_direct.py::test_a_call_by_its_row_is_the_call_by_numpys_name",
    ),
    Planted(
        "a one-pass kernel takes arrays of another byte order",
        "functrans/_kernels/large.py",
        'if x.dtype.char not in "fd" or not x.dtype.isnative:',
        'if x.dtype.char not in "fd":',
        "tests/test_row_kernels.py::test_what_kernels_do_not_take",
    ),
    Planted(
        "a one-pass kernel loses the share of infinity",
        "functrans/_compile/run/row_kernels.py",
        'code.select(w.t, same, zero, w.op("sub", x, top))',
        'w.op("sub", x, top)',
        "tests/test_row_kernels.py::test_special_rows_are_those_of_small_arrays",
    ),
    Planted(
        "the slope of an odd power loses its sign",
        "functrans/_ops/powers.py",
        "if n % 2 and type(y)",
        "if n % 3 and type(y)",
        "tests/test_whole_powers.py",
    ),
)

__all__ = ["ERRORS"]
