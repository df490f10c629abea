"""BLAS, LAPACK and special functions as plain C, for libraries that bring nothing along."""

from __future__ import annotations

import re
from typing import NamedTuple

from functrans._compile.lowering import formulas
from functrans._compile.lowering.formulas import PREFIX
from functrans._kernels import routines

# ---- SciPy's special functions as plain C, for libraries that bring nothing along

# What the arguments are, and the value.
OF_NUMBERS = {
    **{name: ("x", value) for name, value in {
        "cosdg": "of_degrees(x, 1)", "cosm1": "0 - 2 * sin(x / 2) * sin(x / 2)",
        "ellipe": "elliptic(x, 1 - x, 1)", "ellipk": "elliptic(x, 1 - x, 0)",
        "ellipkm1": "elliptic(1 - x, x, 0)",
        "erfinv": "copysign(inverse_erfc(fabs(x), 0), x) + 0.0", "exp10": "pow(10, x)",
        "expm1": "expm1(x)",
        "exprel": "x == 0 ? 1 : x > 717 ? INFINITY : expm1(x) / x",
        "gamma": "tgamma(x)", "gammasgn": "gamma_sign(x)",
        **{f: f"isinf(x) ? NAN : {f}(x)" for f in ("j0", "j1", "y0", "y1")},
        "loggamma": "x < 0 ? NAN : lgamma(x)", "logit": "log(x / (1 - x))",
        "ndtri": "!(x >= 0 && x <= 1) ? NAN : x < 0.5 ? -M_SQRT2 * inverse_erfc(1 - 2 * x, 2 * x) "
                 ": M_SQRT2 * inverse_erfc(2 * x - 1, 2 - 2 * x)",
        "rgamma": "x <= 0 && x == floor(x) ? 0 : 1 / tgamma(x)", "round": "rint(x)",
        "sindg": "of_degrees(x, 0)",
    }.items()},
    "beta": ("a b", "a * b == 0 ? (a + b >= 0 ? INFINITY : NAN) : "
                    "gamma_sign(a) * gamma_sign(b) * gamma_sign(a + b) * exp(log_beta(a, b))"),
    "betainc": ("a b x", "beta_part(a, b, x, 1 - x)"),
    "betaincc": ("a b x", "beta_part(b, a, 1 - x, x)"),
    "betainccinv": ("a b p", "b > 0 && a + b < INFINITY ? inverse(a, b, p, 1) : NAN"),
    "betaincinv": ("a b p", "b > 0 && a + b < INFINITY ? inverse(a, b, p, 0) : NAN"),
    "betaln": ("a b", "log_beta(a, b)"),
    "boxcox": ("x power", "fabs(power) < 1e-19 ? log(x) : expm1(power * log(x)) / power"),
    "boxcox1p": ("x power", "fabs(power) < 1e-19 ? log1p(x) : "
                            "expm1(power * log1p(x)) / power"),
    "gammainc": ("a x", "gamma_part(a, x, 0)"), "gammaincc": ("a x", "gamma_part(a, x, 1)"),
    "gammainccinv": ("a p", "inverse(a, -1, p, 1)"),
    "gammaincinv": ("a p", "inverse(a, -1, p, 0)"),
    "huber": ("d x", "d < 0 ? INFINITY : fabs(x) <= d ? x * x / 2 : d * (fabs(x) - d / 2)"),
    "inv_boxcox": ("y power", "power == 0 ? exp(y) : exp(log1p(power * y) / power)"),
    "inv_boxcox1p": ("y power", "power == 0 ? expm1(y) : fabs(power * y) < 1e-154 ? y : "
                                "expm1(log1p(power * y) / power)"),
    "kl_div": ("x y", "isnan(x + y) ? NAN : x > 0 && y > 0 ? x * log(x / y) - x + y : "
                      "x == 0 && y >= 0 ? y : INFINITY"),
    "pdtr": ("k x", "k < 0 ? NAN : gamma_part(floor(k) + 1, x, 1)"),
    "pdtrc": ("k x", "k < 0 ? NAN : gamma_part(floor(k) + 1, x, 0)"),
    "powm1": ("x y", "x > 0 && fabs(y * log(x)) < 0.5 ? expm1(y * log(x)) : "
                       "x < 0 && (isinf(y) || y != floor(y)) ? NAN : pow(x, y) - 1"),
    "pseudo_huber": ("d x", "d < 0 ? INFINITY : d == 0 || x == 0 ? 0 : "
                            "d * d * expm1(log1p(x / d * (x / d)) / 2)"),
    "rel_entr": ("x y", "isnan(x + y) ? NAN : x > 0 && y > 0 ? x * log(x / y) : "
                        "x == 0 && y >= 0 ? 0 : INFINITY"),
    "stdtr": ("df t", "student(df, t)"),
}
# Newton's steps to where erf is p, or the logarithm of erfc that of q = 1 - p, if that is given.
_INVERSE_ERFC = """
static double inverse_erfc(double p, double q)
{
  double rest = q > 0 ? q : 1 - p, y = sqrt(-M_PI_4 * log(rest * (1 + p)));
  if (!(p > 0 && rest > 0)) return p == 0 ? 0 : p == 1 ? INFINITY : NAN;
  for (int i = 0; i < 32; i++) {
    double e = p < 0.5 ? p - erf(y) : erfc(y) * log(erfc(y) / rest);
    e /= M_2_SQRTPI * exp(-y * y);
    y += e;
    if (fabs(e) < 1e-9 * y) break;
  }
  return y;
}
"""
# Their series and continued fractions, by the method of Lentz: a sum, or d and c of a quotient.
_PARTS = """
static double fraction(double d, double *c, double top, double bottom, double *y)
{
  double tiny = 1e-300;
  d = bottom + top * d;
  *c = bottom + top / *c;
  d = 1 / (fabs(d) < tiny ? tiny : d);
  *c = fabs(*c) < tiny ? tiny : *c;
  *y *= d * *c;
  return d;
}

/* What Stirling's formula for the logarithm of gamma leaves out, from 10 on. */
static double stirling(double a)
{
  double r = 1 / (a * a);
  return (1. / 12 - r * (1. / 360 - r * (1. / 1260 - r * (1. / 1680 - r / 1188)))) / a;
}

/* 1 less the incomplete gamma function where a is near 0, so that the difference would be lost. */
static double near_one(double a, double x)
{
  static const double zeta[] = {1.6449340668482264, 1.2020569031595943, 1.0823232337111382,
    1.0369277551433699, 1.0173430619844491, 1.0083492773819228, 1.0040773561979443,
    1.0020083928260822, 1.0009945751278181, 1.0004941886041195, 1.0002460865533080};
  double log_gamma = -0.57721566490153286 * a, power = -a, term = a, sum = 0;
  for (int k = 0; k < 11; k++) log_gamma += (power *= -a) * zeta[k] / (k + 2);
  for (double n = 1; n < 25; n++) sum += (term *= -x / n) / (a + n);
  double u = expm1(a * log(x) - log_gamma);
  return -(u + sum + u * sum);
}

/* Of large a, where x = a (1 + m): by Temme's expansion in 1 / a (DLMF 8.12), whose next term is
   below the last digit. */
static double near_normal(double a, double m, int above)
{
  if (fabs(m) > 0.01) return (m > 0) != above;
  double half = 1. / 7;
  for (int k = 6; k > 1; k--) half = 1. / k - m * half;
  half *= m * m;
  double eta = copysign(sqrt(2 * half), m), side = above ? 1 : -1;
  double rest = exp(-a * half) / sqrt(2 * M_PI * a) * (1. / 3 - eta / 12);
  return erfc(side * eta * sqrt(a / 2)) / 2 - side * rest;
}

static double gamma_part(double a, double x, int above)
{
  if (!(a >= 0 && x >= 0)) return NAN;
  if (a == 0) return x > 0 ? !above : NAN;
  if (x == 0) return above;
  if (isinf(a)) return isinf(x) ? NAN : above;
  if (isinf(x)) return !above;
  double front = a * log(x) - x - lgamma(a + 1), off = (x - a) / a;
  if (a > 1e8) return near_normal(a, off, above);
  if (above && a < 0.1 && x < 1.1) return near_one(a, x);
  if (a > 10) front = a * ((off < -0.5 ? log(x / a) : log1p(off)) - off)
    - log(2 * M_PI * a) / 2 - stirling(a);
  front = exp(front);
  if (front == 0) return (x < a + 1) == above;
  if (x < a + 1) {
    double term = 1, sum = 1, n = 1;
    for (; term > 1e-17 * sum && n < 1e6; n++) sum += term *= x / (a + n);
    return n == 1e6 ? NAN : above ? fmax(1 - front * sum, 0) : front * sum;
  }
  front *= a;
  double b = x + 1 - a, c = 1e300, d = 1 / b, y = d, last = 0, n = 1;
  for (; fabs(y - last) > 1e-16 * fabs(y) && n < 1e6; n++) {
    last = y;
    d = fraction(d, &c, -n * (n - a), b += 2, &y);
  }
  return n == 1e6 ? NAN : above ? front * y : 1 - front * y;
}

static double log_beta(double a, double b)
{
  double low = a < b ? a : b, high = a < b ? b : a, all = a + b;
  if (a == 0 || b == 0) return INFINITY;
  if (!(low > 0 && high > 10)) return lgamma(a) + lgamma(b) - lgamma(all);
  double rest = stirling(high) - stirling(all) + (high - 0.5) * log1p(-low / all);
  if (low < 10) return lgamma(low) + rest + low * (1 - log(all));
  return rest + stirling(low) + log(2 * M_PI / all) / 2 + (low - 0.5) * log(low / all);
}

/* x + y = 1 */
static double beta_part(double a, double b, double x, double y)
{
  if (!(a >= 0 && b >= 0 && x >= 0 && x <= 1)) return NAN;
  if (a == b && (a == 0 || isinf(a))) return NAN;
  if (x == 0 || y == 0) return x;
  if (a == 0 || b == 0 || isinf(a) || isinf(b)) return a == 0 || isinf(b);
  if (a > 1e7 || b > 1e7) return NAN;
  if (x > (a + 1) / (a + b + 2)) return fmax(1 - beta_part(b, a, y, x), 0);
  double log_x = x < 0.5 ? log(x) : log1p(-y), log_y = y < 0.5 ? log(y) : log1p(-x);
  double front = exp(a * log_x + b * log_y - log_beta(a, b)) / a;
  double c = 1, d = 1 / (1 - (a + b) * x / (a + 1)), z = d, last = 0, n = 1;
  for (; fabs(z - last) > 1e-16 * fabs(z) && n < 1e6; n++) {
    last = z;
    d = fraction(d, &c, n * (b - n) * x / ((a + 2 * n - 1) * (a + 2 * n)), 1, &z);
    d = fraction(d, &c, -(a + n) * (a + b + n) * x / ((a + 2 * n) * (a + 2 * n + 1)), 1, &z);
  }
  return n == 1e6 ? NAN : front * z;
}

static double gamma_sign(double x)
{
  if (x == 0) return copysign(1, x);
  if (isnan(x) || (x < 0 && x == floor(x))) return NAN;
  return x > 0 || fmod(floor(x), 2) == 0 ? 1 : -1;
}

static double student(double df, double t)
{
  if (!(df > 0)) return NAN;
  if (isinf(df) || isinf(t)) return erfc(-t * M_SQRT1_2) / 2;
  if (df > 1e7) return erfc(-t * (1 - 0.25 / df) / hypot(M_SQRT2, t / sqrt(df))) / 2;
  double all = df + t * t, tail = beta_part(df / 2, 0.5, df / all, t * t / all) / 2;
  return t < 0 ? tail : t > 0 ? 1 - tail : t == 0 ? 0.5 : NAN;
}

/* Where an incomplete function is p, that of gamma if b is -1: positive numbers are in the order of
   their bits, which are halved until two neighbours are left. */
static double inverse(double a, double b, double p, int above)
{
  if (!(a > 0 && p >= 0 && p <= 1)) return NAN;
  double end = b > 0 ? 1 : INFINITY, x, y;
  if (p == 0 || p == 1) return (p == 0) == above ? end : 0;
  int64_t low = 0, high, middle;
  memcpy(&high, &end, 8);
  while (high - low > 1) {
    middle = low + (high - low) / 2;
    memcpy(&x, &middle, 8);
    if (b < 0) y = gamma_part(a, x, above);
    else if (above && p < 0.5) y = beta_part(b, a, 1 - x, x);
    else y = above ? 1 - beta_part(a, b, x, 1 - x) : beta_part(a, b, x, 1 - x);
    if (isnan(y)) return NAN;
    if ((y < p) != above) low = middle;
    else high = middle;
  }
  memcpy(&x, &high, 8);
  return x;
}

/* By quarters of a turn, which are exact. */
static double of_degrees(double x, int quarters)
{
  int turned;
  if (fabs(x) > 1e14) return 0;
  double r = remquo(x, 90, &turned) * (M_PI / 180);
  turned = (turned + quarters) & 3;
  return (turned & 1 ? cos(r) : sin(r)) * (turned & 2 ? -1 : 1);
}

/* By the arithmetic and geometric mean; m + rest = 1. */
static double elliptic(double m, double rest, int second)
{
  if (!(rest >= 0)) return NAN;
  if (rest == 0) return second ? 1 : INFINITY;
  if (isinf(m)) return second ? INFINITY : 0;
  double a = 1, b = sqrt(rest), sum = m / 2, factor = 1, c = 1;
  while (fabs(c) > 1e-9 * a) {
    c = (a - b) / 2;
    double mean = (a + b) / 2;
    b = sqrt(a * b);
    a = mean;
    sum += factor * c * c;
    factor *= 2;
  }
  return M_PI_2 / a * (second ? 1 - sum : 1);
}
"""


