"""Errors in chunks on executors and in sums over shards."""

from tests.planted.error import Planted

EXECUTORS = "functrans/_transforms/sharding/executors.py"
SHARDS = "functrans/_transforms/sharding/shards.py"

ERRORS = (
    Planted(
        "executors: work is not cancelled after an error",
        EXECUTORS,
        "                future.cancel()",
        "                pass",
        "tests/test_parallel.py::test_work_that_has_not_begun_is_cancelled_after_an_error",
    ),
    Planted(
        "executors: settings of blocks stay behind",
        EXECUTORS,
        "with config(**self.settings):",
        "with config():",
        "tests/test_parallel.py::test_settings_of_a_block_hold_on_the_workers",
    ),
    Planted(
        "shards: a mean counts shards, not rows",
        SHARDS,
        "value = tree.map(lambda v: v * float(rows), value)",
        "value = tree.map(lambda v: v * 1.0, value)",
        "tests/test_parallel.py::test_a_mean_weights_shards_by_their_rows",
    ),
    Planted(
        "shards: rows of another shape are added",
        SHARDS,
        "if a.layout != b.layout:",
        "if len(a.layout) != len(b.layout):",
        "tests/test_dask.py::test_data_that_do_not_fit_are_refused",
    ),
    Planted(
        "shards: values of other shapes broadcast",
        SHARDS,
        "if _form(a.value) != _form(b.value):",
        "if _form(a.value)[0] != _form(b.value)[0]:",
        "tests/test_parallel.py::test_sums_that_cannot_be_say_why",
    ),
    Planted(
        "shards: the tree forgets its last level",
        SHARDS,
        "if self.levels[level] and not (is_top and len(self.levels[level]) == 1):",
        "if self.levels[level] and not is_top:",
        "tests/test_parallel.py::test_the_sum_has_the_shape_of_the_tree_whatever_arrives_first",
    ),
    Planted(
        "pickling: a function of a script is sent by its name",
        "functrans/_transforms/sharding/packing.py",
        'x.__module__ != "__main__" and global_name(x)',
        "global_name(x)",
        "tests/test_parallel.py::test_functions_of_a_script_are_sent_by_value",
    ),
)
