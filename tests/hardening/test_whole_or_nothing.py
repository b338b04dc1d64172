"""Whatever stops a command that writes, at whatever write: what it leaves is whole, or nothing."""

from __future__ import annotations

import errno
import importlib.util
import io
import shlex
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from nadi.cli import main
from nadi.cli.app import make_app
from nadi.files import files
from tests.amounts import some
from tests.hardening.writers import (
    BY_OTHERS,
    NOTHING,
    WHOLE,
    WRITERS,
    left,
    prepare,
    sizes_of,
    words_of,
)

_CONTINUED = {"search"}  # what is there is used by the next run
_AS_OUTPUTS = ("-o", "--report", "--overlay", "--redraw", "--script", "--markdown", "--junit")


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that lines read."""
    folder = tmp_path_factory.mktemp("given")
    prepare(folder)
    return folder


class _Noted(io.BufferedWriter):
    """A file that tells of each write before it is done."""

    def __init__(self, raw: Any, tell: Callable[[], None]) -> None:
        super().__init__(raw)
        self._tell = tell
        try:
            tell()
        except BaseException:
            self.close()
            raise

    def write(self, content: Any) -> int:
        self._tell()
        return super().write(content)


@contextmanager
def _told(tell: Callable[[], None]) -> Iterator[None]:
    """Call something before each file is opened for writing, each write, move and removal."""
    replace, unlink = Path.replace, Path.unlink

    def opened(handle: int, _mode: str) -> _Noted:
        return _Noted(io.FileIO(handle, "wb"), tell)

    def replaced(path: Path, target: Path) -> Path:
        tell()
        return replace(path, target)

    def unlinked(path: Path, missing_ok: bool = False) -> None:
        tell()
        unlink(path, missing_ok=missing_ok)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files.os, "fdopen", opened)
        patch.setattr(Path, "replace", replaced)
        patch.setattr(Path, "unlink", unlinked)
        yield


def _removed(place: Path) -> None:
    if place.is_dir():
        shutil.rmtree(place)
    for path in place.parent.glob(f"{place.name.partition('.')[0]}*"):
        path.unlink()


@pytest.mark.parametrize("name", some(WRITERS))
def test_a_writer_leaves_all_or_nothing(
    name: str, given: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "fake" and importlib.util.find_spec("torch") is None:
        pytest.skip("PyTorch is not installed")
    place = tmp_path / "to" / name
    words = words_of(WRITERS[name], place, given)
    assert main(words) == 0, capsys.readouterr().err
    whole = sizes_of(place)
    _removed(place)

    moments: list[str] = []  # what a process would leave that is killed there
    with _told(lambda: moments.append(left(place, whole))):
        assert main(words) == 0
    assert moments
    wrong = {one for one in moments if one not in (NOTHING, WHOLE)}
    assert not wrong or name in _CONTINUED, wrong
    assert left(place, whole) == WHOLE

    stops = [0, len(moments) // 2, len(moments) - 1]
    first = list(WRITERS).index(name) % 3
    for at, error in some(
        [(at, error) for at in stops for error in (OSError(errno.ENOSPC, "full"), KeyboardInterrupt())],
        of=6, first=2 * first % 6,
    ):  # fmt: skip
        _removed(place)
        count = iter(range(len(moments) + 1))

        def stop(at: int = at, error: BaseException = error, count: Any = count) -> None:
            if next(count, -1) == at:
                raise error

        with _told(stop):
            code = main(words)
        said = capsys.readouterr().err
        state = left(place, whole)
        assert state in (NOTHING, WHOLE) or name in _CONTINUED, (at, error, state)
        assert code in (2, 130) or state == WHOLE, (at, error, code)
        assert "Traceback" not in said
        hidden = list(place.parent.rglob(files.TEMPORARY.format("*")))
        assert not hidden, (at, error)
    if name in _CONTINUED:
        assert main(words) == 0
        assert left(place, whole) == WHOLE


def outputs() -> set[tuple[str, str]]:
    """Give the parameters of all commands that name what is written."""
    return {
        (name, str(one.name))
        for name, command in commands()
        for one in command.params
        if not {*_AS_OUTPUTS}.isdisjoint(one.opts) or one.metavar == "OUT"
    }


def commands() -> Iterator[tuple[str, Any]]:
    """Give all commands by their names, with those inside of others."""
    waiting = [("", get_command(make_app()))]
    while waiting:
        name, command = waiting.pop()
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        for key, one in (inner or {}).items():
            waiting.append((f"{name} {key}".strip(), one))


def test_each_output_of_each_command_is_tried() -> None:
    found = dict(commands())
    tried = set()
    for line in (*WRITERS.values(), *BY_OTHERS.values()):
        name = next(one for one in found if f"{line} ".startswith(f"{one} "))
        words = shlex.split(line.removeprefix(name))
        context = found[name].make_context(name, words, resilient_parsing=True)
        tried |= {
            (name, key) for key, value in context.params.items() if str(value).startswith("@")
        }
    assert tried == outputs()


def test_what_writes_is_declared_so() -> None:
    """An option that says it writes a file, and is not known to, is none that is forgotten."""
    known = outputs()
    for name, command in commands():
        for one in command.params:
            says = str(getattr(one, "help", "") or "")
            names_one = str(one.metavar).startswith(("FILE", "FOLDER", "OUT"))
            if names_one and says.startswith(("Write", "Also write", "Where")):
                assert (name, one.name) in known
