"""The profiler: what it records, and how that is shown. ``functrans.profile`` is its door."""
