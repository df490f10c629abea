"""Eigenvalues and singular values that nearly repeat: right to six digits, or no number.

Matrices have spectra with gaps from 0 up. What is computed of them is a function of the matrix
that has a rule of its own as well, which is the reference.
"""

import numpy as np
import pytest

import functrans as ft
from functrans.errors import NotDifferentiable
from functrans.scipy import linalg, sparse
from tests.drawing import generator

pytestmark = pytest.mark.usefixtures("unoptimised")

RNG = generator(29)
N = 4
C, T = RNG.normal(size=(2, N, N))
GAPS = [0.0, *10.0 ** np.arange(-15, -2), 0.1]
gaps = pytest.mark.parametrize("gap", GAPS)


def orthogonal(n=N):
    return np.linalg.qr(RNG.normal(size=(n, n)))[0]


def of_eigh(a):
    a = (a + a.T) / 2
    w, v = np.linalg.eigh(a)
    return np.sum(C * ((v * np.exp(w)) @ v.T))


def of_eig(a):
    w, v = np.linalg.eig(a)
    return np.sum(C * ((v * np.exp(w)) @ np.linalg.inv(v)).real)


def of_svd(a):
    u, s, vh = np.linalg.svd(a, full_matrices=False)
    return np.sum(C[: len(a)] * ((u * s**3) @ vh))


def of_polar(a):
    return np.sum(C * linalg.polar(a)[1])


def symmetric(gap):
    q, w = orthogonal(), [2.0, 2 * (1 + gap), 2 * (1 - 1.7 * gap), 3.0]
    return (q * np.array(w)) @ q.T


def general(gap):
    s, w = RNG.normal(size=(N, N)), np.array([2.0, 2 * (1 + gap), 3.0, -1.0])
    return (s * w) @ np.linalg.inv(s)


def defective(gap):
    q, b = orthogonal(), np.diag([1.0, 1 + gap, 3.0, -1.0])
    b[0, 1] = 1.0
    return q @ b @ q.T


def singular(gap):
    return (orthogonal() * np.array([2 * (1 + gap), 2.0, 1.0, gap])) @ orthogonal()


def tiny(gap):
    return (orthogonal() * np.array([3.0, 1.0, 2.5 * gap, gap])) @ orthogonal()


def wide(gap):
    return (orthogonal(3) * np.array([3.0, 1.0, gap])) @ orthogonal()[:3]


# a function, one of the same value by other rules, and matrices with a gap
FUNCTIONS = {
    "eigh": (of_eigh, lambda a: np.sum(C * linalg.expm((a + a.T) / 2)), symmetric),
    "eig": (of_eig, lambda a: np.sum(C * linalg.expm(a)), general),
    "eig near a defective matrix": (of_eig, lambda a: np.sum(C * linalg.expm(a)), defective),
    "svd": (of_svd, lambda a: np.sum(C * (a @ a.T @ a)), singular),
    "svd of tiny values": (of_svd, lambda a: np.sum(C * (a @ a.T @ a)), tiny),
    "svd of a wide matrix": (of_svd, lambda a: np.sum(C[:3] * (a @ a.T @ a)), wide),
    "eigenvalues": (lambda a: np.sum(np.exp(np.linalg.eigvals(a))).real,
                    lambda a: np.trace(linalg.expm(a)), defective),
    "eigvalsh": (lambda a: np.sum(np.exp(np.linalg.eigvalsh((a + a.T) / 2))),
                 lambda a: np.trace(linalg.expm((a + a.T) / 2)), symmetric),
}


def batched(f):
    return lambda a: ft.vmap(f)(a[None])[0]


def pushed(f, t):
    return lambda a: ft.jvp(f, (a,), (t,))[1]


FIRST = {
    "grad": ft.grad,
    "jacfwd": ft.jacfwd,
    "grad in a batch": lambda f: batched(ft.grad(f)),
    "linearize": lambda f: lambda a: ft.vmap(ft.linearize(f, a)[1])(
        np.eye(a.size).reshape(-1, *a.shape)).reshape(a.shape),
}
SECOND = {
    "forward over reverse": lambda f, t: pushed(ft.grad(f), t),
    "reverse over reverse": lambda f, t: ft.grad(lambda a: np.sum(ft.grad(f)(a) * t)),
    "reverse over forward": lambda f, t: ft.grad(pushed(f, t)),
    "in a batch": lambda f, t: batched(pushed(ft.grad(f), t)),
}


