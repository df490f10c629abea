"""Functions of real numbers as arithmetic, which every processor has for vectors.

Each is within one unit in the last place. Of what they do not take (sines beyond ``FAR``, what
overflows, what is not finite) they make NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from functrans._compile.lowering.numbers import Code

FAR = float(1 << 17)


class Real(NamedTuple):
    """A register, or a number written out, of the function that ``code`` becomes: of double
    precision, or single."""

    code: Code
    name: str
    t: str = "double"

    def _with(self, how: str, other: Real | float, turned: bool = False) -> Real:
        names = self.name, self.number(other).name
        return Real(self.code, self.code.arith(how, self.t, *names[:: -1 if turned else 1]), self.t)

    def number(self, x: Real | float) -> Real:
        return x if isinstance(x, Real) else Real(self.code, self.code.number(self.t, x), self.t)

    def __add__(self, other: Real | float) -> Real:  # type: ignore[override]  # not of tuples
        return self._with("add", other)

    def __sub__(self, other: Real | float) -> Real:
        return self._with("sub", other)

    def __rsub__(self, other: float) -> Real:
        return self._with("sub", other, turned=True)

    def __mul__(self, other: Real | float) -> Real:  # type: ignore[override]  # not of tuples
        return self._with("mul", other)

    def __truediv__(self, other: Real | float) -> Real:
        return self._with("div", other)

    def __rtruediv__(self, other: float) -> Real:
        return self._with("div", other, turned=True)

    def __abs__(self) -> Real:
        return Real(self.code, self.code.call("fabs", self.t, self.name), self.t)

    def with_sign_of(self, other: Real) -> Real:
        return Real(self.code, self.code.call("copysign", self.t, self.name, other.name), self.t)

    def is_(self, how: str, other: Real | float) -> str:
        return self.code.compare(how, self.t, self.name, self.number(other).name)

    def if_(self, condition: str, other: Real | float) -> Real:
        """This where the condition holds, else the other."""
        name = self.code.select(self.t, condition, self.name, self.number(other).name)
        return Real(self.code, name, self.t)

    def polynomial(self, coefficients: Sequence[float]) -> Real:
        y = self.number(coefficients[-1])
        with self.code.contracting():
            for c in coefficients[-2::-1]:
                y = self * y + c
        return y

    @property
    def bits_type(self) -> str:
        return {"double": "i64", "float": "i32"}[self.t]

    def bits(self) -> str:
        return self.code.op(f"bitcast {self.t} {self.name} to {self.bits_type}")

    def of_bits(self, bits: str) -> Real:
        name = self.code.op(f"bitcast {self.bits_type} {bits} to {self.t}")
        return Real(self.code, name, self.t)


# Added to a number and taken off again it leaves the nearest integer, which its last bits are.
NEAREST = 1.5 * 2.0**52

# pi / 2 in parts, all but the last of 33 bits, so that products with 17 more are exact; 2 / pi
PARTS = tuple(map(float.fromhex, (
    "0x1.921fb54400000p+0", "0x1.0b4611a600000p-34", "0x1.3198a2e037073p-69")))
TURNS = float.fromhex("0x1.45f306dc9c883p-1")
# (sin(x) - x) / x**3 and (cos(x) - 1 + x**2 / 2) / x**4 in x**2 up to (pi / 4)**2: here and below
# the polynomials whose greatest error is least
SIN = (-0.1666666666666666, 0.008333333333328469, -0.00019841269834149167,
       2.7557315062017415e-06, -2.505095562521006e-08, 1.5907436521153074e-10)
COS = (0.041666666666666664, -0.0013888888888885717, 2.480158729684478e-05,
       -2.755731647785421e-07, 2.0876009266134054e-09, -1.1374227210816594e-11)


def sine(x: Real, quarter: int) -> Real:
    """``sin(x + quarter * pi / 2)``."""
    shifted = x * TURNS + NEAREST
    n = shifted - NEAREST
    first, second, third = [n * p for p in PARTS]
    whole = x - first  # exact
    near = whole - second
    moved = near - whole
    lost = ((whole - (near - moved)) - (second + moved)) - third
    r = near + lost
    rest = lost - (r - near)  # what r is short of

    z = r * r
    half = z * 0.5
    of_sin = r + (r * z * z.polynomial(SIN) + rest * (1.0 - half))
    top = 1.0 - half
    of_cos = top + (((1.0 - top) - half) + (z * z * z.polynomial(COS) - r * rest))

    code = x.code
    turned = code.op(f"add i64 {shifted.bits()}, {quarter}")
    odd = code.op(f"icmp ne i64 {code.op(f'and i64 {turned}, 1')}, 0")
    sign = code.op(f"shl i64 {code.op(f'and i64 {turned}, 2')}, 62")
    y = x.of_bits(code.op(f"xor i64 {of_cos.if_(odd, of_sin).bits()}, {sign}"))
    if not quarter:
        y = x.if_(x.is_("eq", 0.0), y)  # -0.0
    return y.if_(abs(x).is_("le", FAR), float("nan"))


# log(2) in two parts, the first of 33 bits, and its reciprocal
LOG2 = float.fromhex("0x1.62e42fef00000p-1"), float.fromhex("0x1.473de6af278edp-34")
PER_LOG2 = float.fromhex("0x1.71547652b82fep+0")


class _Exp(NamedTuple):
    """What the exponential of a type takes: digits behind the first, log(2) in two parts, where it
    is the least number, the least with all its digits, and the greatest, and
    (exp(x) - 1 - x) / x**2 up to log(2) / 2."""

    digits: int
    log2: tuple[float, float]
    least: float
    whole: float
    greatest: float
    rest: tuple[float, ...]


EXP = {
    "double": _Exp(52, LOG2, -745.2, -707.0, 709.78, (
        0.5000000000000003, 0.16666666666666685, 0.041666666666586305, 0.008333333333315153,
        0.0013888888929982906, 0.0001984126990238593, 2.4801506251254874e-05,
        2.7557228196240045e-06, 2.7625857951313414e-07, 2.511446852231069e-08)),
    "float": _Exp(
        23, (float.fromhex("0x1.62e000p-1"), float.fromhex("0x1.0bfbe8p-15")), -104.0, -86.0, 88.72,
        (0.4999999403953552, 0.1666652113199234, 0.04166838899254799, 0.00836874544620514,
         0.0013814540579915047)),
}
# By how much the power of 2 of a number with fewer digits is raised, and put right by a product.
RAISED = 64


def exp(x: Real, beyond: float = float("nan")) -> Real:
    """The exponential, ``beyond`` where that is too large."""
    return x.number(beyond).if_(x.is_("gt", EXP[x.t].greatest), exp_within(x))


def exp_within(x: Real) -> Real:
    """The exponential of what is not too large, of negative numbers say."""
    digits, log2, least, whole, _, rest = EXP[x.t]
    nearest, code = 1.5 * 2.0**digits, x.code
    fine = x.is_("ge", whole)
    within = x.number(least - 1).if_(x.is_("lt", least), x)
    with code.contracting():
        shifted = within * PER_LOG2 + nearest
        n = shifted - nearest
        r = (within - n * log2[0]) - n * log2[1]
        y = (r * r * r.polynomial(rest) + r) + 1.0
        raised_by = within * 0.0 + 2.0**-RAISED  # or NaN
    # the last bits of ``shifted`` are n, which is added to the power of 2
    raised = shifted + x.number(0.0).if_(fine, RAISED)
    power = code.op(f"shl {x.bits_type} {raised.bits()}, {digits}")
    y = x.of_bits(code.op(f"add {x.bits_type} {y.bits()}, {power}"))
    return y * x.number(1.0).if_(fine, raised_by)


def exp_normal(x: Real) -> Real:
    """The exponential of what is not too large; where digits would be lost, that of the least
    number that keeps all."""
    digits, log2, _, whole, _, rest = EXP[x.t]
    nearest, code = 1.5 * 2.0**digits, x.code
    within = x.number(whole).if_(x.is_("lt", whole), x)
    with code.contracting():
        shifted = within * PER_LOG2 + nearest
        n = shifted - nearest
        r = (within - n * log2[0]) - n * log2[1]
        y = (r * r * r.polynomial(rest) + r) + 1.0
    power = code.op(f"shl {x.bits_type} {shifted.bits()}, {digits}")
    return x.of_bits(code.op(f"add {x.bits_type} {y.bits()}, {power}")) + within * 0.0  # or NaN


# (log((1 + s) / (1 - s)) / s - 2) / s**2 in s**2, for (1 + s) / (1 - s) up to the root of 2
LOG = (0.6666666666666681, 0.3999999999973949, 0.2857142867536473, 0.22222205018571178,
       0.18183247968228072, 0.15321741487637, 0.14722467084878654)
ROOT = float.fromhex("0x1.6a09e667f3bcdp+0")


def log1p(x: Real) -> Real:
    code = x.code
    u = x + 1.0
    small = x - (u - 1.0)  # what u is short of
    # u as a power of 2 and a number between the roots of 1/2 and 2
    scaled = (u * ROOT).bits()
    power = code.op(f"ashr i64 {code.op(f'and i64 {scaled}, {0x7FF << 52}')}, 52")
    power = code.op(f"sub i64 {power}, 1023")
    m = x.of_bits(code.op(f"sub i64 {u.bits()}, {code.op(f'shl i64 {power}, 52')}"))
    k = x.of_bits(code.op(f"add i64 {power}, {x.number(NEAREST).bits()}")) - NEAREST

    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    half = f * f * 0.5
    low = k * LOG2[1] + small / u
    y = k * LOG2[0] - ((half - (s * (half + z * z.polynomial(LOG)) + low)) - f)
    y = x.if_(abs(x).is_("lt", 2.0**-54), y)
    inside = code.op(f"and i1 {x.is_('gt', -1.0)}, {x.is_('lt', 1e300)}")
    return y.if_(inside, float("nan"))


# (tanh(x) - x) / x**3 in x**2, up to 1
TANH = (-0.3333333333333333, 0.1333333333333266, -0.05396825396777677, 0.02186948852221688,
        -0.008863235309250175, 0.003592125872486592, -0.001455820171675063, 0.000589961743928569,
        -0.0002389085085309819, 9.636575803649057e-05, -3.824913458369065e-05,
        1.4460205647229343e-05, -4.8817660224861565e-06, 1.3280802345743516e-06,
        -2.4861901134790086e-07, 2.3250071804272632e-08)


def tanh(x: Real) -> Real:
    size = abs(x)
    z = x * x
    small = x + x * z * z.polynomial(TANH)
    far = size.is_("gt", 20.0)
    within = x.number(20.0).if_(far, size)
    large = 1.0 - 2.0 / (exp_within(within + within) + 1.0)
    y = small.if_(size.is_("lt", 1.0), large.with_sign_of(x))
    y = x.if_(x.is_("eq", 0.0), y)  # -0.0
    return y.if_(x.is_("eq", x), float("nan"))


# From where on 1 / cosh(x)**2 is 0.
SECH2 = {"double": 375.0, "float": 54.0}


def tanh_beside_slope(x: Real) -> Real:
    """The same within 3 units, of the exponential and the quotient that its slope takes too."""
    small, less = _falling(x)
    with x.code.contracting():
        inverse = 1.0 / (small * small + 1.0)
        return (less * (small + 1.0) * inverse).with_sign_of(x)


def sech2(x: Real) -> Real:
    """``1 / cosh(x)**2``, the slope of tanh, within 5 units: what both take LLVM computes once."""
    small, _ = _falling(x)
    with x.code.contracting():
        inverse = 1.0 / (small * small + 1.0)
        half = small * inverse
        return half * half * 4.0


def _falling(x: Real) -> tuple[Real, Real]:
    """``exp(-|x|)`` up to where the square of that is 0, and what it is less than 1, negative."""
    digits, log2, *_, rest = EXP[x.t]
    nearest, code, last = 1.5 * 2.0**digits, x.code, SECH2[x.t]
    size = abs(x)
    size = size.number(last).if_(size.is_("gt", last), size)
    with code.contracting():
        shifted = nearest - size * PER_LOG2
        n = shifted - nearest
        r = (0.0 - size - n * log2[0]) - n * log2[1]
        y = r * r * r.polynomial(rest) + r
        power = _power_of_two(shifted)
        return y * power + power, y * power + (power - 1.0)


def _power_of_two(shifted: Real) -> Real:
    """``2**n`` where ``n`` is a number's last bits, within the exponents of normal numbers."""
    digits, code = EXP[shifted.t].digits, shifted.code
    bits = code.op(f"shl {shifted.bits_type} {shifted.bits()}, {digits}")
    return shifted.of_bits(code.op(f"add {shifted.bits_type} {bits}, {shifted.number(1.0).bits()}"))


