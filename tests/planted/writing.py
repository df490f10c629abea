"""Errors in the writing into arrays."""

from tests.planted.error import errors_in

VIEWS = "tests/numpy/test_views_and_copies.py::test_the_value_is_that_of_numpy"
ENVIRONMENT = "tests/jit/test_jit_environment.py::"
WRITING = "tests/numpy/test_writing.py::"
KEPT = WRITING + "test_what_the_backward_needs_survives_writes_in_place"

ERRORS = errors_in({
    "functrans/tree.py": [
        ("writing: what a name stands for is not asked of other trees' leaves",
         "return [_leaf(y)]", "return [y]",
         WRITING + "test_tangents_of_a_function_that_writes_inside_of_another_are_values"),
    ],
    "functrans/_ops/indexing.py": [
        ("writing: what is read of memory that is written in place is no copy",
         "return y.copy() if isinstance(y, np.ndarray) and y.base is not None else y", "return y",
         KEPT),
        ("writing: memory that others have is written in place",
         "row = store if alone else scatter_set", "row = store",
         KEPT),
        ("writing: the cotangent of what was written over is kept",
         "        ct_x[key] = 0\n", "        ct_x[key] = 1\n",
         KEPT),
    ],
    "functrans/numpy/memory.py": [
        ("writing: a reader of the whole does not keep it",
         "            self.alone = False  # whoever reads it may keep it\n", "",
         KEPT),
        ("writing: the caller's array is written to",
         "if self.borrowed or not self.array.flags.writeable:",
         "if not self.array.flags.writeable:",
         WRITING + "test_an_argument_that_is_not_differentiated_is_written_to_as_a_copy"),
        ("writing: a value that was read stays after a write",
         "        if self.parts:\n            self.parts = {}\n", "",
         VIEWS),
        ("writing: parts of a value are kept that another trace has read",
         " and y.owner is x.owner:\n", ":\n",
         WRITING + "test_a_part_that_a_program_has_read_is_read_anew_behind_it"),
        ("writing: a constant that was read stays after a write",
         "self.array, self.borrowed = self.array.copy(), False\n        self.version += 1",
         "self.array, self.borrowed = self.array.copy(), False",
         "tests/numpy/test_views_and_copies.py::test_a_constant_is_read_anew_behind_each_write"),
        ("writing: numbers are NaN for the function too",
         "            numbers = numbers.copy()\n            self.array.fill",
         "            self.array.fill",
         "tests/numpy/test_views_and_copies.py::test_what_was_handed_out_keeps_its_numbers_inside"),
        ("writing: the imaginary half is the real one",
         """(value, x.imag) if self.key == "real" else (x.real, value)""", "(value, x.imag)",
         "tests/compile/test_native_complex.py::test_functions_of_the_parts_change_no_other_part"),
        ("writing: what holds plain numbers keeps them",
         "            self.array.fill(np.nan)\n", "",
         WRITING + "test_plain_numpy_sees_nan_where_traced_values_were_written"),
        ("writing: the axes of a view are in the order of the whole",
         "return tuple(key), tuple(sorted(range(len(order)), key=order.__getitem__))",
         "return tuple(key), tuple(range(len(order)))",
         KEPT),
        ("writing: axes go back as they came",
         "np.argsort(self.order).tolist()", "self.order",
         "tests/numpy/test_views_and_copies.py::test_axes_in_a_turn_are_written_as_they_lie"),
    ],
    "functrans/_transforms/reverse/tracer.py": [
        ("writing: cotangents that others have are written in place",
         "alone = is_alone(cts, k)", "alone = True",
         KEPT),
    ],
    "functrans/_transforms/rules/custom.py": [
        ("writing: a rule returns a name, which has no tangent",
         "return [current(value)]", "return [value]",
         WRITING + "test_rules_whose_results_are_names"),
    ],
    "functrans/_transforms/reverse/checkpoint.py": [
        ("checkpoint: a later value is read when it is run again",
         "                self._require_earlier(trace, start)\n", "",
         "tests/transforms/test_checkpoint.py::test_a_value_from_around_that_is_another_in_the_backward_pass"),
    ],
    "functrans/_core/writing.py": [
        ("writing: arrays of other functions are written to",
         "    if run is not now:\n", "    if False:\n",
         WRITING + "test_an_array_of_another_function_is_not_written_to"),
    ],
    "functrans/numpy/updates.py": [
        ("writing: the values of a mask stand at its places",
         "ops.where(self.masked, self._spread(value)",
         "ops.where(self.masked, self._operand(value)",
         WRITING + "test_values_go_to_the_entries_of_a_traced_mask_in_order"),
    ],
    "functrans/numpy/writing_operators.py": [
        ("writing: results of operators lie in C's order",
         "        if is_ordered(x) and has_axes(y):\n", "        if False:\n",
         VIEWS),
    ],
    "functrans/numpy/operators.py": [
        ("writing: a list times a count is a product",
         "    return not n.shape and n.dtype.kind in kinds\n", "    return False\n",
         "tests/jit/test_traced_integers.py::test_sequences_are_repeated_and_not_multiplied"),
    ],
    "functrans/numpy/indexing.py": [
        ("writing: integers are decided by their low bits",
         "(n >> bits * i & (1 << bits) - 1)", "(n >> bits * i & 1)",
         "tests/jit/test_traced_integers.py::test_plain_arrays_take_a_few_traced_places"),
    ],
    "functrans/_transforms/options.py": [
        ("arguments: the last of a list is another than the one of its number",
         "        steps.append(_steps(x, children)[at])\n", "        steps.append(step)\n",
         "tests/jit/test_paths_into_containers.py::test_a_path_that_leads_nowhere_is_refused"),
    ],
    "functrans/_transforms/staging/names.py": [
        ("writing: what makes an object is not looked at",
         "    return [m for m in found if issubclass(type(m), _WRITTEN)] + own\n",
         "    return []\n",
         WRITING + "test_methods_that_write_are_seen_where_they_are_named"),
    ],
    "functrans/_transforms/staging/environment.py": [
        ("jit: views of dicts are not seen through",
         "        return tuple(gc.get_referents(x))\n", "        return None\n",
         ENVIRONMENT + "test_what_objects_of_python_hold_may_change"),
        ("jit: what a class lacks is not noted where only the function asks for it",
         "(read & behind | asked)", "(read & behind & asked)",
         "tests/jit/test_changing_world.py::test_an_attribute_that_a_class_comes_to_have_is_seen"),
    ],
    "functrans/numpy/functionalized.py": [
        ("writing: plain values given to x.flat go beside the traced entries",
         "    if self.is_plain() and all_plain(value):\n        self.own_window().flat",
         "    if all_plain(value):\n        self.own_window().flat",
         "tests/numpy/test_views_and_copies.py::test_the_value_is_that_of_numpy"),
    ],
    "functrans/_transforms/mutation.py": [
        ("writing: what is in tables is not looked at",
         "            return [*dict.values(v), made]\n",
         "            return ()\n",
         WRITING + "test_writing_is_seen"),
        ("writing: methods that nobody names are looked at",
         "return [space[name] for name in sorted(space.keys() & names)]",
         "return list(space.values())",
         WRITING + "test_methods_that_nobody_names_are_not_looked_at"),
    ],
})
