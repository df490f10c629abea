"""Compiled functions as files and as C libraries; see ``functrans.export``."""
