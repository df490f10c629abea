"""What a compiled function reads beside its arguments is current at every call, or refused."""

import array
import collections
import contextvars
import dataclasses
import functools
import operator
import random
import threading
import types
import warnings
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import functrans as ft
from functrans._transforms.staging.names import homes
from functrans.errors import ArgumentError, UnsupportedError
from tests.threads import at_once

pytestmark = pytest.mark.usefixtures("seldom_optimised")

X = np.array([1.0, 2.0, 3.0])
W = np.ones(3)
SCALE = 2.0
PARAMS = {"w": np.ones(3), "parts": [1.0, (2.0, np.ones(3))]}
SETTINGS = types.ModuleType("settings_of_a_user")
GENERATOR = np.random.default_rng(0)


def helper(x):
    return x * W


def staged_times(f):
    """``f`` compiled, and a list that grows at each staging."""
    runs = []

    @ft.jit
    @functools.wraps(f)
    def counted(*args):
        runs.append(1)
        return f(*args)

    return counted, runs


def test_a_module_that_a_function_imports_is_looked_up_once():
    def area(r):
        import math

        return math.pi * r**2

    compiled, runs = staged_times(area)
    assert [compiled(r) for r in (1.0, 2.0, 3.0)] == [area(r) for r in (1.0, 2.0, 3.0)]
    assert len(runs) == 1


def test_a_traced_value_that_a_function_closes_over_is_the_same_at_each_call():
    counts = []

    def powers(a):
        compiled, runs = staged_times(lambda x: x * a)
        y = compiled(2.0) * compiled(3.0) * compiled(4.0)
        counts.append(len(runs))
        return y

    assert ft.grad(powers)(0.5) == 24 * 3 * 0.5**2
    assert counts == [1]


def test_calls_with_names_are_told_apart_each_time():
    compiled = ft.jit(lambda x, y=1.0, z=1.0: x - 2 * y + 3 * z)
    for _ in range(4):
        assert [compiled(5.0, y=2.0), compiled(5.0, z=2.0), compiled(z=2.0, x=4.0),
                compiled(y=2.0, x=4.0)] == [4.0, 9.0, 8.0, 3.0]


# ---- arrays that are written into


