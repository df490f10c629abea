"""``scipy.signal``'s names on plain arrays and traced values.

>>> import functrans as ft, numpy as np
>>> from functrans.scipy import signal
>>> ft.grad(lambda a: signal.lfilter([1.0], [1.0, -a], np.ones(3))[-1])(0.5)
Array(2.)
"""

from __future__ import annotations

from scipy import signal as _theirs

from functrans.scipy.public import namespace as _namespace
from functrans.scipy.signal import convolution as _convolution
from functrans.scipy.signal import filters as _filters
from functrans.scipy.signal import spectra as _spectra

__all__, __getattr__, __dir__ = _namespace(
    _theirs, globals(), _convolution, _filters, _spectra
)
