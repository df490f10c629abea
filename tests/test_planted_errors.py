"""Errors planted on purpose: in rules, which the checker must catch, and in the package itself.

Those in the package are in ``tests/planted``; ``python -m tests.planted`` plants them.
"""

import ast
import contextlib
import os
from pathlib import Path

import coverage
import numpy as np
import pytest

import functrans as ft
from functrans._ops import elementwise as ops
from functrans._ops.declare import TABLE, bilinear, elementwise, linear, primitive
from functrans.errors import CheckError
from functrans.testing import check_grads, numerical_jacobian, taylor_slope
from tests.planted.__main__ import main as plant
from tests.planted.drawn import mutants
from tests.planted.equivalent import EQUIVALENT
from tests.planted.errors import ERRORS
from tests.planted.guards import Guards
from tests.table import test_table
from tests.table.samples import ROWS, floats

X = np.array([[0.5, 1.5, -0.7], [2.0, 0.3, 1.1]])
ROW = np.array([1.2, -0.4, 0.8])


@contextlib.contextmanager
def planted():
    """What is declared inside leaves the table afterwards."""
    before = set(TABLE)
    try:
        yield
    finally:
        for name in set(TABLE) - before:
            del TABLE[name]


@pytest.fixture(autouse=True)
def clean_table():
    with planted():
        yield
    assert not any(name.startswith("planted") for name in TABLE)


def caught(f, *args, order=1, **kwargs):
    with pytest.raises(CheckError) as e:
        check_grads(f, args, order=order, **kwargs)
    return str(e.value)


def loop(size, xs, batched, **params):
    raise AssertionError("not batched here")


@pytest.mark.parametrize(
    "action",
    [
        lambda g, x: g * -ops.cos(x),
        lambda g, x: g * (2 * ops.cos(x)),
        lambda g, x: g * (ops.cos(x) + 1e-4),
        lambda g, x: g * ops.cos(x) + 0.5,
        lambda g, x: g * ops.sin(x),
        None,
    ],
    ids=["sign", "factor", "small offset", "constant", "other function", "missing"],
)
@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_wrong_slope_is_caught(action, mode):
    row = elementwise("planted_sin", np.sin, action)
    caught(lambda x: row(x), X, modes=(mode,))


def test_right_slope_is_not_caught():
    row = elementwise("planted_sin", np.sin, lambda g, x: g * ops.cos(x))
    check_grads(lambda x: row(x), X, order=3)


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_missing_term_is_caught(mode):
    row = elementwise("planted", lambda x: x * np.sin(x), lambda g, x: g * ops.sin(x))
    caught(lambda x: row(x), X, modes=(mode,))


def test_one_wrong_operand_of_two_is_caught_and_named():
    row = elementwise("planted", np.divide, lambda g, x2: g / x2, lambda g, y, x2: (g * y) / x2)
    message = caught(lambda a, b: row(a, b), X, ROW)
    assert "argument 1" in message
    assert "argument 0" not in message


def test_rule_right_to_first_order_but_wrong_to_second_is_caught():
    # the slope is a constant to the transforms: this cos has no derivative
    frozen = elementwise("planted_cos", np.cos, None)
    row = elementwise("planted_sin", np.sin, lambda g, x: g * frozen(x))
    check_grads(lambda x: row(x), X, order=1)
    message = caught(lambda x: row(x), X, order=2)
    assert "order 2" in message


def test_rule_wrong_to_third_order_is_caught():
    frozen = elementwise("planted_sin", np.sin, None)
    cosine = elementwise("planted_cos", np.cos, lambda g, x: -g * frozen(x))
    row = elementwise("planted_sine", np.sin, lambda g, x: g * cosine(x))
    check_grads(lambda x: row(x), X, order=2)
    assert "order 3" in caught(lambda x: row(x), X, order=3)


def test_forgotten_broadcasting_sum_is_caught():
    row = primitive(
        "planted",
        lambda a, b: a * b,
        jvp=lambda ts, y, xs: (
            (0 if ts[0] is None else ts[0] * xs[1]) + (0 if ts[1] is None else xs[0] * ts[1])
        ),
        vjp=lambda ct, y, xs, wanted: [ct * xs[1], ct * xs[0]],  # the second is not summed
        batch=loop,
    )
    caught(lambda a, b: row(a, b), X, ROW)


def test_a_rule_that_promotes_still_gives_a_gradient_of_the_arguments_dtype():
    row = primitive(
        "planted",
        np.sin,
        jvp=lambda ts, y, xs: ts[0] * ops.cos(xs[0]),
        vjp=lambda ct, y, xs, wanted: [(ct * ops.cos(xs[0])).astype(np.float64)],
        batch=loop,
    )
    x = X.astype(np.float32)
    assert ft.grad(lambda x: row(x).sum())(x).dtype == np.float32
    assert ft.vjp(row, x)[1](x)[0].dtype == np.float32


