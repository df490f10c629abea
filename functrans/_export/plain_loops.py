"""BLAS and LAPACK as plain C, for libraries that bring nothing along.

Each routine is as native code calls it (``_compile/lowering/library.py``): matrices by columns,
``alpha`` 1, ``beta`` 0 or 1 (what is there is added to), results without gaps. The lengths of
letters come last.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from functrans._compile.lowering import special_functions
from functrans._export import plain_special
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
    special = names.special - plain_special.OF_NUMBERS.keys()
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
        parts.append(plain_special.source(names.special))
    return "\n".join(parts)
