"""Errors in derivative matrices, their products, traces and budgets."""

from tests.planted.error import errors_in

MATRICES = "functrans/_transforms/matrices/"
FREE, BUDGET = "tests/transforms/test_matrix_free.py::", "tests/transforms/test_matrix_budget.py::"

ERRORS = errors_in({
    MATRICES + "laplacian.py": [
        ("laplacian: mixed second derivatives count once",
         "part = part if i == j else 2 * part", "part = part if i == j else part",
         FREE + "test_the_laplacian_is_the_trace_of_the_hessian"),
        ("laplacian: an operand's own curvature is lost",
         "c = second if c is None else c + second", "c = second",
         FREE + "test_the_laplacian_is_the_trace_of_the_hessian"),
        ("laplacian: complex slopes are taken for holomorphic ones",
         "return dtype_of(x).kind == \"c\"", "return False",
         "tests/table/test_table.py::test_the_forward_laplacian_is_the_sum_of_nested_jvp"),
        ("laplacian: what a rule closes over is not asked for",
         "if any(map(self._is_inside, parts)):", "if False:",
         FREE + "test_a_rule_that_closes_over_the_argument_is_refused_as_by_nested_jvp"),
    ],
    MATRICES + "operators.py": [
        ("operators: the adjoint is the transpose",
         "np.conjugate(self.pull(np.conjugate(ct)))", "(self.pull(ct))",
         FREE + "test_an_operator_acts_as_its_matrix_its_transpose_and_its_adjoint"),
        ("operators: the imaginary part of a cotangent is dropped",
         "from_parts(real(self._pull(ct)), real(self._pull(-1j * ct)))", "self._pull(ct) + 0j",
         FREE + "test_an_operator_acts_as_its_matrix_its_transpose_and_its_adjoint"),
        ("hutchinson: the standard error is that of one sample",
         "spread.sum() / (count * (count - 1))", "spread.sum() / (count - 1)",
         FREE + "test_the_estimate_is_off_by_about_its_standard_error"),
        ("hutch++: the rest is not projected",
         "rest = rest - (rest @ np.conjugate(basis)) @ basis.T", "rest = rest * 1.0",
         FREE + "test_hutch_plus_plus_is_exact_for_matrices_of_low_rank"),
    ],
    MATRICES + "batches.py": [
        ("budget: what is kept from chunk to chunk is not counted",
         "self.most = (self.memory - held) // each", "self.most = 2 * self.memory // each",
         BUDGET + "test_a_matrix_stays_within_its_budget_beside_the_result"),
    ],
    MATRICES + "directions.py": [
        ("out: every chunk goes to the place of the first",
         "flat[low - offset : high - offset] = np.conjugate(part) if conjugates else part",
         "flat[: high - low] = np.conjugate(part) if conjugates else part",
         BUDGET + "test_the_array_given_is_filled_and_returned"),
        ("out: an argument may be overwritten while it is read",
         "np.may_share_memory(a, x) for x in values", "False for x in values",
         BUDGET + "test_an_array_that_is_also_read_is_refused"),
        ("matrices by colours: a known zero ends a dependence",
         "Walk(zeros=False, most=most)", "Walk(most=most)",
         "tests/transforms/test_jacobians.py::test_colours_change_no_entry_of_a_matrix"),
        ("matrices by colours: what is not finite is placed all the same",
         "if any([isinstance(y, np.ndarray) and not is_finite(y) for y in products]):",
         "if not products:",
         "tests/transforms/test_jacobians.py::test_colours_change_no_bit_where_no_program_is_written"),
        ("matrices by colours: entries are read where they are written",
         "astype(np.intp) * size + entries", "astype(np.intp) + entries * size",
         "tests/transforms/test_jacobians.py::test_from_48_directions_on_a_hessian_is_written_by_its_colours"),
    ],
    "functrans/_transforms/matrices/diagonals.py": [
        ("diagonals by colours: each leaf reads the colors of the first",
         "[colors[end - a.size : end], np.arange(a.size)]", "[colors[: a.size], np.arange(a.size)]",
         "tests/transforms/test_colored_diagonals.py::test_many_entries_that_hardly_meet_take_few_products"),
    ],
    "functrans/_ops/along_axes.py": [
        ("residuals: the shares are not divided by their sum",
         "    e /= total\n    return y, e\n", "    return y, e\n",
         "tests/compile/test_row_kernels.py::test_the_gradient_of_logsumexp_takes_the_shares_of_its_value"),
    ],
    "functrans/_compile/run/row_kernels.py": [
        ("a row is added up in another order than NumPy's",
         "code.op('urem i64 %width, 8')", "code.op('urem i64 %width, 16')",
         "tests/compile/test_row_kernels.py::test_rows_are_added_up_as_numpy_does"),
    ],
    "functrans/_kernels/large.py": [
        ("rows with an infinity are added up without NumPy's warning",
         "return y if y is not None and is_finite(y) else None  # NumPy warns of others",
         "return y",
         "tests/compile/test_row_kernels.py::test_what_row_sums_leave_to_numpy"),
    ],
    "functrans/_kernels/routines.py": [
        ("substitution: the other triangle",
         "upper = lower != by_columns", "upper = lower == by_columns",
         "tests/numpy/test_linalg.py::test_substitution_reads_one_triangle_in_any_order_in_memory"),
    ],
    "functrans/_compile/ir/expand.py": [
        ("native: taps in the order of a correlation",
         "(count - 1 - j, n - j, None)", "(j, n - count + 1 + j, None)",
         "tests/compile/test_native.py::test_convolutions_with_few_taps_and_many"),
    ],
})
