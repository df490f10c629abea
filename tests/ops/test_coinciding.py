"""Functions of eigh and svd at repeated values: exact where they are smooth, in every transform."""

import functools
import itertools

import numpy as np
import pytest
import scipy.linalg
from numpy.testing import assert_allclose, assert_array_equal

import functrans as ft
from functrans.errors import NotDifferentiable
from functrans.testing import check_grads
from tests.covering import covering
from tests.drawing import generator

pytestmark = pytest.mark.usefixtures("unoptimised")

RNG = generator(4)
C = RNG.normal(size=(4, 4))
VALUES = [[1, 1, 2, 2], [1, 2, 2, 3], [0, 0, 0, 5], [1, 1, 1, 1], [0, 0, 0, 0], [1, 2, 3, 4]]
repeated = pytest.mark.parametrize("values", VALUES, ids=str)


def matrix(values, dtype=float):
    """A matrix with these eigenvalues; where they repeat, they do so up to rounding."""
    n = len(values)
    q = RNG.normal(size=(n, n)).astype(dtype)
    if np.dtype(dtype).kind == "c":
        q = q + 1j * RNG.normal(size=(n, n))
    q, _ = np.linalg.qr(q)
    a = (q * np.array(values, float)) @ q.conj().T
    return (a + a.conj().T) / 2


def of_matrix(f, a):
    w, v = np.linalg.eigh((a + a.conj().T) / 2)
    return (v * f(w)) @ v.conj().T


def exponential(a):
    return of_matrix(np.exp, a)


def expected(a, c=C):
    """The gradient of sum(c * expm(a)), by the block formula of Van Loan (in SciPy)."""
    return scipy.linalg.expm_frechet(a, (c + c.T) / 2, compute_expm=False)


def loss(a):
    return np.sum(C * exponential(a))


def close(found, wanted, rtol=1e-12):
    scale = np.abs(wanted).max()
    assert_allclose(found, wanted, rtol=0, atol=rtol * scale)  # LAPACK's rounding


@repeated
def test_the_gradient_of_a_matrix_function_is_daleckii_and_kreins(values):
    a = matrix(values)
    close(ft.grad(loss)(a), expected(a))


@repeated
def test_the_jacobian_backward_is_the_one_forward(values):
    a = matrix(values)
    close(ft.jacrev(exponential)(a), ft.jacfwd(exponential)(a))


@repeated
def test_a_pullback_can_be_called_again(values):
    a = matrix(values)
    y, pullback = ft.vjp(exponential, a)
    assert type(y) is ft.Array
    close(y, scipy.linalg.expm(a))
    for c in (C, C.T @ C, C):
        close(pullback(c)[0], expected(a, c))
    close(ft.vmap(pullback)(np.stack([C, C @ C]))[0], [expected(a, c) for c in (C, C @ C)])


def test_values_and_aux_are_plain():
    def f(a):
        w, v = np.linalg.eigh(a)
        y = np.sum(C * ((v * np.exp(w)) @ v.T))
        return y, {"w": w, "twice": 2 * w}

    ((value, aux), g) = ft.value_and_grad(f, has_aux=True)(np.eye(4))
    close(value, np.e * np.trace(C))
    assert type(value) is type(aux["w"]) is type(g) is ft.Array
    assert_array_equal(aux["w"], np.ones(4))
    assert_array_equal(aux["twice"], 2 * np.ones(4))


def test_complex_matrices():
    a = matrix([1, 1, 2, 2], complex)

    def f(a):
        return np.sum(C * exponential(a).real)

    g = ft.grad(f)(a)
    for t in (matrix([1, 2, 3, 4], complex), matrix([1, -2, 3, 0], complex)):
        moved = scipy.linalg.expm_frechet(a, t, compute_expm=False)
        close(np.vdot(g, t).real, np.sum(C * moved.real))


def test_float32_stays():
    g = ft.grad(lambda a: loss(a))(np.eye(4, dtype=np.float32))
    assert g.dtype == np.float32
    close(g, np.e * (C + C.T) / 2, rtol=1e-6)  # float32 rounding


