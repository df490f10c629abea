"""``functrans.scipy.spatial``: distances are SciPy's, and slopes those of SciPy's values."""

from typing import Any

import numpy as np
import pytest
import scipy.spatial

import functrans as ft
from functrans.errors import NotDifferentiable, UnsupportedError
from functrans.scipy import spatial
from functrans.scipy.spatial import distance
from tests.drawing import generator
from tests.scipy.agreement import assert_derivatives, assert_transforms, close

sd: Any = scipy.spatial.distance  # its types say less than its functions take
RNG = generator(0)
A, B = RNG.uniform(0.1, 2, size=(4, 3)), RNG.uniform(0.1, 2, size=(2, 3))
MANY = RNG.uniform(0.1, 2, size=(6, 3))
U, V, W = RNG.uniform(0.1, 2, size=(3, 3))
OPTIONS = {"minkowski": {"p": 3}, "seuclidean": {"V": W},
           "mahalanobis": {"VI": np.eye(3) + 0.1 * A[:3] @ A[:3].T}}
METRICS = ["braycurtis", "canberra", "chebyshev", "cityblock", "correlation", "cosine",
           "euclidean", "jensenshannon", "mahalanobis", "minkowski", "seuclidean", "sqeuclidean"]


@pytest.mark.parametrize("metric", METRICS)
def test_distances_of_pairs(metric):
    options = OPTIONS.get(metric, {})
    assert_derivatives(lambda a, b: distance.cdist(a, b, metric, **options), A, B)
    assert_derivatives(lambda a: distance.pdist(a, metric, **options), A, order=1)
    assert_derivatives(lambda u, v: getattr(distance, metric)(u, v, *options.values()), U, V)


WEIGHTED = [m for m in METRICS if m not in ("jensenshannon", "mahalanobis", "seuclidean")]


@pytest.mark.parametrize("metric", WEIGHTED)
def test_distances_with_weights(metric):
    assert_derivatives(lambda u, v: getattr(distance, metric)(u, v, w=W), U, V, order=1)
    if metric != "chebyshev":
        assert_derivatives(lambda w: getattr(distance, metric)(U, V, w=w), W)
    if metric not in ("chebyshev", "correlation", "cosine"):
        assert_derivatives(lambda a: distance.cdist(a, B, metric, w=W), A, order=1)


@pytest.mark.parametrize("metric", ["euclidean", "minkowski"])
def test_a_weight_of_zero_has_a_slope(metric):
    w = np.array([0.0, 1.0, 2.0])
    g = ft.grad(lambda w: getattr(distance, metric)(U, V, w=w))(w)
    np.testing.assert_allclose(g, (U - V) ** 2 / (2 * sd.euclidean(U, V, w)))


@pytest.mark.parametrize("metric", ["seuclidean", "mahalanobis"])
def test_variances_of_the_points_themselves_move_with_them(metric):
    assert_derivatives(lambda a: distance.pdist(a, metric), MANY, order=1)
    assert_derivatives(lambda a: distance.cdist(a, B, metric), MANY, order=1)


def test_parameters_of_metrics_are_differentiated():
    assert_derivatives(lambda VI: distance.mahalanobis(U, V, VI), OPTIONS["mahalanobis"]["VI"])
    assert_derivatives(lambda s: distance.seuclidean(U, V, s), W)
    assert_derivatives(lambda p: distance.jensenshannon(p, V, 2.0), U)


@pytest.mark.parametrize("metric", ["euclidean", "minkowski"])
def test_norms_take_rows_as_scipy_does_from_1_18_on(metric):
    J = ft.jacobian(lambda u: getattr(distance, metric)(u, V, w=W))(np.stack([U, 2 * U]))
    for i, u in enumerate([U, 2 * U]):
        np.testing.assert_allclose(J[i, i], ft.grad(getattr(distance, metric))(u, V, w=W))


def test_the_rest_of_spatial():
    for p in (1, 2, 3.5, np.inf):
        assert_derivatives(lambda x, y, p=p: spatial.distance_matrix(x, y, p), A, B, order=1)
        assert_derivatives(lambda x, y, p=p: spatial.minkowski_distance_p(x, y, p), U, V, order=1)
    assert_derivatives(distance.squareform, RNG.normal(size=6))
    close(ft.jvp(distance.squareform, (sd.squareform(np.arange(6.0)),), (np.ones((4, 4)),))[1],
          np.ones(6))


