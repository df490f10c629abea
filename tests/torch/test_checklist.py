"""The table of docs/torch.md: a row for each promise, and in each a test that exists."""

import ast
import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
PAGE = HERE.parents[1] / "docs" / "torch.md"
ROWS = re.findall(r"^\| ([A-Z]\d+) \| (.+?) \| (.*?) ?\|$", PAGE.read_text(), re.MULTILINE)
SECTIONS = {"A": 26, "B": 13, "C": 6, "D": 6, "E": 7, "F": 3, "G": 12, "H": 22, "I": 13,
            "J": 15, "K": 5, "L": 4, "M": 28, "N": 23}


def names_in(module):
    folder = HERE.parents[1] if module.startswith("tests/") else HERE
    tree = ast.parse((folder / f"{module.removesuffix('.py')}.py").read_text())
    return {f.name for f in tree.body if isinstance(f, ast.FunctionDef)}


def test_the_table_has_every_row_once():
    expected = [f"{s}{i + 1}" for s, n in SECTIONS.items() for i in range(n)]
    expected += ["G21", "G22", "G23", "G24"]
    names = [name for name, _, _ in ROWS]
    assert sorted(names) == sorted(expected)


@pytest.mark.parametrize(("name", "promise", "cell"), ROWS, ids=[r[0] for r in ROWS])
def test_a_row_names_tests_that_exist(name, promise, cell):
    parts = re.findall(r"`((?:tests/(?:[a-z]+/)?)?test_\w+(?:\.py)?)`: ([^;]+)", cell)
    assert promise and parts
    for module, titles in parts:
        named = {"test_" + title.strip().replace(" ", "_") for title in titles.split(",")}
        assert named <= names_in(module)
