"""Errors in the writing into arrays."""

from tests.planted.error import Planted

VIEWS = "tests/test_views_and_copies.py::test_the_value_is_that_of_numpy"
ENVIRONMENT = "tests/test_jit_environment.py::"
WRITING = "tests/test_writing.py::"
KEPT = WRITING + "test_what_the_backward_needs_survives_writes_in_place"

ERRORS = (
    Planted(
        "writing: what a name stands for is not asked of other trees' leaves",
        "functrans/tree.py",
        "return [_leaf(y)]",
        "return [y]",
        WRITING + "test_tangents_of_a_function_that_writes_inside_of_another_are_values",
    ),
    Planted(
        "writing: what is read of memory that is written in place is no copy",
        "functrans/_ops/writing.py",
        "return y.copy() if isinstance(y, np.ndarray) and y.base is not None else y",
        "return y",
        KEPT,
    ),
    Planted(
        "writing: memory that others have is written in place",
        "functrans/_ops/writing.py",
        "bind(store if alone else scatter_set,",
        "bind(store,",
        KEPT,
    ),
    Planted(
        "writing: a reader of the whole does not keep it",
        "functrans/numpy/memory.py",
        "            self.alone = False  # whoever reads it may keep it\n",
        "",
        KEPT,
    ),
    Planted(
        "writing: the axes of a view are in the order of the whole",
        "functrans/numpy/memory.py",
        "return tuple(key), tuple(sorted(range(len(order)), key=order.__getitem__))",
        "return tuple(key), tuple(range(len(order)))",
        KEPT,
    ),
    Planted(
        "writing: the caller's array is written to",
        "functrans/numpy/memory.py",
        "if self.borrowed or not self.array.flags.writeable:",
        "if not self.array.flags.writeable:",
        WRITING + "test_an_argument_that_is_not_differentiated_is_written_to_as_a_copy",
    ),
    Planted(
        "writing: a value that was read stays after a write",
        "functrans/numpy/memory.py",
        "        require_own(self.run)\n        self.version += 1\n        if place is None:",
        "        require_own(self.run)\n        if place is None:",
        VIEWS,
    ),
    Planted(
        "writing: what holds plain numbers keeps them",
        "functrans/numpy/memory.py",
        "            self.array.fill(np.nan)\n",
        "",
        WRITING + "test_plain_numpy_sees_nan_where_traced_values_were_written",
    ),
    Planted(
        "writing: the cotangent of what was written over is kept",
        "functrans/_ops/writing.py",
        "zero = np.zeros(shape_of(v), ct.dtype)",
        "zero = np.ones(shape_of(v), ct.dtype)",
        KEPT,
    ),
    Planted(
        "writing: cotangents that others have are written in place",
        "functrans/_transforms/reverse/vjp.py",
        "alone = is_alone(cts, k)",
        "alone = True",
        KEPT,
    ),
    Planted(
        "writing: a rule returns a name, which has no tangent",
        "functrans/_transforms/rules/custom.py",
        "return [current(value)]",
        "return [value]",
        WRITING + "test_rules_whose_results_are_names",
    ),
    Planted(
        "checkpoint: a later value is read when it is run again",
        "functrans/_transforms/reverse/checkpoint.py",
        "                self._require_earlier(trace, start)\n",
        "",
        "tests/test_checkpoint.py::test_a_value_from_around_that_is_another_in_the_backward_pass",
    ),
    Planted(
        "writing: arrays of other functions are written to",
        "functrans/_core/writing.py",
        "    if run is not now:\n",
        "    if False:\n",
        WRITING + "test_an_array_of_another_function_is_not_written_to",
    ),
    Planted(
        "writing: the values of a mask stand at its places",
        "functrans/numpy/updates.py",
        "ops.where(self.masked, self._spread(value)",
        "ops.where(self.masked, self._operand(value)",
        WRITING + "test_values_go_to_the_entries_of_a_traced_mask_in_order",
    ),
    Planted(
        "writing: results of operators lie in C's order",
        "functrans/numpy/writing_operators.py",
        "    if has_axes(y) and any(map(is_ordered, args)):\n",
        "    if False:\n",
        VIEWS,
    ),
    Planted(
        "writing: a list times a count is a product",
        "functrans/numpy/operators.py",
        "    return not n.shape and n.dtype.kind in kinds\n",
        "    return False\n",
        "tests/test_traced_integers.py::test_sequences_are_repeated_and_not_multiplied",
    ),
    Planted(
        "writing: integers are decided by their low bits",
        "functrans/numpy/indexing.py",
        "(n >> bits * i & (1 << bits) - 1)",
        "(n >> bits * i & 1)",
        "tests/test_traced_integers.py::test_plain_arrays_take_a_few_traced_places",
    ),
    Planted(
        "arguments: the last of a list is another than the one of its number",
        "functrans/_transforms/paths.py",
        "        steps.append(_steps(x, children)[at])\n",
        "        steps.append(step)\n",
        "tests/test_paths_into_containers.py::test_a_path_that_leads_nowhere_is_refused",
    ),
    Planted(
        "jit: what makes an object is not looked at",
        "functrans/_transforms/staging/names.py",
        "    return [m for m in found if isinstance(m, _WRITTEN)] + [type(cls)] * "
        "(type(cls) is not type)\n",
        "    return []\n",
        ENVIRONMENT + "test_a_global_that_a_class_reads_when_it_is_called_may_change",
    ),
    Planted(
        "jit: views of dicts are not seen through",
        "functrans/_transforms/staging/environment.py",
        "        return tuple(gc.get_referents(x))\n",
        "        return None\n",
        ENVIRONMENT + "test_what_objects_of_python_hold_may_change",
    ),
    Planted(
        "writing: what is in tables is not looked at",
        "functrans/_transforms/callees.py",
        "            return [*v.values(), getattr(v, \"default_factory\", None)]\n",
        "            return ()\n",
        WRITING + "test_writing_is_seen",
    ),
    Planted(
        "writing: methods that nobody names are looked at",
        "functrans/_transforms/callees.py",
        "return [space[name] for name in sorted(space.keys() & names)]",
        "return list(space.values())",
        WRITING + "test_methods_that_nobody_names_are_not_looked_at",
    ),
)
