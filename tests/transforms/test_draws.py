"""Random numbers drawn by plain NumPy in a function of which one run serves for many: refused."""

import collections
import dataclasses
import functools
import importlib
import itertools
import random
import secrets
import sys
import threading
import types
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar

import numpy as np
import pytest
import scipy.stats
from numpy.random import normal
from numpy.testing import assert_array_equal

import functrans as ft
from functrans._transforms.matrices import batches
from functrans._transforms.staging.generators import state_of
from functrans.errors import UnsupportedError

X = np.arange(1.0, 4.0)
GENERATOR = np.random.default_rng(0)
OLD = np.random.RandomState(0)
PYTHONS = random.Random(0)
DRAW = GENERATOR.normal
PARTIAL = functools.partial(GENERATOR.normal, 0.0, 1.0)
HELD = types.SimpleNamespace(rng=GENERATOR)
LOCAL = threading.local()
LOCAL.rng = GENERATOR
CONTEXT = ContextVar("CONTEXT", default=GENERATOR)
CELLS = np.array([GENERATOR, None], dtype=object)
CYCLE = itertools.cycle([GENERATOR])
TABLE = {"noise": [GENERATOR.normal]}


def noise():
    return GENERATOR.normal()


def noise_of_noise():
    return noise()


def forever():
    while True:
        yield noise()


class Model:
    def __init__(self):
        self.rng = np.random.default_rng(0)

    def noise(self):
        return self.rng.normal()

    def __call__(self, x):
        return x + self.noise()

    @property
    def level(self):
        return self.noise()


@dataclasses.dataclass(slots=True)
class Slotted:
    rng: np.random.Generator


def decorated(f):
    @functools.wraps(f)
    def wrapper(x):
        return f(x) + GENERATOR.normal()

    return wrapper