@pytest.mark.parametrize("n", [3, 5000, 100_000])
@pytest.mark.parametrize("transform", [
    ft.jit, lambda f: ft.jit(ft.grad(lambda x: np.sum(f(x)))),
    lambda f: ft.grad(lambda x: np.sum(ft.jit(f)(x))),
    lambda f: lambda x: ft.vmap(ft.jit(f))(x[None])[0],
    lambda f: ft.jit(ft.jit(f)),
], ids=["jit", "jit grad", "grad jit", "vmap jit", "jit jit"])
def test_an_array_that_was_written_into_is_read_anew(transform, n):
    w = np.random.default_rng(0).normal(size=n)
    f = transform(lambda x: x * w)
    x = np.ones(n)
    with ft.config(jit=False):
        before = f(x)
    assert_array_equal(f(x), before)
    w[n // 2 + 1] += 1.0  # one entry
    with ft.config(jit=False):
        after = f(x)
    assert not np.array_equal(before, after)
    assert_array_equal(f(x), after)
    assert_array_equal(f(x), after)


def test_what_numpy_makes_of_an_array_is_made_anew():
    w = np.zeros(3)
    f = ft.jit(lambda x: x + np.cos(w) if w[0] < 1 else x)
    assert_array_equal(f(X), X + 1)
    w[0] = 2.0
    assert_array_equal(f(X), X)


@pytest.mark.parametrize("view", [lambda w: w[::2], lambda w: w.T, lambda w: w.view(ft.Array),
                                  lambda w: np.broadcast_to(w, w.shape)])
def test_a_view_changes_with_its_base(view):
    w = np.ones((4, 4))
    part = view(w)
    f = ft.jit(lambda x: np.sum(x * part))
    f(1.0)
    w[0, 0] = 5.0
    assert f(1.0) == np.sum(part)


def test_a_read_only_array_is_never_compared():
    w = ft.array(np.ones(3))
    own = np.arange(3.0)
    own.setflags(write=False)
    f = ft.jit(lambda x: x * w * own)
    f(X)
    (entry,) = programs(f)
    assert "tobytes" not in "".join(check.test for check in entry.reads.checks)


def read_by(f):
    """What the one program of a jitted function compares."""
    (entry,) = programs(f)
    return {check.label for check in entry.reads.checks}


def programs(f):
    """The entries of a jitted function."""
    held = [c.cell_contents for c in f.func.__closure__]
    (compiled,) = [x for x in held if hasattr(x, "entries")]
    return list(compiled.entries.values())


def test_names_alone_are_compared_by_native_code():
    f = ft.jit(lambda x: np.sum(np.sin(x)) * len(x) * SCALE)
    for _ in range(3):
        f(X)
    (entry,) = programs(f)
    assert entry.quick is None
    assert len(entry.guards.guards) == len(entry.reads.checks)


def test_an_array_made_while_staging_is_not_compared():
    f = ft.jit(lambda x: x * np.arange(3.0))
    f(X)
    assert read_by(f) == {"the code of `<lambda>`", "global `np`", "`numpy.arange`"}


# ---- names that are bound to something else


def test_a_closure_that_is_rebound():
    scale = 2.0
    f = ft.jit(lambda x: x * scale)
    assert f(3.0) == 6.0
    scale = 5.0
    assert f(3.0) == 15.0


def test_a_global_that_is_rebound(monkeypatch):
    f = ft.jit(lambda x: x * SCALE)
    assert f(3.0) == 6.0
    monkeypatch.setitem(globals(), "SCALE", 5.0)
    assert f(3.0) == 15.0


def test_a_global_of_a_function_that_is_called(monkeypatch):
    f = ft.jit(ft.grad(lambda x: np.sum(helper(x))))
    assert_array_equal(f(X), np.ones(3))
    monkeypatch.setitem(globals(), "W", X)
    assert_array_equal(f(X), X)


def test_a_function_that_is_defined_again(monkeypatch):
    f = ft.jit(lambda x: helper(x))
    f(X)
    monkeypatch.setitem(globals(), "helper", lambda x: x * 7)
    assert_array_equal(f(X), 7 * X)


def test_an_attribute_of_a_module(monkeypatch):
    monkeypatch.setattr(SETTINGS, "rate", 1.0, raising=False)
    f = ft.jit(lambda x: x * SETTINGS.rate)
    f(1.0)
    monkeypatch.setattr(SETTINGS, "rate", 4.0)
    assert f(1.0) == 4.0


def test_an_equal_number_in_its_place_is_as_good():
    scale = 1000.0
    f, runs = staged_times(lambda x: x * scale)
    f(1.0)
    scale = float("1e3")
    f(1.0)
    assert len(runs) == 1
    scale = 1000  # an int: promotion may differ
    f(1.0)
    assert len(runs) == 2


@pytest.mark.parametrize("change", [
    lambda p: p.update(w=2 * X), lambda p: p["w"].__setitem__(0, 9.0),
    lambda p: p["parts"].__setitem__(0, 3.0), lambda p: p["parts"][1][1].__setitem__(0, 3.0),
    lambda p: p["parts"].append(np.ones(3)), lambda p: p["parts"].pop(),
    lambda p: p.update(more=1.0), lambda p: p.pop("less"),
    lambda p: p.update(less=p.pop("less"), last=p.pop("last")),
], ids=["entry", "array", "list", "nested", "longer", "shorter", "key", "no key", "order"])
@pytest.mark.parametrize("others", [0, 50])
def test_containers_are_looked_into(change, others):
    params = {"w": np.ones(3), "parts": [1.0, (2.0, np.ones(3)), 3], "last": 4.0, "less": 5.0}
    params |= dict.fromkeys(map(str, range(others)))
    params["parts"] += range(others)

    def f(x):
        first, (second, third) = params["parts"][:2]
        return (x * params["w"] * first * second * third * len(params["parts"])
                + sum(i * v for i, v in enumerate(params.values()) if type(v) is float))

    compiled = ft.jit(f)
    compiled(X)
    change(params)
    assert_array_equal(compiled(X), f(X))


# ---- objects


class Layer:
    def __init__(self):
        self.w = np.ones(3)
        self.steps = 0

    def scaled(self, x):
        return x * self.w

    def __call__(self, x):
        return self.scaled(x)

    @property
    def weights(self):
        return self.w


class Slotted:
    __slots__ = ("w",)
    factor = 2.0

    def __init__(self):
        self.w = np.ones(3)

    def __matmul__(self, x):
        return self.w * x * self.factor


class Net:
    def __init__(self):
        self.layers = [Layer(), Layer()]

    def run(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


@pytest.mark.parametrize("of", [
    lambda m: m.__call__, lambda m: m, lambda m: lambda x: m.scaled(x), lambda m: lambda x: m(x),
    lambda m: lambda x: x * m.weights, lambda m: functools.partial(Layer.__call__, m),
], ids=["method", "object", "named", "called", "property", "partial"])
@pytest.mark.parametrize("change", [
    lambda m: setattr(m, "w", 3 * X), lambda m: m.w.__setitem__(0, 3.0),
], ids=["rebound", "written"])
def test_attributes_of_an_object_that_the_function_holds(of, change):
    layer = Layer()
    f = ft.jit(of(layer))
    assert_array_equal(f(X), X)
    change(layer)
    assert_array_equal(f(X), X * layer.w)


def test_attributes_that_no_code_names_may_change():
    layer = Layer()
    f, runs = staged_times(lambda x: layer(x))
    f(X)
    layer.steps += 1
    f(X)
    assert len(runs) == 1


def test_objects_in_a_list_and_slots_and_class_attributes(monkeypatch):
    net, slotted = Net(), Slotted()
    f = ft.jit(lambda x: slotted @ net.run(x))
    assert_array_equal(f(X), 2 * X)
    net.layers[1].w = X
    assert_array_equal(f(X), 2 * X * X)
    slotted.w = np.zeros(3)
    assert_array_equal(f(X), np.zeros(3))
    slotted.w = np.ones(3)
    monkeypatch.setattr(Slotted, "factor", 3.0)
    assert_array_equal(f(X), 3 * X * X)


def test_an_object_as_a_static_argument_is_looked_into():
    layer = Layer()
    f = ft.jit(lambda layer, x: layer(x), static_argnums=0)
    f(layer, X)
    layer.w = 3 * X
    assert_array_equal(f(layer, X), 3 * X * X)


def test_an_object_that_equals_only_itself_is_no_argument_unless_static():
    with pytest.raises(ArgumentError, match=r"an argument of `<lambda>` is a .*Layer, neither a"):
        ft.jit(lambda layer, x: layer(x))(Layer(), X)


def test_self_of_a_decorated_method_must_be_static():
    class Model:
        def __init__(self):
            self.w = np.ones(3)

        @ft.jit
        def traced(self, x):
            return x * self.w

        @functools.partial(ft.jit, static_argnums=0)
        def static(self, x):
            return x * self.w

    model = Model()
    with pytest.raises(ArgumentError, match="static_argnums"):
        model.traced(X)
    assert_array_equal(model.static(X), X)
    model.w = X
    assert_array_equal(model.static(X), X * X)


@dataclass(frozen=True)
class Options:
    order: float = 1

    def __hash__(self):
        return 1


def test_values_and_functions_are_arguments():
    f = ft.jit(lambda g, x: g(x))
    assert f(np.sin, 0.0) == 0.0 and f(np.cos, 0.0) == 1.0
    w = np.ones(3)
    scaled = lambda x: x * w  # noqa: E731  # a closure
    f(scaled, X)
    w[0] = 7.0
    assert_array_equal(f(scaled, X), w * X)


# ---- side effects


def test_what_the_function_itself_changes_is_its_side_effect():
    seen = []
    count = 0

    def f(x):
        nonlocal count
        count += 1
        seen.append(x.shape)
        return x * 2.0

    compiled = ft.jit(f)
    for n in (3, 3, 4, 3, 4):
        compiled(np.ones(n))
    assert seen == [(3,), (4,)] and count == 2


def test_what_is_made_when_it_is_first_needed_is_compared_from_then_on():
    layer = types.SimpleNamespace(w=None)

    def f(x):
        if layer.w is None:
            layer.w = np.ones(3)
        return x * layer.w

    compiled = ft.jit(f)
    compiled(X)
    layer.w[0] = 5.0
    assert_array_equal(compiled(X), X * layer.w)


def test_programs_that_change_every_time_are_warned_of_once():
    w = np.ones(3)
    f = ft.jit(lambda x: x * w)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i in range(8):
            w[0] = i + 2
            assert f(X)[0] == i + 2
    (warning,) = [c for c in caught if c.category is RuntimeWarning]
    assert "has been compiled 4 times over" in str(warning.message)
    assert "here `w`. Pass that as an argument" in str(warning.message)


def test_lower_says_why_there_is_a_new_program():
    w = np.ones(3)
    f = ft.jit(lambda x: x * w)
    f(X)
    assert f.lower(X).reason == "staged before"
    w[0] = 2.0
    assert f.lower(X).reason == "what it reads has changed"


def test_threads_see_the_array_as_it_is():
    w = np.ones(3)
    f = ft.jit(lambda x: x * w)
    f(X)
    w[:] = 2.0
    for y in at_once(f, [X] * 4):
        assert_array_equal(y, 2 * X)


# ---- random numbers


def normal_of_a_helper(x):
    return x + GENERATOR.normal()


@pytest.mark.parametrize("draw", [
    lambda x: x + GENERATOR.normal(), normal_of_a_helper, lambda x: normal_of_a_helper(x),
    lambda x: x + np.random.normal(), lambda x: x + random.random(),
    lambda x: ft.scan(lambda c, _: (c + GENERATOR.normal(), None), x, None, length=2)[0],
], ids=["generator", "helper", "called", "np.random", "random", "scan"])
@pytest.mark.parametrize("transform", [ft.jit, lambda f: ft.jit(ft.grad(f))], ids=["jit", "grad"])
def test_drawing_inside_a_compiled_function_is_refused(transform, draw):
    with pytest.raises(UnsupportedError, match=r"drew random numbers from .* the same for each"):
        transform(draw)(1.0)


@pytest.mark.parametrize("transform", [
    lambda f: ft.vmap(f), lambda f: ft.vmap(ft.grad(f)), lambda f: ft.vmap(f, chunk_size=2),
], ids=["vmap", "vmap grad", "chunks"])
@pytest.mark.parametrize("draw", [lambda x: x * GENERATOR.normal(), lambda x: x * np.random.rand()])
def test_one_draw_for_all_slices_is_refused(transform, draw):
    with pytest.raises(UnsupportedError, match=r"drew random numbers from .* for every slice"):
        transform(draw)(np.ones(3))


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_a_generator_of_the_functions_own_gives_what_it_gives_eagerly(make):
    def f(x):
        rng = np.random.RandomState(3) if make is np.random.RandomState else make(3)
        return x * rng.normal(size=3)

    assert_array_equal(ft.jit(f)(X), f(X))
    assert_array_equal(ft.vmap(f)(X)[:, 0], X * f(1.0)[0])


NO_SEED = None


@pytest.mark.parametrize("make", [
    lambda: np.random.default_rng(), np.random.RandomState, lambda: np.random.RandomState(NO_SEED),
    lambda: np.random.Generator(np.random.PCG64()),
], ids=["default_rng", "RandomState", "RandomState of None", "PCG64"])
@pytest.mark.parametrize("transform", [ft.jit, lambda f: ft.jit(ft.grad(f)), ft.vmap],
                         ids=["jit", "grad", "vmap"])
def test_a_generator_without_a_seed_is_refused(transform, make):
    with pytest.raises(UnsupportedError, match=r"without a seed.*functrans\.random"):
        transform(lambda x: x * make().normal())(np.ones(2) if transform is ft.vmap else 1.0)


def test_a_generator_that_is_not_drawn_from_is_no_trouble():
    def f(x):
        return x * 2 if GENERATOR is not None else x

    assert ft.jit(f)(1.0) == 2.0


def test_derivatives_of_a_function_that_draws_are_of_one_draw():
    jacobian = ft.jacfwd(lambda x: x * GENERATOR.normal())(X)
    assert len(set(np.diag(jacobian))) == 1


# ---- static arguments


def kind_of_static(x, s):
    return x * {int: 1.0, bool: 2.0, float: 3.0}[type(s[0] if type(s) is tuple else s)]


@pytest.mark.parametrize("nest", [lambda s: s, lambda s: (s, "text"), lambda s: (s, (s,))],
                         ids=["bare", "tuple", "nested"])
def test_static_arguments_that_are_equal_but_not_the_same_have_programs_of_their_own(nest):
    f = ft.jit(kind_of_static, static_argnums=1)
    assert [float(f(1.0, nest(s))) for s in (1, True, 1.0, 1, True)] == [1, 2, 3, 1, 2]


def test_zeros_of_both_signs_are_two_static_arguments():
    f = ft.jit(lambda x, z: np.copysign(x, z[0].real), static_argnums=1)
    assert [float(f(1.0, (z,))) for z in (0.0, -0.0, 0j, complex(-0.0, 0))] == [1, -1, 1, -1]


def test_parts_of_static_values_count_too():
    f = ft.jit(lambda x, o: x * (1 if type(o.order) is int else 2), static_argnums=1)
    assert (f(1.0, Options(1)), f(1.0, Options(1.0))) == (1.0, 2.0)
    g = ft.jit(lambda x, r: x * (r.stop if type(r) is range else len(r)), static_argnums=1)
    assert (g(1.0, range(0, 3, 2)), g(1.0, range(0, 4, 2))) == (3.0, 4.0)


def test_nan_is_one_static_argument():
    f, runs = staged_times(lambda x, s: x)
    f(1.0, "a"), f(1.0, "a")
    g = ft.jit(lambda x, s: runs.append(2) or x, static_argnums=1)
    g(1.0, float("nan")), g(1.0, -float("nan") * -1)
    assert runs == [1, 2]


def test_dicts_of_another_order_have_programs_of_their_own():
    f = ft.jit(lambda d: sum(v * i for i, v in enumerate(d.values())))
    assert (f({"a": 1.0, "b": 2.0}), f({"b": 2.0, "a": 1.0})) == (2.0, 1.0)
    g = ft.jit(lambda d: sum(v * (2 if type(k) is bool else 1) for k, v in d.items()))
    assert (g({1: 1.0}), g({True: 1.0})) == (1.0, 2.0)


@pytest.mark.parametrize("options, text", [
    ({"static_argnames": "typo"}, "static_argnames holds 'typo', but the parameters of `f` are x"),
    ({"static_argnums": 2}, "static_argnums holds 2, but `f` takes 2 positional arguments"),
    ({"static_argnums": (0, -3)}, "static_argnums holds -3, but `f` takes 2"),
])
def test_static_arguments_that_do_not_exist_are_refused(options, text):
    def f(x, n):
        return x

    with pytest.raises(ArgumentError, match=text.replace("`", ".")):
        ft.jit(f, **options)


@pytest.mark.parametrize("options", [
    {"static_argnums": 1}, {"static_argnums": -1}, {"static_argnames": "n"},
], ids=str)
def test_a_static_argument_may_be_given_either_way(options):
    f = ft.jit(lambda x, n: x * len(range(n)), **options)
    assert f(2.0, 3) == f(2.0, n=3) == 6.0


def test_a_long_chain_of_closures_is_looked_through():
    w = np.ones(3)

    def wrapped(f):
        return lambda x: f(x)

    f = g = lambda x: x * w
    for _ in range(400):
        f = wrapped(f)
    compiled = ft.jit(f)
    compiled(X)
    w[0] = 5.0
    assert_array_equal(compiled(X), g(X))


def test_a_wrapper_that_bears_the_name_of_a_library_function_is_the_users():
    w = np.ones(3)

    @functools.wraps(functools.reduce)
    def f(x):
        return x * w

    del f.__wrapped__
    f.__module__ = "functools"
    compiled = ft.jit(f)
    compiled(X)
    w[0] = 5.0
    assert_array_equal(compiled(X), w * X)


def test_a_derivative_of_a_function_that_reads_nothing_reads_nothing():
    f = ft.jit(ft.grad(ft.jit(lambda x: np.sum(x**2))))
    f(X)
    assert read_by(f) == {"the code of `<lambda>`", "global `np`", "`numpy.sum`"}


def test_a_property_that_is_kept_is_looked_into():
    class Kept(Layer):
        @functools.cached_property
        def twice(self):
            return 2 * self.w

    layer = Kept()
    f = ft.jit(lambda x: x * layer.twice)
    f(X)
    layer.twice[0] = 9.0
    assert_array_equal(f(X), layer.twice * X)


# ---- what makes objects reads, too

RATE = 2.0


class Scaled:
    def __init__(self, x=1.0):
        self.value = x * RATE

    def again(self, x):
        return type(self)(x).value


class Halved(Scaled):
    def __init__(self, x):
        super().__init__(x)
        self.value = self.value / 2


class New:
    def __new__(cls, x):
        made = object.__new__(cls)
        made.value = x * RATE
        return made


class Called(type):
    def __call__(cls, x):
        return x * RATE


class OfCalled(metaclass=Called):
    pass


@dataclasses.dataclass
class Later:
    x: Any
    value: Any = None

    def __post_init__(self):
        self.value = self.x * RATE


@dataclasses.dataclass
class ByFactory:
    x: Any
    rate: float = dataclasses.field(default_factory=lambda: RATE)


class Subclasses:
    def __init_subclass__(cls):
        cls.rate = RATE

    def __class_getitem__(cls, i):
        return RATE * i


class Missing(dict):
    def __missing__(self, key):
        return RATE


class Triple(collections.namedtuple("Triple", "a b c")):
    def total(self):
        return (self.a + self.b) * RATE


MISSING, DEFAULTS, TRIPLE = Missing(), collections.defaultdict(lambda: RATE), Triple(1.0, 2.0, 3.0)
LATER, SCALED, KINDS = Later(1.0), Scaled(), {"scaled": Scaled}


@pytest.mark.parametrize("f", [
    lambda x: Scaled(x).value, lambda x: Halved(x).value, lambda x: New(x).value,
    lambda x: OfCalled(x), lambda x: Later(x).value, lambda x: ByFactory(x).rate * x,
    lambda x: type("Sub", (Subclasses,), {}).rate * x, lambda x: Subclasses[2] * x,
    lambda x: MISSING["a"] * x, lambda x: DEFAULTS[object()] * x, lambda x: TRIPLE.total() * x,
    lambda x: dataclasses.replace(LATER, x=x).value, lambda x: SCALED.again(x),
    lambda x: KINDS["scaled"](x).value, lambda x: next(map(Scaled, [x])).value,
])
def test_a_global_that_a_class_reads_when_it_is_called_may_change(f, monkeypatch):
    compiled = ft.jit(f)
    assert compiled(1.5) == f(1.5)
    monkeypatch.setitem(globals(), "RATE", 3.0)
    assert compiled(1.5) == f(1.5)


class Large:
    def __init__(self, data):
        self.data, self.slope = data, 2.0
        self.size = len(self.data)

    def line(self, x):
        return self.slope * x


def test_what_only_the_maker_of_an_object_reads_is_not_compared():
    large = Large(np.zeros(10))
    compiled, runs = staged_times(lambda x: large.line(x))
    assert compiled(1.5) == 3.0
    large.data[0] = 1.0
    assert compiled(1.5) == 3.0
    assert len(runs) == 1


# ---- Python's own objects that hold, show or name what is read


class Holder:
    rate = 2.0

    def by_rate(self, k, x):
        return k * x * self.rate

    by_one = functools.partialmethod(by_rate, 1.0)

    @functools.singledispatchmethod
    def by_held(self, x):
        return x * HELD["k"]


HELD = {"k": 2.0}
HOLDER, LOCAL, VARIABLE = Holder(), threading.local(), contextvars.ContextVar("rate", default=2.0)
BY_DEFAULT = contextvars.ContextVar("held", default=HELD)
HOLDER_SEEN = weakref.ref(HOLDER)
SHOWN, VALUES, ITEMS = types.MappingProxyType(HELD), HELD.values(), HELD.items()
OWN, CHAIN = collections.UserDict(k=2.0), collections.ChainMap(HELD)
NUMBERS, BYTES = array.array("d", [2.0]), bytearray([2])
SEEN, OBJECTS = memoryview(NUMBERS), np.array([HELD, None], dtype=object)
BY_VALUE, BY_ENTRY = (make(lambda v: v * HELD["k"], *n) for make, n in (
    (np.vectorize, ()), (np.frompyfunc, (1, 1))))
BY_SIGN = functools.cmp_to_key(lambda a, b: (a - b) * (HELD["k"] - 2.5))
BY_RATE, BY_GET = operator.attrgetter("rate"), operator.methodcaller("by_rate", 1.0, 1.0)


def set_all(v):
    HELD["k"] = OWN["k"] = HOLDER.rate = Holder.rate = LOCAL.rate = NUMBERS[0] = v
    BYTES[0] = int(v)
    VARIABLE.set(v)


@pytest.mark.parametrize("f", [
    lambda x: SHOWN["k"] * x, lambda x: next(iter(VALUES)) * x, lambda x: dict(ITEMS)["k"] * x,
    lambda x: OWN["k"] * x, lambda x: CHAIN["k"] * x, lambda x: NUMBERS[0] * x,
    lambda x: BYTES[0] * x, lambda x: SEEN[0] * x, lambda x: OBJECTS[0]["k"] * x,
    lambda x: LOCAL.rate * x, lambda x: VARIABLE.get() * x, lambda x: HOLDER_SEEN().rate * x,
    lambda x: BY_DEFAULT.get()["k"] * x,
    lambda x: BY_RATE(HOLDER) * x, lambda x: BY_GET(HOLDER) * x, lambda x: HOLDER.by_one(x),
    lambda x: HOLDER.by_held(x), lambda x: float(BY_VALUE(1.0)) * x,
    lambda x: float(BY_ENTRY(1.0)) * x, lambda x: sorted([2.0, 3.0], key=BY_SIGN)[1] * x,
])
def test_what_objects_of_python_hold_may_change(f):
    set_all(2.0)
    compiled, runs = staged_times(f)
    assert compiled(1.5) == compiled(1.5) == 3.0
    assert len(runs) == 1
    set_all(3.0)
    assert compiled(1.5) == 4.5


# ---- what is replaced or shadowed behind a name that stays

class Rate:
    factor = 1.0

    def times(self, x):
        return self.factor * x

    def __call__(self, x):
        return self.times(x)


class Derived(Rate):
    @staticmethod
    def plus():
        return 0.0


class Last(Derived):
    pass


def doubled(x, factor=2.0):
    return factor * x


def tripled(x, factor=3.0):
    return factor * x + 1.0


def attribute(x, name, value):
    return lambda: setattr(x, name, value)


def replacements():
    """What each replaces, a function that reads it, and what replaces it."""
    cls: Any = type("Own", (Rate,), {})
    last: Any = type("Ownest", (type("Middle", (cls,), {}),), {})
    x, y, z = cls(), last(), Last()
    f = types.FunctionType(doubled.__code__, globals(), argdefs=(2.0,))
    settings = types.ModuleType("other_settings")
    p, inner = functools.partial(doubled, factor=2.0), [2.0]
    weak: Any = weakref.WeakValueDictionary(x=x)
    named: Any = type("Named", (list,), {})([1.0])
    named.scale, entries = 1.0, np.ones(3)
    poly, cached = np.poly1d([1.0, 2.0]), functools.lru_cache(lambda: inner[0])
    method = functools.partialmethod(lambda self, v, parts: v * parts[0], parts=inner)
    keeps: Any = type("Keeps", (), {"by": method})()
    return {
        "code": (lambda v: f(v), attribute(f, "__code__", tripled.__code__)),
        "defaults": (lambda v: f(v), attribute(f, "__defaults__", (5.0,))),
        "its own defaults": (f, attribute(f, "__defaults__", (5.0,))),
        "class": (lambda v: x.times(v), attribute(x, "__class__", Negated)),
        "method of an object": (lambda v: x.times(v), attribute(x, "times", tripled)),
        "value of an object": (x, attribute(x, "factor", 5.0)),
        "value of a class": (x, attribute(cls, "factor", 5.0)),
        "value of a class between": (y, attribute(type(y).__mro__[1], "factor", 5.0)),
        "static method": (lambda v: v + y.plus() if hasattr(y, "plus") else v,
                          attribute(cls, "plus", staticmethod(lambda: 7.0))),
        "call": (lambda v: y(v), attribute(last, "__call__", lambda self, v: 9.0 * v)),
        "attribute that was asked for": (lambda v: v * getattr(z, "bonus", 1.0),
                                         attribute(z, "bonus", 4.0)),
        "setting that was asked for": (lambda v: v * getattr(settings, "bonus", 1.0),
                                       attribute(settings, "bonus", 4.0)),
        "keyword of a partial": (p, lambda: p.keywords.update(factor=7.0)),
        "keyword of a partial method": (lambda v: keeps.by(v), lambda: inner.insert(0, 8.0)),
        "behind a cache": (lambda v: v * cached(),
                           lambda: (inner.insert(0, 8.0), cached.cache_clear())),
        "weak value": (lambda v: weak["x"].times(v), attribute(x, "factor", 5.0)),
        "attribute of a list": (lambda v: v * named.scale, attribute(named, "scale", 5.0)),
        "flat iterator": (lambda v, it=entries.flat: v * it[0], lambda: entries.fill(4.0)),
        "polynomial": (lambda v: poly(v), lambda: poly.__setitem__(0, 9.0)),
    }


class Negated:
    def times(self, x):
        return -x


@pytest.mark.parametrize("what", list(replacements()))
@pytest.mark.parametrize("transform", [ft.jit, lambda f: lambda v: ft.vmap(ft.jit(f))(v)])
def test_what_is_replaced_behind_a_name_is_read_anew(what, transform, unoptimised):
    f, change = replacements()[what]
    g = transform(f)
    assert_array_equal(g(X), f(X))
    before = f(X)
    change()
    assert not np.array_equal(f(X), before)
    assert_array_equal(g(X), f(X))


def test_what_a_function_sets_itself_is_compared_as_before(unoptimised):
    class Model:
        scale = 2.0

        @functools.cached_property
        def table(self):
            return self.scale + 1.0

    model = Model()
    f = ft.jit(lambda x: x * model.table)
    assert_array_equal(f(X), 3.0 * X)
    model.__dict__["table"] = 5.0
    assert_array_equal(f(X), 5.0 * X)


def test_our_own_functions_are_not_read_as_their_users_code():
    assert homes([ft.grad, functools.partial(np.sin)]) == frozenset()
    assert homes([lambda: None]) == {__name__.partition(".")[0]}


def test_what_a_call_takes_has_room_for_copies_of_its_results():
    x = np.ones(1000)
    assert ft.jit(lambda x: (x, np.sin(x))).memory(x) == 2 * x.nbytes