def tanh_slope(g: Real, x: Real, y: Real) -> Real:
    """``g / cosh(x)**2`` without a division: for x > 0, 1 + tanh(x) is 2 / (1 + exp(-2 x))."""
    root = _falling(x)[0] * (abs(y) + 1.0)
    return g * (root * root)


# (log((1 + s) / (1 - s)) / s - 2) / s**2 in s**2, up to 1/9
LOG_UNIT = {
    "double": (0.6666666666666631, 0.40000000000157393, 0.2857142854783338, 0.22222223971072036,
               0.1818174387556017, 0.1538656101612007, 0.13300958732440257, 0.12106207466950955,
               0.08339556586252578, 0.17019612236404474),
    "float": (0.666664130240356, 0.40021706139487695, 0.2799901338302693, 0.2802514034984297),
}


def log1p_of_unit(x: Real) -> Real:
    """``log(1 + x)`` for ``x`` from 0 to 1."""
    s = x / (x + 2.0)
    z = s * s
    half = x * x * 0.5
    with x.code.contracting():
        far = s * (half + z * z.polynomial(LOG_UNIT[x.t]))
    return x - (half - far)


def logaddexp(x1: Real, x2: Real) -> Real:
    greater = x1.if_(x1.is_("gt", x2), x2)
    return greater + log1p_of_unit(exp_within(0.0 - abs(x1 - x2)))