def right_or_refused(differentiate, a, wanted):
    """Whether there was a number, which must then be right."""
    try:
        found = np.asarray(differentiate(a))
    except NotDifferentiable:
        return False
    error = np.abs(found - wanted)
    known = ~np.isnan(error)
    assert (error[known] <= 1e-6 * np.abs(wanted).max()).all(), error.max()
    return bool(known.all())


@gaps
@pytest.mark.parametrize("name", FUNCTIONS)
def test_first_and_second_derivatives_are_right_or_refused(name, gap):
    f, reference, draw = FUNCTIONS[name]
    a = draw(gap)
    t = T[: len(a)]
    slope = ft.grad(reference)(a)
    for mode in FIRST.values():
        known = right_or_refused(mode(f), a, slope)
        assert known or gap < 1e-3  # not everything is refused
    curvature = pushed(ft.grad(reference), t)(a)
    for mode in SECOND.values():
        known = right_or_refused(mode(f, t), a, curvature)
        assert known or gap < 0.1


@gaps
@pytest.mark.parametrize("name", ["eigh", "svd"])
def test_gradients_of_smooth_functions_are_exact_at_any_gap(name, gap):
    f, reference, draw = FUNCTIONS[name]
    a = draw(gap)
    wanted = np.asarray(ft.grad(reference)(a))
    found = np.asarray(ft.grad(f)(a))
    # between dividing by the gap and the limit both have about 8 digits
    assert np.abs(found - wanted).max() < 3e-8 * np.abs(wanted).max()


@pytest.mark.parametrize(("name", "mode"), [
    ("eigh", lambda f: ft.jit(pushed(ft.grad(f), T))),
    ("eigh", lambda f: pushed(ft.jit(ft.grad(f)), T)),
    ("svd", lambda f: ft.jit(pushed(ft.grad(f), T))),
])
def test_compiled_second_derivatives_are_right_or_refused(name, mode):
    f, reference, draw = FUNCTIONS[name]
    a = draw(1e-9)
    assert not right_or_refused(mode(f), a, pushed(ft.grad(reference), T)(a))


@pytest.mark.parametrize("gap", [1e-12, 1e-9, 1e-6, 1e-3])
def test_the_polar_factor_has_second_derivatives_or_refuses(gap):
    a = (orthogonal() * np.array([2 * (1 + gap), 2.0, 1.0, 0.5])) @ orthogonal()

    def reference(a):
        return np.sum(C * linalg.sqrtm(a.T @ a))

    right_or_refused(ft.grad(of_polar), a, ft.grad(reference)(a))
    known = right_or_refused(
        pushed(ft.grad(of_polar), T), a, pushed(ft.grad(reference), T)(a)
    )
    assert known == (gap > 1e-4)


def test_a_hessian_at_nearly_repeated_values_says_which():
    a = symmetric(1e-9)
    with pytest.raises(NotDifferentiable, match="eigenvalues 0 and 1 nearly coincide"):
        ft.hessian(of_eigh)(a)
    with pytest.raises(NotDifferentiable, match="singular values 0 and 1 nearly coincide"):
        ft.hessian(of_svd)(singular(1e-9))


def test_vectors_that_a_cotangent_does_not_reach_may_nearly_coincide():
    """A function of the two largest eigenvalues' vectors, whose others are noise."""
    q = orthogonal()
    a = (q * np.array([5.0, 3.0, 1e-9, 2e-9])) @ q.T

    def f(a):
        w, v = np.linalg.eigh((a + a.T) / 2)
        return np.sum(C * ((v[:, 2:] * np.exp(w[2:])) @ v[:, 2:].T))

    def differences(h):
        g = ft.grad(f)
        return (g(a + h * T) - g(a - h * T)) / (2 * h)

    found = pushed(ft.grad(f), T)(a)
    wanted = (4 * differences(5e-4) - differences(1e-3)) / 3
    np.testing.assert_allclose(found, wanted, rtol=1e-6)  # differences


# ---- what is LAPACK's choice


def places(f):
    return {
        "jit(grad)": ft.jit(ft.grad(f)),
        "grad(jit)": ft.grad(ft.jit(f)),
        "vmap(grad)": batched(ft.grad(f)),
        "jacfwd": ft.jacfwd(f),
        "jit(jacfwd)": ft.jit(ft.jacfwd(f)),
        "linearize": FIRST["linearize"](f),
        "hvp": pushed(ft.grad(f), np.ones((5, 2))),
    }


