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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import nadi
from nadi.kernels import jit, kernel_cache
from tests.amounts import ALL, some

# a process that loads one kernel, runs it, and tells what it found
PROBE = """
import json, os, sys
from pathlib import Path
import numpy as np
from nadi.kernels import kernel_cache, jit
from nadi.kernels.sequences import group_rows

def standing_in(function, signature, entry):
    kept = kernel_cache._read(Path(os.environ["STAND_IN"]), entry)
    if kept is None:  # of other sources: numba is needed
        return compile_anew(function, signature, entry)
    for is_done in (False, True):
        for watcher in jit._watchers:
            watcher(function.__qualname__, is_done)
    return kept

compile_anew = jit.compile_anew
if "STAND_IN" in os.environ:
    jit.compile_anew = standing_in
compiled = []
in_ptr, edge = np.zeros(4, dtype=np.int64), np.empty(3, dtype=np.int64)
with jit.watching(lambda name, is_done: compiled.append(name)):
    group_rows(np.array([2, 0, 2]), in_ptr, edge)
folder = kernel_cache.cache_folder()
print(json.dumps({
    "folder": str(folder) if folder else None,
    "compiled": compiled == ["group_rows"] * 2,
    "result": [in_ptr.tolist(), edge.tolist()],
    "package": str(Path(jit.__file__).parent),
    "numba": "numba" in sys.modules,
    "variable": os.environ.get("NUMBA_CACHE_DIR"),
}))
"""
RESULT = [[0, 1, 1, 3], [1, 0, 2]]


def probe(
    home: Path, *, python_path: Path | None = None, first: str = "", **variables: str
) -> dict:
    """Run a process that calls a kernel; what numba made of it once stands in for numba."""
    # nor what the tests themselves are run with: with bounds checked, other code is kept
    kept = {k: v for k, v in os.environ.items() if k != "XDG_CACHE_HOME" and "NUMBA_" not in k}
    environment = kept | {"HOME": str(home), "USERPROFILE": str(home)} | variables
    if python_path is not None:
        environment["PYTHONPATH"] = str(python_path)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", first + PROBE],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.fixture(scope="module", autouse=True)
def compiled_once(tmp_path_factory):
    """Compile the kernel once; other processes that find none take this one for what they make."""
    home = tmp_path_factory.mktemp("home")
    (kept,) = Path(probe(home)["folder"]).rglob("*.kernel")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STAND_IN", str(kept))
        yield home


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


@pytest.mark.skipif(sys.platform == "win32", reason="Windows limits no sizes of files")
def test_a_kernel_is_found_where_nothing_can_be_written(tmp_path):
    folder = probe(tmp_path)["folder"]
    full = "import resource, signal\nsignal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
    full += "resource.setrlimit(resource.RLIMIT_FSIZE, (99, 99))\n"
    again = probe(tmp_path, first=full)
    assert folder
    assert (again["folder"], again["compiled"], again["result"]) == (None, False, RESULT)


def test_kept_in_the_home_folder_and_found_again(tmp_path, monkeypatch):
    monkeypatch.delenv("STAND_IN")
    first = probe(tmp_path)
    assert Path(first["folder"]).parent == tmp_path / ".cache" / "nadi"
    assert (first["compiled"], first["numba"]) == (True, True)
    assert len(list(Path(first["folder"]).rglob("*.kernel"))) == 1
    second = probe(tmp_path)
    assert second["folder"] == first["folder"]
    assert (second["compiled"], second["numba"]) == (False, False)
    assert first["result"] == second["result"] == RESULT


def test_the_users_choice_comes_first_and_stays_numbas_own_setting(tmp_path):
    chosen = tmp_path / "chosen"
    found = probe(
        tmp_path / "home", NUMBA_CACHE_DIR=str(chosen), XDG_CACHE_HOME=str(tmp_path / "xdg")
    )
    assert Path(found["folder"]).parent == chosen / "nadi"
    assert found["variable"] == str(chosen)
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
    assert found["result"] == RESULT


def test_the_package_is_the_last_resort(unusable, copied_kernels):
    own_folder = copied_kernels / "nadi" / "kernels" / "__pycache__"
    own_folder.unlink()
    found = probe(unusable, python_path=copied_kernels)
    assert found["package"] == str(own_folder.parent)
    assert Path(found["folder"]).parent == own_folder
    assert not probe(unusable, python_path=copied_kernels)["compiled"]