@pytest.mark.parametrize("metric", METRICS)
def test_where_points_coincide_the_slope_is_zero(metric):
    options = OPTIONS.get(metric, {})
    x = np.stack([U, U, V])
    J = ft.jacobian(lambda x: distance.pdist(x, metric, **options)[0])(x)
    np.testing.assert_allclose(J, 0, atol=1e-15)
    J = ft.jacfwd(lambda x: distance.cdist(x, x, metric, **options)[1, 1])(x)
    np.testing.assert_allclose(J, 0, atol=1e-15)
    if metric == "euclidean":  # a square has curvature there
        H = ft.hessian(lambda x: distance.pdist(x)[0] ** 2)(x)[0, :, 0]
        np.testing.assert_allclose(H, 2 * np.eye(3))


def test_coordinates_that_are_both_zero_count_nothing():
    u, v = np.array([0.0, 1.0]), np.array([0.0, 3.0])
    assert distance.canberra(u, v) == 0.5
    close(np.asarray(ft.grad(distance.canberra)(u, v)), np.array([0.0, -6 / 16]))


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "jensenshannon"])
def test_it_runs_in_batches_and_compiled(metric):
    assert_transforms(lambda a, b: distance.cdist(a, b, metric), A, B)


def test_a_metric_of_one_s_own():
    def metric(u, v):
        return np.sum((u - v) ** 4)

    assert_derivatives(lambda a: distance.cdist(a, B, metric), A, order=1)
    assert_derivatives(lambda a: distance.pdist(a, metric), A, order=1)
    close(ft.vjp(lambda a: distance.cdist(a, B, sd.cityblock), A)[0], sd.cdist(A, B, "c"))


BAD = {
    "cdist rank": (ValueError, lambda d, x: d.cdist(x[0], B)),
    "cdist columns": (ValueError, lambda d, x: d.cdist(x, B[:, :2])),
    "cdist metric": (ValueError, lambda d, x: d.cdist(x, B, "x")),
    "cdist metric type": (TypeError, lambda d, x: d.cdist(x, B, 3)),
    "pdist rank": (ValueError, lambda d, x: d.pdist(x[0])),
    "pdist covariance": (ValueError, lambda d, x: d.pdist(x[:2], "mahalanobis")),
    "vector": (ValueError, lambda d, x: d.cosine(x, x)),
    "weights": (ValueError, lambda d, x: d.cityblock(x[0], x[1], w=[-1, 0, 1])),
    "power": (ValueError, lambda d, x: d.minkowski(x[0], x[1], 0)),
    "variances": (TypeError, lambda d, x: d.seuclidean(x[0], x[1], [1.0])),
    "squareform size": (ValueError, lambda d, x: d.squareform(x[0, :2])),
    "squareform square": (ValueError, lambda d, x: d.squareform(x[:2])),
    "squareform diagonal": (ValueError, lambda d, x: d.squareform(x[:3])),
    "squareform to matrix": (ValueError, lambda d, x: d.squareform(x, "tomatrix")),
    "squareform to vector": (ValueError, lambda d, x: d.squareform(x[0], "tovector")),
    "squareform rank": (ValueError, lambda d, x: d.squareform(x[None])),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_reported_as_by_scipy(name):
    error, f = BAD[name]
    with pytest.raises(error) as theirs:
        f(sd, A)
    with pytest.raises(error) as ours:
        ft.vjp(lambda x: f(distance, x), A)
    assert str(ours.value).split()[:3] == str(theirs.value).split()[:3]


def test_what_has_no_derivative_is_named():
    with pytest.raises(NotDifferentiable, match="cdist got metric='hamming'"):
        ft.vjp(lambda x: distance.cdist(x, B, "hamming"), A)
    with pytest.raises(NotDifferentiable, match="minkowski got a traced p"):
        ft.grad(lambda p: distance.minkowski(U, V, p))(3.0)
    with pytest.raises(UnsupportedError, match="pdist got out= beside"):
        ft.vjp(lambda x: distance.pdist(x, out=np.zeros(6)), A)
    with pytest.raises(ValueError, match="x contains 3-dimensional vectors but y"):
        ft.vjp(lambda x: spatial.distance_matrix(x, B[:, :2]), A)


@pytest.mark.parametrize("p", [[0.0, 0.0], [0.2, np.nan]])
def test_a_distribution_without_mass_has_no_distance_as_in_scipy(p):
    p, q = np.array(p), np.array([0.5, 0.5])
    with np.errstate(invalid="ignore"):
        y, slope = ft.value_and_grad(distance.jensenshannon)(p, q)
        assert np.isnan(scipy.spatial.distance.jensenshannon(p, q))
    assert np.isnan(y) and np.isnan(slope).all()
