"""The policy of deprecations, as its decorator enforces it."""

import inspect
import warnings

import pytest

from functrans.errors import ArgumentError
from functrans.extend import deprecated


def slope(f, h=1):
    """The slope."""
    return f(h)


def declared(version, since="1.2", removed="1.4"):
    return deprecated(since=since, removed=removed, instead="grad(f)", version=version)(slope)


def test_a_deprecated_function_works_and_warns_at_the_line_of_the_caller():
    with pytest.warns(DeprecationWarning) as caught:
        assert declared("1.3.7")(abs, h=-2) == 2
    assert str(caught[0].message) == (
        "slope: Deprecated since 1.2, removed in 1.4: use grad(f)."
    )
    assert caught[0].filename == __file__


def test_a_deprecated_function_keeps_name_and_parameters_and_its_docstring_says_so():
    f = declared("1.2.0")
    assert f.__name__ == "slope"
    assert list(inspect.signature(f).parameters) == ["f", "h"]
    assert f.__doc__ == "The slope.\n\nDeprecated since 1.2, removed in 1.4: use grad(f)."


@pytest.mark.parametrize("version", ["1.4", "1.4.0", "1.10", "2.0"])
def test_a_deprecated_function_cannot_outlive_the_version_it_is_removed_in(version):
    with pytest.raises(ArgumentError, match=rf"`slope` was to be removed in 1\.4, and this is "
                                            rf"{version}\. Delete it; grad\(f\) takes its place"):
        declared(version)


def test_a_deprecation_lasts_a_minor_version_at_least():
    with pytest.raises(ArgumentError, match=r"removed='1\.2\.9' must be a later minor version"):
        declared("1.2.0", removed="1.2.9")


@pytest.mark.parametrize("version", ["1", "next", "1.x"])
def test_a_version_is_numbers(version):
    with pytest.raises(ArgumentError, match=rf"deprecated: '{version}' is no version"):
        declared("1.2.0", removed=version)


def test_declaring_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        declared("1.3.0")
