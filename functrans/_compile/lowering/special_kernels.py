"""Special functions of one number as polynomials and choices, so that loops of them vectorise."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from functrans._core.bind import AnyArray
from functrans._ops import elementwise as ops

# ---- Coefficients of the polynomials in ``special_kernels``, the lowest first
#
# Each interpolates the function named above it at Chebyshev's points of an interval, to within
# 1e-16. A test computes them again with 60 digits.

# i0(x), i1(x) / x and iv(2, x) / x^2 for |x| <= 12, of x^2
I0_NEAR = (
    1.0, 0.25000000000000006, 0.015624999999999953, 0.0004340277777777951,
    6.781684027774419e-06, 6.781684027817522e-08, 4.709502796754964e-10, 2.402807551258106e-12,
    9.385966920144294e-15, 2.896903605234445e-17, 7.242253535856654e-20, 1.4963432567994563e-22,
    2.597679396002012e-25, 3.8442392152899665e-28, 4.890479134368119e-31, 5.517810833679379e-34,
    4.977110235413151e-37, 5.772092283219288e-40, 8.647087998381449e-44, 5.987893433992329e-46,
)
I1_NEAR = (
    0.5, 0.06249999999999995, 0.0026041666666667095, 5.4253472222208104e-05,
    6.781684027802395e-07, 5.65140335621989e-09, 3.3639305711789957e-11, 1.501754709332427e-13,
    5.214426433720391e-16, 1.4484508163324857e-18, 3.291953562692862e-21, 6.234448185695915e-24,
    9.994877504727787e-27, 1.3694205666396403e-29, 1.6549794509977147e-32,
    1.593678570993308e-35, 1.9609776066616842e-38, 3.119064581336166e-42, 2.276364849611524e-44,
)
I2_NEAR = (
    0.125, 0.010416666666666666, 0.0003255208333333343, 5.425347222221898e-06,
    5.651403356487137e-08, 4.036716683140957e-10, 2.1024566062577748e-12, 8.34308174822265e-15,
    2.60721312825553e-17, 6.583869323209766e-20, 1.3716439775893752e-22, 2.397907732730638e-25,
    3.5691763639401097e-28, 4.56787387262584e-31, 5.154499863510992e-34, 4.756002300586084e-37,
    5.26169070717763e-40, 1.125492611038044e-43, 5.461058929226101e-46,
)
# sqrt(x) exp(-x) times i0(x), i1(x) and iv(2, x) for x >= 12, of 1 / x
I0_FAR = (
    0.3989422804014327, 0.049867785050136615, 0.028050629139263438, 0.029219383489688562,
    0.044747337144825275, 0.08987888824832335, 0.29526745888327766, -3.557552300473809,
    193.93775564136902, -6239.38471416401, 148760.41035794767, -2574759.0496847527,
    31981047.211150013, -276326410.8537335, 1568635410.6063118, -5220176963.066972,
    7656888087.111333,
)
I1_FAR = (
    0.39894228040143265, -0.14960335515049342, -0.046751048534652714, -0.04090714490829293,
    -0.057530990569725625, -0.10999002223340386, -0.3388742238140727, 3.581184706656649,
    -199.97403308510394, 6419.3505109775715, -152922.5424744801, 2643524.9635900124,
    -32786897.57566479, 282768093.62450564, -1601474433.2690766, 5313338166.420748,
    -7762525429.095257,
)
I2_FAR = (
    0.3989422804014327, -0.7480167757527344, 0.3272573394467594, 0.12272147759082655,
    0.126562339321599, 0.20483714974442502, 0.5252045891116438, -3.544193135748772,
    218.6660718074049, -6964.990256676715, 165494.1494125457, -2849609.151693564,
    35177196.5369183, -301588103.08781964, 1695179127.2461824, -5568313948.206944,
    8027122778.821452,
)

# log(gamma(y)) / ((y - 1) (y - 2)) for 1 <= y <= 2, of y - 3/2
LOG_GAMMA = (
    0.4831289505409809, -0.14595989591430594, 0.06291140107456485, -0.03130848750105327,
    0.01679709863121395, -0.009425622444829649, 0.005446457842219553, -0.0032120742206072908,
    0.0019229162321227923, -0.001164411377219605, 0.0007115202752051298,
    -0.00043803516132580534, 0.00027130273545114005, -0.0001685717945035172,
    0.00010541715222185904, -6.793733027397047e-05, 4.281642862794779e-05,
    -2.148770252062576e-05, 1.3584275459130943e-05, -1.8527803997032962e-05,
    1.1820969445467145e-05,
)
# what Stirling's formula lacks (DLMF 5.11.1) from 7 on, times x, of 1 / x^2
OF_LOG_GAMMA = (
    0.08333333333333333, -0.0027777777777604957, 0.0007936507800219683, -0.0005952340412006908,
    0.0008411713778742415, -0.0018742720343858988, 0.004740686775340597,
)
# psi(y) / (y - its zero) for 1 <= y <= 2, of y - 3/2
PSI = (
    0.951055876031833, -0.4236274212814605, 0.2405424842407742, -0.14840492305390884,
    0.09498872445494122, -0.061922133273064534, 0.04076083381242074, -0.02697579675613825,
    0.0179072524394512, -0.011908218001568644, 0.007926944646403797, -0.005279964873257405,
    0.003519006401502276, -0.002345267632540769, 0.0015566317474486838, -0.0010376374098418604,
    0.0007233266279287554, -0.0004821990530566789, 0.0002272331660987376,
    -0.00015148586836773365, 0.00025968482126430747, -0.00017312261802727394,
)
# log(x) - 1 / (2 x) - psi(x) from 8 on, times x^2, of 1 / x^2
OF_PSI = (
    0.08333333333333333, -0.008333333333278636, 0.0039682539119537084, -0.0041666448230497,
    0.007571689620283902, -0.020697987372370493, 0.06362150587634356,
)
# psi'(x) - 1 / x - 1 / (2 x^2) from 8 on, times x^3, of 1 / x^2
OF_TRIGAMMA = (
    0.16666666666666666, -0.03333333333330476, 0.023809523770911365, -0.03333331335581846,
    0.07575246348177586, -0.2523946862734603, 1.1093601965597248, -4.575304142113963,
)

# (x + 1/2) erfcx(x) for x >= 0, of (x - 3) / (x + 3)
ERFCX = (
    0.6265040291348648, -0.06781055306229058, -0.023781147176725435, 0.0648225793513803,
    -0.05963683170765349, 0.03415401367198924, -0.011885257459322944, 0.0012646959080331195,
    0.0009443451795780776, -0.00038991613605419956, -5.257989990750589e-05,
    6.254967617781554e-05, 2.4747424962852974e-06, -1.0050283965644614e-05,
    -3.657552582079531e-07, 1.736207301437843e-06, 1.7841919576996102e-07,
    -3.0832480388021764e-07, -7.080032470132994e-08, 5.0935003000364426e-08,
    2.090392349422791e-08, -6.663182406501917e-09, -4.250198964886308e-09,
    4.942899415569683e-10, 4.432109508213546e-10,
)
# erfinv(x) / (x s) of w = -log(1 - x^2): for w <= 37.4 of t = (s - 3) / (s + 3), s^2 = w + 9 / 4,
INVERSE_NEAR = (
    0.8108645900220098, 0.6607550639705527, -0.9887833872280951, -0.2982474306297262,
    8.079234578188622, -22.297982411742073, -22.564034915987623, 275.90132453353675,
    -250.46633042359858, -2413.7137211563045, 5722.576563708885, 15499.320614805447,
    -70069.36968906359, -50165.789195030826, 649146.5877538244, -454015.681546664,
    -4662602.598975017, 11175770.065064441, 21859109.398901533, -139230732.0290814,
    27242684.35558829, 1293030767.5696094, -2182934757.625715, -9310174317.002935,
    32386297940.868633, 47321125822.84901, -339344625566.09454, -82094525047.89607,
    2847554104148.535, -1442933377644.067, -19606457371655.184, 20113946339415.19,
    109956515559833.02, -154114270643126.94, -490064292808012.5, 821691658965022.6,
    1666327667849599.0, -3129843673910213.5, -4048129078406489.5, 8200576593575581.0,
    6239204461646387.0, -1.3312490448381462e+16, -4572632390375704.0, 1.0119018455198148e+16,
)
# and from there to 748 of t = (s - 13) / (s + 13), s^2 = w
INVERSE_FAR = (
    0.9927551893327723, 0.023090994167319166, -0.03443012227658492, 0.03797898061602756,
    -0.0376787182658304, 0.034346089876766774, -0.028833601952775803, 0.021573362657826792,
    -0.013022399150989716, 0.0035058888274205027, 0.006638174519659914, -0.017128704033683346,
    0.027699781663831913, -0.03822652253784351, 0.048291633376369075, -0.056363266277911744,
    0.06484694816945955, -0.08435098897117406, 0.09276324365942405, -0.03809176089898667,
    0.03796446006830182, -0.22144503076423824, 0.23096139059518367,
)
# sin(pi r) / r for |r| <= 1/2, of r^2
SINE = (
    3.141592653589793, -5.167712780049969, 2.5501640398773007, -0.5992645293189447,
    0.0821458865731029, -0.007370430505916944, 0.0004662998161898394, -2.1903497074626018e-05,
    7.697826768224191e-07,
)


# ---- Special functions of one number as polynomials and choices, so that loops of them are vectors
#
# A call of SciPy's function takes one number after the other. A kernel here has no branch: it
# computes every case and chooses. It takes numbers that rows can be applied to, and agrees with
# SciPy's function at poles, at infinities and beyond the domain. Sources: DLMF, chapters 5, 7 and
# 10; the variable of erfcx is that of Shepherd and Laframboise (Math. Comp. 36, 1981).

PI, LOG_2 = math.pi, math.log(2)
HALF, ROOT_2 = math.sqrt(0.5), math.sqrt(2)
LOG_ROOT_2PI = 0.5 * math.log(2 * PI)
# The zero of psi in two parts.
ROOT, REST = 1.4616321449683622, 9.549995429965697e-17
# A number that rounds to multiples of 2^-20 when it is added and subtracted.
ROUNDS = 1.5 * 2.0**32
# Numbers below have no finite inverse.
SMALLEST = 2.0**-1024
GREATEST = sys.float_info.max
# erfcx(x) is infinite below.
LEAST = -27.0


def _polynomial(coefficients: Sequence[float], x: Any) -> AnyArray | float:
    y = coefficients[-1]
    for c in coefficients[-2::-1]:
        y = y * x + c
    return y


# ---- Bessel functions


def _bessel(near: Sequence[float], far: Sequence[float], order: int, scaled: bool) -> Callable:
    """``iv(order, x)`` or, ``scaled``, that times exp(-|x|)."""

    def kernel(x: Any) -> AnyArray:
        size = ops.absolute(x)
        is_near = size <= 12.0
        # unscaled by halves: exp(x) is infinite before i0(x) is
        power = ops.exp(ops.where(is_near, -size, 0.0) if scaled else 0.5 * size)
        inner = _polynomial(near, x * x)
        inverse = 1.0 / size
        outer = _polynomial(far, inverse) * ops.sqrt(inverse)
        for _ in range(order):
            inner = inner * size
        if scaled:
            y = ops.where(is_near, inner * power, outer)
        else:
            y = ops.where(is_near, inner, outer * power * power)
        return ops.where(x < 0.0, -y, y) if order == 1 else y

    return kernel


# ---- gamma functions


def _sine(r: Any) -> AnyArray:
    """sin(pi r) for |r| <= 1/2."""
    return r * _polynomial(SINE, r * r)


def _reflect(x: Any) -> tuple[Any, Any, Any]:
    """Whether x < 0, 1 - x there and x elsewhere, and x less the next whole number."""
    left = x < 0.0
    return left, ops.where(left, 1.0 - x, x), x - ops.rint(x)


def _gammaln(x: Any) -> AnyArray:
    """By the recurrence (5.5.1) to between 1 and 2; Stirling's formula from 7 on."""
    left, z, r = _reflect(x)
    whole = ops.floor(z)
    product = z - 1.0
    for k in range(2, 6):
        product = product * ops.where(z >= k + 1, z - float(k), 1.0)
    product = ops.where(z < 2.0, 1.0, product)
    log = ops.log(ops.where((z < 1.0) | (z >= 7.0), z, product))
    rest = z - whole
    between = rest * (rest - 1.0) * _polynomial(LOG_GAMMA, rest - 0.5)
    near = ops.where(z < 1.0, between - log, between + log)
    inverse = 1.0 / z
    more = inverse * _polynomial(OF_LOG_GAMMA, inverse * inverse)
    far = (z - 0.5) * (log - 1.0) + ((LOG_ROOT_2PI - 0.5) + more)
    y = ops.where(z < 7.0, near, far)
    # 5.5.3; the logarithm of no number is wanted twice where x > 0
    # whole numbers are poles also where y is infinite
    other = ops.log(PI / ops.absolute(_sine(ops.where(left, r, 0.5)))) - ops.minimum(y, GREATEST)
    y = ops.where(x == -math.inf, x, ops.where(left, other, y))
    # SciPy's divides by what has no finite inverse
    return ops.where(ops.absolute(x) < SMALLEST, math.inf, y)


