"""Read dumps of PyTorch's flight recorder: the latest collectives of a rank, pickled or JSON."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

import msgspec

from nadi.errors import FormatError, InputError, PairError, UsageError
from nadi.files.files import garbage_collection_paused, locate, read_file, read_head
from nadi.files.plain_pickles import is_pickle, read_plain

_RANK = re.compile(r"(\d{1,9})(?!.*\d)")
_RANK_AFTER_WORD = re.compile(r"(?i)rank[-_.]?(\d{1,9})(?!\d)")
_SUFFIXES = re.compile(r"(?i)(\.(json|pickle|pkl|gz|pt))+$")
_LIBRARY = re.compile(r"^[a-z]+:")
_PEERS = re.compile(r"^(send|recv|isend|irecv) (\d{1,9})(->|<-)(\d{1,9})$")
_NOT_A_DUMP = "not a dump of PyTorch's flight recorder"

_Number = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class _Frame(msgspec.Struct, gc=False):
    name: str = ""
    filename: str = ""
    line: _Number = 0


class _Entry(msgspec.Struct, gc=False):
    profiling_name: str
    process_group: tuple[str, str] = ("", "")
    pg_id: str | int = ""
    collective_seq_id: _Number = -1
    p2p_seq_id: _Number = -1
    is_p2p: bool = False
    input_sizes: Any = None
    input_dtypes: Any = None
    output_sizes: Any = None
    state: str = ""
    retired: bool = False
    time_created_ns: _Number | None = None
    timeout_ms: _Number | None = None
    frames: list[_Frame] = []


class _Status(msgspec.Struct):
    last_enqueued_collective: _Number = -1
    last_completed_collective: _Number = -1


class _Config(msgspec.Struct):
    ranks: Any = ""


class _File(msgspec.Struct):
    entries: list[_Entry]
    version: str = ""
    pg_config: dict[str, _Config] = {}
    pg_status: dict[str | int, _Status] = {}


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A collective, or a send or receive, that a rank has enqueued."""

    # group, description: the process group's name and what it is for
    group: str
    description: str
    number: int  # of the collective in its group; of sends and receives in their own count
    operation: str  # such as ``all_reduce``, without the library's name
    sizes: str  # of the inputs and their types, as text
    state: str  # as recorded: scheduled, started, completed
    is_done: bool  # whether it has completed, by its state or by what the group says of itself
    timed_out: bool  # whether its rank gave it up
    # when it was enqueued, in ns since 1970, by the clock of its host; -1 if unknown
    created_ns: int
    is_p2p: bool  # whether it is a send or a receive
    # source, dest: of a send or receive whose name states them: both ranks, counted in the group;
    # else -1
    source: int
    dest: int
    place: str  # where in the program, as ``file:line function``; empty if it was not recorded


@dataclass(frozen=True)
class Dump:
    """What the recorder of a rank held."""

    # path, rank: the file, and the rank in its name
    path: str
    rank: int
    entries: tuple[Entry, ...]  # in the order in which they were enqueued
    # the ranks of each group by its name, where the dump states them
    members: dict[str, tuple[int, ...]]
    # enqueued, completed: by group, the number of the latest collective; -1 if the dump does not
    # say
    enqueued: dict[str, int]
    completed: dict[str, int]


def read_dumps(paths: Sequence[Path | str]) -> tuple[list[Dump], list[str]]:
    """Read the dumps among files and folders.

    - Returns dumps: In order of rank.
    - and ignored: Names of files in the folders that are no dumps.
    - Raises InputError if a path does not exist, a given file is no dump, there is none, or two
      have a rank.
    """
    if not paths:
        raise UsageError("dumps", "none is given", "name a folder, or a dump of each rank")
    dumps, ignored = [], []
    for path in map(locate, paths):
        if not path.is_dir():
            dumps.append(_read(path))
            continue
        for file in sorted(one for one in path.iterdir() if one.is_file()):
            head = read_head(file)
            if not (is_pickle(head) or head.lstrip()[:1] == b"{"):
                ignored.append(file.name)
                continue
            try:
                dumps.append(_read(file))
            except FormatError as error:
                if _NOT_A_DUMP not in str(error):
                    raise
                ignored.append(file.name)
    if not dumps:
        raise InputError(
            ", ".join(map(str, paths)), "contains no dump of PyTorch's flight recorder",
            "they are written where TORCH_FR_DUMP_TEMP_FILE says, with the rank in their names",
        )  # fmt: skip
    dumps.sort(key=lambda one: one.rank)
    for one, other in pairwise(dumps):
        if one.rank == other.rank:
            raise PairError(
                f"{one.path} and {other.path}", f"two dumps have rank {one.rank}",
                "give one dump for each rank, with the rank as the last number in its name",
            )  # fmt: skip
    return dumps, ignored


