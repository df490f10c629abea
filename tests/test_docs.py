"""The documentation is run: every Python block of docs/ and of the README."""

import contextlib
import doctest
import importlib
import io
import re
import runpy
from pathlib import Path

import pytest

import functrans as ft
import functrans.scipy.special  # before a page loads it, whose changes are undone
from functrans._ops.declare import TABLE, General
from functrans.numpy.protocols import FUNCTIONS, UFUNCS
from tests import messages
from tests.claims import NUMBERS

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
IDS = [p.relative_to(ROOT).as_posix().removeprefix("docs/") for p in PAGES]
REFERENCE = runpy.run_path(str(ROOT / "docs" / "reference.py"))
MADE = runpy.run_path(str(ROOT / "docs" / "generated.py"))["made"]()
OF_THE_PACKAGE = list(TABLE)  # now, before any test declares an op of its own
BLOCK = re.compile(r"^```python\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
OUTPUT = re.compile(r"\n(?:    .*\n|\n)+")


@pytest.fixture
def outside():
    """Ops that a page declares are gone after it."""
    kept = [(d, dict(d)) for d in (TABLE, UFUNCS, FUNCTIONS)]
    yield
    for d, before in kept:
        d.clear()
        d.update(before)


def blocks(text):
    """(line, source, text after it) of each Python block."""
    for m in BLOCK.finditer(text):
        yield text.count("\n", 0, m.start()) + 1, m[1], text[m.end() :]


def run_session(source, names, page, line):
    """A block of prompts: what it prints is compared line by line."""
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    runner = doctest.DocTestRunner(optionflags=options)
    test = doctest.DocTestParser().get_doctest(source, names, page.name, str(page), line)
    report = io.StringIO()
    runner.run(test, out=report.write, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, report.getvalue()


def run_script(source, names, page, line, after):
    """A block without prompts; an indented block below it is what it prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * line + source, str(page), "exec"), names)
    shown = OUTPUT.match(after)
    if printed.getvalue() or (shown and shown[0].strip()):
        assert shown, f"{page.name}:{line} prints, but the page does not show it"
        expected = [text[4:] for text in shown[0].strip("\n").splitlines()]
        assert printed.getvalue().splitlines() == expected


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_page_says_what_happens(page, outside):
    names = {"__name__": "__main__"}
    for line, source, after in blocks(page.read_text()):
        if ">>> " in source:
            run_session(source, names, page, line)
        else:
            run_script(source, names, page, line, after)


@pytest.mark.parametrize(("page", "sentence", "number"), NUMBERS, ids=[n[1] for n in NUMBERS])
def test_a_number_that_a_page_names_is_that_of_the_code(page, sentence, number):
    text = " ".join((ROOT / "docs" / f"{page}.md").read_text().split())
    assert sentence.format(number).replace("e-0", "e-") in text.replace("e-0", "e-")


def prose_of(page):
    """A page without its code."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    return re.sub(r"`([^`\n]*)`", lambda m: re.sub(r"[][()]", "", m[0]), text)


def anchors_of(page):
    """The anchors of its headings, as sites of repositories and the site of the docs make them."""
    headings = re.findall(r"^#+ (.*)$", prose_of(page), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_links_of_a_page_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)]+)\)", prose_of(page))
    for link in links:
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), link
        assert not anchor or anchor in anchors_of(target), link


PEERS = {"pytorch", "coverage"}  # pages on which names are another library's
NAMESPACES = {"ft": "functrans", "fnp": "functrans.numpy", "fd": "functrans.dask",
              "torch": "functrans.torch", "np": "numpy", "functrans": "functrans"}


def is_there(name):
    """Whether a dotted name leads to something, as attributes or as modules."""
    first, *rest = name.split(".")
    module = NAMESPACES[first]
    found = importlib.import_module(module)
    for part in rest:
        module = f"{module}.{part}"
        if not hasattr(found, part):
            try:
                found = importlib.import_module(module)
            except ImportError:
                return False
        else:
            found = getattr(found, part)
    return True


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_names_that_a_page_mentions_exist(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.M | re.S)
    named = {m.rstrip(".") for m in re.findall(rf"`((?:{'|'.join(NAMESPACES)})\.[\w.]+)", text)}
    examples = {n for n in named if n.endswith((".f", ".py"))}  # of any function, and of files
    theirs = {"np.make_diagonal"} if page.stem == "autograd" else set()
    theirs |= {n for n in named if n.startswith("torch.")} if page.stem in PEERS else set()
    assert [n for n in sorted(named - examples - theirs) if not is_there(n)] == []


