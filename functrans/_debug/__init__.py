"""Anomaly mode and the gradient doctor; public as ``functrans.debug``."""
