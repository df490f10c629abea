"""``functrans.scipy.ndimage``: values are SciPy's, and derivatives those of SciPy's values."""

import numpy as np
import pytest
import scipy.ndimage

import functrans as ft
from functrans.errors import NotDifferentiable, UnsupportedError
from functrans.scipy import ndimage
from tests.drawing import generator
from tests.scipy.agreement import assert_derivatives, assert_transforms, close

pytestmark = pytest.mark.usefixtures("unoptimised")

si = scipy.ndimage
RNG = generator(0)
X = RNG.normal(size=(4, 5))
W, K = RNG.normal(size=(3, 2)), RNG.normal(size=4)
P = RNG.uniform(0.1, 2.9, size=(2, 6))
FAR = RNG.uniform(-9, 13, size=(2, 40))
FILTERS = ["reflect", "grid-mirror", "mirror", "nearest", "wrap", "grid-wrap", "constant",
           "grid-constant"]


def of(name, *behind, **options):
    return lambda *args: getattr(ndimage, name)(*args, *behind, **options)


LINEAR = {
    **{f"correlate {m}": (of("correlate", mode=m, cval=2.0, origin=(1, 0)), X, W) for m in FILTERS},
    "convolve": (of("convolve", axes=(0, 1)), X, W),
    "convolve complex": (of("convolve"), X + 1j, W - 1j),
    "correlate complex": (of("correlate"), X + 1j, W - 1j),
    "correlate1d": (of("correlate1d", axis=0, origin=-1), X, K),
    "convolve1d": (of("convolve1d", mode="mirror"), X, K),
    "uniform_filter": (of("uniform_filter", (1, 3)), X),
    "uniform_filter1d": (of("uniform_filter1d", 4, origin=1), X),
    "sobel": (of("sobel"), X),
    "prewitt": (of("prewitt", axis=0), X),
    "laplace": (of("laplace", axes=(0,)), X),
    "gaussian_filter of orders": (of("gaussian_filter", [0.7, 0.6], [1, 3]), X),
    "gaussian_filter of nothing": (of("gaussian_filter", 0), X),
    "maximum_filter": (of("maximum_filter", (3, 2), mode="wrap"), X),
    "minimum_filter": (of("minimum_filter", footprint=[[1, 0, 1], [0, 1, 1]]), X),
    "maximum_filter1d": (of("maximum_filter1d", 3, axis=0), X),
    "minimum_filter1d": (of("minimum_filter1d", 2, mode="constant", cval=9.0), X),
    "median_filter": (of("median_filter", 3), X),
    "rank_filter": (of("rank_filter", -2, (2, 3)), X),
    "percentile_filter": (of("percentile_filter", 20, 3), X),
    **{f"spline_filter {m} {n}": (
           lambda x, n=n, m=m: ndimage.spline_filter(x, n, output=x.dtype, mode=m), X)
       for m in ("mirror", "reflect", "grid-wrap") for n in (2, 3, 5)},
    "spline_filter1d": (of("spline_filter1d", axis=0, output=complex), X + 1j),
    "zoom": (of("zoom", (1.6, 0.7), order=1, mode="nearest"), X),
    "zoom grid": (of("zoom", 2, mode="grid-constant", grid_mode=True), X),
}
SMOOTH = {
    "gaussian_filter": (lambda x, s: ndimage.gaussian_filter(x, s, radius=2), X, np.array(0.8)),
    "gaussian_laplace": (lambda x, s: ndimage.gaussian_laplace(x, s, radius=2), X, np.array(0.8)),
    "gaussian_gradient_magnitude": (of("gaussian_gradient_magnitude", 0.7), X),
    **{f"map_coordinates {n}": (of("map_coordinates", order=n), X, P) for n in range(1, 6)},
    "affine_transform": (of("affine_transform", output_shape=(3, 2)), X,
                         np.array([[0.9, 0.1], [0.2, 0.7]]), np.array([0.4, 0.3])),
    "affine_transform diagonal": (of("affine_transform", order=1, mode="mirror"), X,
                                  np.array([0.9, 0.7]), np.array([0.41, 0.33])),
    "affine_transform homogeneous": (of("affine_transform", mode="grid-wrap"), X,
                                     np.array([[0.9, 0.1, 0.2], [0.2, 0.7, 0.3]])),
    "shift": (of("shift", mode="reflect"), X, np.array([0.3, -1.2])),
    "shift of all": (of("shift", order=1, mode="grid-wrap"), X, np.array(0.3)),
    "rotate": (of("rotate", mode="nearest", reshape=False), X, np.array(20.0)),
    "rotate planes": (of("rotate", axes=(0, 2), order=2, mode="mirror", reshape=False),
                      np.stack([X, 2 * X, X]), np.array(50.0)),
}
CASES = {**LINEAR, **SMOOTH}


