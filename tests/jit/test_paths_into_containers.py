"""``argnums`` as a path into containers, several, or a predicate."""

import dataclasses
from collections import OrderedDict
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import functrans as ft
from functrans import tree
from functrans._transforms import options
from functrans.errors import ArgumentError


@dataclasses.dataclass
class Layer:
    w: object
    b: object


class Net(NamedTuple):
    layers: list
    scale: float


class Box:
    def __init__(self, inside):
        self.inside = inside


@pytest.fixture
def boxes():
    tree.register(Box, lambda b: ((b.inside,), None), lambda _, children: Box(*children))
    yield
    tree._registry.pop(Box)


def net():
    layers = [Layer(np.array([1.0, 2.0]), 0.5), Layer(np.array([3.0, 4.0]), -0.5)]
    return Net(layers, 2.0)


def loss(params, x):
    y = x
    for layer in params.layers:
        y = layer.w * y + layer.b
    return (params.scale * y).sum()


X = np.array([5.0, 7.0])


def test_a_path_names_the_part_that_is_differentiated():
    whole = ft.grad(loss)(net(), X)
    for i in (0, 1, -1):
        part = ft.grad(loss, argnums=f"params.layers[{i}].w")(net(), X)
        assert_array_equal(part, whole.layers[i].w)
    assert ft.grad(loss, "params.scale")(net(), x=X) == whole.scale
    assert_array_equal(ft.grad(loss, "params.layers[1]")(params=net(), x=X).w, whole.layers[1].w)


def test_several_paths_give_a_tuple():
    whole = ft.grad(loss, (0, "x"))(net(), X)
    value, (b, x, w) = ft.value_and_grad(
        loss, ("params.layers[0].b", "x", "params.layers[1].w")
    )(net(), X)
    assert value == loss(net(), X)
    assert b == whole[0].layers[0].b
    assert_array_equal(x, whole[1])
    assert_array_equal(w, whole[0].layers[1].w)


def test_a_predicate_chooses_leaves_and_the_result_is_a_dict():
    whole = ft.grad(loss)(net(), X)
    seen = []

    def weights(path, leaf):
        seen.append(path)
        return path.endswith(".w")

    g = ft.grad(loss, weights)(net(), x=X)
    assert list(g) == ["params.layers[0].w", "params.layers[1].w"]
    assert_array_equal(g["params.layers[1].w"], whole.layers[1].w)
    assert seen[-2:] == ["params.scale", "x"]


def test_matrices_take_paths():
    def f(params):
        return params["w"] ** 2 * params["b"][0]

    params = OrderedDict(w=np.array([1.0, 2.0]), b=(3.0, 4.0))
    assert_array_equal(ft.jacobian(f, "params['w']")(params), np.diag([6.0, 12.0]))
    assert_array_equal(ft.jacfwd(f, "params['b'][0]")(params), [1.0, 4.0])
    H = ft.hessian(lambda params: f(params).sum(), ("params['w']", "params['b'][0]"))(params)
    assert_array_equal(H[0][1], [2.0, 4.0])
    H = ft.hessian(lambda params: f(params).sum(), lambda p, _: "b" not in p)(params)
    assert_array_equal(H["params['w']"]["params['w']"], np.diag([6.0, 6.0]))
    assert_array_equal(ft.elementwise_grad(f, "params['w']")(params), [6.0, 12.0])


def test_paths_are_compiled():
    g = ft.jit(ft.grad(loss, "params.layers[0].w"))
    assert_array_equal(g(net(), X), ft.grad(loss)(net(), X).layers[0].w)


def test_the_callers_containers_stay_as_they_are():
    params = {"w": [1.0, 2.0]}
    ft.grad(lambda params: params["w"][0] * params["w"][1], "params['w'][0]")(params)
    assert params == {"w": [1.0, 2.0]}


def test_a_path_leads_into_registered_classes(boxes):
    assert ft.grad(lambda box: box.inside["a"] ** 2, "box.inside['a']")(Box({"a": 3.0})) == 6.0
    assert [(options.show("b", p), x) for p, x in options.leaves(Box((1.0, None)))] == [
        ("b.inside[0]", 1.0)
    ]


@pytest.mark.parametrize(
    ("argnums", "message"),
    [
        ("params.layers[2].w", r"but `params\.layers` has no \[2\]; it has \[0\], \[1\]"),
        ("params.depth", r"but `params` has no \.depth; it has \.layers, \.scale"),
        ("params['scale']", r"`params` has no \['scale'\]"),
        ("params.scale.real", r"`params\.scale` is float, which is no container"),
        ("x[0]", r"`x` is ndarray, which is no container"),
        (("params", "params.scale"), "names an argument of `loss` twice"),
        (("params.layers", "params.layers[0]"), "names an argument of `loss` twice"),
        (("params.layers[1].w", "params.layers[-1].w"), "names an argument of `loss` twice"),
        ("weights.scale", "names argument 'weights'"),
        (lambda path, leaf: False, r"argnums chooses nothing of the arguments of `loss`; there are "
         r"params\.layers\[0\]\.w"),
    ],
)
def test_a_path_that_leads_nowhere_is_refused(argnums, message):
    with pytest.raises(ArgumentError, match=message):
        ft.grad(loss, argnums)(net(), X)


@pytest.mark.parametrize("text", ["params.", "f(x)", "x[i]", "1", "a b"])
def test_what_is_no_path_is_refused(text):
    with pytest.raises(ArgumentError, match="argnums must be ints or parameter names, or paths"):
        ft.grad(loss, text)


def test_entries_of_dicts_are_named_by_dots_too():
    tables = {"a": {"w": np.ones(2), "b": 3.0}}

    def loss(tables):
        return np.sum(tables["a"]["w"] ** 2) * tables["a"]["b"]

    assert_array_equal(ft.grad(loss, "tables.a.w")(tables), ft.grad(loss)(tables)["a"]["w"])
    with pytest.raises(ArgumentError, match="names an argument of `loss` twice"):
        ft.grad(loss, ("tables.a.w", "tables['a']['w']"))(tables)
