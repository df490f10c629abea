"""Anomaly mode and the gradient doctor. ``functrans.debug`` is their door."""
