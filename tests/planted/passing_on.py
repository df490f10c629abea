"""Errors in what code of others sees and gets: ``patch``, ``export``, bridges to libraries."""

from tests.planted.error import errors_in

PATCH, EXPORT = "tests/interop/test_patch.py::", "tests/jit/test_export.py::"
BRIDGES = "tests/interop/test_interop.py::"
QUADRATURE = "tests/scipy/test_quadrature.py::"
SOLVERS = "tests/scipy/test_solvers_in_programs.py::"

ERRORS = errors_in({
    "functrans/scipy/programs.py": [
        ("solvers in programs: each function is given what the first one closes over",
         "            slice(first, first + len(lifted)), list",
         "            slice(0, len(lifted)), list",
         SOLVERS + "test_a_solver_in_a_program_is_what_it_is_on_numbers"),
        ("solvers in programs: results may change their size",
         "            if len(found) != len(outs):\n", "            if False:\n",
         SOLVERS + "test_a_result_whose_size_depends_on_values_is_refused"),
    ],
    "functrans/scipy/integrate/quadrature.py": [
        ("integrals: derivatives are those of the pieces of the value",
         "            found = _halve(who, slope, found, tolerance)\n", "            pass\n",
         QUADRATURE + "test_a_derivative_is_as_exact_as_its_own_integrand_allows"),
        ("integrals: the first order of derivatives alone converges",
         "range(1, orders_of(total) + 1)", "range(1, 2)",
         QUADRATURE + "test_each_order_of_derivatives_has_converged"),
    ],
    "functrans/_transforms/drawing.py": [
        ("draws: a run stays where a handler has ended its block",
         "    before = _runs.get()\n    try:\n        _runs.set((*before, run))\n"
         "        return f()\n    finally:\n        _runs.set(before)\n",
         "    before = _runs.get()\n    _runs.set((*before, run))\n    y = f()\n"
         "    _runs.set(before)\n    return y\n",
         "tests/core/test_interrupts.py::test_later_calls_are_as_if_nothing_had_been_interrupted"),
    ],
    "functrans/_export/exported.py": [
        ("export: a library's function has the name of one of C's",
         " and not _is_taken(name)", "",
         EXPORT + "test_functions_have_no_names_that_c_has"),
        ("export: a function takes arguments that nest in another way",
         "        if structure != self._code.arguments:\n", "        if False:\n",
         EXPORT + "test_other_arguments_are_refused"),
        ("export: files of other machines are loaded",
         "        if notes.get(name) != here:\n", "        if False:\n",
         EXPORT + "test_files_that_are_not_as_they_were_written_are_refused"),
        ("export: Python's integers are computed with unchecked",
         "    if entry.check_integers is not None:\n", "    if False:\n",
         EXPORT + "test_what_cannot_be_exported_is_refused"),
    ],
    "functrans/_patch/names.py": [
        ("patch: code outside of the block sees traced values",
         "    if not patched.get():\n        return False\n", "",
         PATCH + "test_transforms_of_other_threads_see_numpys_behaviour"),
    ],
    "functrans/_patch/swaps.py": [
        ("patch: what someone else has put there is replaced",
         "        if vars(self.owner).get(self.name) is not self.other:\n            return",
         "        if False:\n            return",
         PATCH + "test_what_someone_else_puts_there_meanwhile_stays"),
        ("patch: half of the names stay where one cannot be put",
         "            self.set_blocks(0)\n            raise\n", "            raise\n",
         PATCH + "test_what_cannot_be_put_leaves_everything_as_it_was"),
    ],
    "functrans/_transforms/rules/external.py": [
        ("bridges: second derivatives of other libraries are differences",
         "        self.further = of.further\n", "        self.further = None\n",
         BRIDGES + "test_derivatives_of_any_order_are_those_of_the_library"),
    ],
    "functrans/_interop/leaves.py": [
        ("bridges: complex cotangents are conjugated once too often",
         "            if not conjugate:\n", "            if conjugate:\n",
         BRIDGES + "test_complex_gradients_are_conjugated_where_that_is_asked_for"),
    ],
})
