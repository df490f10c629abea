"""The version, in a place that every floor can import."""

VERSION = "0.1.0"
