"""The rules of the house, read off the source."""

import ast
import functools
import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

import functrans as ft
import functrans.scipy.linalg
import functrans.scipy.ndimage
import functrans.scipy.signal
import functrans.scipy.sparse
import functrans.scipy.special
import functrans.scipy.stats  # these six for the rows that they load
from functrans._compile.ir import expand
from functrans._compile.lowering import formulas, scalars
from functrans._compile.schedule import linear, recurrences, schedule
from functrans._core.bind import Tracer
from functrans._core.methods import Methods
from functrans._core.primitive import Computes, Primitive, Rounds
from functrans._ops.declare import TABLE, General

assert functrans.scipy.linalg and functrans.scipy.special and functrans.scipy.stats
assert functrans.scipy.ndimage and functrans.scipy.signal and functrans.scipy.sparse
ROOT = Path(ft.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))
# The floor of each part of the package; what a module may import lies on its own floor or below.
GROUND = 0
FLOORS = {
    "errors": GROUND,
    "config": GROUND,
    "tree": 2,
    "_core": 1,
    "_ops": 2,
    "_kernels": 2,
    "_compile": 3,
    "_transforms": 4,
    "_inspect": 4,
    "numpy": 5,
    "scipy": 5,
    "numba": 5,
    "dask": 5,
    "testing": 6,
    "extend": 6,
    "": 6,
    "autograd": 7,
    "torch": 7,
}
# Function -> why it is longer than 80 lines.
LONG_FUNCTIONS: dict[str, str] = {}
MAX_LINES, MAX_FUNCTION = 700, 80


def relative(path):
    return path.relative_to(ROOT).as_posix()


def floor_of(module):
    """The floor of a dotted name inside the package."""
    parts = module.split(".")[1:]
    return FLOORS[parts[0] if parts and parts[0] in FLOORS else ""]


