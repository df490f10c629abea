"""The programs of the gallery: they run, at a small size, and what they check holds."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

import examples.gallery as gallery
from examples.gallery import Check, panels, save, show

FOLDER = Path(gallery.__file__).parent
DOCS = FOLDER.parents[1] / "docs"
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", NAMES)
def test_what_a_program_checks_holds(name, tmp_path):
    module = import_module(f"examples.gallery.{name}")
    checks = module.main(module.SMALL, tmp_path)
    assert checks
    assert [check for check in checks if not check.error <= check.bound] == []
    assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", NAMES)
def test_a_program_is_short_and_its_picture_is_in_the_docs(name):
    assert len((FOLDER / f"{name}.py").read_text().splitlines()) < 100
    page = (DOCS / "gallery.md").read_text()
    assert f"pictures/{name}.png" in page
    assert f"python -m examples.gallery.{name}" in page
    assert (DOCS / "pictures" / f"{name}.png").stat().st_size < 60_000


def test_a_check_that_fails_is_marked(capsys, monkeypatch, tmp_path):
    def main(out):
        figure, (axes,) = panels(1)
        axes.plot([0, 1])
        save(figure, out, "examples.gallery.line")
        return [Check("good", 1e-9, 1e-8), Check("bad", float("nan"), 1.0)]

    monkeypatch.setattr("sys.argv", ["line.py", str(tmp_path)])
    show(main)
    good, bad = capsys.readouterr().out.splitlines()
    assert good == "good: 1e-09, at most 1e-08: ok"
    assert bad == "bad: nan, at most 1: FAILED"
    assert (tmp_path / "line.png").exists()
