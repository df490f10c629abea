"""The gradient doctor finds the planted fault of small programs, on its line."""

import html.parser
import inspect
import re

import numpy as np
import pytest

import functrans as ft
from functrans._core.bind import watching
from functrans.debug import explain
from tests.threads import at_once

A, B = np.array([1.0, 0.0, 4.0]), np.array([2.0, 3.0, 4.0])


def log_of_zero(x):
    return np.sum(np.log(x))  # infinite value


def root_of_negative(x):
    y = x - 2.0
    return np.sum(np.sqrt(y))  # NaN value


def quotient_of_zeros(x):
    return np.sum(np.sin(x) / x)  # NaN adjoint


def root_at_zero(x):
    y = np.sqrt(x)  # infinite adjoint
    return np.sum(y)


def overflow(x):
    y = np.exp(300 * x)  # infinite value
    return np.log(np.sum(y))


def masked_root(x):
    y = np.sqrt(x)  # strong zero
    return np.sum(np.where(x > 0, y, 0.0))


def masked_log(x):
    return np.sum(np.where(x > 0, np.log(x), 0.0))  # strong zero


def norm_at_zero(x):
    d = x - x
    return np.linalg.norm(d)  # kink


def rectifier(x):
    return np.sum(np.maximum(x, 0.0) * B)  # kink


def absolute(x):
    return np.sum(np.abs(x))  # kink


def clipped(x):
    return np.sum(np.clip(x, 0.0, 2.0) * B)  # kink


def extreme(x):
    y = np.abs(x - 2.0)
    return np.max(y)  # kink


def branch(x):
    return np.sum(np.where(x > 1.0, x**2, x))  # kink


def saturated(x):
    return np.sum(np.tanh(1e3 * (x + 1)))  # saturated


def dead_rectifier(x):
    y = -x - 1
    return np.sum(np.maximum(y, 0.0))  # saturated


def clipped_away(x):
    return np.sum(np.clip(x + 10, 0.0, 1.0))  # saturated


def narrowed(x):
    y = x.astype(np.float32)  # precision
    return np.sum(y * y)


def mixed(x):
    y = (x * np.pi).astype(np.float16)  # precision
    return np.sum(y.astype(np.float64))


def jump(x):
    return np.sum(np.floor(x) * B) + np.sum(x)  # kink


def repeated(x):
    w, _ = np.linalg.eigh(np.diag(np.ones(3)) + 0 * x)  # kink
    return w[0]


PROGRAMS = [
    log_of_zero, root_of_negative, quotient_of_zeros, root_at_zero, overflow, masked_root,
    masked_log, norm_at_zero, rectifier, absolute, clipped, extreme, branch, saturated,
    dead_rectifier, clipped_away, narrowed, mixed, jump, repeated,
]


def planted(f):
    """The line of the fault, and what kind it is of."""
    lines, first = inspect.getsourcelines(f)
    k, line = next((k, line) for k, line in enumerate(lines) if "  # " in line)
    return first + k, line.split("  # ")[1].strip()


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_the_planted_fault_is_found_on_its_line(f):
    line, kind = planted(f)
    report = explain(f)(A)
    assert (kind, (__file__, line)) in {(x.kind, x.place) for x in report.findings}
    assert f"! {kind}: " in str(report)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_without_the_fault_nothing_is_found(f):
    cured = {  # the same programs at points without the fault, or without the op
        root_of_negative: B + 1, overflow: B / 1000, saturated: B * 0 - 0.999,
        dead_rectifier: -B, extreme: B + np.array([0.5, 1.0, 2.0]), clipped: B / 10,
        clipped_away: B / 10 - 10, jump: B + 0.25,
    }
    without = {norm_at_zero, narrowed, mixed, repeated}
    if f in without:
        report = explain(lambda x: np.sum(np.sin(x)))(B)
    else:
        report = explain(f)(cured.get(f, B + np.array([0.0, 0.0, 0.25])))
    assert report.findings == [] and "0 findings" in str(report)


KINKS = {
    "absolute": (lambda x: np.sum(np.abs(x)), "a kink (0: 0) in 1 of 3 entries (first [1])"),
    "cummax": (lambda x: np.sum(np.maximum.accumulate(x * x)),
               "a kink (a tie: shared equally) in 1 of 3 entries (first [2])"),
    "heaviside": (lambda x: np.sum(np.heaviside(x, 0.5)),
                  "a kink (x1 = 0) in 1 of 3 entries (first [1])"),
    "rint": (lambda x: np.sum(np.rint(x / 2)),
             "a jump (between two whole numbers) in 2 of 3 entries (first [0])"),
}


@pytest.mark.parametrize("op", KINKS)
def test_the_words_for_a_kink_are_those_of_the_row(op):
    f, words = KINKS[op]
    texts = [x.text for x in explain(f)(np.array([-1.0, 0.0, 1.0])).findings]
    assert f"`{op}` is at {words}" in texts


# ---- inputs


def test_inputs_say_why_they_have_no_gradient():
    def f(x, unused, counted, dropped, constant):
        k = int(np.floor(counted))
        np.sin(dropped)
        return np.sum(x) * k + ft.stop_gradient(constant)

    report = explain(f)(A, 1.0, 2.5, 3.0, 4.0)
    texts = [x.text for x in report.inputs]
    assert texts[0].startswith("of size 2")
    assert texts[1] == "not used"
    assert "`floor` on line" in texts[2]
    assert "is not in the output" in texts[3]
    assert "`stop` on line" in texts[4]
    assert [x.gradient is None for x in report.inputs] == [False, True, True, True, True]
    assert sum(f.kind == "disconnected" for f in report.findings) == 4