def test_without_any_folder_kernels_work_and_nothing_is_kept(tmp_path, unusable, copied_kernels):
    files = {path for path in tmp_path.rglob("*") if path.is_file()}
    found = probe(
        unusable, python_path=copied_kernels,
        NUMBA_CACHE_DIR=str(unusable), XDG_CACHE_HOME=str(unusable), PYTHONDONTWRITEBYTECODE="1",
    )  # fmt: skip
    assert found["package"] == str(copied_kernels / "nadi" / "kernels")
    assert found["folder"] is None
    assert found["compiled"]
    assert found["result"] == RESULT
    assert {path for path in tmp_path.rglob("*") if path.is_file()} == files


@pytest.mark.parametrize(
    ("edited", "is_compiled"),
    [("sequences", True), ("numba_internals", True), ("jit", False), ("paths", False)],
)
def test_what_is_edited_is_compiled_and_what_imports_it(
    tmp_path, copied_kernels, edited, is_compiled
):
    cache = tmp_path / "cache"
    before = probe(tmp_path, python_path=copied_kernels, XDG_CACHE_HOME=str(cache))
    assert before["compiled"]
    with (copied_kernels / "nadi" / "kernels" / f"{edited}.py").open("a") as source:
        source.write("# edited\n")
    after = probe(tmp_path, python_path=copied_kernels, XDG_CACHE_HOME=str(cache))
    assert before["folder"] == after["folder"]
    assert after["compiled"] == is_compiled


def test_modules_that_imported_ones_import_count_too(tmp_path, monkeypatch):
    package = tmp_path / "nadi"
    package.mkdir()
    monkeypatch.setattr(kernel_cache, "_ROOT", tmp_path)
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
        for function in ("source_digest", "_source_of", "_file_of"):
            getattr(kernel_cache, function).cache_clear()
        return kernel_cache.source_digest("nadi.first")

    seen = [digest()]
    for name in ("first", "second", "third", "fourth"):
        texts[name] += "\n# edited"
        seen.append(digest())
    assert len(set(seen)) == 5
    texts["beside"] += "\n# edited"
    assert digest() == seen[-1]
    monkeypatch.undo()
    for function in ("source_digest", "_source_of", "_file_of"):
        getattr(kernel_cache, function).cache_clear()


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
    assert not probe(tmp_path)["compiled"]


def _cut(content: bytes) -> bytes:
    return content[:-1]


def _with_a_flipped_byte(content: bytes) -> bytes:
    return content[:-40] + bytes([content[-40] ^ 1]) + content[-39:]


def _of_another_kernel(content: bytes) -> bytes:
    return content.replace(b'"entry": "nadi_group_rows', b'"entry": "nadi_group_sows')


def _of_no_object(content: bytes) -> bytes:
    return b"[]\n"


@pytest.mark.parametrize(
    "tamper",
    some([_cut, _with_a_flipped_byte, _of_another_kernel, _of_no_object, lambda _: b""], of=2),
)
def test_damaged_code_is_compiled_anew(tmp_path, tamper):
    (kept,) = Path(probe(tmp_path)["folder"]).rglob("*.kernel")
    content = kept.read_bytes()
    kept.write_bytes(tamper(content))
    found = probe(tmp_path)
    assert (found["compiled"], found["result"]) == (True, RESULT)
    assert not probe(tmp_path)["compiled"]


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions of Unix")
@pytest.mark.parametrize("shared", ["nadi", "nadi/kernels", ""])
def test_a_folder_that_others_can_write_is_passed_over(tmp_path, shared):
    base = tmp_path / "xdg"
    folder = Path(probe(tmp_path, XDG_CACHE_HOME=str(base))["folder"])
    open_to_all = folder if shared == "nadi/kernels" else base / shared
    open_to_all.chmod(0o777)
    found = probe(tmp_path, XDG_CACHE_HOME=str(base), PYTHONDONTWRITEBYTECODE="1")
    assert found["folder"] is None or not Path(found["folder"]).is_relative_to(base)
    assert found["result"] == RESULT
    open_to_all.chmod(0o1777)  # as /tmp: others may add files, and not replace these
    found = probe(tmp_path, XDG_CACHE_HOME=str(base))
    assert (found["folder"] == str(folder)) == (open_to_all != folder)


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="permissions of Unix")
def test_folders_are_made_for_the_user_alone(tmp_path):
    code = f"import os; os.umask(0)\n{PROBE}"
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "xdg"), "NUMBA_CACHE_DIR": ""}
    (tmp_path / "xdg").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    folder = Path(json.loads(done.stdout)["folder"])
    for place in (folder.parent, folder, *folder.rglob("*")):
        assert place.stat().st_mode & 0o077 == 0, place


