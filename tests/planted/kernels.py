"""Errors in what is done with kernels of numba."""

from tests.planted.error import errors_in

ERRORS = errors_in({
    "functrans/numba/tape.py": [
        ("numba: numbers that meet at one node forget one of them",
         "return i, p + q", "return i, p",
         "tests/numba/test_numba.py::test_a_kernel_has_the_gradient_of_its_python"),
        ("numba: a walk leaves cotangents in the memory of the next",
         "cts[: self.inputs] = 0.0", "cts[:0] = 0.0",
         "tests/numba/test_numba.py::test_inputs_that_are_told_by_their_addresses_are_the_right_ones"),
        ("numba: addresses of a second argument tell the nodes of the first",
         'return first - (self.values.__array_interface__["data"][0] >> 3)',
         'return 1 - (self.values.__array_interface__["data"][0] >> 3)',
         "tests/numba/test_numba.py::test_inputs_that_are_told_by_their_addresses_are_the_right_ones"),
    ],
    "functrans/numba/slopes.py": [
        ("numba: the sign of a row's slope is lost",
         "return One(-self.sign)", "return One(self.sign)",
         "tests/numba/test_numba.py::test_functions_of_one_number_have_the_slopes_of_the_table"),
        ("numba: an action gets its operands in another order",
         "[values[name] for name in action.needs]", "[values[name] for name in action.needs[::-1]]",
         "tests/numba/test_numba.py::test_functions_of_two_numbers_have_the_slopes_of_the_table"),
    ],
    "functrans/numba/expressions.py": [
        ("numba: a sum grows after another name has taken what it was",
         "for n in live - {name}", "for n in ()",
         "tests/numba/test_numba.py::test_sums_that_others_have_are_what_they_were"),
        ("numba: a sum grows after it has been read",
         "for v in self.sums.reads(s):", "for v in self.sums.reads(s)[:0]:",
         "tests/numba/test_numba.py::test_sums_that_others_have_are_what_they_were"),
        ("numba: of sums that a statement reads only the first is left as it is",
         "for v in self.sums.reads(s):", "for v in self.sums.reads(s)[:1]:",
         "tests/numba/test_numba.py::test_sums_that_others_have_are_what_they_were"),
    ],
    "functrans/numba/runs.py": [
        ("numba: a NaN of a product with zero stays",
         "if strong or not any(map(may_have_nan, found)):", "if True:",
         "tests/numba/test_numba.py::test_a_zero_factor_meets_an_infinite_slope"),
    ],
    "functrans/numba/updates.py": [
        ("numba: an array is updated by the first entries of a longer one",
         "if y.shape != a.shape:", "if y.ndim != a.ndim:",
         "tests/numba/test_numba.py::test_an_array_is_not_updated_by_one_that_is_broadcast_further"),
    ],
    "functrans/numba/arrays.py": [
        ("numba: a number and the array beside it change places",
         "out[i] = f(at(a, i), at(b, i))\n                return out\n\n            return beside",
         "out[i] = f(at(b, i), at(a, i))\n                return out\n\n            return beside",
         "tests/numba/test_numba.py::test_arrays_in_kernels_are_differentiated"),
    ],
    "functrans/numba/ops.py": [
        ("numba: a second derivative lacks the curvature",
         "total[k] = c if total[k] is None else total[k] + c",
         "total[k] = c if total[k] is None else total[k]",
         "tests/numba/test_numba.py::test_second_derivatives_are_those_of_the_python"),
    ],
    "functrans/numba/differentiable.py": [
        ("numba: indices in programs are not compared with bounds",
         "return self._all(trace.process(self.row(primals), tuple(args), {}))",
         "return self._all(trace.process(self.op.row, tuple(args), {}))",
         "tests/numba/test_numba.py::"
         "test_an_integer_argument_of_a_compiled_function_is_compared_with_bounds"),
        ("numba: the imaginary part of a complex argument moves as the real one",
         "parts += [np.real(x), np.imag(x)] if has_parts else [x]",
         "parts += [np.real(x), np.real(x)] if has_parts else [x]",
         "tests/numba/test_numba_numbers.py::"
         "test_complex_arguments_and_results_have_the_derivatives_of_the_python"),
    ],
    "functrans/numba/library.py": [
        ("numba: a determinant has no derivative where elimination ends",
         "y *= without_division(m[rank:, rank:])", "y *= 0.0",
         "tests/numba/test_numba_functions.py::"
         "test_a_determinant_has_its_derivatives_where_the_matrix_is_singular"),
    ],
    "functrans/numba/complexes.py": [
        ("numba: the imaginary part of a complex product loses a term",
         "a[0] * b[1] + a[1] * b[0]", "a[0] * b[1]",
         "tests/numba/test_numba_numbers.py::test_a_kernel_has_the_derivatives_of_its_python"),
    ],
    "functrans/_transforms/staging/exported.py": [
        ("numba: an exported function returns its argument itself",
         "elif y.copied or y.slot in taken:", "elif y.slot in taken:",
         "tests/numba/test_numba.py::test_results_that_are_the_argument_are_copies"),
    ],
})
