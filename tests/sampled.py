"""Tests of which a quick run of the whole suite takes one case in two or more.

They draw many cases of one kind, and take seconds. Which cases run is told by their names, so that
they are always the same. Run alone, a test has all its cases; in the thorough profile each has.
"""

import zlib

# Test -> one case in so many runs.
ONE_IN = {
    "tests/compile/test_alike.py": 2,
    "tests/compile/test_gemm.py": 4,
    "tests/compile/test_inplace.py": 2,
    "tests/compile/test_kernels.py": 3,
    "tests/compile/test_large.py": 3,
    "tests/compile/test_large_natively.py": 2,
    "tests/compile/test_library_calls.py": 2,
    "tests/compile/test_native.py": 3,
    "tests/compile/test_rolling.py": 2,
    "tests/compile/test_rows_of_products.py": 2,
    "tests/compile/test_switches.py": 2,
    "tests/compile/test_verify.py": 2,
    "tests/core/test_ownership.py": 2,
    "tests/fuzz/": 3,
    "tests/jit/test_export.py": 2,
    "tests/jit/test_jit.py::test_every_composition_agrees_with_eager": 2,
    "tests/jit/test_loops_from_source.py": 3,
    "tests/jit/test_paths.py": 3,
    "tests/numba/test_numba.py": 3,
    "tests/numba/test_numba_borders.py": 3,
    "tests/numba/test_numba_functions.py": 3,
    "tests/numba/test_numba_numbers.py": 3,
    "tests/numpy/test_calls.py": 2,
    "tests/numpy/test_coverage.py": 2,
    "tests/numpy/test_dtypes.py": 2,
    "tests/numpy/test_indexing.py": 2,
    "tests/numpy/test_structure.py": 2,
    "tests/numpy/test_writing.py": 2,
    "tests/ops/test_coinciding.py": 3,
    "tests/ops/test_decompositions.py": 2,
    "tests/ops/test_edge_points.py::test_even_powers_of_a_length_that_is_zero_are_smooth": 4,
    "tests/ops/test_nearly_coinciding.py": 2,
    "tests/ops/test_polynomial_series.py": 2,
    "tests/ops/test_special.py": 3,
    "tests/ops/test_strong_zero.py::test_the_branch_not_taken_counts_for_nothing": 2,
    "tests/scipy/test_no_silent_loss.py": 4,
    "tests/scipy/test_odes.py": 3,
    "tests/scipy/test_odes_in_programs.py": 3,
    "tests/scipy/test_quadrature.py": 2,
    "tests/scipy/test_rotations.py": 2,
    "tests/scipy/test_samples.py": 2,
    "tests/scipy/test_signal.py": 2,
    "tests/scipy/test_solvers_in_programs.py": 2,
    "tests/scipy/test_splines.py": 2,
    "tests/scipy/test_stats.py": 3,
    "tests/table/test_calculus.py": 2,
    "tests/table/test_longdoubles.py": 2,
    "tests/table/test_planted_rules.py": 2,
    "tests/table/test_special_values.py::test_elementwise_rows_at_special_values": 6,
    "tests/table/test_special_values.py": 2,
    "tests/table/test_table.py": 2,
    "tests/table/test_tails.py": 2,
    "tests/table/test_types.py": 2,
    "tests/transforms/test_compositions.py": 2,
    "tests/transforms/test_control.py": 2,
    "tests/transforms/test_jacobians.py": 3,
    "tests/transforms/test_loops.py": 3,
    "tests/transforms/test_processes.py": 2,
    "tests/transforms/test_revolve.py": 2,
    "tests/transforms/test_rounding.py": 2,
    "tests/transforms/test_rule_calls.py": 3,
    "tests/transforms/test_sparse_derivatives.py": 3,
    "tests/transforms/test_square.py": 2,
}


def is_left_out(nodeid: str) -> bool:
    """Whether a quick run of the whole suite leaves out this case."""
    name, bracket, _ = nodeid.partition("[")
    if not bracket:
        return False
    file, _, _ = name.partition("::")
    folder = "/".join(file.split("/")[:-1]) + "/"
    n = ONE_IN.get(name) or ONE_IN.get(file) or ONE_IN.get(folder) or 1
    return zlib.crc32(nodeid.encode()) % n != 0
