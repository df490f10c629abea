"""NumPy's names: NumPy's own functions of plain values, functrans' of traced ones.

Ufuncs are NumPy's, which dispatches traced values. Names of autograd's own are here too.
"""

from __future__ import annotations

import numpy as _np

from functrans import numpy as _ours
from functrans.autograd import builtins as _builtins
from functrans.autograd.numpy import _functions

globals().update(_functions.names_of(_np, _ours))
globals().update({name: getattr(_functions, name) for name in _functions.NAMES})
builtins, numpy_version = _builtins, _np.__version__
__getattr__ = _functions.numpys(__name__)