def test_modes_that_disagree_are_caught_in_the_mode_that_is_wrong():
    row = primitive(
        "planted",
        np.sin,
        jvp=lambda ts, y, xs: ts[0] * ops.cos(xs[0]),
        vjp=lambda ct, y, xs, wanted: [ct * ops.sin(xs[0])],
        batch=loop,
    )
    check_grads(lambda x: row(x), X, modes=("fwd",))
    assert "mode rev" in caught(lambda x: row(x), X)


def test_wrong_transpose_of_a_linear_row_is_caught():
    row = linear(
        "planted", lambda x: np.flip(np.cumsum(x, 0), 0), lambda ct, x: np.cumsum(ct, 0), batch=loop
    )
    assert "mode rev" in caught(lambda x: row(x), ROW)


def test_wrong_transpose_of_a_bilinear_row_is_caught():
    row = bilinear(
        "planted", np.multiply, lambda ct, x1, x2: ct * x2, lambda ct, x1, x2: -ct * x1, batch=loop
    )
    assert "argument 1" in caught(lambda a, b: row(a, b), X, X + 1)


def test_conjugated_slope_is_caught_on_complex_numbers():
    row = elementwise("planted", np.square, lambda g, x: g * (2 * ops.conjugate(x)))
    check_grads(lambda x: row(x), X, order=1)
    caught(lambda x: row(x), X + 0.5j)


def test_error_in_one_entry_among_many_is_caught_and_named():
    weights = np.ones((2, 3))
    weights[1, 2] = 1.001
    row = elementwise("planted", np.sin, lambda g, x: g * ops.cos(x) * weights)
    assert "[1, 2]" in caught(lambda x: row(x), X, modes=("fwd",))
    assert "[1, 2]" in caught(lambda x: row(x).sum(), X, modes=("rev",))


def test_error_in_single_precision_is_caught():
    row = elementwise("planted", np.sin, lambda g, x: g * ops.cos(x) * 1.01)
    caught(lambda x: row(x), X.astype(np.float32))


def test_message_names_function_mode_order_and_both_values():
    row = elementwise("planted", np.square, lambda g, x: g * (3 * x))

    def squares(x):
        return row(x)

    message = caught(squares, np.array(2.0), modes=("rev",))
    assert "order 1 of `squares`" in message
    assert "mode rev" in message
    assert "argument 0" in message
    assert "is 6" in message
    assert "is 4" in message


def test_function_with_a_jump_in_its_derivative_is_reported_at_the_jump():
    # not abs at 0 or a tie of maximum, whose values are the central difference's
    caught(lambda x: np.clip(x, 0, 1), np.array([0.0, 0.5]), order=1)


# ---- steps, remainders, entries


def real(f):
    """``f`` where complex numbers are refused, so that differences must do."""
    return lambda x: f(np.cbrt(x) ** 3)


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 2e4])
def test_the_step_is_chosen_by_the_function(scale, fast):
    row = elementwise("planted", np.sin, lambda g, x: g * ops.cos(x) * 1.001)
    check_grads(real(lambda x: np.sin(scale * x)), X, order=1, fast=fast)
    caught(real(lambda x: row(scale * x)), X, order=1, fast=fast)


@pytest.mark.parametrize("fast", [True, False])
def test_functions_that_compute_in_single_precision_are_checked(fast):
    def single(f):
        return lambda x: f(x.astype(np.float32)).astype(np.float64)

    row = elementwise("planted", np.sin, lambda g, x: g * ops.cos(x) * 1.03)
    x = X.astype(np.float32)
    check_grads(single(np.sin), x, order=1, fast=fast)
    caught(single(lambda x: row(x)), x, order=1, fast=fast)


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_every_entry_is_compared_where_asked(mode):
    # small beside the others: a random direction does not show it
    weights = np.ones((2, 3))
    weights[1, 2] = 1.01
    row = elementwise("planted", lambda x: x * 1.0, lambda g: g * weights)
    scales = np.where(weights > 1, 1e-6, 1.0)

    def f(x):
        return row(x) * scales

    check_grads(f, X, modes=(mode,), order=1)
    check_grads(lambda x: x * scales, X, modes=(mode,), order=2, fast=False)
    message = caught(f, X, modes=(mode,), fast=False, atol=1e-9)
    assert "[1, 2] is 1.01e-06" in message and "is 1e-06" in message


