"""NumPy's, Python's and SciPy's functions for other people's code; see ``functrans.patch``."""
