"""The names of the package, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import nadi


@pytest.mark.parametrize("name", nadi.__all__)
def test_every_public_name_can_be_used_and_says_what_it_is(name: str) -> None:
    value = getattr(nadi, name)
    if name != "__version__":
        assert not isinstance(value, type(sys)), f"nadi.{name} is a module"
        assert value.__doc__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        nadi.nothing  # noqa: B018


def test_a_module_loaded_before_does_not_hide_a_function() -> None:
    code = (
        "import nadi.pipeline.run, nadi.report.run_report, nadi\n"
        "assert all(callable(getattr(nadi, n)) for n in nadi.__all__ if n != '__version__')"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_and_version_load_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from nadi.cli import main\n"
        "assert main(['--help']) == 0 and main(['--version']) == 0\n"
        "heavy = {'numba', 'numpy', 'polars', 'msgspec'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