def _psi(x: Any) -> AnyArray:
    """By its zero between 1 and 2, and the recurrence (5.5.2) below 3; by its series from 8 on."""
    left, z, r = _reflect(x)
    y = ops.where(z < 1.0, z + 1.0, ops.where(z < 2.0, z, z - 1.0))
    between = ((y - ROOT) - REST) * _polynomial(PSI, y - 1.5)
    step = 1.0 / ops.where(z < 1.0, -z, y)
    near = between + ops.where((z >= 1.0) & (z < 2.0), 0.0, step)
    # 1 / z + ... + 1 / (z + 4), of the square of z + 2
    middle = z + 2.0
    s = middle * middle
    sums = ((5.0 * s - 15.0) * s + 4.0) / (middle * (s - 1.0) * (s - 4.0))
    c = ops.where(z < 8.0, z + 5.0, z)
    inverse = 1.0 / c
    u = inverse * inverse
    far = ops.log(c) - (0.5 * inverse + u * _polynomial(OF_PSI, u))
    far = far - ops.where(z < 8.0, sums, 0.0)
    right = ops.where(z < 3.0, near, far)
    # 5.5.4: cot(pi x), which is that of r
    cosine = _sine(0.5 - ops.absolute(r))
    pole = ops.where(r == 0.0, math.nan, PI * cosine / _sine(r))
    return ops.where(left, right - pole, right)