@pytest.mark.parametrize("name", CASES)
def test_values_are_scipy_s_and_slopes_those_of_its_values(name):
    f, *args = CASES[name]
    # a filter whose number of weights sigma says needs it as a number
    assert_derivatives(f, *args, order=2 if name.endswith(("filter", "3", "transform")) else 1)


@pytest.mark.parametrize("mode", FILTERS)
@pytest.mark.parametrize("order", range(6))
def test_far_outside_values_are_scipy_s(mode, order):
    c = FAR.copy()
    c[:, :20] = np.round(c[:, :20] * 2) / 2  # entries, and points halfway between
    for prefilter in (True, False):
        options = {"order": order, "mode": mode, "cval": 0.7, "prefilter": prefilter}
        y, t = ft.jvp(lambda x, o=options: ndimage.map_coordinates(x, c, **o), (X,), (X[::-1],))
        close(y, si.map_coordinates(X, c, **options))
        close(t, si.map_coordinates(X[::-1], c, **{**options, "cval": 0.0}))


@pytest.mark.parametrize("mode", FILTERS)
def test_slopes_in_coordinates_go_on_outside(mode):
    assert_derivatives(of("map_coordinates", mode=mode, prefilter=False), X, FAR[:, 20:], order=1)


@pytest.mark.parametrize("name", ["correlate mirror", "gaussian_filter", "map_coordinates 3",
                                  "affine_transform", "spline_filter mirror 3", "maximum_filter"])
def test_it_runs_in_batches_and_compiled(name):
    f, *args = CASES[name]
    assert_transforms(f, *args)