def test_a_zero_gradient_names_where_it_saturates():
    report = explain(saturated)(A)
    assert report.inputs[0].text == f"exactly zero: slopes vanish in `tanh` on line " \
                                    f"{planted(saturated)[0]}"
    assert "zero gradient" in report.kinds()


def test_leaves_of_containers_are_named():
    report = explain(lambda p: np.sum(p["w"]) + p["b"])({"w": A, "b": 1.0})
    assert [x.label for x in report.inputs] == ["argument 0, leaf 0", "argument 0, leaf 1"]


def test_the_gradient_is_that_of_grad():
    for f in PROGRAMS:
        report = explain(f)(B)
        with np.errstate(all="ignore"):
            expected = ft.grad(f)(B)
        np.testing.assert_allclose(report.inputs[0].gradient, expected, rtol=1e-12, atol=1e-15)
    z = np.array([1 + 2j, 3 - 1j])
    report = explain(lambda z: np.sum(np.abs(z) ** 2))(z)
    np.testing.assert_allclose(report.inputs[0].gradient, 2 * z)


def test_of_an_array_the_sum_is_derived():
    report = explain(lambda x: (np.sin(x), 2 * x))(B)
    np.testing.assert_allclose(report.inputs[0].gradient, np.cos(B) + 2)
    assert len(report.value) == 2


# ---- lines


def test_bytes_held_for_the_backward_are_counted_by_line():
    def f(x):
        y = np.sin(x)
        z = y + 1.0
        return np.sum(z * y)

    x = np.ones(1000)
    first = inspect.getsourcelines(f)[1]
    held = {place[1] - first: line.held for place, line in explain(f)(x).lines.items()}
    # sin holds x, the product holds z and y, the sum nothing
    assert held == {1: 8000, 2: 0, 3: 16000}


def test_times_are_measured_by_line_and_may_be_left_out():
    report = explain(rectifier)(A)
    line = report.lines[__file__, planted(rectifier)[0]]
    assert line.forward > 0 and line.backward > 0
    assert "us +" in report.text() and "us +" not in report.text(times=False)


def test_transforms_inside_are_part_of_the_line_they_are_called_on():
    def f(x):
        g = ft.grad(lambda v: np.sum(v**3))(x)
        return np.sum(g)

    report = explain(f)(B)
    assert report.findings == []
    np.testing.assert_allclose(report.inputs[0].gradient, 6 * B)


def test_only_the_functions_own_ops_count():
    def f(x):
        with np.errstate(all="ignore"):
            np.log(np.zeros(2))  # NumPy's own, on constants
        return np.sum(x)

    assert explain(f)(A).findings == []


def test_nothing_is_watched_afterwards_and_threads_do_not_mix():
    explain(rectifier)(A)
    assert watching.get() is None
    reports = at_once(lambda g: explain(g)(A), [rectifier, absolute])
    assert sorted(r.name for r in reports) == ["absolute", "rectifier"]
    assert all(len(r.kinds()) for r in reports)


def test_an_error_of_the_function_is_raised():
    def f(x):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        explain(f)(A)
    assert watching.get() is None
    with pytest.raises(TypeError, match="explain needs a function"):
        explain(3)


@pytest.mark.parametrize("x", [np.zeros((0,)), np.array(2.0), np.ones((2, 3))[:, ::2],
                               np.ones(3, np.float32)], ids=["empty", "0-d", "strided", "float32"])
def test_unusual_arguments_are_explained(x):
    assert "gradient" in str(explain(lambda x: np.sum(np.tanh(x) ** 2))(x))


# ---- the page


class Checker(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.rows = [], []

    def handle_starttag(self, tag, attrs):
        if tag != "meta":
            self.open.append(tag)
        if tag == "tr":
            self.rows.append((dict(attrs).get("class"), ""))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.rows and "tr" in self.open:
            kind, text = self.rows[-1]
            self.rows[-1] = kind, text + data


def test_the_page_shows_findings_beside_the_source(tmp_path):
    report = explain(masked_root)(A)
    page = report.html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    found = [text for kind, text in checker.rows if kind == "found"]
    assert any("y = np.sqrt(x)" in text and "strong zero" in text for text in found)
    assert any("def masked_root(x):" in text for kind, text in checker.rows if kind is None)
    assert report._repr_html_().startswith("<!doctype html>")


def test_the_page_escapes_the_source(tmp_path):
    report = explain(lambda x: np.sum(np.where(x < 2, x, 0)))(A)  # <script>
    assert "&lt;script&gt;" in report.html() and "<script>" not in report.html()


def test_a_page_that_cannot_be_written_loses_nothing(tmp_path):
    report = explain(rectifier)(A)
    with pytest.raises(OSError):
        report.html(tmp_path / "missing" / "report.html")
    assert report.findings


def test_the_doctor_looks_into_jitted_functions():
    report = explain(ft.jit(quotient_of_zeros))(np.array([1.0, 0.0]))
    line = inspect.getsourcelines(quotient_of_zeros)[1] + 1
    assert any(f.kind == "NaN value" and f.place == (__file__, line) for f in report.findings)


def test_a_number_of_pythons_ends_a_derivative():
    report = str(ft.debug.explain(lambda x: int(x) * 2.0)(2.5))
    assert re.search(r"disconnected: no derivative .*it ends in `int\(\)` on line \d+", report)
