"""Public names of torch: each is here, or stands on docs/torch.md with a reason."""

import importlib
import json
import re
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from functrans.torch._names import WITHIN
from tests.torch.programs.record_names import STORED

PAGE = Path(__file__).parents[2] / "docs" / "torch.md"
NAMES = json.loads(STORED.read_text())


def patterns():
    """What the first column of the page's table of missing names says in backticks."""
    table = PAGE.read_text().split("| what | why |")[1].split("\n\n")[0]
    cells = [row.split("|")[1] for row in table.splitlines()[2:]]
    return [p for cell in cells for p in re.findall(r"`([^`]+)`", cell)]


def ours(path):
    """The shim's module or class at a place of torch."""
    home = importlib.import_module("functrans.torch")
    for part in path.split(".")[1:]:
        home = getattr(home, part) if hasattr(home, part) else importlib.import_module(
            f"{home.__name__}.{part}")
    return home


def missing_at(path):
    """The public names of torch at a place that the shim has not."""
    home, place = ours(path), path.removeprefix("torch").lstrip(".")
    known = {*dir(home), *WITHIN.get(place, "").split()}
    return [n for n in NAMES[path].split() if n not in known]


@pytest.mark.parametrize("path", NAMES)
def test_a_public_name_of_torch_is_here_or_has_a_reason(path):
    known, place = patterns(), path.removeprefix("torch").lstrip(".")
    assert [n for n in missing_at(path) if not any(
        fnmatchcase(n, p) or fnmatchcase(f"{place}.{n}", f"*{p}") for p in known)] == []


def test_the_page_gives_no_reason_for_what_is_nowhere_missing():
    missing = {(path.removeprefix("torch").lstrip("."), n) for path in NAMES
               for n in missing_at(path)}
    idle = [p for p in patterns() if not any(
        fnmatchcase(n, p) or fnmatchcase(f"{place}.{n}", f"*{p}") for place, n in missing)]
    allowed = {"embedding(sparse=True)", "torch", "nn", "nn.functional", "matrix_sqrth", "autocast",
               "utils.data.*", "utils.checkpoint", "int7", "numpy()", "qr", "eigh", "svd"}
    assert set(idle) <= allowed
