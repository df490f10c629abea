"""A compiled function sees the world as it is: drawn programs, of which one thing changes.

The programs read their world in the ways of ``tests/world.py``, one or several of them, at several
places. What plain Python reads decides what each transform is to return, before and after.
"""

import contextvars
import gc
import operator
import sys
import types
import weakref
from random import Random

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import functrans as ft
from functrans._compile.run.guards import Guard, Guards, is_supported
from tests.covering import THOROUGH
from tests.world import HEAD, WAYS

pytestmark = [pytest.mark.usefixtures("unoptimised"),
              pytest.mark.filterwarnings("ignore:.*has been compiled 4 times")]

POINT = 1.5
BATCH = np.array([0.5, 1.5])
# What is made of a function, what it is called with, whether it returns the derivative.
TRANSFORMS = {
    "jit": (ft.jit, POINT, False),
    "jit grad": (lambda f: ft.jit(ft.grad(f)), POINT, True),
    "grad jit": (lambda f: ft.grad(ft.jit(f)), POINT, True),
    "vmap jit": (lambda f: ft.vmap(ft.jit(f)), BATCH, False),
    "jit vmap": (lambda f: ft.jit(ft.vmap(f)), BATCH, False),
    "jit jit": (lambda f: ft.jit(ft.jit(f)), POINT, False),
    "jit jvp": (lambda f: ft.jit(lambda x: ft.jvp(f, x, 1.0)[1]), POINT, True),
}
# Where a program reads: ``READ`` is an expression, ``_N`` ends the names of a part.
PLACES = {
    "itself": ("", "READ"),
    "a helper": ("def helper_N(): return READ", "helper_N()"),
    "a default": ("def given_N(g=lambda: READ): return g()", "given_N()"),
    "a closure": ("def make_N():\n g = lambda: READ\n return lambda: g()\nmade_N = make_N()",
                  "made_N()"),
    "a method": ("class H_N:\n def r(self): return READ\nh_N = H_N()", "h_N.r()"),
    "a container": ("table_N = {'r': [lambda: READ]}", "table_N['r'][0]()"),
    "a comprehension": ("", "[READ for _ in range(1)][0]"),
    "a partial": ("import functools\npart_N = functools.partial(lambda k: READ * k, 1.0)",
                  "part_N()"),
    "a property": ("class P_N:\n @property\n def r(self): return READ\nprop_N = P_N()", "prop_N.r"),
    "what calls it": ("import functools\ndef deco_N(g):\n @functools.wraps(g)\n def w(x): "
                      "return READ * g(x)\n return w\n@deco_N\ndef one_N(x): return 1.0",
                      "one_N(x)"),
}


class World:
    """A program that reads in some ways at some places."""

    def __init__(self, number, parts):
        module = types.ModuleType(f"world_{number}")
        self.space, self.parts, texts, reads = vars(module), parts, [HEAD], []
        for i, (way, place) in enumerate(parts):
            setup, read = PLACES[place]
            text = read.replace("READ", f"({way.read})")
            texts += [named(way.setup, i), named(setup.replace("READ", f"({way.read})"), i)]
            reads.append(named(text, i))
        terms = " + ".join([f"x ** {i + 1} * ({read})" for i, read in enumerate(reads)])
        texts += [f"def program(x):\n return {terms}",
                  f"def reads(x=1.0): return [{', '.join(reads)}]"]
        exec("\n".join(texts), self.space)

    def expected(self, x, derivative):
        rs = [float(r) for r in self.space["reads"]()]
        if derivative:
            return sum([(i + 1) * np.asarray(x) ** i * r for i, r in enumerate(rs)])
        return sum([np.asarray(x) ** (i + 1) * r for i, r in enumerate(rs)])

    def change(self, part, text):
        exec(named(text, part), self.space)

    def close(self):
        for i, (way, _) in enumerate(self.parts):
            exec(named(way.undo, i), self.space)


def named(text, part):
    return text.replace("_N", f"_{part}")


def outcome(f, *args):
    """A result, or that there is none."""
    try:
        return np.asarray(f(*args), float)
    except (AttributeError, LookupError, NameError, TypeError, ReferenceError) as error:
        return type(error).__name__