def source_of_special(names: set[str]) -> str:
    """The functions of these names."""
    parts = [_INVERSE_ERFC, _PARTS]
    for name in sorted(names):
        xs, y = OF_NUMBERS[name]
        given = "".join([f"double {x}, " for x in xs.split()])
        parts.append(f"double {PREFIX}{name}({given}int32_t skip)\n{{\n  return {y};\n}}\n")
    return "\n".join(parts)


# ---- BLAS and LAPACK as plain C, for libraries that bring nothing along
#
# Each routine is as native code calls it (``_compile/lowering/library.py``): matrices by columns,
# ``alpha`` 1, ``beta`` 0 or 1 (what is there is added to), results without gaps. The lengths of
# letters come last.

_NUMBERS = {"s": "float", "d": "double", "c": "float _Complex", "z": "double _Complex"}

# <number> is the type of an entry, <pivot> that of a row's number.
_TEXTS = {
    "gemm": """
(const char *how_a, const char *how_b, const int64_t *m, const int64_t *n, const int64_t *k,
 const <number> *one, const <number> *a, const int64_t *lead_a, const <number> *b,
 const int64_t *lead_b, const <number> *beta, <number> *y, const int64_t *lead_y,
 int64_t u, int64_t v)
{
  int64_t across = *how_b == 'N' ? 1 : *lead_b, down = *how_b == 'N' ? *lead_b : 1;
  for (int64_t j = 0; j < *n; j++) {
    <number> *out = y + j * *lead_y;
    if (*how_a == 'N') {
      for (int64_t i = 0; i < *m && *beta == 0; i++) out[i] = 0;
      for (int64_t l = 0; l < *k; l++) {
        const <number> *line = a + l * *lead_a, x = b[l * across + j * down];
        for (int64_t i = 0; i < *m; i++) out[i] += line[i] * x;
      }
    } else for (int64_t i = 0; i < *m; i++) {
      const <number> *line = a + i * *lead_a;
      <number> sum = *beta == 0 ? 0 : out[i];
      for (int64_t l = 0; l < *k; l++) sum += line[l] * b[l * across + j * down];
      out[i] = sum;
    }
  }
}
""",
    "gemv": """
(const char *how, const int64_t *m, const int64_t *n, const <number> *one, const <number> *a,
 const int64_t *lead, const <number> *x, const int64_t *step, const <number> *beta, <number> *y,
 const int64_t *step_y, int64_t u)
{
  if (*how == 'N') {
    for (int64_t i = 0; i < *m && *beta == 0; i++) y[i] = 0;
    for (int64_t j = 0; j < *n; j++)
      for (int64_t i = 0; i < *m; i++) y[i] += a[i + j * *lead] * x[j * *step];
  } else for (int64_t j = 0; j < *n; j++) {
    <number> sum = *beta == 0 ? 0 : y[j];
    for (int64_t i = 0; i < *m; i++) sum += a[i + j * *lead] * x[i * *step];
    y[j] = sum;
  }
}
""",
    "trsv": """
(const char *triangle, const char *how, const char *unit, const int64_t *n, const <number> *a,
 const int64_t *lead, <number> *x, const int64_t *step, int64_t u, int64_t v, int64_t w)
{
  int64_t across = *how == 'N' ? *lead : 1, down = *how == 'N' ? 1 : *lead;
  int lower = (*triangle == 'L') == (*how == 'N');
  for (int64_t k = 0; k < *n; k++) {
    int64_t i = lower ? k : *n - 1 - k;
    <number> sum = x[i];
    for (int64_t j = lower ? 0 : i + 1; j < (lower ? i : *n); j++)
      sum -= a[i * down + j * across] * x[j];
    x[i] = *unit == 'U' ? sum : sum / a[i * (down + across)];
  }
}
""",
    "trsm": """
(const char *side, const char *triangle, const char *how, const char *unit, const int64_t *m,
 const int64_t *n, const <number> *one, const <number> *a, const int64_t *lead, <number> *x,
 const int64_t *lead_x, int64_t u, int64_t v, int64_t w, int64_t z)
{
  int64_t across = *how == 'N' ? *lead : 1, down = *how == 'N' ? 1 : *lead;
  int upper = (*triangle == 'U') == (*how == 'N');
  for (int64_t k = 0; k < *n; k++) {
    int64_t j = upper ? k : *n - 1 - k;
    <number> *out = x + j * *lead_x;
    for (int64_t i = upper ? 0 : j + 1; i < (upper ? j : *n); i++)
      for (int64_t l = 0; l < *m; l++) out[l] -= x[l + i * *lead_x] * a[i * down + j * across];
    if (*unit != 'U')
      for (int64_t l = 0; l < *m; l++) out[l] /= a[j * (down + across)];
  }
}
""",
    "getrf": """
(const int64_t *m, const int64_t *n, <number> *a, const int64_t *lead, <pivot> *pivots,
 int32_t *info)
{
  for (int64_t k = 0; k < *n; k++) {
    int64_t p = k;
    for (int64_t i = k + 1; i < *n; i++)
      if (fabs(a[i + k * *lead]) > fabs(a[p + k * *lead])) p = i;
    pivots[k] = p + 1;
    if (a[p + k * *lead] == 0) {
      *info = *info ? *info : k + 1;
      continue;
    }
    for (int64_t j = 0; j < *n && p != k; j++) {
      <number> x = a[k + j * *lead];
      a[k + j * *lead] = a[p + j * *lead];
      a[p + j * *lead] = x;
    }
    for (int64_t i = k + 1; i < *n; i++) a[i + k * *lead] /= a[k + k * *lead];
    for (int64_t j = k + 1; j < *n; j++)
      for (int64_t i = k + 1; i < *n; i++) a[i + j * *lead] -= a[i + k * *lead] * a[k + j * *lead];
  }
}
""",
    "getrs": """
(const char *how, const int64_t *n, const int64_t *columns, const <number> *a, const int64_t *lead,
 const <pivot> *pivots, <number> *x, const int64_t *lead_x, int32_t *info, int64_t u)
{
  int plain = *how == 'N';
  for (int64_t c = 0; c < *columns; c++) {
    <number> *b = x + c * *lead_x;
    for (int64_t k = 0; k < *n && plain; k++) {
      <number> y = b[k];
      b[k] = b[pivots[k] - 1];
      b[pivots[k] - 1] = y;
    }
    for (int64_t i = 0; i < *n; i++) {
      for (int64_t j = 0; j < i; j++) b[i] -= a[plain ? i + j * *lead : j + i * *lead] * b[j];
      if (!plain) b[i] /= a[i + i * *lead];
    }
    for (int64_t i = *n - 1; i >= 0; i--) {
      for (int64_t j = i + 1; j < *n; j++) b[i] -= a[plain ? i + j * *lead : j + i * *lead] * b[j];
      if (plain) b[i] /= a[i + i * *lead];
    }
    for (int64_t k = *n - 1; k >= 0 && !plain; k--) {
      <number> y = b[k];
      b[k] = b[pivots[k] - 1];
      b[pivots[k] - 1] = y;
    }
  }
}
""",
    "potrf": """
(const char *triangle, const int64_t *n, <number> *a, const int64_t *lead, int32_t *info, int64_t u)
{
  for (int64_t j = 0; j < *n; j++)
    for (int64_t i = 0; i <= j; i++) {
      <number> sum = a[i + j * *lead];
      for (int64_t k = 0; k < i; k++) sum -= a[k + i * *lead] * a[k + j * *lead];
      if (i < j) {
        a[i + j * *lead] = sum / a[i + i * *lead];
      } else if (sum > 0) {
        a[j + j * *lead] = sqrt(sum);
      } else {
        *info = j + 1;
        return;
      }
    }
}
""",
    # Jacobi's rotations, row by row, until nothing is left beside the diagonal; vectors in room
    "syevd": """
(const char *job, const char *triangle, const int64_t *n, <number> *a, const int64_t *lead,
 <number> *w, <number> *room, const int64_t *rooms, int64_t *counts, const int64_t *many,
 int32_t *info, int64_t u, int64_t v)
{
  int64_t m = *n, last = *lead;
  int vectors = *job == 'V', lower = *triangle == 'L';
  for (int64_t j = 0; j < m; j++)
    for (int64_t i = 0; i < m; i++) {
      if ((i < j) == lower) a[i + j * last] = a[j + i * last];
      if (vectors) room[i + j * m] = i == j;
    }
  <number> rest = 1;
  for (int turn = 0; turn < 64 && rest > 0; turn++) {
    rest = 0;
    for (int64_t p = 0; p < m; p++)
      for (int64_t q = p + 1; q < m; q++) {
        <number> x = a[p + q * last], top = a[p + p * last], end = a[q + q * last];
        if (fabs(top) + fabs(x) == fabs(top) && fabs(end) + fabs(x) == fabs(end)) continue;
        rest += fabs(x);
        <number> k = (end - top) / (2 * x), t = 1 / (fabs(k) + hypot(1, k));
        t = k < 0 ? -t : t;
        <number> c = 1 / sqrt(1 + t * t), s = t * c;
        for (int64_t i = 0; i < m; i++) {
          <number> y = a[i + p * last], z = a[i + q * last];
          a[i + p * last] = c * y - s * z;
          a[i + q * last] = s * y + c * z;
        }
        for (int64_t i = 0; i < m; i++) {
          <number> y = a[p + i * last], z = a[q + i * last];
          a[p + i * last] = c * y - s * z;
          a[q + i * last] = s * y + c * z;
        }
        a[p + q * last] = a[q + p * last] = 0;
        for (int64_t i = 0; i < m && vectors; i++) {
          <number> y = room[i + p * m], z = room[i + q * m];
          room[i + p * m] = c * y - s * z;
          room[i + q * m] = s * y + c * z;
        }
      }
  }
  *info = !(rest == 0);
  for (int64_t j = 0; j < m; j++) w[j] = a[j + j * last];
  for (int64_t j = 0; j < m; j++) {
    int64_t least = j;
    for (int64_t i = j + 1; i < m; i++)
      if (w[i] < w[least]) least = i;
    <number> x = w[j];
    w[j] = w[least];
    w[least] = x;
    for (int64_t i = 0; i < m && vectors; i++) {
      x = room[i + j * m];
      a[i + j * last] = room[i + least * m];
      room[i + least * m] = x;
    }
  }
}
""",
}