BASES = {
    "qr": lambda a: np.linalg.qr(a, mode="complete")[0][0, 3],
    "svd": lambda a: np.linalg.svd(a)[0][0, 3],
    "svd of a wide matrix": lambda a: np.linalg.svd(a.T)[2][3, 0],
}


@pytest.mark.parametrize("name", BASES)
@pytest.mark.parametrize("place", places(np.sum))
def test_the_basis_of_a_complement_has_no_derivative_in_any_mode(name, place):
    a = RNG.normal(size=(5, 2))
    try:
        found = places(BASES[name])[place](a)
    except NotDifferentiable:
        return
    assert np.isnan(found).all()


@pytest.mark.parametrize("transform", [ft.grad, lambda f: ft.jit(ft.grad(f)), ft.jacfwd])
def test_what_the_basis_does_not_change_has_its_derivative(transform):
    a, c = RNG.normal(size=(5, 2)), RNG.normal(size=(5, 5))

    def f(a):
        q = np.linalg.qr(a, mode="complete")[0]
        return np.sum(c * (q[:, :2] @ q[:, :2].T))

    wanted = ft.grad(lambda a: np.sum(c * (a @ np.linalg.pinv(a))))(a)
    np.testing.assert_allclose(transform(f)(a), wanted, rtol=1e-11)  # a condition of 10


PHASES = {
    "eigh": lambda z: np.linalg.eigh(z + z.conj().T)[1][1, 1].real,
    "svd u": lambda z: np.linalg.svd(z)[0][1, 1].real,
    "svd vh": lambda z: np.linalg.svd(z)[2][1, 1].real,
}
Z = RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3))


@pytest.mark.parametrize("name", PHASES)
def test_a_phase_that_is_lapacks_choice_is_refused_in_reverse(name):
    with pytest.raises(NotDifferentiable, match=r"the phase of the (singular|eigen)"):
        ft.grad(PHASES[name])(Z)
    for place in ("jit(grad)", "grad(jit)", "vmap(grad)"):
        assert np.isnan(places(PHASES[name])[place](Z)).any()


@pytest.mark.parametrize("name", PHASES)
def test_forward_a_phase_moves_as_lapack_has_it(name):
    f, t = PHASES[name], RNG.normal(size=(3, 3)) + 1j * RNG.normal(size=(3, 3))
    wanted = (f(Z + 1e-6 * t) - f(Z - 1e-6 * t)) / 2e-6
    found = ft.jvp(f, (Z,), (t,))[1]
    np.testing.assert_allclose(found, wanted, rtol=1e-7)  # differences


@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 1)], ids=str)
@pytest.mark.parametrize("place", [lambda f: f, ft.jit, batched], ids=["eager", "jit", "vmap"])
def test_forward_at_a_zero_matrix_the_vectors_are_not_known(place, shape):
    t = RNG.normal(size=shape)

    def f(a):
        u, s, vh = np.linalg.svd(a, full_matrices=False)
        return (u * np.sin(s)) @ vh

    try:
        found = place(pushed(f, t))(np.zeros(shape))
    except NotDifferentiable:
        return
    assert np.isnan(found).all()


# ---- what else divides by a gap


@pytest.mark.parametrize("gap", [1e-9, 1e-7, 1e-6, 1e-5, 1e-4, 1e-2])
def test_roots_that_nearly_repeat_are_right_or_refused(gap):
    zeros = [1.0, 1.0 + gap, -2.0, 3.0]
    p, t = np.poly(zeros), np.array([0.0, 0.0, 1.0, 0.0, 0.0])
    # what is read of it has gaps of rounding itself, which is why only three digits are asked for
    slope = -1 / np.prod([1.0 - z for z in zeros[1:]])
    found = ft.jvp(lambda p: np.sort(np.roots(p).real)[1], (p,), (t,))[1]
    assert np.isnan(found) if gap < 1e-4 else abs(found / slope - 1) < 1e-3
    if gap < 1e-4:
        with pytest.raises(NotDifferentiable, match="repeated one up to rounding, or so nearly"):
            ft.grad(lambda p: np.roots(p).real.max() + np.roots(p).real @ np.arange(4.0))(p)


def test_vectors_of_a_sparse_matrix_that_nearly_coincide_give_no_number():
    def f(d):
        w, v = sparse.linalg.eigsh(sparse.diags_array([d]), 2)
        return np.sum((v * np.exp(w / 8)) @ v.T)

    d = np.arange(8.0)
    assert np.isfinite(ft.grad(f)(d)).all()
    d[-1] = d[-2] + 1e-12
    assert np.isnan(ft.grad(f)(d)[-2:]).all()
