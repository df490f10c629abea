"""Errors in chunks on executors and in sums over shards."""

from tests.planted.error import errors_in

EXECUTORS = "functrans/_transforms/sharding/executors.py"
SHARDS = "functrans/_transforms/sharding/shards.py"

ERRORS = errors_in({
    EXECUTORS: [
        ("executors: work is not cancelled after an error",
         "                future.cancel()", "                pass",
         "tests/transforms/test_parallel.py::test_work_that_has_not_begun_is_cancelled_after_an_error"),
        ("executors: settings of blocks stay behind",
         "with config(**self.settings):", "with config():",
         "tests/transforms/test_parallel.py::test_settings_of_a_block_hold_on_the_workers"),
        ("pickling: a function of a script is sent by its name",
         'x.__module__ != "__main__" and global_name(x)', "global_name(x)",
         "tests/transforms/test_parallel.py::test_functions_of_a_script_are_sent_by_value"),
    ],
    SHARDS: [
        ("shards: a mean counts shards, not rows",
         "value = tree.map(lambda v: v * float(rows), value)",
         "value = tree.map(lambda v: v * 1.0, value)",
         "tests/transforms/test_parallel.py::test_a_mean_weights_shards_by_their_rows"),
        ("shards: rows of another shape are added",
         "if a.layout != b.layout:", "if len(a.layout) != len(b.layout):",
         "tests/interop/test_dask.py::test_data_that_do_not_fit_are_refused"),
        ("shards: values of other shapes broadcast",
         "if _form(a.value) != _form(b.value):", "if _form(a.value)[0] != _form(b.value)[0]:",
         "tests/transforms/test_parallel.py::test_sums_that_cannot_be_say_why"),
        ("shards: the tree forgets its last level",
         "if self.levels[level] and not (is_top and len(self.levels[level]) == 1):",
         "if self.levels[level] and not is_top:",
         "tests/transforms/test_parallel.py::test_the_sum_has_the_shape_of_the_tree_whatever_arrives_first"),
    ],
})