def _trigamma(x: Any) -> AnyArray:
    """The derivative of psi, zeta(2, x): by its series from 8 on, 5.15.3."""
    left, z, r = _reflect(x)
    near = z < 8.0
    sums = 0.0
    for k in range(0, 8, 2):
        a, b = (z + float(k) if k else z), z + float(k + 1)
        sums = sums + (a * a + b * b) / ((a * b) * (a * b))
    c = ops.where(near, z + 8.0, z)
    inverse = 1.0 / c
    u = inverse * inverse
    series = inverse + (0.5 * u + inverse * u * _polynomial(OF_TRIGAMMA, u))
    right = series + ops.where(near, sums, 0.0)
    sine = _sine(r) * (1.0 / PI)
    other = 1.0 / (sine * sine) - right  # 5.15.6
    return ops.where(x == -math.inf, math.inf, ops.where(left, other, right))


# ---- error functions


def _right_erfcx(size: Any) -> AnyArray:
    """erfcx of numbers >= 0."""
    a = ops.where(size < 1e16, size, 1e16)
    return _polynomial(ERFCX, (a - 3.0) / (a + 3.0)) / (size + 0.5)


def _exp_of_square(x: Any, scale: float) -> AnyArray:
    """exp(scale x^2) for |scale| <= 1, a power of two: the square is not rounded."""
    high = (x + ROUNDS) - ROUNDS
    rest = scale * ((x - high) * (x + high))
    return ops.exp(scale * (high * high)) * (1.0 + rest * (1.0 + rest * (0.5 + rest * (1 / 6))))