def test_stacks_of_which_one_matrix_repeats():
    a = np.stack([matrix(v) for v in ([1, 1, 2, 2], [1, 2, 3, 4], [3, 3, 3, 3])])

    def f(a):
        w, v = np.linalg.eigh((a + np.swapaxes(a, 1, 2)) / 2)
        return np.sum(C * ((v * np.exp(w)[:, None, :]) @ np.swapaxes(v, 1, 2)))

    close(ft.grad(f)(a), [expected(x) for x in a])


def test_functions_that_are_constant_in_the_eigenvalues():
    def whole(a):  # the projector on all of the space: the identity
        _, v = np.linalg.eigh(a)
        return np.sum(C * (v @ v.T))

    close(1 + ft.grad(whole)(np.eye(4)), np.ones((4, 4)))

    def upper(a):  # the projector on an eigenspace, as the rule sees it without eigenvalues
        _, v = np.linalg.eigh((a + a.T) / 2)
        return np.sum(C * (v[:, 2:] @ v[:, 2:].T))

    a = matrix([1, 1, 2, 2])
    check_grads(upper, (a,), order=1, modes=("rev",))


def test_of_eigenvalues_alone():
    a = np.eye(4)
    close(ft.grad(lambda a: np.sum(np.linalg.eigh(a)[0] ** 3))(a), 3 * a)
    close(ft.grad(lambda a: np.log(np.linalg.eigvalsh(2 * a)).sum())(a), a)


def test_several_matrices():
    a, b = matrix([1, 1, 2, 2]), matrix([3, 3, 3, 1])
    ga, gb = ft.grad(lambda a, b: np.sum(C * exponential(a) * exponential(b)), (0, 1))(a, b)
    close(ga, expected(a, C * scipy.linalg.expm(b)))
    close(gb, expected(b, C * scipy.linalg.expm(a)))


