"""The checks of the built site, which ``make docs`` runs on all of it."""

import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CHECK = runpy.run_path(str(ROOT / "docs" / "check.py"))
DRAW = runpy.run_path(str(ROOT / "docs" / "draw.py"))
PAGE = "<!doctype html><html><body style='margin:0'><article>{}</article></body></html>"


def site(folder, **pages):
    for name, body in pages.items():
        (folder / f"{name}.html").write_text(PAGE.format(body))
    return folder


def test_links_to_pages_anchors_and_other_sites_are_whole(tmp_path):
    body = "<h1 id='top'></h1><a href='#top'></a><a href='b.html#end'></a><a href='b.html?q=1'></a>"
    root = site(tmp_path, a=body + "<a href='https://numpy.org/x'></a>", b="<p id='end'></p>")
    assert CHECK["broken"](root) == []


@pytest.mark.parametrize("body, fault", [
    ("<a href='c.html'></a>", "a.html: c.html: there is no such file"),
    ("<img src='c.png'>", "a.html: c.png: there is no such file"),
    ("<a href='#end'></a>", "a.html: #end: there is no such anchor"),
    ("<a href='b.html#end'></a>", "a.html: b.html#end: there is no such anchor"),
])
def test_a_link_that_leads_nowhere_is_named(tmp_path, body, fault):
    assert CHECK["broken"](site(tmp_path, a=body, b="")) == [fault]


@pytest.mark.skipif(CHECK["browser"]() is None, reason="there is no Chromium")
def test_what_sticks_out_of_a_narrow_window_is_named(tmp_path):
    wide = "<div style='width: 900px'>wide</div>"
    root = site(
        tmp_path,
        narrow="<p>Text.</p>",
        wide=wide,
        hidden=f"<div style='overflow: hidden'>{wide}</div>",
        scrolling=f"<div style='overflow-x: auto'>{wide}</div>",
        failing="<script>throw new Error('a fault')</script>",
    )
    pages = ["narrow", "scrolling", "wide", "hidden", "failing"]
    faults = CHECK["sticking_out"](root, CHECK["browser"](), pages)
    assert faults[:3] == [
        "wide: 900 wide at 400",
        "wide: <div> sticks out at 400: wide",
        "hidden: <div> sticks out at 400: wide",
    ]
    assert len(faults) == 5  # the page that fails, at each width
    assert all("Uncaught Error: a fault" in line for line in faults[3:])


def test_the_pages_that_are_looked_at_exist():
    sources = {
        p.relative_to(ROOT / "docs").with_suffix("").as_posix() for p in ROOT.glob("docs/**/*.md")
    }
    made = {name for name in CHECK["PAGES"] if name.startswith("reference/")}
    assert set(CHECK["PAGES"]) - made <= sources


def test_the_chart_of_speeds_begins_with_the_first_peer():
    assert next(DRAW["ratios"]()).peer == "torch"


def test_pictures_are_drawn():
    assert DRAW["program"]().startswith("<svg")
    assert DRAW["derivatives"]().count("<polyline") == 5
