"""Are rotations SciPy's, with all derivatives, at the rotation by nothing too?"""

import warnings

import numpy as np
import pytest
import scipy.spatial.transform
from scipy.spatial.transform import Rotation as Theirs

import functrans as ft
from functrans.errors import ConcretizationError
from functrans.scipy.spatial.transform import Rotation
from functrans.testing import check_grads
from tests.covering import covering
from tests.drawing import generator
from tests.scipy.agreement import close

pytestmark = pytest.mark.usefixtures("unoptimised")

RNG = generator(0)
V, ONE = RNG.normal(size=(2, 3))
M = Theirs.from_rotvec(V).as_matrix() + 0.2 * RNG.normal(size=(3, 3))
POINT = np.array([1.0, 2.0, 3.0])
SEQUENCES = ["xyz", "zyx", "zxz", "yxy", "XYZ", "ZYX", "YXY", "xzy", "YZX"]

OF_VECTORS = {
    "apply": lambda R, v: R.from_rotvec(v).apply(POINT),
    "apply inverse": lambda R, v: R.from_rotvec(v).apply(POINT, inverse=True),
    "matrix": lambda R, v: R.from_rotvec(v).as_matrix(),
    "there and back": lambda R, v: R.from_matrix(R.from_rotvec(v).as_matrix()).as_rotvec(),
    "product": lambda R, v: (R.from_rotvec(v) * R.from_mrp(v)).as_rotvec(),
    "inv": lambda R, v: (R.from_rotvec(v).inv() * R.from_euler("xyz", v + 0.3)).as_mrp(),
    "power": lambda R, v: (R.from_rotvec(v) ** 0.3).as_quat(),
    "euler": lambda R, v: R.from_rotvec(v).as_euler("zyx"),
    "degrees": lambda R, v: R.from_euler("XY", v[:2], degrees=True).as_rotvec(degrees=True),
    "one axis": lambda R, v: R.from_euler("z", v[0]).as_quat(canonical=True, scalar_first=True),
    "quat": lambda R, v: R.from_quat(np.stack([v[0], v[1], v[2], 1.0])).as_matrix(),
}


VECTORS = {"some": V, "none": 0 * V, "tiny": 1e-9 * V, "near": 0.3 * V, "large": 2 * V}


@pytest.mark.parametrize("f, v", covering(OF_VECTORS, VECTORS, meet=1))
def test_values_and_both_derivatives(f, v):
    f, v = OF_VECTORS[f], VECTORS[v]

    def ours(v):
        return f(Rotation, v)

    expected = f(Theirs, v)
    size = np.abs(expected).max()
    np.testing.assert_allclose(ours(v), expected, rtol=0, atol=1e-13 * size + 1e-15)
    check_grads(ours, (v,), order=2)
    close(ft.jit(ft.jacobian(ours))(v), ft.jacobian(ours)(v), rtol=1e-13)
    close(ft.vmap(ft.jacobian(ours))(np.stack([v, V])),
          np.stack([ft.jacobian(ours)(x) for x in (v, V)]), rtol=1e-12)


@pytest.mark.parametrize("seq", SEQUENCES)
def test_angles_of_euler(seq):
    angles = np.array([0.3, 1.1, -0.7])
    close(Rotation.from_euler(seq, angles).as_matrix(), Theirs.from_euler(seq, angles).as_matrix())
    close(Rotation.from_rotvec(V).as_euler(seq), Theirs.from_rotvec(V).as_euler(seq))
    back = ft.jacobian(lambda a: Rotation.from_euler(seq, a).as_euler(seq))(angles)
    np.testing.assert_allclose(back, np.eye(3), atol=1e-14)


@pytest.mark.parametrize("seq, middle", [("zyx", np.pi / 2), ("ZXZ", 0.0), ("zxz", np.pi)])
def test_angles_that_are_not_determined_are_those_of_scipy(seq, middle):
    angles = [0.3, middle, 0.4]
    with pytest.warns(RuntimeWarning, match="Gimbal lock"):
        ours = Rotation.from_euler(seq, angles).as_euler(seq)
    with warnings.catch_warnings(action="ignore"):
        theirs = Theirs.from_euler(seq, angles).as_euler(seq)
    np.testing.assert_allclose(np.exp(1j * ours), np.exp(1j * theirs), atol=1e-7)  # LOCKED