def run(code: str, **variables: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "NUMBA_CACHE_DIR"} | variables
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_wrong_argument_does_not_cost_the_compiled_code(tmp_path):
    found = probe(tmp_path)
    code = """
import numpy as np
from numba.core.errors import NumbaError
from nadi.kernels.sequences import group_rows
for wrong in ("2", np.zeros((2, 2)), np.zeros(2)):
    try:
        group_rows(wrong, np.zeros(4, dtype=np.int64), np.empty(3, dtype=np.int64))
    except (NumbaError, TypeError):
        pass
    else:
        raise AssertionError
"""
    run(code, HOME=str(tmp_path), XDG_CACHE_HOME="")
    assert not probe(tmp_path)["compiled"]
    assert found["result"] == RESULT


def _divide(numbers: np.ndarray, by: int) -> int:
    for i in range(numbers.size):
        numbers[i] += 1
        if i == 1:
            numbers[i] //= by
    return numbers.size


def test_an_exception_in_a_kernel_is_raised_and_the_kernel_not_run_again():
    numbers = np.zeros(3, dtype=np.int64)
    divide = jit.kernel(_divide)
    with pytest.raises(ZeroDivisionError, match="zero"):
        divide(numbers, 0)
    assert numbers.tolist() == [1, 1, 0]
    assert divide(numbers, 2) == 3
    assert numbers.tolist() == [2, 1, 1]


def test_what_kernels_take_and_give():
    def parts(flag, number, real, arrays, matrix):
        total = number + int(real * 2) + arrays[0][0] + matrix[1, 0]
        return (total, flag, np.uint8(200), np.int32(-5))

    compiled = jit.kernel(parts)
    matrix = np.arange(12, dtype=np.int32).reshape(3, 4)
    for one in (matrix, matrix[:, 1:], matrix.T, matrix[::2]):
        arrays = (np.array([2**62]), np.array([1], dtype=np.uint8))
        expected = (-7 + 5 + 2**62 + int(one[1, 0]), True, 200, -5)
        assert compiled(True, -7, 2.5, arrays, one) == expected
        assert compiled(np.True_, np.int64(-7), np.float64(2.5), arrays, one) == expected
    read_only = matrix.copy()
    read_only.flags.writeable = False
    assert compiled(False, 0, 0.0, (np.array([0]), np.array([0])), read_only)[0] == 4
    with pytest.raises(OverflowError):
        compiled(False, 2**63, 0.0, (np.array([0]), np.array([0])), matrix)
    with pytest.raises(TypeError, match="str"):
        compiled(False, "1", 0.0, (np.array([0]), np.array([0])), matrix)


def test_arrays_made_in_a_kernel_are_aligned_and_given_back():
    def work(count, size):
        total = 0
        for i in range(count):
            made = np.zeros(size, dtype=np.int64)
            made[size - 1] = i
            total += made.sum()
        return total

    compiled = jit.kernel(work)
    assert compiled(3, 10) == 3
    before = resident_kb()
    assert compiled(2_000, 100_000) == 1_999_000  # 1.6 GB in all
    assert resident_kb() - before < 50_000
    with pytest.raises(MemoryError):
        compiled(1, 2**45)


