"""Every error: its type, and that its text names the function, what was found and what to do."""

import functools
import json
import math
import operator
import pickle
import re
from collections import deque
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse

import functrans as ft
import functrans.numpy as fnp
from functrans import errors

X = np.array([1.0, 2.0, 3.0])


def total(x):
    return np.sum(x)


def square(x):
    return x * x


def raises(kind, *words):
    """``pytest.raises`` whose text holds ``words`` in this order."""
    return pytest.raises(kind, match="(?s)" + ".*".join(map(re.escape, words)))


REFUSED = {
    "grad of a vector output": (lambda: ft.grad(square)(X), errors.NotDifferentiable,
        "grad needs a scalar output", "`square`", "float64[3]", "jacobian"),
    "grad of a container output": (lambda: ft.grad(lambda x: (x.sum(), x.sum()))(X),
        errors.NotDifferentiable, "scalar output", "(float64[], float64[])"),
    "grad of a complex output": (lambda: ft.grad(lambda z: z * z)(1j), errors.NotDifferentiable,
        "real output", "complex128[]", "holomorphic"),
    "holomorphic wants complex": (lambda: ft.grad(total, holomorphic=True)(X),
        errors.NotDifferentiable, "holomorphic=True", "float64"),
    "integer argument": (lambda: ft.grad(total)(np.arange(3)), errors.NotDifferentiable,
        "argument 0 of `total`", "int64[3]", "astype(float)"),
    "aux that is not there": (lambda: ft.grad(total, has_aux=True)(X), errors.ArgumentError,
        "has_aux", "`total`", "(output, aux)"),
    "linear transpose of something else": (lambda: ft.linear_transpose(square, X),
        errors.ArgumentError, "`square` is not linear"),
    "derivative of a function of a vector": (lambda: ft.derivative(total)(X),
        errors.ArgumentError, "derivative", "`total`", "float64[3]", "jacobian"),
    "branching on a batched value": (lambda: ft.vmap(lambda x: x if x > 0 else -x)(X),
        errors.ConcretizationError, "test_bad_input.py", "bool()", "np.where"),
    "an unsupported numpy function raises when called": (
        lambda: ft.grad(lambda x: np.packbits(x).sum())(X), errors.UnsupportedError,
        "test_bad_input.py", "np.packbits", "custom_jvp"),
    "while loop for less than no steps": (
        lambda: ft.while_loop(lambda x: True, square, X, max_steps=-1), errors.ArgumentError,
        "while_loop: max_steps", "but is -1"),
    "derivative of what is no number": (lambda: ft.derivative(square)("a"), errors.ArgumentError,
        "derivative", "`square`", "str 'a'"),
    "hvp speaks of itself": (lambda: ft.hvp(total, X, np.ones(2)), errors.ShapeError,
        "hvp: tangent 0 of `total`", "(3,)", "(2,)"),
    "nothing to differentiate at all": (lambda: ft.vjp(total), errors.ArgumentError,
        "vjp: `total` was given no arguments"),
    "a traced number is not iterable": (lambda: ft.grad(sum)(1.0), TypeError,
        "iteration over a 0-d array"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name):
    call, kind, *words = REFUSED[name]
    with raises(kind, *words):
        call()


@pytest.mark.parametrize("transform", [lambda f: f, ft.vmap, ft.value_and_grad])
def test_a_partial_has_the_name_of_its_function(transform):
    with raises(errors.FunctransError, "of `square`"):
        ft.jit(transform(functools.partial(square)))(object())


@pytest.mark.parametrize("who, call", [
    ("hvp", lambda: ft.hvp(square, X, X)),
    ("vhp", lambda: ft.vhp(square, X, X)),
    ("ggnvp", lambda: ft.ggnvp(square, square, X, X)),
    ("certify", lambda: ft.certify(square)(np.ones(3))),
])
def test_errors_name_the_function_that_was_called(who, call):
    with raises(errors.NotDifferentiable, f"{who} needs a scalar output, but `square` returned"):
        call()


def test_grad_of_an_integer_output():
    with raises(errors.NotDifferentiable, "`count`", "int64[]"):

        def count(x):
            return np.argmax(x)

        ft.grad(count)(X)


def test_object_and_string_arrays():
    with raises(errors.ArgumentError, "argument 0 of `total`", "object"):
        ft.grad(total)(np.array([1, None], dtype=object))
    with raises(errors.ArgumentError, "argument 0 of `total`", "<U1"):
        ft.grad(total)(np.array(["a"]))


@pytest.mark.parametrize("argnums", [1, -2, "nothing", (0, 3)])
def test_unknown_argnums(argnums):
    with raises(errors.ArgumentError, "grad", "`total`", "1 positional"):
        ft.grad(total, argnums)(X)


def test_argnums_of_a_wrong_kind_and_repeated():
    with raises(errors.ArgumentError, "argnums must be ints or parameter names", "1.5"):
        ft.grad(total, (1.5,))(X)
    with raises(errors.ArgumentError, "`total`", "twice"):
        ft.grad(total, (0, -1))(X)


def test_not_a_function():
    for transform in (
        ft.grad,
        ft.jacobian,
        ft.vmap,
        ft.hessian,
        ft.derivative,
        ft.elementwise_grad,
    ):
        with raises(errors.ArgumentError, "needs a function", "float64[3]"):
            transform(X)


def test_tangent_of_wrong_shape_structure_or_kind():
    with raises(errors.ShapeError, "jvp", "tangent 0 of `square`", "(3,)", "(2,)"):
        ft.jvp(square, (X,), (np.ones(2),))
    with raises(errors.ArgumentError, "jvp", "`square`", "tangents"):
        ft.jvp(square, (X,), (X, X))
    with raises(errors.ArgumentError, "tangent 0", "structure"):
        ft.jvp(lambda d: d["a"], ({"a": X},), ((X,),))
    with raises(errors.ArgumentError, "tangent 0 of `square`", "complex"):
        ft.jvp(square, (X,), (X * 1j,))
    with raises(errors.ArgumentError, "tangent 0 of `square`", "str"):
        ft.jvp(square, (X,), ("abc",))


def test_cotangent_of_wrong_shape_or_structure():
    _, pull = ft.vjp(square, X)
    with raises(errors.ShapeError, "pullback", "cotangent of `square`", "(3,)", "()"):
        pull(1.0)
    with raises(errors.ArgumentError, "pullback", "structure"):
        pull((X, X))


def test_pushforward_with_a_wrong_number_of_tangents():
    _, push = ft.linearize(square, X)
    with raises(errors.ArgumentError, "pushforward of `square` takes 1 tangents, but got 2"):
        push(X, X)


def test_jacobian_options():
    with raises(errors.ArgumentError, "mode", "'sideways'"):
        ft.jacobian(square, mode="sideways")
    with raises(errors.ArgumentError, "chunk_size", "0"):
        ft.jacobian(square, chunk_size=0)


def test_vmap_sizes_that_differ():
    with raises(
        errors.ShapeError,
        "argument 1 of `add`",
        "size 4 on axis 0",
        "argument 0 has size 5",
        "in_axes",
    ):

        def add(a, b):
            return a + b

        ft.vmap(add)(np.zeros(5), np.zeros(4))


def test_vmap_axes_that_do_not_fit():
    with raises(errors.ArgumentError, "in_axes", "2 entries"):
        ft.vmap(np.add, in_axes=(0,))(X, X)
    with raises(errors.ShapeError, "no axis 1"):
        ft.vmap(total, in_axes=1)(X)
    with raises(errors.ShapeError, "`total`", "scalar", "None"):
        ft.vmap(total)(1.0)
    with raises(errors.ArgumentError, "axis_size"):
        ft.vmap(total, in_axes=None)(X)


@pytest.mark.parametrize("call", [float, math.sin, complex])
def test_a_traced_value_where_a_number_is_needed(call):
    with raises(errors.ConcretizationError, "test_bad_input.py", "float64[]", "derivative"):
        ft.grad(lambda x: call(x) * x)(1.0)


def test_a_traced_value_into_an_ndarray():
    def fill(x):
        y = np.zeros(3)
        y[0] = x[0]
        return y.sum()

    with pytest.raises((errors.ConcretizationError, ValueError)):
        ft.grad(fill)(X)
    with raises(errors.ConcretizationError, "np.stack"):
        ft.grad(lambda x: np.array([x[0], x[1]]).sum())(X)


def test_assignment_names_at():
    calls = {"set": operator.setitem}
    with raises(errors.ImmutableError, "test_bad_input.py", ".at[index]"):
        ft.grad(lambda x: calls["set"](x, 0, 1.0))(X)
    with raises(errors.ImmutableError, ".at[index]"):
        ft.grad(total)(X)[0] = 2.0


def test_a_leaked_tracer():
    kept = []
    ft.grad(lambda x: kept.append(x) or x.sum())(X)
    with raises(errors.LeakedTracerError, "test_bad_input.py", "`multiply`", "grad(<lambda>)"):
        kept[0] * 2
    ft.vmap(lambda x: kept.append(x) or x)(X)
    with raises(errors.LeakedTracerError, "`sin`", "vmap(<lambda>)"):
        np.sin(kept[1])
    ft.jvp(lambda x: kept.append(x) or x, (X,), (X,))
    with raises(errors.LeakedTracerError, "`add`", "jvp(<lambda>)"):
        kept[2] + 1


def test_out_of_a_ufunc():
    cures = "use the value", "functrans.numpy.zeros"
    with raises(errors.UnsupportedError, "np.sin got out=", *cures):
        ft.grad(lambda x: np.sin(x, out=np.zeros(3)).sum())(X)


def test_errors_are_the_builtin_ones_too():
    assert issubclass(errors.ShapeError, ValueError)
    assert issubclass(errors.NotDifferentiable, TypeError)
    assert issubclass(errors.LeakedTracerError, RuntimeError)


def test_numpys_own_errors_pass_through():
    with pytest.raises(ValueError, match="broadcast"):
        ft.grad(lambda x: (x + np.ones(2)).sum())(X)
    with pytest.raises(IndexError):
        ft.grad(lambda x: x[7])(X)


def test_nan_and_inf_behave_as_numpys():
    x = np.array([np.nan, np.inf, 1.0])
    y, pull = ft.vjp(np.sin, np.array([0.0, 1.0, np.nan]))
    assert np.isnan(y[2])
    assert np.isnan(pull(np.ones(3))[0][2])
    assert np.isnan(ft.grad(lambda x: np.sum(x * x))(x)[0])
    assert ft.grad(lambda x: np.sum(x * x))(x)[1] == np.inf


def test_vmap_axes_that_are_not_there():
    with raises(errors.ShapeError, "out_axes", "axis 5", "`square`", "1 axes"):
        ft.vmap(square, out_axes=5)(X)
    with raises(errors.ShapeError, "axis_size is 4", "argument 0 of `square` has size 3 on axis 0"):
        ft.vmap(square, axis_size=4)(X)
    with raises(errors.ArgumentError, "in_axes {'b': 0} does not fit"):
        ft.vmap(lambda d: d["a"], in_axes=({"b": 0},))({"a": X})
    np.testing.assert_array_equal(ft.vmap(lambda d: d["a"], in_axes=({"a": 0},))({"a": X}), X)


@pytest.mark.parametrize("size", [0, -1, 1.5, "auto"])
def test_vmap_chunks_of_no_size(size):
    with raises(errors.ArgumentError, "vmap: chunk_size must be", repr(size)):
        ft.vmap(square, chunk_size=size)


def test_static_arguments_of_a_wrong_kind():
    with raises(errors.ArgumentError, "jit: static_argnums", "int", "'a'"):
        ft.jit(square, static_argnums="a")
    with raises(errors.ArgumentError, "jit: static_argnames", "str", "3"):
        ft.jit(square, static_argnames=3)
    with raises(errors.ArgumentError, "jit: static_argnums", "(0.5,)"):
        ft.jit(square, static_argnums=(0.5,))


def test_settings_of_a_wrong_kind():
    with raises(errors.ArgumentError, "config: threads", "'a'"), ft.config(threads="a"):
        pass
    with raises(errors.ArgumentError, "config: jit", "'off'"), ft.config(jit="off"):
        pass


@pytest.mark.parametrize("update", ["set", "add", "mul", "max"])
def test_a_complex_number_put_into_a_real_array(update):
    place = ft.array(X).at[0]
    with raises(errors.ArgumentError, "float64 was given complex128", "imaginary part"):
        getattr(place, update)(1j)
    with raises(errors.ArgumentError, "imaginary part"):
        ft.grad(lambda x: np.sum(getattr(x.at[:2], update)(1j * x[:2])))(X)


OTHER_ARRAYS = {
    "numpy.ma.MaskedArray": lambda: np.ma.masked_array(X, X > 2),
    "numpy.matrix": lambda: np.matrix(X),
}


@pytest.mark.parametrize("name", OTHER_ARRAYS)
@pytest.mark.filterwarnings("ignore:the matrix subclass:PendingDeprecationWarning")
def test_arrays_with_arithmetic_of_their_own(name):
    other = OTHER_ARRAYS[name]()
    for call in (
        lambda: ft.grad(total)(other),
        lambda: ft.jvp(total, (other,), (X,)),
        lambda: ft.jit(total)(other),
        lambda: ft.vmap(square)(other),
        lambda: ft.grad(lambda x: np.sum(x * other))(X),
        lambda: ft.jvp(lambda x: x * other, (X,), (X,)),
        lambda: ft.vmap(lambda x: x + other)(X),
        lambda: ft.jit(lambda x: np.multiply(other, x))(X),
        lambda: ft.grad(lambda x: np.sum(np.where(x > 0, x, other)))(X),
    ):
        with raises(errors.ArgumentError, name, "arithmetic of its own", "np.asarray(x)"):
            call()


def test_arrays_of_a_class_without_arithmetic_of_its_own(tmp_path):
    mapped = np.memmap(tmp_path / "x", float, "w+", shape=3)
    mapped[...] = X
    for other in (mapped, np.rec.array(X)):
        for f in (ft.grad(lambda x: np.sum(x * x)), ft.jit(lambda x: 2 * x)):
            np.testing.assert_array_equal(f(other), 2 * X)
        np.testing.assert_array_equal(ft.grad(lambda x, y=other: np.sum(x * y))(X), X)


@pytest.mark.parametrize("dtype", [object, str, "S8", "M8[s]"])
def test_a_traced_array_of_a_type_without_derivatives(dtype):
    with raises(errors.ArgumentError, "float64[3] traced by grad", "cannot become", "lost"):
        ft.grad(lambda x: np.sum(x.astype(dtype)))(X)


@pytest.mark.parametrize("other", [Fraction(1, 2), Decimal(2)], ids=["Fraction", "Decimal"])
def test_an_operand_that_is_no_array_and_no_number(other):
    for call in (
        lambda: ft.jvp(lambda x: x * other, (X,), (X,)),
        lambda: ft.vjp(lambda x: x * other, X),
        lambda: ft.jit(lambda x: x * other)(X),
        lambda: ft.vmap(lambda x: x * other)(np.eye(3)),
    ):
        with raises(errors.ArgumentError, "`multiply` got", type(other).__name__, "float(x)"):
            call()


def test_a_sparse_array_is_an_operand_of_operators_alone():
    A = scipy.sparse.csr_array(np.eye(3))
    with raises(errors.ArgumentError, "`multiply` got", "csr_array", "x.toarray()"):
        ft.vjp(lambda x: np.multiply(x, A), X)
    with raises(errors.ArgumentError, "SparseArray", "not a number"):
        ft.vjp(lambda x: x[0] * A, X)


def test_a_list_beside_a_batch_is_an_array():
    close = np.testing.assert_array_equal
    close(ft.vmap(lambda x: x * [1.0, 2.0, 3.0])(np.eye(3)), np.eye(3) * [1.0, 2.0, 3.0])


def test_nothing_equals_none():
    # entry by entry, as NumPy's
    assert not ft.vjp(lambda x: x == None, X)[0].any()  # noqa: E711  # what is tested
    assert ft.vjp(lambda x: x != None, X)[0].all()  # noqa: E711  # likewise


ONES = np.ones(3)
NOTHING = np.array(None)


@pytest.mark.parametrize("call, match", [
    (lambda: ft.jit(lambda x: ft.cond(x[0] > 0, lambda x: NOTHING, lambda x: NOTHING, x))(ONES),
     "cond returned object"),
    (lambda: ft.jit(lambda x: ft.scan(lambda c, x: (c, NOTHING), 0.0, x))(ONES), "scan returned"),
    (lambda: ft.jit(lambda x: ft.while_loop(lambda c: None, lambda c: c * 2, x))(ONES),
     "while_loop: the predicate must be a boolean, but is None"),
    (lambda: ft.switch(0, None, ONES), "switch: branches must be functions, but is None"),
    (lambda: ft.scan(lambda c, x: (c, x), 0.0, None, length="3"), "scan: length must be an int"),
    (lambda: ft.tree.unflatten([0], [1]), "tree.unflatten takes what tree.structure"),
    (lambda: ft.elementwise_grad(lambda x: (x, x))(ONES), "elementwise_grad: `<lambda>` returned"),
    (lambda: ft.random.normal(ft.random.key(0), None), "parameters of random.normal are real"),
    (lambda: ft.random.exponential(ft.random.key(0), "a"), "parameters of random.exponential"),
])
def test_what_is_no_number_and_no_function(call, match):
    with pytest.raises(errors.ArgumentError, match=match):
        call()


def test_numbers_among_outputs_have_the_jacobian_zero():
    for J in (ft.jacobian, ft.jacfwd, ft.jacrev):
        whole, none = J(lambda x: (x, 1.5))(ONES)
        assert whole.tolist() == np.eye(3).tolist() and none.tolist() == [0, 0, 0]


def test_branches_may_return_nothing():
    nothing = ft.jit(lambda x: (x * 2, ft.cond(x[0] > 0, lambda x: None, lambda x: None, x)))
    doubled, none = nothing(ONES)
    assert doubled.tolist() == [2, 2, 2] and none is None


TRANSFORMED = {
    "grad": lambda f: ft.grad(f)(1.0), "value_and_grad": lambda f: ft.value_and_grad(f)(1.0),
    "vjp": lambda f: ft.vjp(f, 1.0), "linearize": lambda f: ft.linearize(f, 1.0),
    "jvp": lambda f: ft.jvp(f, 1.0, 1.0), "jet": lambda f: ft.jet(f, 1.0, [1.0]),
    "jacobian": lambda f: ft.jacobian(f)(1.0), "hessian": lambda f: ft.hessian(f)(1.0),
    "hvp": lambda f: ft.hvp(f, 1.0, 1.0), "vmap": lambda f: ft.vmap(f)(np.ones(2)),
    "jit": lambda f: ft.jit(f)(1.0), "checkpoint": lambda f: ft.grad(ft.checkpoint(f))(1.0),
    "aux": lambda f: ft.grad(lambda x: (x, f(x)), has_aux=True)(1.0),
}


@pytest.mark.parametrize("kept_by", ["grad", "jvp", "vmap", "jit", "jet"])
@pytest.mark.parametrize("transform", TRANSFORMED.values(), ids=TRANSFORMED)
def test_a_kept_value_is_refused_where_it_is_returned_as_it_is(kept_by, transform):
    cache = []

    def remembered(x):
        if not cache:
            cache.append(x * x)
        return cache[0]

    TRANSFORMED[kept_by](remembered)
    with raises(errors.LeakedTracerError, "a traced value of", "already ended"):
        transform(remembered)


PICKLED = {
    "jvp": lambda f: ft.jvp(f, (3.0,), (1.0,)), "grad": lambda f: ft.grad(f)(3.0),
    "jit": lambda f: ft.jit(f)(3.0), "vmap": lambda f: ft.vmap(f)(X),
}


@pytest.mark.parametrize("call", PICKLED.values(), ids=PICKLED)
def test_a_traced_value_is_not_pickled(call):
    with raises(errors.ArgumentError, "cannot be pickled", "derivative would be lost"):
        call(lambda x: pickle.loads(pickle.dumps(x)) * x)

    def written(x):
        y = fnp.zeros(2)
        z = pickle.loads(pickle.dumps(y))
        y[0] = x
        return y.sum() + z.sum() + len(pickle.dumps(y))

    with raises(errors.ArgumentError, "cannot be pickled"):
        call(written)


@pytest.mark.parametrize("f", [
    lambda x: memoryview(x), lambda x: Decimal(x), lambda x: json.dumps([x]),  # of names
    lambda x: x.append(1.0),
], ids=["buffer", "Decimal", "json", "append"])
def test_errors_that_name_our_classes_say_what_they_are(f):
    def written(x):
        y = fnp.zeros(2)
        y[0] = x
        return f(y) if f(x) is None else f(x)

    with pytest.raises((TypeError, AttributeError)) as found:
        ft.grad(ft.grad(written))(1.0)
    notes = found.value.__notes__
    assert len([n for n in notes if "is a traced array of functrans" in n]) == 1


@pytest.mark.parametrize("call", [
    lambda: ft.grad(len)({1.0}), lambda: ft.grad(len)(deque([1.0])),
    lambda: ft.grad(len)(SimpleNamespace(a=1.0)),
], ids=["set", "deque", "object"])
def test_a_container_that_transforms_do_not_know_says_which_they_do(call):
    with raises(errors.NotDifferentiable, "lists, tuples, dicts or dataclasses", "tree.register"):
        call()


def test_what_jit_cannot_hash_says_what_it_is():
    with raises(errors.ArgumentError, "SimpleNamespace", "neither a number", "tree.register"):
        ft.jit(lambda x, o: x * o.a)(X, SimpleNamespace(a=2.0))
    with raises(errors.ArgumentError, "static argument", "cannot be hashed: [int 1]"):
        ft.jit(lambda x, n: x * n[0], static_argnums=1)(X, [1])


@pytest.mark.parametrize("name", ["save", "savetxt", "savez", "array2string", "array_repr"])
def test_numbers_for_people_have_no_derivative(name):
    with raises(errors.UnsupportedError, f"np.{name} makes text or a file", "ft.stop_gradient(x)"):
        ft.grad(lambda x: getattr(np, name)(x, x) and x.sum())(X)


@pytest.mark.parametrize(("args", "axes", "text"), [
    (({"a": np.ones(3), "b": np.ones(4)}, np.ones(3)), 0,
     r"argument 0\['b'\] of `f` has size 4 on axis 0, argument 0\['a'\] has size 3"),
    (({"a": np.ones(3), "b": 1.0}, np.ones(3)), (None, 2),
     r"argument 1 of `f` has shape \(3,\), which has no axis 2"),
    (("abc",), 0, r"nothing to map over in `f`, which was given str 'abc'\. Pass arrays"),
])
def test_vmap_says_which_part_of_which_argument_does_not_fit(args, axes, text):
    def f(*xs):
        return xs

    with pytest.raises((errors.ShapeError, errors.ArgumentError), match=text):
        ft.vmap(f, in_axes=axes)(*args)


def test_argnums_that_fit_no_parameter_are_told_the_parameters():
    def f(x, y):
        return x * y

    with pytest.raises(errors.ArgumentError, match=r"2 positional .*; its parameters are x, y"):
        ft.grad(f, argnums="z")(1.0, 2.0)


def test_a_user_s_folder_may_be_called_numpy():
    path = "/home/user/numpy/model.py"
    scope = {"__name__": "model", "math": math}
    exec(compile("def f(x):\n    return math.exp(x[0])", path, "exec"), scope)
    with pytest.raises(ft.errors.ConcretizationError) as error:
        ft.grad(scope["f"])(np.array([1.0, 2.0]))
    assert str(error.value).startswith(f"{path}:2: ")
