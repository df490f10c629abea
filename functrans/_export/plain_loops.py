"""BLAS, LAPACK and special functions as plain C, for libraries that bring nothing along.

Each routine is as native code calls it (``_compile/lowering/library.py``): matrices by columns,
``alpha`` 1, ``beta`` 0 or 1 (what is there is added to), results without gaps. The lengths of
letters come last.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from functrans._compile.lowering import special_functions
from functrans._kernels import routines

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
# SciPy's special functions of one number, of what C's library has.
_SPECIAL = {
    "cbrt": "cbrt(x)", "erfinv": "copysign(inverse_erfc(fabs(x), 0), x)", "exp10": "pow(10, x)",
    "exp2": "exp2(x)", "expm1": "expm1(x)", "gamma": "tgamma(x)", "j0": "j0(x)", "j1": "j1(x)",
    "log1p": "log1p(x)", "logit": "log(x / (1 - x))",
    "ndtri": "x < 0.5 ? -M_SQRT2 * inverse_erfc(1 - 2 * x, 2 * x) : "
             "M_SQRT2 * inverse_erfc(2 * x - 1, 2 - 2 * x)",
    "y0": "y0(x)", "y1": "y1(x)",
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


# Of several numbers: what the arguments are, and the value.
_OF_SEVERAL = {
    "betainc": ("a b x", "beta_part(a, b, x)"), "betaincc": ("a b x", "beta_part(b, a, 1 - x)"),
    "gammainc": ("a x", "gamma_part(a, x, 0)"), "gammaincc": ("a x", "gamma_part(a, x, 1)"),
    "zeta": ("x q", "hurwitz(x, q)"),
}
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

static double gamma_part(double a, double x, int above)
{
  if (!(a >= 0 && x >= 0)) return NAN;
  if (a == 0) return x > 0 ? !above : NAN;
  if (x == 0) return above;
  if (isinf(a)) return isinf(x) ? NAN : above;
  if (isinf(x)) return !above;
  double front = a * log(x) - x - lgamma(a), r = 1 / (a * a);
  if (a > 10) front = a * (log1p((x - a) / a) - (x - a) / a) + log(a / (2 * M_PI)) / 2
    - (1. / 12 - r * (1. / 360 - r * (1. / 1260 - r * (1. / 1680 - r / 1188)))) / a;
  front = exp(front);
  if (x < a + 1) {
    double term = 1 / a, sum = term;
    for (double n = 1; term > 1e-17 * sum; n++) sum += term *= x / (a + n);
    return above ? 1 - front * sum : front * sum;
  }
  double b = x + 1 - a, c = 1e300, d = 1 / b, y = d, last = 0;
  for (double n = 1; fabs(y - last) > 1e-16 * fabs(y) && n < 1e6; n++) {
    last = y;
    d = fraction(d, &c, -n * (n - a), b += 2, &y);
  }
  return above ? front * y : 1 - front * y;
}

static double beta_part(double a, double b, double x)
{
  if (!(a >= 0 && b >= 0 && x >= 0 && x <= 1)) return NAN;
  if (a == b && (a == 0 || isinf(a))) return NAN;
  if (x == 0 || x == 1) return x;
  if (a == 0 || b == 0 || isinf(a) || isinf(b)) return a == 0 || isinf(b);
  if (x > (a + 1) / (a + b + 2)) return 1 - beta_part(b, a, 1 - x);
  double front = exp(a * log(x) + b * log1p(-x) + lgamma(a + b) - lgamma(a) - lgamma(b)) / a;
  double c = 1, d = 1 / (1 - (a + b) * x / (a + 1)), y = d, last = 0;
  for (double n = 1; fabs(y - last) > 1e-16 * fabs(y) && n < 1e6; n++) {
    last = y;
    d = fraction(d, &c, n * (b - n) * x / ((a + 2 * n - 1) * (a + 2 * n)), 1, &y);
    d = fraction(d, &c, -(a + n) * (a + b + n) * x / ((a + 2 * n) * (a + 2 * n + 1)), 1, &y);
  }
  return front * y;
}

static double hurwitz(double x, double q)
{
  static const double over[] = {12, -720, 30240, -1209600, 47900160, -1307674368000 / 691.,
    74724249600, -10670622842880000 / 3617.};
  if (x == 1) return INFINITY;
  if (!(x > 1)) return NAN;
  if (!(q > 0)) return q == floor(q) ? INFINITY : NAN;
  double sum = 0;
  for (int k = 0; k < 12; k++) sum += pow(q + k, -x);
  q += 12;
  double power = pow(q, -x), factor = x;
  sum += power * q / (x - 1) + power / 2;
  for (int j = 0; j < 8; j++) {
    power /= q;
    sum += factor * power / over[j];
    power /= q;
    factor *= (x + 2 * j + 1) * (x + 2 * j + 2);
  }
  return sum;
}
"""


class Called(NamedTuple):
    """What an LLVM module calls: ``routines`` of BLAS and LAPACK, ``special`` functions."""

    routines: set[str]
    special: set[str]


def called(text: str) -> Called:
    return Called(set(re.findall(rf"call void @{routines.PREFIX}(\w+)\(", text)),
                  set(re.findall(rf"@{special_functions.PREFIX}(\w+)\(", text)))


def missing(names: Called) -> list[str]:
    """Those that are not here."""
    loops = [f"{n} of LAPACK" for n in names.routines if _plain(n)[1:] not in _TEXTS]
    known = _SPECIAL.keys() | _OF_SEVERAL.keys()
    return sorted(loops) + sorted([f"{n} of SciPy" for n in names.special - known])


def _plain(name: str) -> str:
    """What BLAS calls a routine that native code has two names for."""
    full = routines.PREFIX + name
    return routines.TILED.get(full, full).removeprefix(routines.PREFIX)


def source(names: Called) -> str:
    """All of them in C."""
    found = routines.available()
    pivot = f"int{found.bits if found else 64}_t"
    parts = ["#define _GNU_SOURCE", "#include <complex.h>", "#include <math.h>",
             "#include <stdint.h>"]
    for name in sorted(names.routines):
        letter, routine = _plain(name)[0], _plain(name)[1:]
        body = _TEXTS[routine].replace("<number>", _NUMBERS[letter]).replace("<pivot>", pivot)
        parts.append(f"void {routines.PREFIX}{name}{body}")
    if names.special & {"erfinv", "ndtri"}:
        parts.append(_INVERSE_ERFC)
    if names.special & _OF_SEVERAL.keys():
        parts.append(_PARTS)
    for name in sorted(names.special):
        xs, y = _OF_SEVERAL.get(name) or ("x", _SPECIAL[name])
        given = "".join([f"double {x}, " for x in xs.split()])
        parts.append(f"double {special_functions.PREFIX}{name}({given}int32_t skip)\n"
                     f"{{\n  return {y};\n}}\n")
    return "\n".join(parts)
