"""Ranks that were linked before their job's linking was stopped, and need not be linked again.

Beside the file of a rank stand its communication, which is what ranks have in common, and what
makes it valid: the files it was read from, and how it was linked. The latter is written last.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from nadi.errors import InputError
from nadi.files.files import is_local, locate, read_settings, write_pieces
from nadi.files.settings_text import decode_json
from nadi.files.trace_files import read, write
from nadi.recordings.rank_tasks import RankTask
from nadi.trace.trace import Trace
from nadi.version import __version__

_LISTED, _TALKS = ".kept.json", ".kept.nadi"
_REMEDY = "give another folder, or leave out --resume"


class KeptRank(msgspec.Struct, frozen=True):
    """What makes the file of a rank valid, and how much is in it."""

    nadi: str
    # name, bytes and time of the last change of each source; of an address only the name
    sources: list[tuple[str, int, int]]
    settings: str  # how it was linked, and written
    nodes: int = -1
    deps: int = -1

    @classmethod
    def of(cls, files: RankTask, settings: str) -> KeptRank:
        """Say what makes a rank valid, whatever is in it.

        - Raises InputError if a file is not there any more.
        """
        sources = []
        for path in map(locate, files.sources):
            try:
                state = path.stat() if is_local(path) else None
            except OSError as error:
                raise InputError(str(path), f"cannot be read: {error.strerror}") from None
            changed = (0, 0) if state is None else (state.st_size, state.st_mtime_ns)
            sources.append((str(path), *changed))
        linked = f"{files.rank} {files.force} {files.tensors} {files.args} {settings}"
        return cls(__version__, sources, linked)


def keep_rank(target: Path, kept: KeptRank, communication: Trace) -> None:
    """Note that the file of a rank is whole; its issues are those of ``communication``."""
    write(communication, _beside(target, _TALKS), to="nadi")
    write_pieces(_beside(target, _LISTED), [msgspec.json.encode(kept)])


def kept_rank(target: Path, asked: KeptRank) -> tuple[KeptRank, Trace] | None:
    """Return what was kept of a rank, and its communication; None if it has to be linked.

    - Raises InputError if what was kept cannot be read.
    """
    listed = _beside(target, _LISTED)
    if not listed.exists():
        return None
    kept = decode_json(read_settings(listed, _REMEDY), KeptRank, str(listed), _REMEDY)
    same = msgspec.structs.replace(kept, nodes=-1, deps=-1) == asked
    return (kept, read(_beside(target, _TALKS))) if same else None


def is_note(path: Path) -> bool:
    """Tell whether a file stands beside that of a rank, and is none of the results."""
    return path.name.endswith((_LISTED, _TALKS))


def _beside(target: Path, ending: str) -> Path:
    return target.with_name(target.name + ending)
