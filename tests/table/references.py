"""Independent values: each elementwise row as mpmath computes it, and so its derivatives."""

import mpmath as mp

LN2 = mp.log(2)


def _sinc_nth(x, n):
    return mp.diff(lambda z: mp.sin(z) / z, x, int(n))


def _clip(x, low, high):
    return high if low > high or x > high else low if x < low else x


def _remainder(a, b):
    return a - b * mp.floor(a / b)


def _fmod(a, b):
    q = a / b
    return a - b * (mp.floor(q) if q > 0 else mp.ceil(q))


def _trunc(x):
    return mp.floor(x) if x > 0 else mp.ceil(x)


REFERENCES = {
    "strong_multiply": lambda a, b: a * b,
    "moving_as": lambda a, b: b,  # at equal operands
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b,
    "negative": lambda x: -x,
    "positive": lambda x: x,
    "square": lambda x: x**2,
    "reciprocal": lambda x: 1 / x,
    "remainder": _remainder,
    "fmod": _fmod,
    "ratio": lambda a, b: a / b,
    "sqrt": mp.sqrt,
    "root": mp.sqrt,
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "hypot": lambda a, b: mp.sqrt(a**2 + b**2),
    "power": lambda a, b: mp.exp(b * mp.log(a)),
    "float_power": lambda a, b: mp.exp(b * mp.log(a)),
    "exp": mp.exp,
    "exp2": lambda x: mp.exp(x * LN2),
    "expm1": lambda x: mp.exp(x) - 1,
    "log": mp.log,
    "log2": lambda x: mp.log(x) / LN2,
    "log10": lambda x: mp.log(x) / mp.log(10),
    "log1p": lambda x: mp.log(1 + x),
    "logaddexp": lambda a, b: mp.log(mp.exp(a) + mp.exp(b)),
    "logaddexp2": lambda a, b: mp.log(2**a + 2**b) / LN2,
    "sin": mp.sin,
    "cos": mp.cos,
    "tan": mp.tan,
    "arcsin": mp.asin,
    "arccos": mp.acos,
    "arctan": mp.atan,
    "sinh": mp.sinh,
    "cosh": mp.cosh,
    "tanh": mp.tanh,
    "arcsinh": mp.asinh,
    "arccosh": mp.acosh,
    "arctanh": mp.atanh,
    "arctan2": lambda a, b: mp.atan2(a, b),
    "deg2rad": lambda x: x * mp.pi / 180,
    "rad2deg": lambda x: x * 180 / mp.pi,
    "sinc_nth": _sinc_nth,
    "bessel_i": lambda x, n: mp.besseli(int(n), x),
    "absolute": abs,
    "fabs": abs,
    "copysign": lambda a, b: abs(a) * mp.sign(b),
    "maximum": lambda a, b: max(a, b),
    "minimum": lambda a, b: min(a, b),
    "fmax": lambda a, b: max(a, b),
    "fmin": lambda a, b: min(a, b),
    "clip": _clip,
    "heaviside": lambda a, b: mp.mpf(1) if a > 0 else mp.mpf(0) if a < 0 else b,
    "where": lambda c, a, b: a if c else b,
    "ldexp": lambda a, n: a * mp.mpf(2) ** int(n),
    "nextafter": lambda a, b: a,
    "conjugate": lambda x: x,
    "real": lambda x: x,
    "imag": lambda x: mp.mpf(0),
}

def _boxcox(x, lam):
    return (x**lam - 1) / lam


SPECIAL = {
    "beta": mp.beta,
    "betaln": lambda a, b: mp.log(mp.beta(a, b)),
    "binom": mp.binomial,
    "boxcox": _boxcox,
    "boxcox1p": lambda x, lam: _boxcox(1 + x, lam),
    "cbrt": lambda x: mp.sign(x) * mp.cbrt(abs(x)),
    "cosdg": lambda x: mp.cos(x * mp.pi / 180),
    "cosm1": lambda x: mp.cos(x) - 1,
    "cotdg": lambda x: mp.cot(x * mp.pi / 180),
    "dawsn": lambda x: mp.sqrt(mp.pi) / 2 * mp.exp(-(x**2)) * mp.erfi(x),
    "entr": lambda x: -x * mp.log(x),
    "erf": mp.erf,
    "erfc": mp.erfc,
    "erfcinv": lambda x: mp.erfinv(1 - x),
    "erfcx": lambda x: mp.exp(x**2) * mp.erfc(x),
    "erfi": mp.erfi,
    "erfinv": mp.erfinv,
    "exp10": lambda x: mp.exp(x * mp.log(10)),
    "exp2": lambda x: mp.exp(x * LN2),
    "expit": lambda x: 1 / (1 + mp.exp(-x)),
    "expm1": lambda x: mp.exp(x) - 1,
    "exprel": lambda x: (mp.exp(x) - 1) / x,
    "gamma": mp.gamma,
    "gammaln": lambda x: mp.log(mp.gamma(x)),
    "huber": lambda d, x: x**2 / 2 if abs(x) <= d else d * (abs(x) - d / 2),
    "inv_boxcox": lambda x, lam: (lam * x + 1) ** (1 / lam),
    "inv_boxcox1p": lambda x, lam: (lam * x + 1) ** (1 / lam) - 1,
    "kl_div": lambda x, y: x * mp.log(x / y) - x + y,
    "log1p": lambda x: mp.log(1 + x),
    "log_expit": lambda x: -mp.log(1 + mp.exp(-x)),
    "log_ndtr": lambda x: mp.log(mp.ncdf(x)),
    "loggamma": mp.loggamma,
    "logit": lambda x: mp.log(x / (1 - x)),
    "ndtr": mp.ncdf,
    "ndtri": lambda x: mp.sqrt(2) * mp.erfinv(2 * x - 1),
    "ndtri_exp": lambda x: mp.sqrt(2) * mp.erfinv(2 * mp.exp(x) - 1),
    "owens_t": lambda h, a: mp.quad(
        lambda t: mp.exp(-(h**2) * (1 + t * t) / 2) / (1 + t * t), [0, a]
    ) / (2 * mp.pi),
    "poch": mp.rf,
    "powm1": lambda x, y: x**y - 1,
    "pseudo_huber": lambda d, x: d**2 * (mp.sqrt(1 + (x / d) ** 2) - 1),
    "psi": mp.digamma,
    "radian": lambda d, m, s: (d + m / 60 + s / 3600) * mp.pi / 180,
    "rel_entr": lambda x, y: x * mp.log(x / y),
    "rgamma": mp.rgamma,
    "sindg": lambda x: mp.sin(x * mp.pi / 180),
    "tandg": lambda x: mp.tan(x * mp.pi / 180),
    "xdivy": lambda x, y: x / y,
    "xlog1py": lambda x, y: x * mp.log(1 + y),
    "xlogy": lambda x, y: x * mp.log(y),
    "zeta": lambda s, q: mp.zeta(s, q),
}
REFERENCES |= {f"special.{name}": f for name, f in SPECIAL.items()}