def test_eigenvalues_that_meet_vectors_of_another_matrix():
    def f(a, b):
        wa, va = np.linalg.eigh((a + a.T) / 2)
        wb, vb = np.linalg.eigh((b + b.T) / 2)
        total = (va * np.exp(wa)) @ va.T @ ((vb * np.cos(wb)) @ vb.T)
        return np.sum(C * total) * np.sum(wa * wa) * np.sum(wb)

    a, b = 2 * np.eye(4), matrix([1, 1, 2, 2])

    def smooth(a, b):  # the same by series of products alone
        def series(x, terms):
            power, y = np.eye(4), 0 * x
            for t in terms:
                y, power = y + t * power, power @ x
            return y

        factorial = np.cumprod([1.0, *range(1, 40)])
        exp = series(a, 1 / factorial)
        cos = series(b, np.where(np.arange(40) % 2, 0, (-1.0) ** (np.arange(40) // 2)) / factorial)
        return np.sum(C * (exp @ cos)) * np.trace(a @ a) * np.trace(b)

    for found, wanted in zip(
        ft.grad(f, (0, 1))(a, b), ft.grad(smooth, (0, 1))(a, b), strict=True
    ):
        close(found, (wanted + wanted.T) / 2)


def test_a_matrix_function_of_a_matrix_function_is_an_error():
    """The slopes of the first reach the second, but its own limit would need their slopes."""
    def f(a):
        return np.sum(C * of_matrix(np.sin, exponential(a)))

    with pytest.raises(NotDifferentiable, match="coincide"):
        ft.grad(f)(matrix([1, 1, 2, 3]))
    a, t = matrix([1, 2, 3, 4]), C + C.T
    moved = [np.sum(C * of_matrix(np.sin, exponential(a + h * t))) for h in (1e-5, -1e-5)]
    close(np.sum(ft.grad(f)(a) * t), (moved[0] - moved[1]) / 2e-5, rtol=1e-6)  # differences


def test_with_other_variables_differentiated_outside():
    a = matrix([1, 1, 2, 2])

    def inner(c):
        return ft.grad(lambda a: np.sum(c * exponential(a)))(a)

    found = ft.jacfwd(inner)(C)
    close(np.tensordot(found, C), expected(a))
    close(ft.jacrev(inner)(C), found)


WAYS = {
    "vmap": ft.vmap(np.exp),
    "a derivative": ft.vmap(ft.derivative(np.exp)),
    "a pullback": lambda w: ft.vjp(np.exp, w)[1](np.ones(4))[0],
    "a pushforward": lambda w: ft.linearize(np.exp, w)[1](np.ones(4)),
    "a series": lambda w: ft.jet(np.exp, (w,), ((np.ones(4),),))[1][0],
    "a Jacobian": lambda w: np.diag(ft.jacrev(np.exp)(w)),
    "a Hessian": lambda w: np.diag(ft.hessian(lambda w: np.sum(np.exp(w)))(w)),
    "scan": lambda w: ft.scan(lambda c, x: (c, np.exp(x)), 0.0, w)[1],
    "compiled scan": ft.jit(lambda w: ft.scan(lambda c, x: (c, np.exp(x)), 0.0, w)[1]),
    "checkpoint": ft.checkpoint(np.exp),
    "an external function": ft.external(np.exp, jvp=lambda p, t: np.exp(p[0]) * t[0]),
    "sort": lambda w: np.exp(np.sort(w)),
    "an update": lambda w: w.at[:].set(np.exp(w)),
    "numbers": lambda w: np.stack([np.exp(x) for x in w]),
    "sums": lambda w: np.exp(np.diff(np.cumsum(w), prepend=0.0)),
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_whatever_the_eigenvalues_go_through(way):
    a = matrix([1, 1, 2, 2])
    close(ft.grad(lambda a: np.sum(C * of_matrix(way, a)))(a), expected(a))


def test_while_kinks_are_watched():
    with ft.config(kinks="raise"):
        close(ft.grad(loss)(np.eye(4)), np.e * (C + C.T) / 2)


def test_inside_functions_with_rules_of_their_own():
    @ft.custom_jvp
    def exp(x):
        return np.exp(x)

    @exp.defjvp
    def rule(primals, tangents):
        y = exp(primals[0])
        return y, y * tangents[0]

    @ft.custom_vjp
    def exp2(x):
        return np.exp(x)

    exp2.defvjp(lambda x: (np.exp(x), np.exp(x)), lambda y, ct: (y * ct,))
    a = matrix([1, 1, 2, 2])
    for f in (exp, exp2, ft.jit(np.exp), lambda w: ft.cond(True, np.exp, np.sin, w)):
        close(ft.grad(lambda a, f=f: np.sum(C * of_matrix(f, a)))(a), expected(a))


def test_under_vmap_some_may_repeat():
    a = np.stack([matrix([1, 1, 2, 2]), matrix([1, 2, 3, 4])])
    for found in (ft.vmap(ft.grad(loss))(a), ft.vmap(ft.jacfwd(loss))(a)):
        close(found[0], expected(a[0]))
        close(found[1], expected(a[1]))


@repeated
def test_compiled(values):
    a, t = matrix(values), C + C.T
    close(ft.jit(ft.grad(loss))(a), expected(a))
    close(ft.jit(ft.vmap(ft.grad(loss)))(a[None])[0], expected(a))
    moved = scipy.linalg.expm_frechet(a, t, compute_expm=False)
    close(ft.jit(lambda a: ft.jvp(exponential, (a,), (t,))[1])(a), moved)
    close(ft.jvp(ft.jit(exponential), (a,), (t,))[1], moved)


# ---- the second derivative: that, an error or no number, but nothing wrong

MATRICES = {"the identity": np.eye(3), "two that repeat": matrix([1, 1, 2])}
TWICE = {
    "hessian": ft.hessian,
    "forward over forward": lambda f: ft.jacfwd(ft.jacfwd(f)),
    "reverse over reverse": lambda f: ft.jacrev(ft.jacrev(f)),
    "reverse over forward": lambda f: ft.jacrev(ft.jacfwd(f)),
}
PLACES = {
    "plain": lambda twice, f: twice(f),
    "compiled": lambda twice, f: ft.jit(twice(f)),
    "batched": lambda twice, f: lambda a: ft.vmap(twice(f))(a[None])[0],
    "of what is compiled": lambda twice, f: twice(ft.jit(f)),
    "of what is batched": lambda twice, f: twice(lambda a: ft.vmap(f)(a[None])[0]),
}
BETWEEN = {
    f"{outer.__name__} of {place} {inner.__name__}": (outer, between, inner)
    for outer in (ft.jacfwd, ft.jacrev)
    for inner in (ft.jacfwd, ft.jacrev)
    for place, between in {"compiled": ft.jit, "batched": PLACES["batched"]}.items()
}
of_any_matrix = pytest.mark.parametrize("matrix_name", MATRICES)
twice_differentiated = pytest.mark.parametrize("twice", TWICE.values(), ids=TWICE)


def smooth(a):
    """The loss of three rows by a series of products."""
    y = power = np.eye(3)
    for k in range(1, 30):
        power = power @ (a + a.T) / (2 * k)
        y = y + power
    return np.sum(C[:3, :3] * y)


def loss_of_three(a):
    return np.sum(C[:3, :3] * exponential(a))


@functools.cache
def hessian_of_smooth(name):
    return ft.hessian(smooth)(MATRICES[name])


def right_or_unknown(differentiate, name):
    try:
        found = np.asarray(differentiate(MATRICES[name]))
    except NotDifferentiable:
        return
    known = ~np.isnan(found)
    wanted = hessian_of_smooth(name)[known]
    assert_allclose(found[known], wanted, atol=1e-11)  # LAPACK's rounding


EAGER = [place for place in PLACES if "compiled" not in place]


@pytest.mark.parametrize(("twice", "place", "matrix_name"), [
    *covering(TWICE, EAGER, MATRICES),
    *covering(TWICE, ["compiled", "of what is compiled"], reversed(MATRICES), meet=1),
])
def test_twice_it_is_never_wrong(twice, place, matrix_name):
    right_or_unknown(PLACES[place](TWICE[twice], loss_of_three), matrix_name)


@pytest.mark.parametrize(("name", "matrix_name"), covering(BETWEEN, reversed(MATRICES), meet=1))
def test_twice_with_another_transform_between_it_is_never_wrong(name, matrix_name):
    outer, between, inner = BETWEEN[name]
    if between is ft.jit:
        right_or_unknown(outer(ft.jit(inner(loss_of_three))), matrix_name)
    else:
        right_or_unknown(outer(between(inner, loss_of_three)), matrix_name)


def test_a_hessian_that_is_not_known_is_an_error():
    a = np.diag([1.0, 1.0, 2.0])
    with pytest.raises(NotDifferentiable, match="eigenvalues 0 and 1 coincide"):
        ft.hessian(loss_of_three)(a)
    with pytest.raises(NotDifferentiable, match="coincide"):
        ft.hessian(lambda x: (loss_of_three(x), x), has_aux=True)(a)


def test_a_hessian_with_undefined_entries_of_another_reason_is_given():
    with np.errstate(invalid="ignore"):
        assert np.isnan(ft.hessian(lambda x: np.log(x) ** 2)(-1.0))
    h = ft.hessian(lambda a: np.sum(np.linalg.eigvalsh(a + a.T) ** 2))(np.eye(2))
    assert not np.isnan(h).any()


@of_any_matrix
@pytest.mark.parametrize("place", [PLACES[k] for k in ("plain", "compiled", "batched")])
@twice_differentiated
def test_symmetric_functions_of_eigenvalues_have_second_derivatives(twice, place, matrix_name):
    """The sum of their squares is the squared Frobenius norm."""
    a = MATRICES[matrix_name]
    found = place(twice, lambda a: np.sum(np.linalg.eigvalsh((a + a.T) / 2) ** 2))(a)
    close(found, ft.hessian(lambda a: np.sum((a + a.T) ** 2) / 4)(a))


# ---- one value of several that coincide: the subgradient of least norm, as for a maximum

KINKS = {
    "the least eigenvalue": (lambda a: np.linalg.eigvalsh(a)[0], np.eye(3) / 3),
    "the largest of eigh": (lambda a: np.linalg.eigh(a)[0][-1], np.eye(3) / 3),
    "the spectral norm": (lambda a: np.linalg.norm(a, 2), np.eye(3) / 3),
    "the last singular value": (lambda a: np.linalg.svdvals(a)[2], np.eye(3) / 3),
    "the condition, at its least": (np.linalg.cond, np.zeros((3, 3))),
}


@pytest.mark.parametrize(("f", "expected"), KINKS.values(), ids=KINKS)
def test_one_value_of_several_shares_the_slope(f, expected):
    q = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
    for a in (np.eye(3), (q * np.ones(3)) @ q.T):  # whatever basis LAPACK finds
        close(1 + ft.grad(f)(a), 1 + expected)
        close(1 + ft.vmap(ft.grad(f))(a[None])[0], 1 + expected)
        close(1 + ft.jit(ft.grad(f))(a), 1 + expected)


def test_one_value_of_a_pair_moves_by_the_projector_on_its_space():
    q = np.linalg.qr(RNG.normal(size=(3, 3)))[0]
    a = (q * np.array([1.0, 2.0, 2.0])) @ q.T
    close(ft.grad(lambda a: np.linalg.eigvalsh((a + a.T) / 2)[1])(a), q[:, 1:] @ q[:, 1:].T / 2)
    weights = np.array([5.0, 1.0, 3.0])
    found = ft.grad(lambda a: np.sum(weights * np.linalg.eigvalsh((a + a.T) / 2)))(a)
    close(found, (q * np.array([5.0, 2.0, 2.0])) @ q.T)


def test_forward_one_value_of_several_has_the_slope_to_one_side():
    t = np.array([[0.0, 1.0], [1.0, 0.0]])
    for n, slope in ((0, -1.0), (1, 1.0)):
        def f(a, n=n):
            return np.linalg.eigvalsh(a)[n]

        step = (f(np.eye(2) + 1e-6 * t) - f(np.eye(2))) / 1e-6
        assert_allclose(ft.jvp(f, (np.eye(2),), (t,))[1], slope)
        assert_allclose(step, slope, rtol=1e-9)  # differences


# ---- where it leaves a function: exact if it is smooth in itself, else known to no one


def before(a):
    return tuple(np.linalg.eigh(a))


def after(w, v):
    return np.sum(C * ((v * np.exp(w)) @ v.T))


def factor(a):
    w, v = np.linalg.eigh(a)
    return v * np.exp(w / 2)


def squared(b):
    return np.sum(C * (b @ b.T))


def summed(a):
    w, v = np.linalg.eigh((a + a.T) / 2)
    return np.einsum("ij,j,kj->ik", v, np.exp(w), v)


def pulled_by_hand(f, g):
    def transform(a):
        y, pullback = ft.vjp(f, a)
        ct = ft.grad(g, (0, 1))(*y) if isinstance(y, tuple) else ft.grad(g)(y)
        return pullback(ct)[0]

    return transform


def once(f):
    return lambda a: ft.scan(lambda c, x: (c + f(x), 0.0), 0.0, a[None])[0]


WITHIN = {
    "jit": lambda: ft.grad(ft.jit(loss)),
    "jit of a matrix": lambda: ft.grad(lambda a: np.sum(C * ft.jit(exponential)(a))),
    "jit twice": lambda: ft.jit(ft.grad(ft.jit(loss))),
    "jit in a batch": lambda: lambda a: ft.vmap(ft.grad(ft.jit(loss)))(a[None])[0],
    "checkpoint": lambda: ft.grad(ft.checkpoint(loss)),
    "checkpoint of a matrix": lambda: ft.grad(lambda a: np.sum(C * ft.checkpoint(summed)(a))),
    "checkpoint of checkpoint": lambda: ft.grad(ft.checkpoint(ft.checkpoint(loss))),
    "compiled checkpoint": lambda: ft.jit(ft.grad(ft.checkpoint(loss))),
    "a pullback": lambda: lambda a: ft.vjp(summed, a)[1](C)[0],
    "scan": lambda: ft.jit(ft.grad(once(loss))),
    "cond": lambda: ft.jit(ft.grad(lambda a: ft.cond(a[0, 0] < 9, loss, np.sum, a))),
}


RECORDED = [name for name in WITHIN if "checkpoint" in name or "pullback" in name]


@pytest.mark.parametrize(("name", "values"), [
    *itertools.product(RECORDED, VALUES),
    *covering([name for name in WITHIN if name not in RECORDED], VALUES, meet=1),
], ids=str)
def test_inside_what_records_on_its_own(name, values):
    a = matrix(values)
    close(WITHIN[name]()(a), expected(a))


def test_of_singular_values_inside_what_records_on_its_own():
    a = np.diag([2.0, 2.0, 1.0])

    def f(a):
        u, s, vh = np.linalg.svd(a)
        return np.sum(C[:3, :3] * ((u * s**3) @ vh))  # of a a^T a

    wanted = ft.grad(lambda a: np.sum(C[:3, :3] * (a @ a.T @ a)))(a)
    for transform in (ft.grad(ft.jit(f)), ft.grad(ft.checkpoint(f))):
        close(transform(a), wanted)


def test_a_basis_that_leaves_a_compiled_function_gives_no_number():
    a = matrix([1, 1, 2, 2])
    assert np.isnan(ft.grad(lambda a: after(*ft.jit(before)(a)))(a)).all()
    assert np.isnan(ft.grad(lambda a: squared(ft.jit(factor)(a)))(a)).all()


def test_a_jacobian_takes_the_way_on_which_it_is_exact():
    a = matrix([1, 1, 2, 2])
    close(ft.jacobian(exponential)(a), ft.jacfwd(exponential)(a))


def test_a_pushforward_that_would_need_another_basis_says_so():
    _, push = ft.linearize(exponential, np.eye(4))
    close(push(np.eye(4)), np.e * np.eye(4))
    with pytest.raises(NotDifferentiable, match=r"coincide.*Use jvp or jacfwd"):
        push(C)
    trace = ft.linearize(lambda a: np.sum(np.linalg.eigvalsh(a) ** 2), np.eye(4))[1](C)
    close(trace, 2 * np.trace(C))


@pytest.mark.parametrize(
    "transform",
    [
        lambda: ft.grad(lambda a: after(*ft.checkpoint(before)(a))),
        lambda: ft.grad(lambda a: squared(ft.checkpoint(factor)(a))),
        lambda: pulled_by_hand(before, after),
        lambda: pulled_by_hand(factor, squared),
        lambda: ft.jacrev(ft.grad(loss)),
    ],
    ids=["eigh in a checkpoint", "a factor in a checkpoint", "a pullback of eigh",
         "a pullback of a factor", "reverse over reverse"],
)
def test_where_it_cannot_be_known_it_is_an_error(transform):
    with pytest.raises(NotDifferentiable, match="eigenvalues 0 and 1 coincide"):
        transform()(np.eye(4))


@pytest.mark.parametrize(
    "f",
    [
        lambda a: np.linalg.eigh(a)[1][0, 1],
        lambda a: np.sum(C * np.linalg.eigh(a)[1]),
        lambda a: (lambda w, v: np.sum(C * (v * np.arange(4.0)) @ v.T) + w.sum())(
            *np.linalg.eigh(a)
        ),
    ],
)
def test_what_depends_on_the_basis_is_an_error(f):
    with pytest.raises(NotDifferentiable, match="eigenvalues 0 and 1 coincide"):
        ft.grad(f)(np.eye(4))


def test_nothing_is_left_of_it():
    """Results are arrays, and nothing hidden stays in what the user keeps."""
    kept = []

    def f(a):
        w, v = np.linalg.eigh(a)
        kept.append(ft.stop_gradient(w))
        return np.sum(C * ((v * np.exp(w)) @ v.T))

    g = ft.grad(f)(np.eye(4))
    assert type(g) is ft.Array
    assert isinstance(kept[0], np.ndarray)
    _, push = ft.linearize(lambda a: np.linalg.eigh(a)[0], np.eye(4))
    assert type(push(np.eye(4))) is ft.Array


# ---- singular values


def spread(shape, values, dtype=float):
    """A matrix with these singular values."""
    k = min(shape)
    p, q = (np.linalg.qr(RNG.normal(size=(n, n)).astype(dtype))[0] for n in shape)
    return p[:, :k] @ np.diag(np.array(values, float)) @ q[:k]


def of_singular(f, a, full=False):
    u, s, vh = np.linalg.svd(a, full_matrices=full)
    k = s.shape[-1]
    return (u[..., :k] * f(s)) @ vh[:k]


SHAPES = [((3, 3), [1, 1, 1]), ((3, 3), [3, 2, 2]), ((4, 3), [2, 2, 1]), ((3, 4), [2, 2, 2]),
          ((3, 3), [2, 2, 0])]


@pytest.mark.parametrize(
    ("shape", "values", "dtype"),
    [*[(*case, float) for case in SHAPES], *[(*case, complex) for case in SHAPES[:4]]],
)
def test_an_odd_function_of_singular_values(shape, values, dtype):
    """u s^3 vh is a a^H a, whatever the singular values."""
    a, c = spread(shape, values, dtype), RNG.normal(size=shape)
    if dtype is complex:
        a = a * np.exp(0.3j)
    found = ft.grad(lambda a: np.sum(c * of_singular(lambda s: s**3, a).real))(a)
    close(found, ft.grad(lambda a: np.sum(c * (a @ a.conj().T @ a).real))(a))


def test_an_odd_function_with_all_singular_vectors():
    a, c = spread((4, 3), [2, 2, 2]), RNG.normal(size=(4, 3))
    found = ft.grad(lambda a: np.sum(c * of_singular(lambda s: s**3, a, full=True)))(a)
    close(found, ft.grad(lambda a: np.sum(c * (a @ a.T @ a)))(a))


def test_one_singular_vector_of_repeated_values_is_an_error():
    with pytest.raises(NotDifferentiable, match="singular values 0 and 1 coincide"):
        ft.grad(lambda a: np.linalg.svd(a)[0][0, 1])(np.eye(2))


@pytest.mark.parametrize("transform", [
    lambda f: f, ft.jit, lambda f: lambda x: ft.vmap(f)(np.stack([x, 2 * x]))[0],
], ids=["eager", "jit", "vmap"])
def test_the_transpose_of_a_derivative_is_free_of_the_slopes_that_tell_values_apart(transform):
    weights = np.array([1.0, 2.0, 4.0])
    matrix = np.array([[1.0, 0.3, 0.2], [0.3, 2.0, 0.5], [0.2, 0.5, 4.0]])

    def f(x):
        return np.sum(np.linalg.eigvalsh(matrix + np.diag(x)) * weights)

    def transposed(x):
        pushforward = ft.linearize(ft.grad(f), x)[1]
        return ft.linear_transpose(pushforward, x)(weights)[0]

    def in_the_cotangent(x):
        pullback = ft.vjp(ft.grad(f), x)[1]
        return ft.jacrev(lambda ct: pullback(ct)[0])(weights)

    x = np.array([0.3, 0.2, 0.9])
    hessian = ft.jacfwd(ft.grad(f))(x)
    y, columns = transform(transposed)(x), transform(in_the_cotangent)(x)
    assert isinstance(y, np.ndarray) and isinstance(columns, np.ndarray)
    assert np.allclose(y, hessian @ weights, rtol=1e-12, atol=1e-14)
    assert np.allclose(columns, hessian, rtol=1e-12, atol=1e-14)
