"""The names of the packages, and what importing them costs."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

import nadi

PACKAGES = [name for name in nadi.__all__ if inspect.ismodule(getattr(nadi, name))]
OWN = [name for name in nadi.__all__ if name not in PACKAGES]
NAMES = [("nadi", name) for name in OWN] + [
    (f"nadi.{package}", name) for package in PACKAGES for name in getattr(nadi, package).__all__
]
FASTEST_OF = 5
MOST_MS = 60


def package_of(name: str) -> ModuleType:
    return sys.modules[name]


@pytest.mark.parametrize(("package", "name"), NAMES, ids=[".".join(pair) for pair in NAMES])
def test_every_public_name_can_be_used_and_says_what_it_is(package: str, name: str) -> None:
    value = getattr(package_of(package), name)
    if name != "__version__":
        assert inspect.getdoc(value)
        assert inspect.ismodule(value) == (name == "schema")


def test_what_stands_in_nadi_is_little_and_has_a_place_in_a_package() -> None:
    assert len(OWN) <= 36
    for name in OWN:
        if name != "__version__":
            homes = [p for p in PACKAGES if name in getattr(nadi, p).__all__]
            assert len(homes) == 1, name
            assert getattr(getattr(nadi, homes[0]), name) is getattr(nadi, name)


def test_a_name_means_one_thing() -> None:
    names = [name for package, name in NAMES if package != "nadi"]
    assert sorted({name for name in names if names.count(name) > 1}) == []


def test_no_function_is_named_like_a_module_beside_it() -> None:
    for package in PACKAGES:
        module = getattr(nadi, package)
        if hasattr(module, "__path__"):
            beside = {path.stem for path in Path(module.__path__[0]).iterdir()}
            assert beside & set(module.__all__) <= {"schema"}, package


@pytest.mark.parametrize("package", [p for p in PACKAGES if p not in ("errors", "whatif")])
def test_a_package_that_exports_is_its_docstring_and_its_declaration(package: str) -> None:
    folder = Path(nadi.__file__).parent / package
    tree = ast.parse((folder / "__init__.py").read_text())
    assert ast.get_docstring(tree)
    assert [ast.unparse(line) for line in tree.body[1:]] == [
        "from lazy_loader import attach_stub",
        "__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)",
    ]
    declared = ast.parse((folder / "__init__.pyi").read_text()).body[1:]
    for line in declared:  # a checker of types takes ``x as x`` for public, and nothing else
        assert isinstance(line, ast.ImportFrom)
        assert all(alias.asname == alias.name for alias in line.names)


def test_names_of_the_old_packages_are_found_with_a_warning() -> None:
    with pytest.warns(
        DeprecationWarning, match=r"nadi\.pipeline\.run has moved to nadi\.bottlenecks"
    ):
        assert import_module("nadi.pipeline").run is nadi.run
    with pytest.warns(DeprecationWarning, match=r"nadi\.simulation\.OnSystem"):
        assert nadi.whatif.OnSystem is nadi.simulation.OnSystem
    assert nadi.load.__name__ == "nadi.load"
    with pytest.raises(AttributeError, match=r"nadi\.load"):
        nadi.load.nothing  # noqa: B018
    with pytest.raises(ModuleNotFoundError):
        import_module("nadi.nothing")


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        nadi.nothing  # noqa: B018


def test_a_module_loaded_before_hides_no_function() -> None:
    code = (
        "import nadi, nadi.bottlenecks.steps.recorded_jobs, nadi.bottlenecks.steps.run_report\n"
        "import nadi.whatif.what_if_results\n"
        "for place in (nadi, nadi.bottlenecks, nadi.results, nadi.whatif):\n"
        "    assert not any(type(getattr(place, n)) is type(nadi)\n"
        "                   for n in place.__all__ if place is not nadi), place\n"
        "assert callable(nadi.run) and callable(nadi.simulate)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_loads_nothing_that_is_not_asked_for() -> None:
    code = (
        "import sys, nadi\n"
        "assert [n for n in sys.modules if n.startswith('nadi')] == ['nadi.old_names', 'nadi']\n"
        "assert not {'numba', 'numpy', 'polars', 'msgspec'} & set(sys.modules)\n"
        "nadi.graph\n"
        "loaded = {n for n in sys.modules if n.startswith('nadi')}\n"
        "assert loaded == {'nadi', 'nadi.old_names', 'nadi.graph'}\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_takes_little_time() -> None:  # of the processor, whatever else runs
    code = (
        "import time; start = time.process_time(); import nadi; "
        "print((time.process_time() - start) * 1e3)"
    )
    command = [sys.executable, "-c", code]
    taken = [float(subprocess.check_output(command)) for _ in range(FASTEST_OF)]
    assert min(taken) < MOST_MS


def test_help_and_version_load_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from nadi.cli import main\n"
        "assert main(['--help']) == 0 and main(['--version']) == 0\n"
        "heavy = {'numba', 'numpy', 'polars', 'msgspec'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