def module_of(path):
    parts = ["functrans", *path.relative_to(ROOT).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@functools.cache
def text_of(path):
    return path.read_text()


@functools.cache
def nodes_of(path):
    """Every node of the file's syntax tree."""
    return [*ast.walk(ast.parse(text_of(path)))]


def imports_of(path):
    """(imported dotted name, node, line) for every import of this package in the file."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            names = [a.name for a in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: imports are absolute"
            names = [f"{node.module}.{a.name}" for a in node.names]
        else:
            continue
        for name in names:
            if name.split(".")[0] == "functrans":
                yield name, node


def where(path, node):
    return f"{relative(path)}:{node.lineno}"


def test_imports_point_down():
    up = [
        f"{where(path, node)} imports {name} from above"
        for path in FILES
        for name, node in imports_of(path)
        if floor_of(name) > floor_of(module_of(path))
        and node.lineno not in _type_checking_nodes(path)
    ]
    assert not up


# Circles of imports, types and lazy ones included, that are still to be cut; none may be added.
CIRCLES = {
    frozenset({"_core.bind", "_core.methods", "_core.primitive"}),
    frozenset({
        "torch._graph.graph", "torch._graph.levels", "torch._graph.nodes", "torch._graph.observed",
        "torch._graph.watching", "torch._tensors.facts", "torch._tensors.tensor",
    }),
}


def circles(arrows):
    """The sets of nodes that reach each other along ``arrows``, a dict of sets."""
    def reached(start):
        found, waiting = set(), [start]
        while waiting:
            for node in arrows[waiting.pop()] - found:
                found.add(node)
                waiting.append(node)
        return found

    reach = {node: reached(node) for node in arrows}
    return {frozenset(other for other in reach[node] if node in reach[other])
            for node in arrows if node in reach[node]}


def test_circles_are_found():
    arrows = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set(), "e": {"f"}, "f": {"e", "a"}}
    assert circles(arrows) == {frozenset("bc"), frozenset("ef")}


def test_imports_have_no_circle():
    paths = {module_of(path): path for path in FILES}
    arrows = {}
    for module, path in paths.items():
        names = {name if name in paths else name.rpartition(".")[0]
                 for name, _ in imports_of(path)}
        arrows[module] = (names & paths.keys()) - {module}
    found = {frozenset(m.removeprefix("functrans.") for m in c) for c in circles(arrows)}
    assert found == CIRCLES


@functools.cache
def _type_checking_nodes(path):
    lines = set()
    for node in nodes_of(path):
        if (
            isinstance(node, ast.If)
            and isinstance(node.test, ast.Name)
            and node.test.id == "TYPE_CHECKING"
        ):
            lines.update(
                n.lineno for n in ast.walk(node) if isinstance(n, ast.Import | ast.ImportFrom)
            )
    return lines


def test_an_import_inside_a_function_is_lazy_and_says_why():
    bad = [
        where(path, n)
        for path in FILES
        for f in nodes_of(path)
        if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for n in ast.walk(f)
        if isinstance(n, ast.Import | ast.ImportFrom)
        and "# lazy:" not in text_of(path).splitlines()[n.lineno - 1]
    ]
    assert not bad, f"move to the top, or say '# lazy: why': {bad}"


def test_files_are_short():
    lines = {relative(path): len(text_of(path).splitlines()) for path in FILES}
    assert not {name: n for name, n in lines.items() if n >= MAX_LINES}


def test_functions_are_short():
    long = [
        f"{where(path, f)} {f.name} ({f.end_lineno - f.lineno + 1} lines)"
        for path in FILES
        for f in nodes_of(path)
        if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef)
        and f.end_lineno - f.lineno >= MAX_FUNCTION
        and f"{module_of(path)}.{f.name}" not in LONG_FUNCTIONS
    ]
    assert not long


def files_with(pattern, flags=0, unless=lambda name: False):
    """The files in which the pattern is found."""
    return [
        relative(path) for path in FILES
        if not unless(relative(path)) and re.search(pattern, text_of(path), flags)
    ]


# ---- types

# Of what functions are annotated to return, the percentage that is Any: it may only sink.
UNKNOWN = {
    "_compile": 2, "_core": 20, "_debug": 9, "_export": 10, "_inspect": 0, "_interop": 16,
    "_kernels": 9, "_ops": 9, "_patch": 24, "_profile": 0, "_transforms": 13, "autograd": 47,
    "dask": 16, "functrans": 9, "numba": 18, "numpy": 19, "scipy": 11, "torch": 8,
}


@pytest.mark.parametrize("part", UNKNOWN)
def test_it_is_known_what_functions_return(part):
    kinds = [
        ast.unparse(f.returns)
        for path in FILES
        if part == path.relative_to(ROOT.parent).parts[path.parent != ROOT]
        for f in nodes_of(path)
        if isinstance(f, ast.FunctionDef | ast.AsyncFunctionDef) and f.returns is not None
    ]
    assert kinds and kinds.count("Any") <= UNKNOWN[part] / 100 * len(kinds)


def test_each_part_says_how_many_results_are_of_any_type():
    parts = {path.relative_to(ROOT.parent).parts[path.parent != ROOT] for path in FILES}
    assert parts == UNKNOWN.keys()


# What libraries ask traced values for by these names, which nobody writes.
PROTOCOLS = {"__array_namespace__", "__copy__", "__deepcopy__", "__dlpack__",
             "__dlpack_device__", "__reduce_ex__", "_numba_type_", "_value", "to_device"}


def test_type_checkers_know_the_methods_that_traced_values_have():
    body = ast.parse(inspect.getsource(Tracer)).body[0].body
    own = {f.name for f in body if isinstance(f, ast.FunctionDef)}
    known, names = [
        {n for n, x in vars(k).items() if callable(x) or isinstance(x, property)}
        for k in (Methods, Tracer)
    ]
    assert known == names - own - PROTOCOLS


@pytest.mark.parametrize("name", [
    n for n, x in vars(Methods).items() if inspect.isfunction(x) and not n.startswith("__")])
def test_type_checkers_know_what_the_methods_of_traced_values_take(name):
    (_, *known), (_, *taken) = [list(inspect.signature(getattr(kind, name)).parameters.values())
                                for kind in (Methods, Tracer)]
    if any(p.kind is p.VAR_POSITIONAL for p in known):
        return
    first = [p.name for p in known if p.kind is p.POSITIONAL_OR_KEYWORD]
    names = [p.name for p in taken if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert names[:len(first)] == first
    more = {p.name for p in taken} - {*first, "subok"}
    assert bool(more) == any(p.kind is p.VAR_KEYWORD for p in known)


# Where PyTorch itself is named, as another library.
BRIDGES = {"__init__.py", "interop.py", "_interop"}


def test_nothing_below_the_shim_names_it():
    def excepted(name):
        return "torch" in name.split("/") or name.split("/")[0] in BRIDGES

    assert not files_with("torch", re.IGNORECASE, unless=excepted)


# Modules of names that users import; the exceptions are not functions or classes of ours.
PUBLIC = [ft, ft.numpy, ft.numpy.emath, ft.numpy.fft, ft.numpy.linalg, ft.errors, ft.tree]


@pytest.mark.parametrize("module", PUBLIC, ids=lambda m: m.__name__)
def test_every_public_name_has_a_docstring(module):
    own = [
        n
        for n in dir(module)
        if not n.startswith("_")
        and getattr(getattr(module, n), "__module__", "") == module.__name__
    ]
    names = getattr(module, "__all__", own)
    bare = [
        n
        for n in names
        if callable(x := getattr(module, n))
        and getattr(x, "__module__", "").startswith("functrans")
        and not inspect.getdoc(x)
    ]
    assert not bare


# private by name, and published: torch's own, and what the shim's modules are made of
PUBLISHED = (r"torch/(_C/|_six|_names|utils/_pytree)|_patch/names|"
             r"scipy/s\w+/(linalg|distance|transform)")


def test_private_modules_publish_no_names():
    def published(name):
        private = re.search(r"(^|/)_[a-z]|^(numba|scipy/\w+)/(?!_)\w+\.py", name)
        return re.match(PUBLISHED, name) or not private

    assert not files_with("__all__", unless=published)


@pytest.mark.parametrize("module", [ft, ft.numpy], ids=lambda m: m.__name__)
def test_all_is_what_is_public(module):
    assert len(set(module.__all__)) == len(module.__all__)
    missing = [n for n in module.__all__ if not hasattr(module, n)]
    assert not missing
    if module is ft:
        assert module.__all__ == sorted(module.__all__)


def test_tree_of_errors_is_the_one_that_the_docstring_draws():
    drawn = re.findall(r"\+-- (\w+)\s+\((\w+)\)", ft.errors.__doc__)
    real = [
        (name, next(b.__name__ for b in cls.__bases__ if b is not ft.errors.FunctransError))
        for name, cls in vars(ft.errors).items()
        if inspect.isclass(cls)
        and issubclass(cls, ft.errors.FunctransError)
        and cls is not ft.errors.FunctransError
    ]
    assert sorted(drawn) == sorted(real)


def test_every_error_class_is_raised_somewhere():
    source = "\n".join(p.read_text() for p in FILES if p.name != "errors.py")
    unused = [name for name in re.findall(r"\+-- (\w+)", ft.errors.__doc__) if name not in source]
    assert not unused


LOCKS = {
    "_core/locks.py": "the home of locks",
    "_kernels/large.py": "a lock of one call, whose threads end with it",
}


def test_locks_are_of_the_kind_that_outlives_a_fork():
    """``functools.cached_property`` has a lock in Python 3.11; ``lazy`` does the same without."""
    assert not files_with(r"threading\.R?Lock|cached_property", unless=LOCKS.__contains__)


def test_sizes_are_asked_for_where_they_are_used():
    """So that changing one in ``sizes`` changes it everywhere."""
    assert not files_with(r"from functrans\._kernels\.sizes import")


def test_rows_are_what_their_declaration_says():
    """No module changes the rows of another."""
    assert not files_with(r"(?<!self)\.(impl|jvp_rule|vjp_rule|facts|abstract|at_kink) = ")


# ---- what compiled code does about each row

TREATMENTS = {
    "views": schedule.VIEWS,
    "joins": schedule.JOINS,
    "loops": linear.LOOPS,
    "lapack": linear.LAPACK,
    "running": recurrences.ROWS,
    "expanded": expand.RULES,
    "lowerings": scalars.LOWERINGS,
    "complex": formulas.COMPLEX,
}
OF_SCHEDULES = {scalars.copy, scalars.gather, scalars.inside}
# Rows that are steps of NumPy's between the compiled loops, and why.
HOSTED = {
    **dict.fromkeys(["argmax", "argmin", "bitwise_count", "cross", "exponent", "gcd", "last_write",
                     "lcm", "ldexp", "left_shift", "nextafter", "overlap_add", "right_shift",
                     "root", "spacing", "windows"],
                    "nobody has asked for its loop"),
    **dict.fromkeys(["argpartition", "argsort", "lexsort", "ranked", "searchsorted", "tied_mean",
                     "tied_spread"], "order is found by NumPy"),
    **dict.fromkeys(["cofactor_slope", "eig", "lu", "pinv", "qr", "roots",
                     "svd", "vectors_if"], "calls of LAPACK are written for fewer rows"),
    **dict.fromkeys(["bessel_i", "sinc_nth"], "a series of as many terms as the numbers need"),
    **dict.fromkeys(["fft", "irfft", "rfft"], "NumPy has the fast algorithm"),
    **dict.fromkeys([f"special.spherical_{n}" for n in ("jn", "yn", "in", "kn")],
                    "SciPy reflects negative operands in Python"),
    **dict.fromkeys([f"special.{n}_{f}" for n in ("skewnorm", "vonmises") for f in ("cdf", "ppf")],
                    "SciPy's distributions compute it in Python"),
    **dict.fromkeys([f"special.{n}" for n in ("lambertw", "wofz", "hankel1", "hankel2")],
                    "SciPy offers it to Cython with complex results alone"),
    **dict.fromkeys([f"special.{n}" for n in ("amplitude", "jacobi_sn", "jacobi_cn", "jacobi_dn")],
                    "a C function of two operands with four outputs is not called yet"),
    "special.riemann_zeta": "SciPy does not offer it to Cython",
    **dict.fromkeys([f"linalg.{n}" for n in ("expm", "logm", "sqrtm", "sylvester",
                                             "fractional_matrix_power")],
                    "SciPy's algorithms are in Python"),
    **dict.fromkeys([f"sparse.{n}" for n in ("product", "constant_product", "sampled",
                                                     "solve")],
                    "SciPy has the loops, and SuperLU"),
    **dict.fromkeys(["fft.trigonometric", "signal.convolve_nd", "signal.lfilter",
                     "ndimage.spline_filter", "toeplitz.solve"],
                    "NumPy and SciPy have the fast algorithm"),
    "norm2": "how it is scaled depends on the numbers",
}


# Rows with two ways into compiled code, and which of them is taken when.
TWO_WAYS = {
    "power": "the library's function, but for whole powers",
    "float_power": "the library's function, but for whole powers",
    "getitem": "a view where no array is among the indices", "put_add": "likewise",
    "tanh": "of few entries the library's function, of many one that shares its exponential",
    "sech2": "likewise",
    "sum": "of a few short rows it is written out", "det": "of small matrices it is written out",
}


def test_each_row_has_one_implementation_of_each_mode():
    ours = [row for row in TABLE.values() if row.ours]
    for row in ours:
        for mode in ("jvp", "vjp", "batch", "saves"):
            homes = [k for k in type(row).__mro__ if k is not Primitive and mode in vars(k)]
            assert len(homes) == 1, (row, mode)
        assert callable(row.impl), row
        assert callable(row.abstract), row
        if type(row) is General:
            rules = row.jvp_rule, row.vjp_rule
            assert any(rules) == row.differentiable, row
    tables = [t for name, t in TREATMENTS.items() if name != "complex"]
    for row in ours:
        f = row.facts
        named = [f.libm or f.intrinsic or f.cython or f.formula, f.reduces or f.scans, f.indexing]
        ways = sum([row in table for table in tables]) + sum(map(bool, named))
        assert ways < 2 or (row.name in TWO_WAYS and ways == 2), row


@pytest.mark.parametrize("table", TREATMENTS)
def test_what_compiled_code_treats_is_a_row_of_the_table(table):
    strangers = [r for r in TREATMENTS[table] if r not in OF_SCHEDULES and TABLE[r.name] is not r]
    assert not strangers


def test_a_row_without_native_code_says_why():
    ours = [row for row in TABLE.values() if row.ours]
    assert {row.name for row in ours if not schedule.is_known(row)} == set(HOSTED)


@pytest.mark.parametrize("row", [row for row in TABLE.values() if row.ours], ids=str)
def test_the_facts_of_a_row_agree(row):
    f = row.facts
    assert f.computes in get_args(Computes) and f.rounds in get_args(Rounds)
    assert (f.reduces is None) == (f.neutral is None)
    assert f.indexing in ("", "reads", "sets", "adds")
    assert all(TABLE[r.name] is r for r in (f.reduces, f.scans) if r is not None)
    assert not (f.commutes and len(row.actions) != 2)


def test_ops_are_known_by_row_not_by_name():
    # a row that is renamed is then an ImportError, and one from outside is taken for no other
    asked = r"(prim|row)\.name(\]| ==| !=| in | not in |\.startswith)|TABLE\[\""
    parts = "_compile", "_transforms", "_debug", "_profile"
    assert not files_with(asked, unless=lambda name: not name.startswith(parts))


def test_tests_draw_from_generators_that_start_anew():
    shared = r"(?m)^RNG = (np\.|default_rng)"
    files = Path(__file__).parent.rglob("*.py")
    assert not [path.name for path in files if re.search(shared, text_of(path))]


# Participles that name functions: of their verbs there is another name nearby.
PARTICIPLES = set(re.findall(r"\w+", """
    __reversed__ _drawn _overlapped _ragged _selected _stacked _typed _undetermined
    _unfactored _widened accepted added aligned asked batched called centred checked chosen
    closed combined compiled concatenated counted deprecated drawn entered evaluated explained
    extended factorized filled fitted followed gathered hooked indexed lifted listed located
    looped lost masked named normalised opened ordered packed pickled placed polished prepared
    published pushed recorded reduced refused resized rolled scaled settled shown stacked
    staged structured summed tied tiled typed unsupported warned weighted whitened widened
    windowed wrapped written
"""))
IRREGULAR = set(re.findall(r"\w+", """
    begun bent brought built caught chosen done drawn driven found frozen given gone grown held
    hidden kept known laid led left lent lost made meant met overwritten rewritten seen sent shown
    taken taught told undone wound written
"""))
VERBS = frozenset({"embed", "feed", "need", "seed", "speed"})


@pytest.mark.parametrize("path", FILES, ids=relative)
def test_functions_are_named_by_verbs_or_nouns_not_by_bare_participles(path):
    names = {node.name for node in ast.parse(text_of(path)).body
             if isinstance(node, ast.FunctionDef) and not node.decorator_list}
    bare = {n for n in names if re.fullmatch("_?[a-z]+ed", n) or n.strip("_") in IRREGULAR}
    assert {n for n in bare if n.strip("_") not in VERBS} <= PARTICIPLES