def test_entries_of_complex_functions_are_compared_too():
    row = elementwise("planted", np.square, lambda g, x: g * (2 * ops.conjugate(x)))
    z = ROW + 0.5j
    for f in (np.square, lambda z: z * np.conj(z), np.abs, np.real, lambda z: z.imag**2):
        check_grads(f, z, order=2, fast=False)
    caught(lambda x: row(x), z, fast=False)


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_the_remainder_decides_where_the_differences_are_coarse(mode):
    row = elementwise("planted", np.sin, lambda g, x: g * ops.cos(x) * (1 + 1e-5))
    options = {"order": 1, "modes": (mode,), "eps": 0.5}
    check_grads(real(np.sin), X, **options)
    caught(real(lambda x: row(x)), X, **options)


@pytest.mark.parametrize("mode", ["fwd", "rev"])
def test_the_message_says_how_the_remainder_falls(mode):
    row = elementwise("planted", np.sin, lambda g, x: g * ops.cos(x) * 1.2)
    message = caught(real(lambda x: row(x)), X, modes=(mode,))
    assert "falls like h^1.0, not h^2" in message


@pytest.mark.parametrize("f", [np.exp, np.cbrt, lambda x: x**2, lambda x: {"a": np.sin(x), "b": x}])
def test_the_remainder_of_a_right_derivative_falls_with_the_square(f):
    assert taylor_slope(f, X + 2) > 1.9
    assert taylor_slope(f, X + 2, np.ones_like(X)) > 1.9
    assert taylor_slope(f, (X + 2).astype(np.float32)) > 1.7  # few steps are above the rounding


def test_the_remainder_of_a_wrong_derivative_or_at_a_kink_falls_with_the_step():
    row = elementwise("planted", np.sin, lambda g, x: g * ops.cos(x) * 1.001)
    assert taylor_slope(lambda x: row(x), X) < 1.1
    assert taylor_slope(np.abs, np.zeros(3)) == pytest.approx(1.0)
    assert taylor_slope(lambda x: 3 * x, X) == np.inf


# ---- the table's own tests bite too


def bites(test, *args):
    with pytest.raises((AssertionError, ValueError, TypeError, IndexError)):
        test(*args)


@pytest.fixture
def sampled():
    """Samples for rows named planted."""
    ROWS["planted"] = [floats((2, 3))]
    yield ROWS
    del ROWS["planted"]


def test_wrong_batch_axis_is_caught(sampled):
    row = primitive(
        "planted",
        lambda x: np.cumsum(x, 0),
        jvp=lambda ts, y, xs: np.cumsum(ts[0], 0),
        batch=lambda size, xs, batched: row(xs[0]),  # runs along the batch
    )
    bites(test_table.test_vmap_is_a_loop, [("planted", 0)])


def test_wrong_abstract_rule_is_caught(sampled):
    primitive("planted", np.sin, abstract=lambda x: type(x)(x.shape[1:], x.dtype))
    bites(test_table.test_abstract_rule_is_the_real_output, [("planted", 0)])


def test_missing_abstract_rule_is_caught(sampled):
    primitive("planted", np.sin)
    with pytest.raises(NotImplementedError):
        test_table.test_abstract_rule_is_the_real_output([("planted", 0)])


def test_row_without_samples_is_caught():
    primitive("planted", np.sin)
    bites(test_table.test_rows_have_samples)


def test_wrong_transpose_is_caught_by_the_adjoint_identity(sampled):
    linear("planted", lambda x: 2 * x, lambda ct, x: 3 * ct, batch=loop)
    bites(test_table.test_vjp_is_the_transpose_of_jvp, [("planted", 0)])
    bites(test_table.test_linear_row_is_its_matrix, [("planted", 0)])


def test_tangent_rule_that_is_not_linear_is_caught(sampled):
    primitive("planted", np.sin, jvp=lambda ts, y, xs: ts[0] * ts[0], vjp=lambda ct, y, xs, w: [ct])
    bites(test_table.test_tangents_are_linear, [("planted", 0)])


def test_second_derivative_lost_in_one_mode_is_caught(sampled):
    frozen = elementwise("planted_cos", np.cos, None)
    primitive(
        "planted",
        np.sin,
        jvp=lambda ts, y, xs: ts[0] * ops.cos(xs[0]),
        vjp=lambda ct, y, xs, wanted: [ct * frozen(xs[0])],
    )
    bites(test_table.test_second_derivatives_agree_however_composed, [("planted", 0)])


