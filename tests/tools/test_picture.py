"""Pictures of schedules."""

import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pytest

import functrans as ft
from functrans._compile.schedule.kernels import Call, HostStep, Kernel

SVG = "{http://www.w3.org/2000/svg}"


def network(params, x):
    w, b = params
    return np.sum(np.tanh(x @ w + b) ** 2)


def lower(f: Any, *args: Any) -> Any:
    return ft.jit(f).lower(*args)


def boxes(text):
    """(class, x, y, width, height, texts) of each box."""
    found = []
    for g in ET.fromstring(text).iter(f"{SVG}g"):
        x, y = map(float, re.findall(r"[-\d.]+", g.attrib["transform"]))
        rect = next(g.iter(f"{SVG}rect")).attrib
        lines = [t.text for t in g.iter(f"{SVG}text")]
        found.append((rect["class"], x, y, float(rect["width"]), float(rect["height"]), lines))
    return found


CASES = {
    "one loop": lower(ft.grad(lambda x: np.sum(np.sin(x))), np.ones(5)),
    "host steps": lower(lambda x, y: np.exp(np.linalg.pinv(x) @ y), np.ones((4, 3)), np.ones(4)),
    "calls": lower(ft.grad(network), (np.ones((30, 20)), np.ones(20)), np.ones((40, 30))),
    "shifted reads": lower(
        ft.hessian(lambda x: np.sum((x[1:] - x[:-1] ** 2) ** 2)), np.ones(6)
    ),
    "several outputs": lower(lambda x: (np.sum(x), x * 2.0, 3.0), np.ones((2, 3))),
    "no steps": lower(lambda x: x, np.ones(3)),
    "no inputs": lower(lambda: 2.0),
    "names to escape": lower(lambda x: np.where(x < 1.0, x, -x), np.ones(3)),
    "nothing": lower(lambda: ()),
}


@pytest.fixture(params=CASES, scope="module")
def lowered(request):
    return CASES[request.param]


def test_there_is_a_box_for_each_step_input_and_output(lowered):
    s = lowered.schedule
    kinds = [b[0] for b in boxes(lowered.svg())]
    for name, kind in (("host", HostStep), ("call", Call), ("kernel", Kernel)):
        assert kinds.count(name) == sum(isinstance(step, kind) for step in s.steps)
    assert kinds.count("end") == len(s.program.inputs) + len(s.outputs)


def test_boxes_lie_apart_and_inside(lowered):
    text = lowered.svg()
    found = boxes(text)
    root = ET.fromstring(text)
    wide, tall = float(root.attrib["width"]), float(root.attrib["height"])
    for i, (_, x, y, w, h, _) in enumerate(found):
        assert x >= 0 and y >= 0 and x + w <= wide and y + h <= tall
        for _, x2, y2, w2, h2, _ in found[:i]:
            assert x + w <= x2 or x2 + w2 <= x or y + h <= y2 or y2 + h2 <= y


def test_every_read_has_an_arrow():
    # the product reads two, the loop two, the other product the loop's result and x; two outputs,
    # in each of which NaNs are counted, and the count is read
    assert CASES["calls"].svg().count("marker-end") == 2 + 2 + 2 + 2 + 4


def test_boxes_say_what_is_computed():
    found = [b[5] for b in boxes(CASES["calls"].svg())]
    assert ["0: call", "d = gemm c a"] in found
    assert any(lines[0] == "1: loop 40 \u00d7 20" and "f = tanh e" in lines for lines in found)
    assert ["input", "a:float64[30,20]"] in found
    assert any(b[5][0] == "0: NumPy" for b in boxes(CASES["host steps"].svg()))


def test_reads_of_one_buffer_at_several_places_are_told_apart():
    (first,) = [b[5] for b in boxes(CASES["shifted reads"].svg()) if b[5][0] == "0: loop 5"]
    assert "a_0 = a[i0]" in first and "a_1 = a[1 + i0]" in first


def test_a_long_loop_is_cut_in_the_middle():
    def f(x):
        for _ in range(40):
            x = np.sin(x)
        return x

    (box,) = [b for b in boxes(lower(f, np.ones(3)).svg()) if b[0] == "kernel"]
    assert "... 28 more lines ..." in box[5]
    assert len(box[5]) == 14


def test_the_page_holds_the_picture_and_the_texts(tmp_path):
    lowered = CASES["names to escape"]
    text = lowered.html(tmp_path / "f.html")
    assert (tmp_path / "f.html").read_text(encoding="utf-8") == text
    assert lowered.svg() in text
    for part in ("Program", "Optimised program", "Schedule", "LLVM"):
        assert f"<summary>{part}</summary>" in text
    assert "define" in text and "{ lambda a:float64[3]" in text


def test_a_notebook_shows_the_picture():
    assert CASES["one loop"]._repr_svg_() == CASES["one loop"].svg()