class Called(NamedTuple):
    """What an LLVM module calls: ``routines`` of BLAS and LAPACK, ``special`` functions."""

    routines: set[str]
    special: set[str]


def call(text: str) -> Called:
    return Called(set(re.findall(rf"call void @{routines.PREFIX}(\w+)\(", text)),
                  set(re.findall(rf"@{formulas.PREFIX}(\w+)\(", text)))


def missing(names: Called) -> list[str]:
    """Those that are not here."""
    loops = [f"{n} of LAPACK" for n in names.routines if _plain(n)[1:] not in _TEXTS]
    special = names.special - OF_NUMBERS.keys()
    return sorted(loops) + sorted([f"{n} of SciPy" for n in special])


def _plain(name: str) -> str:
    """What BLAS calls a routine that native code has two names for."""
    full = routines.PREFIX + name
    return routines.TILED.get(full, full).removeprefix(routines.PREFIX)


def source(names: Called) -> str:
    """All of them in C."""
    found = routines.available()
    pivot = f"int{found.bits if found else 64}_t"
    parts = ["#define _GNU_SOURCE", "#include <complex.h>", "#include <math.h>",
             "#include <stdint.h>", "#include <string.h>"]
    for name in sorted(names.routines):
        letter, routine = _plain(name)[0], _plain(name)[1:]
        body = _TEXTS[routine].replace("<number>", _NUMBERS[letter]).replace("<pivot>", pivot)
        parts.append(f"void {routines.PREFIX}{name}{body}")
    if names.special:
        parts.append(source_of_special(names.special))
    return "\n".join(parts)
