"""The NIST example: the files are read right, the derivatives are exact, the fits are certified."""

from __future__ import annotations

import numpy as np
import pytest

from examples.nist.__main__ import Run, summary, table
from examples.nist.fit import (
    Fit,
    correct_digits,
    fit_exact,
    polish,
    residual,
    standard_deviations,
)
from examples.nist.models import MODELS
from examples.nist.plot import draw
from examples.nist.strd import DATA, NAMES, load, parse
from functrans import jacobian

SIZES = {  # observations, parameters, degrees of freedom, as the files' prose states them
    "Misra1a": (14, 2, 12), "Gauss2": (250, 8, 242), "Lanczos3": (24, 6, 18),
    "ENSO": (168, 9, 159), "Hahn1": (236, 7, 229), "MGH17": (33, 5, 28), "BoxBOD": (6, 2, 4),
    "Thurber": (37, 7, 30),
}
STARTS = [(name, k) for name in NAMES for k in (0, 1)]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_is_read_in_full(name):
    problem = load(name)
    observations, parameters, dof = SIZES[name]
    assert problem.x.shape == problem.y.shape == (observations,)
    assert problem.certified.shape == problem.deviations.shape == (parameters,)
    assert [start.shape for start in problem.starts] == [(parameters,)] * 2
    assert problem.dof == dof


def test_the_columns_are_what_they_say():
    problem = load("Misra1a")
    assert problem.level == "lower"
    assert (problem.y[0], problem.x[0]) == (10.07, 77.6)
    assert [list(start) for start in problem.starts] == [[500, 0.0001], [250, 0.0005]]
    assert list(problem.certified) == [2.3894212918e02, 5.5015643181e-04]
    assert list(problem.deviations) == [2.7070075241e00, 7.2668688436e-06]
    assert (problem.rss, problem.residual_deviation) == (1.2455138894e-01, 1.0187876330e-01)


@pytest.mark.parametrize("name", NAMES)
def test_the_certified_parameters_have_the_certified_residual(name):
    problem = load(name)
    r = residual(problem)(problem.certified)
    # Lanczos3's residuals are differences of numbers 1e5 times their size, rounded to 11 digits
    assert r @ r == pytest.approx(problem.rss, rel=1e-6 if name == "Lanczos3" else 1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_the_certified_numbers_agree_with_each_other(name):
    problem = load(name)
    assert problem.residual_deviation == pytest.approx(np.sqrt(problem.rss / problem.dof), rel=1e-9)


def test_a_file_cut_short_is_refused():
    text = (DATA / "BoxBOD.dat").read_text()
    with pytest.raises(ValueError, match=r"BoxBOD: 5 observations, but the file certifies 6"):
        parse(text[: text.rindex("\n", 0, -2)] + "\n", "BoxBOD")


def test_a_file_without_line_ranges_is_refused():
    with pytest.raises(ValueError, match=r"BoxBOD: the header names the sections \[\], not all"):
        parse("no header", "BoxBOD")


@pytest.mark.parametrize("name, k", STARTS)
def test_the_jacobian_agrees_with_the_complex_step(name, k):
    problem = load(name)
    b = problem.starts[k]
    steps = 1e-30j * np.diag(b)
    reference = np.stack([MODELS[name](problem.x, b + h).imag for h in steps], axis=1) / (1e-30 * b)
    scale = np.abs(reference).max(axis=0)
    exact = jacobian(lambda p: MODELS[name](problem.x, p))(b)
    # ENSO's phases reach 90 radians, so that either cosine has lost two digits
    np.testing.assert_allclose(exact / scale, reference / scale, rtol=1e-13, atol=3e-14)


@pytest.mark.parametrize("mode", ["forward", "reverse"])
@pytest.mark.parametrize("name", NAMES)
def test_both_modes_give_the_same_jacobian(name, mode):
    problem = load(name)
    f = residual(problem)
    one = jacobian(f, mode=mode)(problem.certified)
    np.testing.assert_allclose(one, jacobian(f)(problem.certified), rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize("name, k", STARTS)
def test_every_number_is_right_to_nine_digits(name, k):
    problem = load(name)
    fit = polish(problem, fit_exact(problem, problem.starts[k]))
    assert correct_digits(fit.parameters, problem.certified).min() >= 9
    assert correct_digits(fit.deviations, problem.deviations).min() >= 9
    assert fit.rss == pytest.approx(problem.rss, rel=1e-9)


def test_a_parameter_without_effect_has_no_standard_deviation():
    singular = np.array([[1.0, 0.0], [2.0, 0.0]])
    assert np.isnan(standard_deviations(singular, np.ones(2), 1)).all()


def test_digits_are_capped_where_the_certificate_ends():
    digits = correct_digits(np.array([1.0, 1.001, 5.0, np.nan]), np.ones(4))
    np.testing.assert_allclose(digits, [11, 3, 0, 0], atol=1e-9)


def test_a_fit_that_ended_elsewhere_is_named():
    problem = load("BoxBOD")
    right = Fit(problem.certified, problem.deviations, problem.rss, 9, 7)
    wrong = Fit(2 * problem.certified, problem.deviations, problem.rss, 9, 0)
    text = summary([problem], [[Run(right, right, wrong), Run(right, right, right)]])
    assert [line.rpartition("   ")[2] for line in text.splitlines() if "did not" in line] == [
        "did not converge: 2-point"
    ]


def test_the_table_has_a_line_for_every_parameter_and_start():
    problem = load("BoxBOD")
    fit = Fit(problem.certified, problem.deviations, problem.rss, 9, 7)
    lines = table(problem, [Run(fit, fit, fit)] * 2).splitlines()
    assert len(lines) == 3 + 2 * 2
    assert lines[3].split() == ["1", "b1", "2.1380940889e+02"] + ["11.0"] * 6


def test_the_picture_is_drawn(tmp_path):
    problems = [load(name) for name in NAMES]
    draw(problems, [p.certified for p in problems], tmp_path / "out" / "nist.png")
    assert (tmp_path / "out" / "nist.png").read_bytes().startswith(b"\x89PNG")