def agree(a, b):
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str)
    return a.shape == b.shape and np.allclose(a, b, rtol=1e-12, atol=0)


def wrong(parts, changes, transforms, number=0):
    """What is not as plain Python has it, with the world before and after some changes."""
    world, found = World(number, parts), []
    try:
        calls = {name: (TRANSFORMS[name][0](world.space["program"]), *TRANSFORMS[name][1:])
                 for name in transforms}
        for step, change in enumerate([None, *changes]):
            if change is not None:
                world.change(*change)
            ys = {name: [outcome(f, x) for _ in range(3 if step == 0 else 2)]
                  for name, (f, x, _) in calls.items()}
            for name, (_, x, derivative) in calls.items():
                expected = outcome(world.expected, x, derivative)
                if not all([agree(y, expected) for y in ys[name]]):
                    found.append((name, change, ys[name], expected))
    finally:
        world.close()
    return found


def in_a_context(f, *args):
    return contextvars.copy_context().run(f, *args)


# Ways whose places nobody looked at before, each with what changes it.
NAMED = [way for way in WAYS if way.name in (
    "absent global", "absent global, handled outside", "absent builtin", "shadowed abs",
    "in globals", "module", "import that fails", "import of a name inside", "module with getattr",
    "library: math.tau", "library: np.sin", "library: statistics.mean.__code__",
    "absent in a library", "environment with a default", "arguments of the process",
    "object: except", "function: suppress", "slots: hasattr", "computed attributes", "bases",
    "metaclass", "descriptor", "attribute that is made up", "special method that comes",
    "maker of objects", "enumeration", "closure without a value", "kept results", "number of C",
    "pointer of C", "file in memory", "decimal context", "weak proxy that may be gone",
)]


@pytest.mark.parametrize("way", NAMED, ids=[way.name for way in NAMED])
def test_what_no_other_test_changes_is_seen(way):
    for change in way.changes:
        assert not in_a_context(wrong, [(way, "itself")], [(0, change)], ["jit"])


def drawn(seed):
    """Ways and places, a change of one of them, and two transforms."""
    random = Random(seed)
    parts = [(random.choice(WAYS), random.choice(list(PLACES))) for _ in range(seed % 3 + 1)]
    parts[0] = WAYS[seed * 7 % len(WAYS)], parts[0][1]
    change = 0, random.choice(parts[0][0].changes)
    return parts, [change], random.sample(list(TRANSFORMS), 2)


@pytest.mark.parametrize("block", range(125 if THOROUGH else 4))
def test_drawn_programs_see_what_has_changed(block):
    size = 24 if THOROUGH else 12
    for seed in range(block * size, (block + 1) * size):
        assert not in_a_context(wrong, *drawn(seed), seed), seed


# ---- what is met is not asked for anything


class Refuses:
    """An object that answers nothing, like one of a closed file or a lost connection."""

    def __getattribute__(self, name):
        raise ConnectionError(name)


class Pretends:
    """An object that says it is of another class, and that it has each attribute."""

    def __init__(self):
        object.__setattr__(self, "asked", [])

    def __getattribute__(self, name):
        asked = object.__getattribute__(self, "asked")
        asked.append(name)
        return dict if name == "__class__" else (lambda *args: 1.0)


HELD = {"refuses": Refuses(), "list": [Refuses()]}
NEAR = types.SimpleNamespace(refuses=Refuses(), pretends=Pretends())


class Model:
    def __init__(self):
        self.refuses, self.pretends = NEAR.refuses, NEAR.pretends

    def loss(self, x):
        return np.sum(x**3) if len(HELD) and self.refuses is not None else x


