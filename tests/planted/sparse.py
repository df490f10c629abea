"""Errors in the patterns, colourings and products of sparse derivatives."""

from tests.planted.error import errors_in

PATTERNS = "tests/transforms/test_sparse_patterns.py"
COLORINGS = "tests/transforms/test_sparse_colorings.py"
DERIVATIVES = "tests/transforms/test_sparse_derivatives.py"

ERRORS = errors_in({
    "functrans/_transforms/sparse/coloring.py": [
        ("sparse: blocks are in another order than their entries",
         "wanted = used[np.argsort(first)].tolist()", "wanted = used.tolist()",
         f"{DERIVATIVES}::test_groups_of_rows_are_written_as_blocks"),
        ("sparse: colours of columns are never those of a star",
         "if columns.max() + 1 < count:", "if columns.max() + 1 < 0:",
         f"{COLORINGS}::test_grids_and_bands_take_as_few_colors_as_are_known"),
        ("sparse: dense rows are colored with the others",
         "rest = _keep(pattern, ~by_row)", "rest = pattern",
         f"{COLORINGS}::test_as_few_colors_as_there_can_be"),
    ],
    "functrans/_transforms/sparse/compressed.py": [
        ("sparse: entries after a gathering stay in its order",
         "places = rows[after.order], after.pattern.indices[after.order]",
         "places = rows, after.pattern.indices",
         f"{DERIVATIVES}::test_what_is_gathered_first_takes_few_products"),
        ("sparse: the mirror of an entry is read off its own place",
         "np.where(direct, i, j)", "i",
         f"{COLORINGS}::test_a_hessian_is_recovered_from_the_products_of_its_colors"),
    ],
    "functrans/_transforms/sparse/staged_paths.py": [
        ("sparse: the path of a prepared derivative is that of all values",
         "_guard(way) if way.decisions else None", "None",
         f"{DERIVATIVES}::test_each_path_is_prepared_when_it_is_met"),
        ("sparse: arguments that are no numbers are all alike",
         "return Fixed(x)", "return type(x)",
         f"{DERIVATIVES}::test_arguments_that_are_no_numbers_choose_the_program"),
    ],
    "functrans/_transforms/sparse/sets.py": [
        ("sparse: two inputs of one entry become one",
         "fits = ((a.places == b.places) | (a.places == 0) | (b.places == 0)).all()", "fits = True",
         f"{PATTERNS}::test_a_pattern_holds_every_entry_of_the_jacobian"),
    ],
    "functrans/_transforms/sparse/pattern.py": [
        ("sparse: a negative slope counts as none",
         "np.asarray(factor != 0)", "np.asarray(factor > 0)",
         f"{PATTERNS}::test_a_pattern_holds_every_entry_of_the_jacobian"),
        ("sparse: a loop in reverse collects its steps forwards",
         "columns.reverse()", "pass",
         f"{PATTERNS}::test_a_pattern_holds_every_entry_of_the_jacobian"),
    ],
    "functrans/_transforms/sparse/row_patterns.py": [
        ("sparse: a factor of a product has no interactions",
         "    if interactions is not None and a is not None and b is not None:\n"
         "        _meet_in_product(a, b, interactions)\n",
         "",
         f"{PATTERNS}::test_only_inputs_that_meet_in_what_is_not_linear_are_in_a_hessian"),
    ],
    "functrans/_transforms/sparse/prepared.py": [
        ("sparse: whether a function is holomorphic is asked along real numbers",
         "t = t + 1j * ", "t = t + 0 * ",
         f"{DERIVATIVES}::test_each_call_asks_whether_the_function_is_holomorphic_there"),
        ("sparse: what a prepared function reads may change",
         "not self._reads.unchanged():\n            raise", "not self._reads:\n            raise",
         f"{DERIVATIVES}::test_a_closure_that_changes_is_noticed"),
    ],
    "functrans/_transforms/sparse/kernels.py": [
        ("sparse: a vertex inside a path of two colors",
         "                    twice[c] = v\n", "                    pass\n",
         f"{COLORINGS}::test_star_colorings_have_no_path_of_four_in_two_colors"),
    ],
})
