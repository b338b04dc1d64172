"""Where compiled code is kept, each choice seen in a process of its own.

A folder is made unusable by putting it below a regular file: permissions would not stop
root, and tests may run as root.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import nadi
from nadi.kernels import jit, source_digest

# a process that loads one kernel, runs it, and tells what it found
PROBE = """
import json, os
from pathlib import Path
from numba.core import config

numba_folder = config.CACHE_DIR
import numpy as np
from nadi.kernels import jit
from nadi.kernels.groups import group_rows

before = jit.compiled_before()
in_ptr, edge = np.zeros(4, dtype=np.int64), np.empty(3, dtype=np.int64)
group_rows(np.array([2, 0, 2]), in_ptr, edge)
folder = jit.cache_folder()
print(json.dumps({
    "folder": str(folder) if folder else None,
    "before": before,
    "after": jit.compiled_before(),
    "result": [in_ptr.tolist(), edge.tolist()],
    "package": str(Path(jit.__file__).parent),
    "numba_folder_kept": config.CACHE_DIR == numba_folder,
    "numba_folder": config.CACHE_DIR,
    "variable": os.environ.get("NUMBA_CACHE_DIR"),
}))
"""
RESULT = [[0, 1, 1, 3], [1, 0, 2]]


def probe(home: Path, *, python_path: Path | None = None, **variables: str) -> dict:
    kept = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME")}
    environment = kept | {"HOME": str(home), "USERPROFILE": str(home)} | variables
    if python_path is not None:
        environment["PYTHONPATH"] = str(python_path)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture
def unusable(tmp_path):
    """A folder that nobody can make."""
    (tmp_path / "file").write_text("")
    return tmp_path / "file" / "below"


@pytest.fixture
def copied_kernels(tmp_path):
    """A copy of the package whose own folder for compiled code is unusable too."""
    root = tmp_path / "copy"
    kernels = root / "nadi" / "kernels"
    source = Path(nadi.__file__).parent
    shutil.copytree(source / "kernels", kernels, ignore=shutil.ignore_patterns("__pycache__"))
    (root / "nadi" / "__init__.py").write_text("")
    (kernels / "__pycache__").write_text("")
    return root


def test_kept_in_the_home_folder_and_found_again(tmp_path):
    first = probe(tmp_path)
    assert Path(first["folder"]).parent == tmp_path / ".cache" / "nadi"
    assert (first["before"], first["after"]) == (False, True)
    assert list(Path(first["folder"]).rglob("*.nbc"))
    assert first["numba_folder_kept"]
    second = probe(tmp_path)
    assert second["folder"] == first["folder"]
    assert second["before"]
    assert first["result"] == second["result"] == RESULT


def test_the_users_choice_comes_first_and_stays_numbas_own_setting(tmp_path):
    chosen = tmp_path / "chosen"
    found = probe(
        tmp_path / "home", NUMBA_CACHE_DIR=str(chosen), XDG_CACHE_HOME=str(tmp_path / "xdg")
    )
    assert Path(found["folder"]).parent == chosen / "nadi"
    assert found["numba_folder_kept"]
    assert found["numba_folder"] == found["variable"] == str(chosen)
    assert [path.name for path in chosen.iterdir()] == ["nadi"]
    assert not (tmp_path / "xdg").exists()
    assert found["result"] == RESULT


def test_the_cache_folder_of_the_desktop_standard_comes_before_the_home_folder(tmp_path):
    found = probe(tmp_path / "home", XDG_CACHE_HOME=str(tmp_path / "xdg"))
    assert Path(found["folder"]).parent == tmp_path / "xdg" / "nadi"
    assert not (tmp_path / "home").exists()


def test_an_unusable_choice_is_passed_over(tmp_path, unusable):
    found = probe(tmp_path / "home", NUMBA_CACHE_DIR=str(unusable))
    assert Path(found["folder"]).parent == tmp_path / "home" / ".cache" / "nadi"
    assert found["numba_folder"] == str(unusable)
    assert found["result"] == RESULT


def test_the_package_is_the_last_resort(unusable, copied_kernels):
    own_folder = copied_kernels / "nadi" / "kernels" / "__pycache__"
    own_folder.unlink()
    found = probe(unusable, python_path=copied_kernels)
    assert found["package"] == str(own_folder.parent)
    assert Path(found["folder"]).parent == own_folder
    assert found["after"]


def test_without_any_folder_kernels_work_and_nothing_is_kept(tmp_path, unusable, copied_kernels):
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    found = probe(
        unusable, python_path=copied_kernels,
        NUMBA_CACHE_DIR=str(unusable), XDG_CACHE_HOME=str(unusable), PYTHONDONTWRITEBYTECODE="1",
    )  # fmt: skip
    assert found["package"] == str(copied_kernels / "nadi" / "kernels")
    assert found["folder"] is None
    assert (found["before"], found["after"]) == (False, False)
    assert found["result"] == RESULT
    assert found["numba_folder_kept"]
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == files


@pytest.mark.parametrize(
    ("edited", "is_compiled"), [("groups", True), ("jit", True), ("paths", False)]
)
def test_what_is_edited_is_compiled_and_what_imports_it(
    tmp_path, copied_kernels, edited, is_compiled
):
    cache = tmp_path / "cache"
    before = probe(tmp_path, python_path=copied_kernels, XDG_CACHE_HOME=str(cache))
    kept = set(cache.rglob("*.nbc"))
    with (copied_kernels / "nadi" / "kernels" / f"{edited}.py").open("a") as source:
        source.write("# edited\n")
    after = probe(tmp_path, python_path=copied_kernels, XDG_CACHE_HOME=str(cache))
    assert before["folder"] == after["folder"]
    assert (set(cache.rglob("*.nbc")) != kept) == is_compiled


def test_modules_that_imported_ones_import_count_too(tmp_path, monkeypatch):
    package = tmp_path / "nadi"
    package.mkdir()
    monkeypatch.setattr(source_digest, "_ROOT", tmp_path)
    texts = {
        "first": "from nadi.second import (\n    one,\n    two,\n)\n",
        "second": "def work():\n    from nadi import third as other\n",
        "third": "import nadi.fourth",
        "fourth": "",
        "beside": "from nadi.first import work",
    }

    def digest() -> str:
        for name, text in texts.items():
            (package / f"{name}.py").write_text(text)
        for function in ("source_digest", "_read", "_file_of"):
            getattr(source_digest, function).cache_clear()
        return source_digest.source_digest("nadi.first")

    seen = [digest()]
    for name in ("first", "second", "third", "fourth"):
        texts[name] += "\n# edited"
        seen.append(digest())
    assert len(set(seen)) == 5
    texts["beside"] += "\n# edited"
    assert digest() == seen[-1]
    monkeypatch.undo()
    for function in ("source_digest", "_read", "_file_of"):
        getattr(source_digest, function).cache_clear()


def test_code_that_nobody_started_for_a_month_is_removed(tmp_path):
    root = tmp_path / "xdg" / "nadi"
    for name in ("kernels-old", "kernels-young", "other"):
        (root / name).mkdir(parents=True)
    long_ago = (root.stat().st_mtime - 32 * 24 * 3600,) * 2
    os.utime(root / "kernels-old", long_ago)
    os.utime(root / "other", long_ago)
    found = probe(tmp_path, XDG_CACHE_HOME=str(tmp_path / "xdg"))
    names = {path.name for path in root.iterdir()}
    assert names == {Path(found["folder"]).name, "kernels-young", "other"}


def test_code_in_use_is_kept_however_long_ago_it_was_made(tmp_path):
    folder = Path(probe(tmp_path)["folder"])
    long_ago = (folder.stat().st_mtime - 32 * 24 * 3600,) * 2
    os.utime(folder, long_ago)
    assert probe(tmp_path)["before"]


@pytest.mark.parametrize("suffix", ["nbi", "nbc"])
def test_damaged_code_is_compiled_anew(tmp_path, suffix):
    found = probe(tmp_path)
    for kept in Path(found["folder"]).rglob(f"*.{suffix}"):
        kept.write_bytes(b"damaged")
    assert probe(tmp_path)["result"] == RESULT


def test_a_wrong_argument_does_not_cost_the_compiled_code(tmp_path):
    code = (
        "from numba.core.errors import TypingError\n"
        "from nadi.kernels.jit import cache_folder\n"
        "from nadi.kernels.json_tokens import skip\n"
        "try:\n"
        "    skip('1', 1)\n"
        "except TypingError:\n"
        "    assert cache_folder().exists()\n"
        "else:\n"
        "    raise AssertionError\n"
    )
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"}
    environment["XDG_CACHE_HOME"] = str(tmp_path)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


UNKNOWN_NUMBA = """
import sys
import numba

numba.__version__ = "9.9.9"
import numpy as np
import nadi
from nadi.formats.native import read
from nadi.formats.chakra.et_decode_kernels import likely_message

assert likely_message(np.array([9, 2, 8, 1, 2, 8, 2], dtype=np.uint8), 0, 7, 2) == 1
assert "nadi.kernels.numba_pipeline" not in sys.modules
"""


def test_a_numba_that_is_not_known_compiles_in_its_own_way(tmp_path: Path) -> None:
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", UNKNOWN_NUMBA],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_one_kernel_is_made_at_a_time(monkeypatch):
    """What numba is told meanwhile holds for all threads."""
    under_way, most = [], []

    def slow(function, _folder):
        under_way.append(function)
        most.append(len(under_way))
        time.sleep(0.01)
        under_way.remove(function)
        return function

    monkeypatch.setattr(jit, "_compile", slow)
    kernels = [jit.kernel(lambda number: number + 1) for _ in range(8)]
    with ThreadPoolExecutor(8) as executor:
        assert list(executor.map(lambda one: one(1), kernels + kernels)) == [2] * 16
    assert most == [1] * 8
