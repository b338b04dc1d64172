"""Kernels that come with a wheel: called where they fit, and compiled anew where they do not."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nadi

from .test_jit import RESULT, compiled_once, probe  # noqa: F401  a fixture of all tests here

ARRAY = ["array", "<i8", 1, "C", ""]
KNOWN = {
    "kernels": [["nadi.kernels.sequences", "group_rows", [ARRAY, ARRAY, ARRAY]]],
    "uses": {"demo": [0]},
}
CPU = "x86-64-v3" if platform.machine() in ("x86_64", "AMD64") else "generic"


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A copy of the kernels as a wheel has them, with one of them compiled."""
    root = tmp_path_factory.mktemp("built")
    package = root / "nadi"
    source = Path(nadi.__file__).parent
    shutil.copytree(
        source / "kernels", package / "kernels", ignore=shutil.ignore_patterns("__pycache__")
    )
    (package / "__init__.py").write_text("")
    (package / "kernels" / "known_kernels.json").write_text(json.dumps(KNOWN))
    folder = package / "built_kernels"
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-m", "nadi.kernels.build_kernels", str(folder)],
        env={
            **{k: v for k, v in os.environ.items() if "NUMBA_" not in k},
            "PYTHONPATH": str(root), "NUMBA_CPU_NAME": CPU, "NUMBA_CPU_FEATURES": "",
            "XDG_CACHE_HOME": str(root / "cache"),
        },
        check=True, capture_output=True,
    )  # fmt: skip
    return root


@pytest.fixture
def wheel(built, tmp_path):
    """A copy to be changed; gives what a first run with it finds."""
    root = tmp_path / "wheel"
    shutil.copytree(built / "nadi", root / "nadi")

    def first_run(**variables: str) -> dict:
        found = probe(tmp_path / "home", python_path=root, **variables)
        assert found["result"] == RESULT
        assert not found["numba"] or found["compiled"]
        return found

    first_run.about = root / "nadi" / "built_kernels" / "about.json"
    (first_run.code,) = first_run.about.parent.rglob("*.kernel")
    return first_run


def test_nothing_is_compiled_at_the_first_run(wheel):
    about = json.loads(wheel.about.read_text())
    if not set(about["features"]) <= features_here():
        pytest.skip(f"this processor is older than {CPU}")
    assert not wheel()["compiled"]


def features_here() -> set[str]:
    from nadi.kernels.object_code import host_features

    return set(host_features())


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("python", "cpython2"),
        ("numba", "0.1"),
        ("llvmlite", "0.1.0"),
        ("triple", "vax-dec-ultrix"),
        ("features", ["no-such-feature"]),
        ("features", None),
    ],
)
def test_code_for_something_else_is_not_called(wheel, key, value):
    about = json.loads(wheel.about.read_text())
    assert key in about
    about[key] = value
    if value is None:
        del about[key]
    wheel.about.write_text(json.dumps(about))
    assert wheel()["compiled"]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"features": 5}', "\\ud800"])
def test_an_unreadable_description_is_none(wheel, text):
    wheel.about.write_text(text)
    assert wheel()["compiled"]


def test_code_of_other_sources_is_not_called(wheel):
    with (wheel.about.parents[1] / "kernels" / "sequences.py").open("a") as source:
        source.write("# edited\n")
    assert wheel()["compiled"]


def test_damaged_code_is_not_called(wheel):
    wheel.code.write_bytes(wheel.code.read_bytes()[:-1])
    assert wheel()["compiled"]


def test_code_without_checks_is_not_called_where_they_are_asked_for(wheel):
    assert wheel(NUMBA_BOUNDSCHECK="1")["compiled"]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions of Unix")
def test_code_that_others_could_have_written_is_not_called(wheel, tmp_path):
    shared = {
        "folder": wheel.about.parent, "package": wheel.about.parents[1], "code": wheel.code,
        "of a module": wheel.code.parent,
    }  # fmt: skip
    for name, place in shared.items():
        mode = place.stat().st_mode
        place.chmod(mode | 0o022)
        assert wheel(XDG_CACHE_HOME=str(tmp_path / name))["compiled"], name
        place.chmod(mode)