def test_numerical_jacobian_is_the_jacobian():
    def f(a, b):
        return {"p": a * b, "q": np.sum(a**2)}

    found = numerical_jacobian(f, (X, ROW))
    assert found["p"][1].shape == (2, 3, 3)
    np.testing.assert_allclose(found["q"][0], 2 * X, rtol=1e-12)
    np.testing.assert_allclose(
        found["p"][0], ft.jacobian(lambda a: a * ROW)(X), rtol=1e-9, atol=1e-9
    )


# ---- the errors of ``tests/planted``

ROOT = Path(__file__).parents[1]


def test_every_planted_error_can_be_planted():
    for error in ERRORS:
        sound = (ROOT / error.file).read_text()
        wrong = error.planted_in(sound)
        assert wrong != sound, error.name
        ast.parse(wrong)


def test_every_planted_error_has_a_name_and_tests_that_exist():
    assert len({error.name for error in ERRORS}) == len(ERRORS) >= 50
    for error in ERRORS:
        assert error.tests, error.name
        for test in error.tests:
            file, *names = test.split("[")[0].split("::")
            text = (ROOT / file).read_text()
            assert all(f"def {n}(" in text or f"class {n}:" in text for n in names), test


if os.environ.get("FUNCTRANS_PROFILE") == "thorough":  # takes minutes

    def test_every_planted_error_is_caught():
        assert plant([]) == 0


# ---- errors that are drawn

CHOICE = "functrans/_ops/slopes.py"


def test_drawn_errors_change_one_place_of_valid_source():
    source = "def f(a, b):\n    'no change: 1 + 1'\n" + (
        "    return g(a, -b) if a < 1 else a + 2.0 and b\n"
    )
    drawn = list(mutants("f.py", source))
    assert {m.kind for m in drawn} == {
        "comparison", "operator", "dropped term", "constant", "dropped sign", "logic",
        "removed condition", "swapped branches", "swapped arguments",
    }
    changed = {m.in_source(source) for m in drawn}
    assert len(changed) == len(drawn)
    for text in changed:
        assert ast.dump(ast.parse(text)) != ast.dump(ast.parse(source))
        assert "'no change: 1 + 1'" in text


def test_messages_annotations_and_imports_are_not_changed():
    source = "from m import x\ndef f(a: 'b' or 3):\n    raise ValueError(1 + 2, f'{a + 1}')\n"
    assert not list(mutants("f.py", source))


def noted(folder, tests):
    """The notes of a run: the lines of a file that each test runs, and its seconds."""
    data = coverage.CoverageData(str(folder / "guards"))
    for test, (lines, _) in tests.items():
        data.set_context(test)
        data.add_lines({str(ROOT / CHOICE): lines})
    data.write()
    cases = [f'<testcase classname="{test.split(".py")[0].replace("/", ".")}" time="{seconds}"'
             f' name="{test.split("::")[-1]}[1]"/>' for test, (_, seconds) in tests.items()]
    (folder / "guards.xml").write_text(f"<testsuite>{''.join(cases)}</testsuite>")
    return Guards(folder / "guards")


def test_short_and_particular_tests_are_run_first(tmp_path):
    guards = noted(tmp_path, {
        "tests/a.py::test_long": ([1, 2], 30.0), "tests/a.py::test_broad": ([1, 2, 3], 0.1),
        "tests/b.py::test_narrow": ([2], 0.2), "tests/b.py::test_other": ([3], 0.1),
    })
    long, broad = "tests/a.py::test_long", "tests/a.py::test_broad"
    assert guards.selected(CHOICE, ((2, 2),)) == ["tests/b.py::test_narrow", broad, long]
    # a line that is not noted is run with what stands around it
    assert guards.selected(CHOICE, ((9, 9), (1, 3)))[-1] == long
    assert guards.selected(CHOICE, ((9, 9),)) == []


def test_what_a_module_gives_is_guarded_by_those_who_read_it(tmp_path):
    lines = (ROOT / CHOICE).read_text().splitlines()
    given, *reading = [n for n, line in enumerate(lines, 1) if "LARGE" in line]
    guards = noted(tmp_path, {"": ([given], 0.0), "tests/a.py::test_a": (reading[:1], 0.1),
                              "tests/b.py::test_b": ([reading[0] - 1], 0.1)})
    assert guards.selected(CHOICE, ((given, given),)) == ["tests/a.py::test_a"]


def test_errors_that_change_nothing_are_those_of_the_source():
    for file, rows in EQUIVALENT.items():
        drawn = {(" ".join(m.old.split()), m.new) for m in mutants(file, (ROOT / file).read_text())}
        for old, new, why in rows:
            assert (old, new) in drawn, (file, old, new)
            assert why