def _erfcx(x: Any) -> AnyArray:
    right = _right_erfcx(ops.absolute(x))
    other = 2.0 * _exp_of_square(ops.where(x < 0.0, x, 0.0), 1.0) - right
    return ops.where(x < LEAST, math.inf, ops.where(x < 0.0, other, right))


def _half_erfcx(x: Any) -> AnyArray:
    """ndtr(-|x|) exp(x^2 / 2)."""
    return 0.5 * _right_erfcx(ops.absolute(x) * HALF)


def _upper_tail(x: Any) -> AnyArray:
    """ndtr(-|x|)."""
    size = ops.absolute(x)
    bounded = ops.where(size < 40.0, x, 40.0)
    return ops.where(ops.isnan(x), x, _exp_of_square(bounded, -0.5) * _half_erfcx(bounded))


def _ndtr(x: Any) -> AnyArray:
    tail = _upper_tail(x)
    return ops.where(x < 0.0, tail, 1.0 - tail)


def _log_ndtr(x: Any) -> AnyArray:
    left = ops.log(_half_erfcx(x)) - 0.5 * (x * x)
    return ops.where(x < 0.0, left, ops.log1p(-_upper_tail(x)))


def _inverse(x: Any, less: Any) -> AnyArray:
    """erfinv(x), where 1 - x^2 = less."""
    w = -ops.log(ops.where(less > 0.0, less, 1.0))
    s = ops.sqrt(w + 2.25)
    y = s * _polynomial(INVERSE_NEAR, (s - 3.0) / (s + 3.0))
    root = ops.sqrt(w)
    far = root * _polynomial(INVERSE_FAR, (root - 13.0) / (root + 13.0))
    return x * ops.where(less > 0.0, ops.where(w > 37.4, far, y), math.nan)


