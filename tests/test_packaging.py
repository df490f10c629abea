"""What is published: the metadata, and that the sdist has what the tests read."""

import re
import subprocess
import tomllib
from pathlib import Path

import pytest

import functrans as ft

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_the_same_everywhere():
    citation = re.search(r"^version: (.*)$", (ROOT / "CITATION.cff").read_text(), re.M)
    recipe = re.search(r'^  version: "(.*)"$', (ROOT / "conda" / "recipe.yaml").read_text(), re.M)
    assert citation is not None and recipe is not None
    assert PROJECT["version"] == ft.__version__ == citation[1] == recipe[1]


def test_the_recipe_needs_what_the_package_needs():
    text = (ROOT / "conda" / "recipe.yaml").read_text()
    assert [r for r in PROJECT["dependencies"] if r.replace(">=", " >=") not in text] == []


def test_every_extra_is_justified():
    text = (ROOT / "CONTRIBUTING.md").read_text()
    names = {re.match(r"[\w-]+", r)[0] for rs in PROJECT["optional-dependencies"].values()
             for r in rs}
    names |= {re.match(r"[\w-]+", r)[0] for r in PROJECT["dependencies"]}
    assert [n for n in sorted(names) if f"`{n}" not in text] == []


def test_classifiers_name_the_versions_of_python_that_are_admitted():
    least = int(re.fullmatch(r">=3\.(\d+)", PROJECT["requires-python"])[1])
    named = sorted(int(m[1]) for c in PROJECT["classifiers"]
                   if (m := re.fullmatch(r"Programming Language :: Python :: 3\.(\d+)", c)))
    assert named == list(range(least, named[-1] + 1))


def test_the_sdist_takes_every_file_of_the_repository():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode or not listed.stdout:
        pytest.skip("not a checkout of git")
    rules = (ROOT / "MANIFEST.in").read_text()
    grafted = set(re.findall(r"^graft (\w+)$", rules, re.M)) | {"functrans"}
    included = {w for line in re.findall(r"^include (.*)$", rules, re.M) for w in line.split()}
    automatic = {"README.md", "LICENSE", "pyproject.toml", "MANIFEST.in"}
    left_out = [
        name for name in listed.stdout.splitlines()
        if name.partition("/")[0] not in grafted and not name.startswith(".")
        and name not in included | automatic
    ]
    assert left_out == []
