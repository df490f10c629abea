"""What type checkers see of the package, on files as a user would write them."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import functrans as ft
from benchmarks.coverage import CONSTANTS, VARIABLES, calls

HERE = Path(__file__).parents[1] / "typing"
STUBS = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "stubs.py"))
CHECKERS = {
    "pyright": ["-m", "pyright", "--pythonpath", sys.executable],
    "mypy": ["-m", "mypy", f"--cache-dir={os.devnull}", "--follow-imports=silent",
             "--no-error-summary"],
}


@pytest.fixture(scope="module", params=CHECKERS)
def refused(request):
    """What a type checker refuses: pairs of file and line."""
    root = Path(ft.__file__).parents[1]
    command = [sys.executable, *CHECKERS[request.param], *map(str, HERE.glob("*.py"))]
    environment = os.environ | {"MYPYPATH": str(root), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=environment)
    lines = re.findall(r"(\w+\.py):(\d+):.* error:", done.stdout)
    lines += re.findall(r"(\w+\.py):(\d+): error:", done.stdout)
    assert lines, done.stdout + done.stderr
    return sorted({(name, int(line)) for name, line in lines})


def test_right_uses_are_accepted_and_wrong_ones_refused(refused):
    wrong = [
        (path.name, i)
        for path in HERE.glob("*.py")
        for i, line in enumerate(path.read_text().splitlines(), 1)
        if "# wrong:" in line
    ]
    assert refused == sorted(wrong)


def results():
    """Names of functions and what they return, for the calls that are one call."""
    known = {"np": ft.numpy, **CONSTANTS, **VARIABLES}
    for call in calls():
        # one call of a function: no method of a ufunc, nothing behind the parenthesis
        found = re.fullmatch(r"np\.((?:(?:linalg|fft|emath)\.)?\w+)\([^()]*\)", call.text)
        if found:
            yield pytest.param(found[1], call.text, known, id=call.text)


@pytest.mark.parametrize("name, text, known", list(results()))
@pytest.mark.filterwarnings("ignore")  # what is computed is not asked here
def test_results_are_of_the_types_in_the_stub(name, text, known):
    returns = STUBS["RETURNS"].get(name, "Array")
    kinds = {"Array": (ft.Array, np.generic), "int": int, "builtins.bool": bool, "str": str}
    kind = kinds.get(returns, {"t": tuple, "l": list}.get(returns[0], object))
    assert isinstance(eval(text, dict(known)), kind)


def test_the_marker_of_typed_packages_is_shipped():
    assert (Path(ft.__file__).parent / "py.typed").exists()