def _erfinv(x: Any) -> AnyArray:
    w = -ops.log(ops.where(ops.absolute(x) < 1.0, (1.0 - x) * (1.0 + x), 1.0))
    s = ops.sqrt(w + 2.25)
    y = x * (s * _polynomial(INVERSE_NEAR, (s - 3.0) / (s + 3.0))) + 0.0  # 0 of -0
    return ops.where(ops.absolute(x) < 1.0, y, ops.where(
        ops.absolute(x) == 1.0, x * math.inf, math.nan))


def _of_share(p: Any) -> AnyArray:
    """erfinv(2p - 1)."""
    y = _inverse(2.0 * (p - 0.5), 4.0 * (p * (1.0 - p)))
    return ops.where(p == 0.0, -math.inf, ops.where(p == 1.0, math.inf, y))


def _ndtri(p: Any) -> AnyArray:
    return ROOT_2 * _of_share(p)


def _erfcinv(x: Any) -> AnyArray:
    return -_of_share(0.5 * x)


# ---- logarithms


def _logit(p: Any) -> AnyArray:
    """log(p / (1 - p)): of the larger share over the smaller, less 1, which is exact near 1 / 2."""
    right = p >= 0.5
    less = ops.where(right, 1.0 - p, p + 0.0)  # 0, not -0
    tiny = ops.absolute(less) < 2.0**-1000
    size = ops.log1p(ops.absolute(2.0 * p - 1.0) / ops.where(tiny, 2.0**60 * less, less))
    size = ops.where(tiny, size + 60 * LOG_2, size)
    return ops.where(right, size, -size)


def _entr(x: Any) -> AnyArray:
    inside = x > 0.0
    y = -x * ops.log(ops.where(inside, x, 1.0))
    return ops.where(inside, y, ops.where(x < 0.0, -math.inf, ops.where(ops.isnan(x), x, 0.0)))


KERNELS: dict[str, Callable[[Any], Any]] = {
    "i0": _bessel(I0_NEAR, I0_FAR, 0, scaled=False),
    "i0e": _bessel(I0_NEAR, I0_FAR, 0, scaled=True),
    "i1": _bessel(I1_NEAR, I1_FAR, 1, scaled=False),
    "i1e": _bessel(I1_NEAR, I1_FAR, 1, scaled=True),
    "i2e": _bessel(I2_NEAR, I2_FAR, 2, scaled=True),
    "gammaln": _gammaln,
    "psi": _psi,
    "trigamma": _trigamma,
    "erfcx": _erfcx,
    "ndtr": _ndtr,
    "log_ndtr": _log_ndtr,
    "erfinv": _erfinv,
    "erfcinv": _erfcinv,
    "ndtri": _ndtri,
    "logit": _logit,
    "entr": _entr,
}
# Functions whose first operand is known to be this number -> the kernel of the second.
AT: dict[tuple[str, int], str] = {("zeta", 2): "trigamma", ("ive", 2): "i2e"}