GUIDES = ["CONTRIBUTING.md", *[f"docs/{name}.md" for name in (
    "design", "one_call", "how_jit_works", "adding_an_op", "adding_a_transform")]]


@pytest.mark.parametrize("page", GUIDES)
def test_files_that_a_guide_names_exist(page):
    there = [p.as_posix() for folder in ("functrans", "tests", "docs", "examples", "benchmarks")
             for p in (ROOT / folder).rglob("*.*")]
    named = re.findall(r"`([\w/]+\.(?:py|json))`", (ROOT / page).read_text())
    assert named
    assert [n for n in named if not any(f"/{p}".endswith(f"/{n}") for p in there)] == []


def test_the_design_is_read_in_one_sitting():
    assert len((ROOT / "docs" / "design.md").read_text().splitlines()) <= 400


def test_a_message_is_found_by_a_phrase_that_runs_over_lines():
    source = 'raise ValueError(\n    f"{who}: the shape of "\n    f"{x!r} is not known"\n)'
    assert list(messages.texts(source)) == [(2, "{}: the shape of {} is not known")]
    phrase = "would depend on the values of {}, which are not known: under vmap"
    (found,) = messages.find(phrase, messages.PACKAGE.glob("numpy/index*.py"))
    assert found.startswith("functrans/numpy/indexing.py:")


def test_the_start_page_names_everything_public():
    text = (ROOT / "docs" / "index.md").read_text()
    assert [n for n in ft.__all__ if not re.search(rf"\b{n}\b", text)] == []


@pytest.mark.parametrize("path", MADE)
def test_what_is_generated_is_not_stale(path):
    assert MADE[path]() == (ROOT / path).read_text(), f"{path} is stale: run make generated"


def test_the_lists_of_public_names_are_made_of_the_imports():
    lists = runpy.run_path(str(ROOT / "docs" / "public_names.py"))
    assert lists["_all"](["b", "a"]) == '__all__ = [\n    "a", "b",\n]\n'
    assert lists["_lazy"]({"x.y": ["b"]}) == '_LAZY = {\n    "x.y": ("b",),\n}\n'


def test_figures_of_the_readme_stand_where_the_pages_numbers_go():
    filled = runpy.run_path(str(ROOT / "docs" / "figures.py"))["_filled"]
    assert filled("of 1 calls 22 are right", r"of (\d+) calls (\d+)", ["30", "4"]) == (
        "of 30 calls 4 are right"
    )
    with pytest.raises(ValueError, match="not enough values"):
        filled("nothing", r"of (\d+)", ["1"])


def test_the_table_of_ops_says_how_a_mode_without_a_rule_is_had():
    def row(**rules):
        return General("row", abs, **{"jvp": None, "vjp": None, "batch": None, "saves": ""} | rules)

    assert REFERENCE["modes"](row()) == "vmap: a loop"
    assert REFERENCE["modes"](row(jvp=abs, batch=abs)) == "reverse: jvp transposed"
    assert REFERENCE["modes"](row(vjp=abs, batch=abs)) == "forward: vjp transposed"
    assert REFERENCE["modes"](TABLE["sin"]) == REFERENCE["modes"](TABLE["svd"]) == ""
    assert [REFERENCE["native"](TABLE[n]) for n in ("sin", "sum", "svd")] == [
        "native", "native", "host"
    ]


def test_the_table_of_ops_counts_what_a_rule_costs():
    page = (ROOT / "docs" / "ops.md").read_text()
    row = next(line for line in page.splitlines() if line.startswith("| `cbrt` "))
    assert "| `over(g, 3 * (y * y))` | y | 3 | native | nonzero, singular |" in row


def test_the_table_of_ops_has_every_row():
    paths = (ROOT / "functrans" / "_ops").rglob("*.py")
    named = [name for path in paths for name, _ in REFERENCE["declarations"](path)]
    assert sorted(named) == sorted(set(named))
    assert sorted(OF_THE_PACKAGE) == sorted(named)
