"""Folders of several files that appear whole, or not at all.

Files are written into a hidden folder inside, and moved when all are complete. A list of them
comes first: where a program is killed between two moves, the list tells what is missing, and the
folder is refused. Files of an earlier job are removed before the first move: two are never mixed.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from nadi.errors import InputError, Parameter
from nadi.files.files import (
    TEMPORARY,
    check_target,
    check_writable,
    is_local,
    locked_folder,
    read_settings,
    remove_left_behind,
    unfinished,
    unwritable,
    write_pieces,
)
from nadi.files.settings_text import decode_json

FILE_LIST = ".nadi-files.json"
_KEPT = ".nadi-kept"


@contextmanager
def whole_folder(
    folder: Path, *, overwrite: bool = False, instead_of: Sequence[Path] = ()
) -> Iterator[Path]:
    """Give a folder to write into, whose files appear in ``folder`` together when all is done.

    Within itself it gives the same folder again. At an address, files appear one by one.

    - ``overwrite``: Whether files of the same names are replaced.
    - ``instead_of``: Files of an earlier job that are removed.
    - Raises InputError if a file exists already and ``overwrite`` is not given, or the folder
      cannot be written.
    """
    if _is_written_into(folder):
        yield folder
        for path in instead_of:
            path.unlink(missing_ok=True)
        return
    check_writable(folder / FILE_LIST)
    with _hidden(folder) as inside:
        yield inside
        _publish(inside, folder, instead_of, overwrite=overwrite)


@contextmanager
def resumed_folder(
    folder: Path, is_note: Callable[[Path], bool], *, overwrite: bool
) -> Iterator[Path]:
    """Give a folder as :func:`whole_folder` does, which stays as it is where the work is stopped.

    - ``is_note``: Whether a file in it is no result, and goes when all is done.
    - Raises InputError as :func:`whole_folder`, or if ``folder`` is an address.
    """
    if not is_local(folder):
        raise InputError(
            str(folder), "is an address, at which nothing is kept that is not whole",
            ["give a folder of this machine, or leave out ", Parameter("resume", True)],
        )  # fmt: skip
    kept = folder / _KEPT
    if kept.is_symlink():  # who made the folder may have named any place
        raise unwritable(kept, "it is a link to another place")
    try:
        kept.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(kept, str(error.strerror)) from None
    with locked_folder(kept), _named_as(kept, folder):
        yield kept
        with whole_folder(folder, overwrite=overwrite) as inside:
            for path in kept.iterdir():
                if not is_note(path):
                    path.replace(inside / path.name)
    shutil.rmtree(kept, ignore_errors=True)


def check_new_files(folder: Path, names: Sequence[str], *, overwrite: bool) -> None:
    """Check that files of a folder can be written, before their content is computed.

    - Raises InputError if one exists already and ``overwrite`` is not given, or the folder cannot
      be written.
    """
    check_writable(folder / names[0])
    for name in names:
        if not overwrite and (folder / name).exists():
            raise InputError(
                str(folder / name), "exists already",
                ["give another folder, or ", Parameter("overwrite", True)],
            )  # fmt: skip


@contextmanager
def whole_files(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Give a place for each of several files of a folder, which replace them when all is done.

    The first is moved last, and one that is replaced is removed first: where it is, all are. So
    there is no list in a folder that has other files, too. At an address, files appear one by one.

    - Raises InputError if the folder cannot be written.
    """
    first, folder = files[0], files[0].parent
    if _is_written_into(folder):
        yield list(files)
        return
    check_writable(first)
    with _hidden(folder) as inside:
        places = [inside / path.name for path in files]
        yield places
        with _undisturbed():
            try:
                first.unlink(missing_ok=True)
                for place, path in reversed([*zip(places, files, strict=True)]):
                    place.replace(path)
            except OSError as error:
                raise unwritable(folder, str(error.strerror or error)) from None


def _is_written_into(folder: Path) -> bool:
    """Tell whether files are written where they stay: at an address, or where others are hidden."""
    return not is_local(folder) or folder.match(TEMPORARY.format("*"))


@contextmanager
def _hidden(folder: Path) -> Iterator[Path]:
    """Make a hidden folder inside, which is removed in the end, and ``folder``, if it is empty."""
    inside = folder / TEMPORARY.format(secrets.token_hex(8))
    try:
        made = not folder.exists()
        folder.mkdir(parents=True, exist_ok=True)
        remove_left_behind(folder.absolute())
        inside.mkdir()
    except OSError as error:
        raise unwritable(inside, str(error.strerror)) from None
    try:
        with locked_folder(inside), unfinished(inside), _named_as(inside, folder):
            yield inside
    finally:
        shutil.rmtree(inside, ignore_errors=True)
        if made:
            with suppress(OSError):  # which it does unless it is empty
                folder.rmdir()


@contextmanager
def _named_as(inside: Path, folder: Path) -> Iterator[None]:
    """Let errors name the place where a file was to be, not where it was written."""
    try:
        yield
    except InputError as error:
        where = error.where.replace(str(inside), str(folder))
        if where == error.where:
            raise
        raise type(error)(where, error.what, error.remedy) from None


def _publish(inside: Path, folder: Path, instead_of: Sequence[Path], *, overwrite: bool) -> None:
    names = sorted(path.name for path in inside.iterdir())
    if not names:
        return
    targets = [folder / name for name in names]
    for target in targets:
        check_target(target, (), overwrite=overwrite)
    listed = "".join(f"\n  {_quoted(name)}," for name in names).rstrip(",")
    with _undisturbed():
        try:
            write_pieces(folder / FILE_LIST, [f'{{"files": [{listed}\n]}}\n'.encode()])
            for path in (*targets, *instead_of):
                path.unlink(missing_ok=True)
            for name, target in zip(names, targets, strict=True):
                (inside / name).replace(target)
        except OSError as error:
            raise unwritable(folder, str(error.strerror or error)) from None


def _quoted(name: str) -> str:
    import msgspec

    return msgspec.json.encode(name.encode(errors="replace").decode()).decode()


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Let Ctrl-C wait until files are moved, which takes milliseconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    met: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: met.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if met:
        os.kill(os.getpid(), signal.SIGINT)


def listed_files(folder: Path) -> list[str]:
    """Return the names of files that were last written to a folder together; often none.

    - Raises InputError if the folder's list of files cannot be read.
    """
    place = folder / FILE_LIST
    if not is_local(folder) or not place.is_file():
        return []
    found = decode_json(
        read_settings(place), dict[str, list[str]], str(place), "write the files again"
    )
    return found.get("files", [])


def missing_files(folder: Path) -> list[str]:
    """Return the names of files that were written to a folder and are not in it; often none.

    - Raises InputError if the folder's list of files cannot be read.
    """
    # names of others may be too long for a file system, which ``Path.exists`` raises
    return [name for name in listed_files(folder) if not os.path.exists(folder / name)]


def refuse_partial(folder: Path) -> None:
    """Raise InputError if a folder lacks files that were written to it together."""
    if missing := missing_files(folder):
        more = f" and {len(missing) - 3} more" if len(missing) > 3 else ""
        raise InputError(
            str(folder), f"is incomplete: {', '.join(missing[:3])}{more} of the files that were "
            "written together are missing",
            f"write them again, or remove {FILE_LIST} if the rest is meant",
        )  # fmt: skip
