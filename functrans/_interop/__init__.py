"""Functions of other libraries here, and ours there; see ``functrans.interop``."""