MODEL, SLOTTED, NOISES = Model(), Slotted(GENERATOR), forever()
FUNCTIONS = {
    "named": lambda x: x + GENERATOR.normal(),
    "helper": lambda x: x + noise(),
    "helper of a helper": lambda x: x + noise_of_noise(),
    "method in a variable": lambda x: x + DRAW(),
    "partial": lambda x: x + PARTIAL(),
    "imported": lambda x: x + normal(),
    "np.random": lambda x: x + np.random.normal(),
    "one of a pair": lambda x: x + np.random.standard_normal(),
    "RandomState": lambda x: x + OLD.rand(),
    "random": lambda x: x + random.gauss(0, 1),
    "Random": lambda x: x + PYTHONS.random(),
    "object": MODEL,
    "method": MODEL.__call__,
    "attribute": lambda x: x + MODEL.noise(),
    "property": lambda x: x + MODEL.level,
    "slot": lambda x: x + SLOTTED.rng.normal(),
    "namespace": lambda x: x + HELD.rng.normal(),
    "of a thread": lambda x: x + LOCAL.rng.normal(),
    "of a context": lambda x: x + CONTEXT.get().normal(),
    "in an array": lambda x: x + CELLS[0].normal(),
    "in a container": lambda x: x + TABLE["noise"][0](),
    "in a deque": lambda x, held=collections.deque([GENERATOR]): x + held[0].normal(),
    "in an iterator": lambda x: x + next(CYCLE).normal(),
    "generator": lambda x: x + next(NOISES),
    "decorator": decorated(lambda x: 2 * x),
    "default": lambda x, rng=GENERATOR: x + rng.normal(),
    "rvs": lambda x: x + scipy.stats.norm.rvs(),
    "spawned": lambda x: x + GENERATOR.spawn(1)[0].normal(),
    "shuffled": lambda x: x * (GENERATOR.shuffle(np.arange(3)) or 2.0),
    "scan": lambda x: ft.scan(lambda c, _: (c + noise(), None), x, None, length=2)[0],
    "gradient": lambda x: ft.grad(lambda y: y * noise())(x),
    "checkpoint": ft.checkpoint(lambda x: x * noise()),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("transform", [ft.vmap, lambda f: ft.vmap(ft.grad(f))],
                         ids=["vmap", "vmap of grad"])
def test_one_draw_for_all_slices_is_refused(transform, name):
    f = transform(FUNCTIONS[name])
    for _ in range(2):  # the second of a pair leaves the state of bits as it is
        with pytest.raises(UnsupportedError, match=r"drew random numbers .* same for every slice"):
            f(X)


@pytest.mark.parametrize("name", ["in an iterator", "generator", "rvs", "spawned"])
def test_one_draw_for_all_calls_is_refused(name):
    with pytest.raises(UnsupportedError, match="drew random numbers"):
        ft.jit(FUNCTIONS[name])(1.0)


@pytest.mark.parametrize("f, args, axes", [
    (lambda x, rng: x + rng.normal(), (X, GENERATOR), (0, None)),
    (lambda x, noise: x + noise(), (X, GENERATOR.normal), (0, None)),
    (lambda x, model: x + model.noise(), (X, MODEL), (0, None)),
    (lambda d: d["x"] + d["rng"].normal(), ({"x": X, "rng": GENERATOR},), ({"x": 0, "rng": None},)),
], ids=["generator", "method", "model", "in a container"])
def test_generators_that_are_passed_are_seen(f, args, axes):
    with pytest.raises(UnsupportedError, match="drew random numbers"):
        ft.vmap(f, in_axes=axes)(*args)


def test_the_message_names_the_generator_and_the_line():
    with pytest.raises(UnsupportedError, match=r"test_draws\.py.*attribute `rng` of Model"):
        ft.vmap(lambda x: x + MODEL.noise())(X)


@pytest.mark.parametrize("transform", [
    lambda f: ft.vmap(f)(X), lambda f: ft.vmap(ft.grad(f))(X), lambda f: ft.jit(f)(1.0),
], ids=["vmap", "vmap of grad", "jit"])
def test_a_generator_that_is_made_inside_and_kept_is_refused(transform):
    model = Model()
    model.rng = None

    def f(x):
        if model.rng is None:
            model.rng = np.random.default_rng(0)
        return x * model.noise()

    with pytest.raises(UnsupportedError, match=r"made a generator .* kept it .*attribute `rng`"):
        transform(f)


# What a mapped function led to when it was made, and what the same names lead to now.
CHANGES = {
    "global": "namespace['helper'] = drawing",
    "entry": "namespace['held']['f'] = drawing",
    "appended": "namespace['several'].append(drawing)",
    "attribute": "namespace['object'].f = drawing",
    "new attribute": "namespace['object'].g = drawing",
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_after_a_function_was_mapped_is_seen(change):
    namespace = {
        "helper": float, "held": {"f": float}, "several": [float],
        "object": types.SimpleNamespace(f=float),
    }
    exec(
        "def f(x):\n"
        "    h = getattr(object, 'g', object.f)\n"
        "    return x + helper() + held['f']() + several[-1]() + h()\n", namespace,
    )
    mapped = ft.vmap(namespace["f"])
    assert_array_equal(mapped(X), X)
    exec(change, {"namespace": namespace, "drawing": noise})
    with pytest.raises(UnsupportedError, match="drew random numbers"):
        mapped(X)


def test_a_variable_of_a_closure_that_changes_is_seen():
    draw = float
    mapped = ft.vmap(lambda x: x + draw())
    assert_array_equal(mapped(X), X)
    draw = noise
    with pytest.raises(UnsupportedError, match="drew random numbers"):
        mapped(X)


def test_what_is_defined_after_a_function_was_mapped_is_seen():
    namespace = {}
    exec("def f(x): return x + later()", namespace)
    mapped = ft.vmap(namespace["f"])
    namespace["later"] = noise
    with pytest.raises(UnsupportedError, match="drew random numbers"):
        mapped(X)


def test_what_a_context_variable_stands_for_later_is_seen():
    variable = ContextVar("variable", default=float)
    mapped = ft.vmap(lambda x: x + variable.get()())
    assert_array_equal(mapped(X), X)
    token = variable.set(noise)
    with pytest.raises(UnsupportedError, match="drew random numbers"):
        mapped(X)
    variable.reset(token)


def test_reading_a_generator_is_no_draw():
    def f(x):
        return x * len(TABLE) if MODEL.rng is not None and random.SystemRandom() else x

    assert_array_equal(ft.vmap(f)(X), X)


# ---- generators to which no name leads

SPACE = {"rng": np.random.default_rng(0)}
LIBRARY = """
import random
import numpy as np
_rng = np.random.default_rng(0)
held = {"rng": np.random.RandomState(0)}
class Noise:
    rng = np.random.default_rng(0)
    def __init__(self): self._own = np.random.default_rng(0)
    def of_class(self): return self.rng.normal()
    def own(self): return self._own.normal()
noise = Noise()
def of_module(): return _rng.normal()
def of_dict(): return held["rng"].normal()
def of_object(): return noise.own()
def of_numpy(): return np.random.normal()
def of_python(): return random.gauss(0, 1)
"""


@pytest.fixture(scope="module")
def library():
    """A module as if it were installed, whose code is not followed."""
    module = types.ModuleType("library_that_draws")
    module.__file__ = "/site-packages/library_that_draws.py"
    exec(LIBRARY, vars(module))
    sys.modules[module.__name__] = module
    yield module
    del sys.modules[module.__name__]


ONCE = {
    "vmap": lambda f: ft.vmap(f)(X),
    "jit": lambda f: ft.jit(f)(1.0),
    "make_program": lambda f: ft.make_program(f)(1.0),
    "sparse": lambda f: ft.sparse_jacobian(lambda x: f(x) * x)(X),
    "matrix": lambda f: ft.jacfwd(lambda x: f(x) * x, chunk_size=2)(X),
}


@pytest.fixture(params=ONCE.values(), ids=ONCE)
def once(request):
    return request.param


@pytest.mark.parametrize("name", ["of_module", "of_dict", "of_object", "of_numpy", "of_python"])
def test_draws_of_a_library_are_refused(library, once, name):
    f = getattr(library, name)
    for _ in range(2):  # the second of a pair, too
        with pytest.raises(UnsupportedError, match=r"drew random numbers from .*random|library"):
            once(lambda x: x + f())


@pytest.mark.parametrize("name", ["of_class", "own"])
def test_draws_of_a_librarys_object_are_refused(library, once, name):
    made = library.Noise()
    with pytest.raises(UnsupportedError, match="drew random numbers from"):
        once(lambda x: x + getattr(made, name)())


@pytest.mark.parametrize("f", [
    lambda x: x + globals()["SPACE"]["rng"].normal(),
    lambda x: x + eval("SPACE['rng'].normal()"),
    lambda x: x + vars(sys.modules[__name__])["GENERATOR"].normal(),
    lambda x: x + sys.modules[__name__].GENERATOR.normal(),
    lambda x: x + importlib.import_module("random").random(),
], ids=["globals", "eval", "vars", "modules", "import_module"])
def test_generators_named_by_texts_are_seen(once, f):
    with pytest.raises(UnsupportedError, match="drew random numbers from"):
        once(f)


def test_a_library_that_draws_for_itself_is_let_be(library):
    """Names that are drawn of the system, and draws before and after a run, are no concern."""
    names = ft.vmap(lambda x: x + len(uuid.uuid4().hex))(X)
    assert_array_equal(names, X + 32)
    library.of_module()
    assert_array_equal(ft.vmap(lambda x: x + len(library.held))(X), X + 1)


@pytest.mark.parametrize("make", [
    np.random.default_rng, np.random.RandomState, random.Random, np.random.MT19937,
    np.random.Philox, np.random.SFC64, np.random.PCG64DXSM,
    lambda seed: np.random.RandomState(np.random.PCG64(seed)),
], ids=lambda make: make.__name__)
def test_a_state_differs_after_each_draw_and_only_then(make):
    g = make(0)
    before = state_of(g)
    assert state_of(g) == before
    draws = {"random_raw", "random", "standard_normal", "gauss"} & set(dir(g))
    for name in sorted(draws):
        for _ in range(2):
            getattr(g, name)(*[0.0, 1.0][: 2 * (name == "gauss")])
            assert state_of(g) != before
            before = state_of(g)


@pytest.mark.parametrize("transform", [lambda f: ft.jit(f)(1.0), lambda f: ft.vmap(f)(X)],
                         ids=["jit", "vmap"])
@pytest.mark.parametrize("draw", [
    lambda x: x + random.Random().random(), lambda x: x * random.Random().uniform(1, 2),
    lambda x: x + random.SystemRandom().random(), lambda x: x + secrets.randbelow(5),
    lambda x: x + max([*map(np.random.default_rng, [None])], key=id).normal(),
], ids=["Random", "uniform", "SystemRandom", "secrets", "not by a call"])
def test_a_generator_without_a_seed_is_refused(transform, draw):
    with pytest.raises(UnsupportedError):
        transform(draw)


def test_what_draws_from_the_system_has_no_state():
    assert state_of(random.SystemRandom()) is None


# ---- more than one run of the function for one result


def squares(x):
    return np.sum(GENERATOR.random(x.shape) * x**2)


def products(x):
    return GENERATOR.random(x.shape) * x**2


@pytest.mark.parametrize("matrix", [
    lambda: ft.hessian(squares, chunk_size=2)(X), lambda: ft.hessian(squares)(np.ones(300)),
    lambda: ft.jacfwd(products, chunk_size=2)(X),
    lambda: ft.hessian_diagonal(squares)(np.ones(300)), lambda: ft.laplacian(squares)(np.ones(300)),
], ids=["hessian", "large hessian", "jacfwd", "diagonal", "laplacian"])
def test_a_matrix_that_takes_several_runs_does_not_mix_draws(matrix, monkeypatch):
    monkeypatch.setattr(batches, "LARGEST", 2**12)
    monkeypatch.setattr(batches, "WIDEST", 2**12)
    with pytest.raises(UnsupportedError, match=r"drew random .* others for each batch"):
        matrix()


def test_workers_do_not_draw():
    with ThreadPoolExecutor(2) as executor:
        for f in (ft.jacobian(products, chunk_size=2, executor=executor),
                  ft.hessian(squares, chunk_size=2, executor=executor)):
            with pytest.raises(UnsupportedError, match=r"others for each batch"):
                f(X)


def test_shards_do_not_draw():
    with pytest.raises(UnsupportedError, match=r"drew random numbers .* for each shard"):
        ft.parallel.grad(lambda w, x: np.sum(w * x * noise()), chunk_size=2)(1.0, X)


def test_matrices_of_one_run_are_of_one_draw():
    assert np.all(np.diag(ft.hessian(squares)(X)) > 0)
    jacobian = ft.jacobian(lambda x: noise() * x, chunk_size=1)(X)
    assert len(set(np.diag(jacobian))) == 1
