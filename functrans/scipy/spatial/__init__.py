"""``scipy.spatial``'s names on plain arrays and traced values; most are in ``distance``."""

from __future__ import annotations

from scipy import spatial as _theirs

from functrans.scipy.public import namespace as _namespace
from functrans.scipy.spatial import distance as distance
from functrans.scipy.spatial import metrics as _metrics
from functrans.scipy.spatial import transform as transform

__all__, __getattr__, __dir__ = _namespace(_theirs, globals(), _metrics)