def _read(path: Path) -> Dump:
    stem = _SUFFIXES.sub("", path.name)
    rank = _RANK_AFTER_WORD.search(stem) or _RANK.search(stem)
    dump = parse_dump(
        read_file(path).content.tobytes(), str(path), -1 if not rank else int(rank[1])
    )
    if rank is None:
        raise FormatError(
            str(path), "the name of the dump has no rank, which the dump itself does not state",
            "name it as PyTorch does, with the rank at the end",
        )  # fmt: skip
    return dump


def parse_dump(content: bytes, name: str, rank: int) -> Dump:
    """Read a dump; of a pickle only plain values are read, and no object is made.

    - Raises FormatError if it is no dump, or is broken.
    """
    with garbage_collection_paused():
        return _parse_dump(content, name, rank)


def _parse_dump(content: bytes, name: str, rank: int) -> Dump:
    try:
        made = read_plain(content, name) if is_pickle(content) else msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise FormatError(name, _NOT_A_DUMP, "it is neither a pickle nor JSON") from None
    if not isinstance(made, dict) or "entries" not in made:
        raise FormatError(name, _NOT_A_DUMP, "a dump is a dictionary with a list of entries")
    try:
        file = msgspec.convert(made, _File, strict=False)
    except (msgspec.ValidationError, RecursionError) as error:
        what = str(error)[:200]
        raise FormatError(name, what if what.isprintable() else _NOT_A_DUMP, "dump again") from None
    group_of_id = {str(one.pg_id): one.process_group[0] for one in file.entries}
    status = {group_of_id.get(str(key), ""): one for key, one in file.pg_status.items()}
    completed = {group: one.last_completed_collective for group, one in status.items()}
    return Dump(
        path=name,
        rank=rank,
        entries=tuple(_entry(one, completed) for one in file.entries),
        members={key: ranks for key, one in file.pg_config.items() if (ranks := _ranks(one.ranks))},
        enqueued={group: one.last_enqueued_collective for group, one in status.items()},
        completed=completed,
    )


def _entry(made: _Entry, completed: dict[str, int]) -> Entry:
    group, description = made.process_group
    operation = _LIBRARY.sub("", made.profiling_name)
    peers = _PEERS.match(operation) if made.is_p2p else None
    source, dest = -1, -1
    if peers is not None:
        own, other = int(peers[2]), int(peers[4])
        source, dest = (own, other) if peers[3] == "->" else (other, own)
    number = made.p2p_seq_id if made.is_p2p else made.collective_seq_id
    # NCCL's watchdog retires what it gives up, too; other libraries never tell a state
    is_done = (
        made.state == "completed"
        or (made.retired and not made.profiling_name.startswith("nccl:"))
        or (not made.is_p2p and 0 <= number <= completed.get(group, -1))
    )
    return Entry(
        group=group,
        description=description,
        number=number,
        operation=operation,
        sizes=f"{made.input_sizes} {made.input_dtypes}",
        state=made.state,
        is_done=is_done,
        timed_out=made.retired and not is_done,
        created_ns=-1 if made.time_created_ns is None else made.time_created_ns,
        is_p2p=made.is_p2p,
        source=source,
        dest=dest,
        place=_place(made.frames),
    )


def _place(frames: list[_Frame]) -> str:
    """Return the innermost frame of the user's program."""
    if not frames:
        return ""
    one = next((one for one in frames if "/torch/" not in one.filename), frames[0])
    return f"{one.filename}:{one.line} {one.name}"


def _ranks(stated: Any) -> tuple[int, ...]:
    """Return ranks that are stated as a list or as its text."""
    try:
        value = msgspec.json.decode(stated) if isinstance(stated, str) else stated
        return tuple(sorted(msgspec.convert(value, tuple[_Number, ...], strict=False)))
    except (msgspec.DecodeError, msgspec.ValidationError):
        return ()