@pytest.mark.parametrize("transform", [
    ft.jit, ft.vmap, lambda f: ft.jit(ft.grad(f)), lambda f: ft.grad(ft.jit(f)),
    lambda f: ft.jit(lambda x: ft.hvp(f, x, x)[1]),
    lambda f: lambda x: ft.hvp(f, x, x)[1],
])
def test_an_object_near_a_function_is_asked_for_nothing(transform):
    asked = object.__getattribute__(NEAR.pretends, "asked")
    asked.clear()
    model = Model()
    x = np.ones(3)
    for f in (model.loss, lambda x: np.sum(x**3) if NEAR.refuses and NEAR.pretends else x):
        assert np.all(np.isfinite(transform(f)(x)))
    assert not asked


def test_an_open_file_of_arrays_is_no_trouble(tmp_path):
    np.savez(tmp_path / "data.npz", a=np.arange(3.0))
    with np.load(tmp_path / "data.npz") as data:
        f = ft.jit(lambda x: ft.hvp(lambda v: np.sum(data["a"] * v**3), x, x)[1])
        assert_array_equal(f(np.ones(3)), [0.0, 6.0, 12.0])


def test_what_a_weak_reference_leads_to_is_not_kept():
    held = Model()
    seen = weakref.ref(held)
    f = ft.jit(lambda x: x if seen() is None else 2.0 * x * (seen().refuses is not None))
    assert [f(1.0), f(1.0)] == [2.0, 2.0]
    del held
    gc.collect()
    assert seen() is None
    assert f(1.0) == 1.0


# ---- names that native code compares


def test_names_that_moved_in_memory_are_found_again():
    space = {"np": np, "A": 2.0}
    exec("def f(x): return np.sum(x) * A * abs(-1.0)", space)
    f, x = ft.jit(space["f"]), np.ones(2)
    for i in range(200):  # the dict is made anew as it grows
        space[f"more{i}"] = i
        assert f(x) == 4.0
    for name in [f"more{i}" for i in range(200)]:
        del space[name]
    assert f(x) == 4.0
    space["A"] = 3.0
    assert f(x) == 6.0
    space["abs"] = lambda v: 10.0
    assert f(x) == 60.0
    del space["abs"]
    assert f(x) == 6.0
    assert (f(x), f(x)) == (6.0, 6.0)


def test_an_equal_number_in_another_object_is_found_by_native_code():
    space = {"A": 1000.0}
    runs = []
    exec("def f(x): return x * A", space)
    f = ft.jit(lambda x: runs.append(1) or space["f"](x))
    for _ in range(20):
        space["A"] = float("1e3")
        assert f(2.0) == 2000.0
    assert len(runs) == 1


def test_guards_do_not_hold_for_a_name_in_the_place_of_another():
    first, second = object(), object()
    space = {"a": first, "b": second}
    guards = Guards([Guard(space, "a", first), Guard(space, "c", None, True)], operator.is_)
    assert guards.holds
    before = guards.rows.copy()
    assert guards.find()
    assert_array_equal(guards.rows, before)
    space["d"] = first
    assert guards.find()
    del space["a"]
    assert not guards.find()
    space["a"] = first
    assert guards.find()
    space["c"] = first
    assert not guards.find()


def asked_of_its_class():
    class Box:
        pass

    box = Box()
    return Box, lambda x: x * getattr(box, "scale", 2.0)


def asked_inside():
    class Box:
        def grown(self, x):
            return x * getattr(self, "scale", 2.0)

    box = Box()
    return Box, lambda x: box.grown(x)


def made_when_absent():
    class Box:
        def __getattr__(self, name):
            return 2.0

    box = Box()
    return Box, lambda x: x * box.scale


def inherited():
    class Box:
        scale = 2.0

    class Inner(Box):
        pass

    box = Inner()
    return Inner, lambda x: x * box.scale


@pytest.mark.parametrize("made", [asked_of_its_class, asked_inside, made_when_absent, inherited])
def test_an_attribute_that_a_class_comes_to_have_is_seen(made):
    kind, f = made()
    compiled = ft.jit(f), ft.jit(ft.grad(f))
    assert [float(g(1.5)) for g in compiled] == [3.0, 2.0]
    kind.scale = 4.0
    assert [float(g(1.5)) for g in compiled] == [6.0, 4.0]


def test_native_code_knows_the_dicts_of_this_python():
    known = sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
    assert is_supported() == (known and sys.maxsize > 2**32)