@pytest.mark.parametrize("m", [M, np.eye(3), np.diag([1.0, 2.0, 0.5])],
                         ids=["any", "no rotation", "stretched"])
def test_the_rotation_closest_to_a_matrix(m):
    close(Rotation.from_matrix(m).as_quat(), Theirs.from_matrix(m).as_quat())
    check_grads(lambda m: Rotation.from_matrix(m).as_rotvec(), (m,), order=2)
    close(ft.jit(ft.jacobian(lambda m: Rotation.from_matrix(m).as_quat()))(m),
          ft.jacobian(lambda m: Rotation.from_matrix(m).as_quat())(m))


@pytest.mark.parametrize("axis", range(3))
def test_half_turns_choose_another_form_of_the_quaternion(axis):
    v = 3.1 * np.eye(3)[axis] + 0.01
    close(Rotation.from_matrix(Theirs.from_rotvec(v).as_matrix()).as_rotvec(), v, rtol=1e-13)
    check_grads(lambda v: Rotation.from_matrix(Rotation.from_rotvec(v).as_matrix()).as_rotvec(),
                (v,), order=2)


def test_rotations_compose_over_sequences_and_are_containers():
    many = RNG.normal(size=(4, 3))
    r, s = Rotation.from_rotvec(many), Theirs.from_rotvec(many)
    one, theirs = Rotation.from_rotvec(ONE), Theirs.from_rotvec(ONE)
    close((r * one).apply(POINT), (s * theirs).apply(POINT), rtol=1e-13)
    close(one.apply(many), theirs.apply(many), rtol=1e-13)
    close(r[1:3].magnitude(), s[1:3].magnitude(), rtol=1e-13)
    close(Rotation.concatenate([r, one]).as_quat(), Theirs.concatenate([s, theirs]).as_quat())
    assert (len(r), r.shape, r.single, one.single) == (4, (4,), False, True)
    assert r.approx_equal(Rotation.from_quat(-r.as_quat())).all()
    turned = ft.vmap(lambda r, v: r.inv().apply(v))(r, many)
    close(np.asarray(turned), s.inv().apply(many), rtol=1e-13)
    close(ft.jit(lambda r: r.inv())(one).as_quat(), theirs.inv().as_quat())


@pytest.mark.parametrize("many", [RNG.normal(size=(4, 3)), np.tile(V, (3, 1)), np.zeros((3, 3))],
                         ids=["any", "equal", "none"])
def test_the_mean_rotation(many):
    def mean(v, w):
        return Rotation.from_rotvec(v).mean(w).as_rotvec()

    w = np.arange(1.0, len(many) + 1)
    np.testing.assert_allclose(mean(many, w), Theirs.from_rotvec(many).mean(w).as_rotvec(),
                               atol=1e-14)
    check_grads(mean, (many, w), order=2)
    close(ft.jit(ft.jacobian(mean))(many, w), ft.jacobian(mean)(many, w), rtol=1e-12)
    block = np.stack([many, many + 0.1])
    close(Rotation.from_rotvec(block).mean(axis=-1).as_matrix(),
          np.stack([Theirs.from_rotvec(b).mean().as_matrix() for b in block]), rtol=1e-12)


def test_what_is_no_rotation_is_refused_as_scipy_does():
    for make in (Rotation, Theirs):
        with pytest.raises(ValueError, match="Found zero norm quaternions"):
            make.from_quat(np.zeros(4))
        with pytest.raises(ValueError, match="Non-positive determinant"):
            make.from_matrix(-np.eye(3))
        with pytest.raises(ValueError, match="consecutive axes to be different"):
            make.from_euler("xxy", V)
    assert np.isnan(ft.jit(lambda m: Rotation.from_matrix(m).as_quat())(-np.eye(3))).all()


def test_a_traced_value_in_scipy_s_rotation_names_ours():
    if not scipy.spatial.transform.Rotation.__module__.endswith("._rotation"):
        return  # older ones are in C, which has no frames
    with pytest.raises(ConcretizationError, match=r"Take transform.Rotation.* of functrans"):
        ft.grad(lambda v: Theirs.from_rotvec(v).as_quat()[0])(V)