@pytest.mark.parametrize("order", [1, 3])
def test_points_move_in_a_plain_image_in_batches_and_compiled(order):
    c = np.stack([P, P + 0.1])

    def value(c):
        return np.sum(ndimage.map_coordinates(X, c, order=order) ** 2)

    def turned(a):
        return np.sum(ndimage.affine_transform(X, np.eye(2) + a, 0.3, order=order) ** 2)

    for f, batch in ((value, c), (turned, np.array([0.1, 0.2]))):
        expected = [ft.grad(f)(x) for x in batch]
        np.testing.assert_allclose(ft.vmap(ft.grad(f))(batch), expected, rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(ft.jit(ft.vmap(ft.grad(f)))(batch), expected, rtol=1e-12,
                                   atol=1e-13)


def test_an_order_of_a_filter_s_transpose_is_the_filter():
    for mode in ("mirror", "reflect", "grid-wrap"):
        for n in (1, 2, 3, 6, 33):
            J = ft.jacrev(lambda x, m=mode: ndimage.spline_filter1d(x, mode=m))(np.zeros(n))
            columns = [si.spline_filter1d(e, mode=mode) for e in np.eye(n)]
            np.testing.assert_allclose(J.T, columns, atol=1e-14)


def test_at_entries_the_slope_of_order_1_is_to_the_right_and_inside():
    g = ft.jacobian(lambda c: ndimage.map_coordinates(np.array([0.0, 1.0, 4.0]), c[None], order=1))
    assert list(np.diag(g(np.array([0.0, 1.0, 2.0])))) == [1.0, 3.0, 3.0]
    steps = ft.grad(lambda c: ndimage.map_coordinates(X, c, order=0).sum())
    assert not steps(P).any()


def test_extremes_that_tie_share():
    g = ft.grad(lambda x: ndimage.maximum_filter(x, (3, 3))[1, 1])(np.ones((3, 3)))
    np.testing.assert_allclose(g, 1 / 9)


def test_single_precision_stays_single_and_empty_empty():
    for f in (of("gaussian_filter", 1.0), of("sobel"), of("map_coordinates", P), of("shift", 0.5)):
        y, pull = ft.vjp(f, X.astype(np.float32))
        close(y, f(X.astype(np.float32)), rtol=1e-5)  # float32
        assert pull(y)[0].dtype == np.float32
    assert ft.vjp(of("uniform_filter1d", 3), np.zeros((0, 2)))[0].shape == (0, 2)
    assert ft.vjp(of("convolve1d", K, output=np.float64), X.astype(np.float32))[0].dtype == float
    assert ft.vjp(of("convolve1d", 1j * K, output=complex), X)[0].dtype == complex


BAD = {
    "no weights": ("correlate1d", (X, np.zeros(0)), {}),
    "ranks": ("correlate", (X, K), {}),
    "origin": ("correlate1d", (X, K), {"origin": 2}),
    "origins": ("correlate", (X, W), {"origin": 3}),
    "modes": ("correlate", (X, W), {"mode": ["wrap", "wrap"]}),
    "mode": ("convolve", (X, W), {"mode": "x"}),
    "order": ("gaussian_filter1d", (X, 1.0), {"order": -1}),
    "radius": ("gaussian_filter1d", (X, 1.0), {"radius": 1.5}),
    "sigmas": ("gaussian_filter", (X, [1.0, 1.0, 1.0]), {}),
    "size": ("uniform_filter1d", (X, 0), {}),
    "largest size": ("maximum_filter1d", (X, 0), {}),
    "no footprint": ("maximum_filter", (X,), {}),
    "empty footprint": ("maximum_filter", (X,), {"footprint": [[0, 0]]}),
    "footprint rank": ("maximum_filter", (X,), {"footprint": [1, 0]}),
    "window origin": ("maximum_filter", (X, 3), {"origin": 4}),
    "complex": ("maximum_filter", (X + 1j, 3), {}),
    "rank": ("rank_filter", (X, 20, 3), {}),
    "percentile": ("percentile_filter", (X, 120, 3), {}),
    "spline order": ("map_coordinates", (X, P), {"order": 6}),
    "spline filter order": ("spline_filter", (X,), {"order": 1}),
    "spline mode": ("map_coordinates", (X, P), {"mode": "x"}),
    "coordinates": ("map_coordinates", (X, P[:1]), {}),
    "coordinates rank": ("map_coordinates", (X, P[:, 0]), {}),
    "complex coordinates": ("map_coordinates", (X, P + 0j), {}),
    "0-d": ("shift", (np.array(1.0), 1.0), {}),
    "matrix": ("affine_transform", (X, np.ones((1, 1, 1))), {}),
    "rows": ("affine_transform", (X, np.eye(4)), {}),
    "columns": ("affine_transform", (X, np.eye(2)), {"output_shape": (3,)}),
    "bottom row": ("affine_transform", (X, np.ones((3, 3))), {}),
    "rotated vector": ("rotate", (K, 3.0), {}),
    "rotation plane": ("rotate", (X, 3.0), {"axes": (0, 1, 1)}),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_reported_as_by_scipy(name):
    function, args, options = BAD[name]
    with pytest.raises(Exception) as theirs:  # whatever SciPy raises
        getattr(si, function)(*args, **options)

    def f(x):
        return getattr(ndimage, function)(x, *args[1:], **options)

    with pytest.raises(type(theirs.value)) as ours:
        ft.vjp(f, args[0])
    assert str(ours.value).split()[:2] == str(theirs.value).split()[:2]


def test_what_has_no_derivative_is_named():
    with pytest.raises(NotDifferentiable, match="correlate1d rounds its result to int64"):
        ft.grad(lambda w: ndimage.correlate1d(np.arange(4), w).sum())(K)
    with pytest.raises(NotDifferentiable, match="zoom got a traced factor"):
        ft.grad(lambda z: ndimage.zoom(X, z).sum())(2.0)
    with pytest.raises(UnsupportedError, match=r"sobel got an array as output="):
        ft.vjp(lambda x: ndimage.sobel(x, output=np.zeros((4, 5))), X)
    with pytest.raises(UnsupportedError, match=r"gaussian_filter1d got sigma=.*Pass radius"):
        ft.jit(lambda s: ndimage.gaussian_filter1d(X, s))(1.0)
    with pytest.raises(UnsupportedError, match=r"rotate got an angle .*Pass reshape=False"):
        ft.jit(lambda a: ndimage.rotate(X, a))(20.0)
    with pytest.raises(UnsupportedError, match="percentile_filter got percentile="):
        ft.grad(lambda p: ndimage.percentile_filter(X, p, 3).sum())(20.0)


def test_scipy_s_warnings_are_given():
    with pytest.warns(UserWarning, match="ignoring size because footprint is set"):
        ft.vjp(of("maximum_filter", 3, [[1, 1]]), X)
    with pytest.warns(UserWarning, match="It is recommended to use mode = grid-constant"):
        ft.vjp(of("zoom", 2, grid_mode=True), X)
    with pytest.warns(UserWarning, match="promoting specified output dtype to complex"):
        ft.vjp(of("spline_filter1d"), X + 1j)
