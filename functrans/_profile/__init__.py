"""The profiler: what it records, and how that is shown; public as ``functrans.profile``."""