def logaddexp_slope(g: Real, x1: Real, x2: Real) -> Real:
    """``g / (1 + exp(x2 - x1))``, which moves with the first operand."""
    return g * logistic(g.number(0.0).if_(x1.is_("eq", x2), x1 - x2))  # of infinities, too


def logistic(x: Real) -> Real:
    """``1 / (1 + exp(-x))``."""
    small = exp_within(0.0 - abs(x))
    return small.if_(x.is_("le", 0.0), 1.0) / (small + 1.0)


def power(x: Real, n: int) -> Real:
    """``x**n``, of products with what each loses by rounding."""
    y, lost = x, x.number(0.0)
    for _ in range(n - 1):
        product = y * x
        y, lost = product, lost * x + _rounding(y, x, product)
    return y.if_(lost.is_("eq", 0.0), y + lost)  # -0.0


def _rounding(a: Real, b: Real, product: Real) -> Real:
    """What ``a * b`` is above its rounded value, by halves of their digits."""
    (a1, a2), (b1, b2) = _halves(a), _halves(b)
    return a2 * b2 - (((product - a1 * b1) - a2 * b1) - a1 * b2)


def _halves(x: Real) -> tuple[Real, Real]:
    moved = x * (2.0**27 + 1)
    first = moved - (moved - x)
    return first, x - first
