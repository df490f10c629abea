"""Traces that report: ops for the profiler and the debugger, operands at kinks."""
