"""Rows for ``scipy.special``'s functions, loaded when ``functrans.scipy.special`` is.

A row's ``impl`` is SciPy's own ufunc wherever there is one; its name begins with ``special.``, so
that it takes no name that a user may give.
"""