def resident_kb() -> int:
    if not Path("/proc/self/statm").exists():
        return 0
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def test_many_threads_may_call_a_kernel_for_the_first_time():
    compiled = [jit.kernel(_divide) for _ in range(2)]

    def work(i: int) -> list[int]:
        numbers = np.full(3, i, dtype=np.int64)
        compiled[i % 2](numbers, 1)
        return numbers.tolist()

    with ThreadPoolExecutor(8) as executor:
        assert list(executor.map(work, range(16))) == [[i + 1] * 3 for i in range(16)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_can_compile_and_call(tmp_path):
    code = """
import os
from threading import Thread
import numpy as np
from nadi.kernels import jit
from nadi.kernels.sequences import group_rows

def call():
    first, order = np.zeros(4, dtype=np.int64), np.empty(3, dtype=np.int64)
    group_rows(np.array([2, 0, 2]), first, order)
    assert order.tolist() == [1, 0, 2]

with jit._COMPILING:  # as if another thread were at it
    child = os.fork()
if child == 0:
    call()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
call()
child = os.fork()
if child == 0:
    call()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
"""
    run(f"import warnings; warnings.simplefilter('ignore')\n{code}", XDG_CACHE_HOME=str(tmp_path))


# a version of numba that nobody has tried: all by public means
UNKNOWN_NUMBA = """
import json, sys
from nadi.kernels import kernel_cache

if sys.argv[1] == "unknown":
    kernel_cache.compilers = lambda: {"numba": "9.9.9", "llvmlite": "9.9.9"}
from nadi.kernels import jit
import numpy as np
from nadi.kernels.sequences import group_rows

in_ptr, edge = np.zeros(4, dtype=np.int64), np.empty(3, dtype=np.int64)
group_rows(np.array([2, 0, 2]), in_ptr, edge)
assert [name for _, name, _ in jit.in_use()] == ["group_rows"]
print(json.dumps([in_ptr.tolist(), edge.tolist()]))
assert jit.IS_KNOWN == (sys.argv[1] != "unknown")
assert ("nadi.kernels.numba_public" in sys.modules) != jit.IS_KNOWN
"""


# all kernels of a recording, and the engine without the parts that a simulation of computing needs
# not: the other parts take minutes
RECORDING_AND_SIMULATION = (
    UNKNOWN_NUMBA
    + """
import nadi
from nadi.trace.trace import Provenance
from nadi.trace.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Trace
from nadi.simulation.engine_driver import HostMachine

run = nadi.run(sys.argv[-1])
columns = {"id": [1, 2], "name": ["a", "b"], "kind": "COMP", "category": "operator",
           "duration": [5_000, 7_000], "exclusive": -1}
trace = Trace(
    NODES.build(2, columns), DEPS.build(1, {"src": [0], "dst": [1], "kind": "data"}),
    GROUPS.empty(), ISSUES.empty(), Provenance("test", ()),
)
done = nadi.simulate([trace] * 8, nadi.load_system("dgx-h100"))
engines = [types[0][0] for _, name, types in jit.in_use() if name == "run_machine"]
print(json.dumps([
    run.replay.time.tolist(), run.path.segments.drop("name").rows(), run.path.by_kind(),
    done.start.tolist(), done.end.tolist(), done.cycles.tolist(),
    sorted({name for _, name, _ in jit.in_use()}), engines,
]))
assert (run.replay.time == run.graph.time).all()
assert engines == [f"{HostMachine.__module__}:HostMachine"]
"""
)


def assert_same_with_unknown_numba(program: str, tmp_path: Path) -> None:
    """Run a program with the numba that is here, and with one said to be of another version."""
    kept = {name: value for name, value in os.environ.items() if "NUMBA_" not in name}
    demo = str(Path(nadi.__file__).parent / "data" / "demo")
    found = [
        subprocess.run(
            [sys.executable, "-c", program, *arguments, demo],
            env={**kept, **variables}, capture_output=True, text=True, check=False, timeout=600,
        )
        for arguments, variables in (([], {}), (["unknown"], {"XDG_CACHE_HOME": str(tmp_path)}))
    ]  # fmt: skip
    for done in found:
        assert done.returncode == 0, done.stderr
    assert found[0].stdout == found[1].stdout
    assert not list(tmp_path.rglob("*.kernel"))
    assert list(tmp_path.rglob("*.nbi"))


def test_with_a_numba_that_was_not_tried_results_are_the_same(tmp_path):
    assert_same_with_unknown_numba(UNKNOWN_NUMBA, tmp_path)


@pytest.mark.skipif(not ALL, reason="takes half a minute of processor time")
def test_with_a_numba_that_was_not_tried_a_recording_and_a_simulation_are_the_same(tmp_path):
    assert_same_with_unknown_numba(RECORDING_AND_SIMULATION, tmp_path)


def test_first_arguments_are_looked_at_once_and_kept_alive():
    def sums(first, second):
        return first.sum(), second.sum()

    total = jit.prepared(jit.kernel(sums), np.full(100_000, 7))
    for length in (0, 1, 5):  # the memory of the first would long have other content
        assert total(np.arange(length)) == (700_000, sum(range(length)))
        np.full(100_000, length)
    assert total(np.arange(6)[::2]) == (700_000, 6)  # of another type: compiled for it
