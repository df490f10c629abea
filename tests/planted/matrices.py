"""Errors in derivative matrices, their products, traces and budgets."""

from tests.planted.error import Planted

MATRICES = "functrans/_transforms/matrices/"
FREE, BUDGET = "tests/test_matrix_free.py::", "tests/test_matrix_budget.py::"

ERRORS = (
    Planted(
        "laplacian: mixed second derivatives count once",
        MATRICES + "laplacian.py",
        "part = part if i == j else 2 * part",
        "part = part if i == j else part",
        FREE + "test_the_laplacian_is_the_trace_of_the_hessian",
    ),
    Planted(
        "laplacian: an operand's own curvature is lost",
        MATRICES + "laplacian.py",
        "c = second if c is None else c + second",
        "c = second",
        FREE + "test_the_laplacian_is_the_trace_of_the_hessian",
    ),
    Planted(
        "laplacian: complex slopes are taken for holomorphic ones",
        MATRICES + "laplacian.py",
        "return dtype_of(x).kind == \"c\"",
        "return False",
        "tests/table/test_table.py::test_the_forward_laplacian_is_the_sum_of_nested_jvp",
    ),
    Planted(
        "laplacian: what a rule closes over is not asked for",
        MATRICES + "laplacian.py",
        "if any(map(self._is_inside, parts)):",
        "if False:",
        FREE + "test_a_rule_that_closes_over_the_argument_is_refused_as_by_nested_jvp",
    ),
    Planted(
        "operators: the adjoint is the transpose",
        MATRICES + "operators.py",
        "np.conjugate(self.pull(np.conjugate(ct)))",
        "(self.pull(ct))",
        FREE + "test_an_operator_acts_as_its_matrix_its_transpose_and_its_adjoint",
    ),
    Planted(
        "operators: the imaginary part of a cotangent is dropped",
        MATRICES + "operators.py",
        "return self._pull(ct) + 1j * self._pull(-1j * ct)",
        "return self._pull(ct) + 0j",
        FREE + "test_an_operator_acts_as_its_matrix_its_transpose_and_its_adjoint",
    ),
    Planted(
        "hutchinson: the standard error is that of one sample",
        MATRICES + "estimates.py",
        "spread.sum() / (count * (count - 1))",
        "spread.sum() / (count - 1)",
        FREE + "test_the_estimate_is_off_by_about_its_standard_error",
    ),
    Planted(
        "hutch++: the rest is not projected",
        MATRICES + "estimates.py",
        "rest = rest - (rest @ np.conjugate(basis)) @ basis.T",
        "rest = rest * 1.0",
        FREE + "test_hutch_plus_plus_is_exact_for_matrices_of_low_rank",
    ),
    Planted(
        "budget: what is kept from chunk to chunk is not counted",
        MATRICES + "directions.py",
        "self.most = (self.memory - held) // each",
        "self.most = 2 * self.memory // each",
        BUDGET + "test_a_matrix_stays_within_its_budget_beside_the_result",
    ),
    Planted(
        "out: every chunk goes to the place of the first",
        MATRICES + "placing.py",
        "flat[low - offset : high - offset] = np.conjugate(part) if conjugates else part",
        "flat[: high - low] = np.conjugate(part) if conjugates else part",
        BUDGET + "test_the_array_given_is_filled_and_returned",
    ),
    Planted(
        "out: an argument may be overwritten while it is read",
        MATRICES + "placing.py",
        "np.may_share_memory(a, x) for x in values",
        "False for x in values",
        BUDGET + "test_an_array_that_is_also_read_is_refused",
    ),
    Planted(
        "matrices by colours: a known zero ends a dependence",
        "functrans/_transforms/matrices/colored.py",
        "Walk(zeros=False, most=most)",
        "Walk(most=most)",
        "tests/test_jacobians.py::test_colours_change_no_entry_of_a_matrix",
    ),
    Planted(
        "matrices by colours: what is not finite is placed all the same",
        "functrans/_transforms/matrices/colored.py",
        "if any([isinstance(y, np.ndarray) and not is_finite(y) for y in products]):",
        "if not products:",
        "tests/test_jacobians.py::test_colours_change_no_bit_where_no_program_is_written",
    ),
    Planted(
        "diagonals by colours: each leaf reads the colors of the first",
        "functrans/_transforms/matrices/diagonals.py",
        "[colors[end - a.size : end], np.arange(a.size)]",
        "[colors[: a.size], np.arange(a.size)]",
        "tests/test_colored_diagonals.py::test_many_entries_that_hardly_meet_take_few_products",
    ),
    Planted(
        "matrices by colours: entries are read where they are written",
        "functrans/_transforms/matrices/colored.py",
        "astype(np.intp) * size + entries",
        "astype(np.intp) + entries * size",
        "tests/test_jacobians.py::test_from_48_directions_on_a_hessian_is_written_by_its_colours",
    ),
    Planted(
        "residuals: the shares are not divided by their sum",
        "functrans/_ops/exponentials.py",
        "    e /= total\n    return y, e\n",
        "    return y, e\n",
        "tests/test_row_kernels.py::test_the_gradient_of_logsumexp_takes_the_shares_of_its_value",
    ),
    Planted(
        "a row is added up in another order than NumPy's",
        "functrans/_compile/run/row_kernels.py",
        "code.op('urem i64 %width, 8')",
        "code.op('urem i64 %width, 16')",
        "tests/test_row_kernels.py::test_rows_are_added_up_as_numpy_does",
    ),
    Planted(
        "rows with an infinity are added up without NumPy's warning",
        "functrans/_kernels/large.py",
        "return y if y is not None and is_finite(y) else None  # NumPy warns of others",
        "return y",
        "tests/test_row_kernels.py::test_what_row_sums_leave_to_numpy",
    ),
    Planted(
        "substitution: the other triangle",
        "functrans/_kernels/substitution.py",
        "upper = lower != by_columns",
        "upper = lower == by_columns",
        "tests/test_linalg.py::test_substitution_reads_one_triangle_in_any_order_in_memory",
    ),
    Planted(
        "native: taps in the order of a correlation",
        "functrans/_compile/ir/expand.py",
        "(count - 1 - j, n - j, None)",
        "(j, n - count + 1 + j, None)",
        "tests/test_native.py::test_convolutions_with_few_taps_and_many",
    ),
)
