"""Read dumps of PyTorch's flight recorder: the latest collectives of a rank, pickled or JSON."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
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
_SURROGATE = re.compile(rb"\xed[\xa0-\xbf]")
_PEERS = re.compile(r"^(send|recv|isend|irecv) (\d{1,9})(->|<-)(\d{1,9})$")
_UNNAMED = ""  # in the configuration of gloo the group that was made last
_OF_TORCHTITAN = "comm_traces"  # where torchtitan has dumps written, below the folder of a job
_NOT_A_DUMP = "not a dump of PyTorch's flight recorder"

_Number = Annotated[int, msgspec.Meta(ge=-(2**62), le=2**62)]


class _Frame(msgspec.Struct, gc=False):
    name: str = ""
    filename: str = ""
    line: _Number = 0


class Entry(msgspec.Struct, gc=False):
    """A collective, or a send or receive, that a rank has enqueued, as its dump states it."""

    profiling_name: str
    # the process group's name, and what it is for
    process_group: tuple[str, str] = ("", "")
    pg_id: str | int = ""
    record_id: _Number = -1  # how many its rank enqueued before it
    collective_seq_id: _Number = -1
    p2p_seq_id: _Number = -1
    is_p2p: bool = False  # whether it is a send or a receive
    input_sizes: Any = None
    input_dtypes: Any = None
    state: str = ""  # scheduled, started, completed
    retired: bool = False
    # when it was enqueued, in ns since 1970, by the clock of its host
    time_created_ns: _Number | None = None
    frames: list[_Frame] = []
    # whether it has completed, by its state or by what the group says of itself; set when all of
    # the dump is known
    is_done: bool = False

    @property
    def group(self) -> str:
        """Name of the process group."""
        return self.process_group[0]

    @property
    def description(self) -> str:
        """What the process group is for."""
        return self.process_group[1]

    @property
    def number(self) -> int:
        """Its number in its group; sends and receives have their own count."""
        return self.p2p_seq_id if self.is_p2p else self.collective_seq_id

    @property
    def operation(self) -> str:
        """What it is, such as ``all_reduce``, without the library's name."""
        return _operation(self.profiling_name)

    @property
    def sizes(self) -> str:
        """Sizes of the inputs and their types."""
        return f"{self.input_sizes} {self.input_dtypes}"

    @property
    def timed_out(self) -> bool:
        """Whether its rank gave it up."""
        return self.retired and not self.is_done

    @property
    def peers(self) -> tuple[int, int]:
        """Source and destination of a send or receive that states them, counted in the group."""
        return _peers(self.profiling_name) if self.is_p2p else (-1, -1)

    @property
    def place(self) -> str:
        """Where in the program: the innermost frame that is not PyTorch's."""
        if not self.frames:
            return ""
        own = (one for one in self.frames if "/torch/" not in one.filename)
        one = next(own, self.frames[0])
        return f"{one.filename}:{one.line} {one.name}"


@cache
def _operation(name: str) -> str:
    return _LIBRARY.sub("", name)


@cache
def _peers(name: str) -> tuple[int, int]:
    found = _PEERS.match(_operation(name))
    if found is None:
        return -1, -1
    own, other = int(found[2]), int(found[4])
    return (own, other) if found[3] == "->" else (other, own)


class _Status(msgspec.Struct):
    last_enqueued_collective: _Number = -1
    last_completed_collective: _Number = -1


class _Config(msgspec.Struct):
    ranks: Any = ""


class _File(msgspec.Struct):
    entries: list[Entry]
    version: str = ""
    pg_config: dict[str, _Config] = {}
    pg_status: dict[str | int, _Status] = {}


@dataclass(frozen=True)
class Dump:
    """What the recorder of a rank held."""

    # path, rank: the file, and the rank in its name
    path: str
    rank: int
    entries: list[Entry]  # in the order in which they were enqueued
    # the ranks of each group by its name, where the dump states them
    members: dict[str, tuple[int, ...]]
    # enqueued, completed: by group, the number of the latest collective; -1 if the dump does not
    # say
    enqueued: dict[str, int]
    completed: dict[str, int]


def read_dumps(paths: Sequence[Path | str]) -> tuple[list[Dump], list[str]]:
    """Read the dumps among files and folders, also those of torchtitan in the folder of a job.

    - Returns dumps: In order of rank.
    - and ignored: Names of files in the folders that are no dumps.
    - Raises InputError if a path does not exist, a given file is no dump, there is none, or two
      have a rank.
    """
    if not paths:
        raise UsageError("dumps", "none is given", "name a folder, or a dump of each rank")
    dumps: list[Dump] = []
    ignored: list[str] = []
    with garbage_collection_paused():
        for path in map(locate, paths):
            if path.is_dir():
                below = path / _OF_TORCHTITAN
                ignored += _read_folder(below if below.is_dir() else path, dumps)
            else:
                dumps.append(_read(path))
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


def _read_folder(path: Path, dumps: list[Dump]) -> list[str]:
    """Add the dumps in a folder; return the names of the other files."""
    ignored = []
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
    return ignored


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
    try:
        made = read_plain(content, name) if is_pickle(content) else msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise FormatError(name, _NOT_A_DUMP, "it is neither a pickle nor JSON") from None
    if not isinstance(made, dict) or "entries" not in made:
        raise FormatError(name, _NOT_A_DUMP, "a dump is a dictionary with a list of entries")
    _refuse_repeated(made["entries"], len(content), name)
    try:
        file = msgspec.convert(made, _File, strict=False)
        if _SURROGATE.search(content):  # perhaps in a number
            msgspec.msgpack.encode((file.entries, list(file.pg_config)))
    except UnicodeEncodeError:  # a pickle may have halves of characters, which nothing can write
        raise FormatError(name, "a text is no UTF-8", "dump again") from None
    except (msgspec.ValidationError, RecursionError, OverflowError, TypeError) as error:
        what = str(error)[:200]
        raise FormatError(name, what if what.isprintable() else _NOT_A_DUMP, "dump again") from None
    group_of_id = {str(one.pg_id): one.process_group[0] for one in file.entries}
    status = {group_of_id.get(str(key), ""): one for key, one in file.pg_status.items()}
    completed = {group: one.last_completed_collective for group, one in status.items()}
    if len(groups := {one.group for one in file.entries}) == 1 and _UNNAMED in file.pg_config:
        file.pg_config[groups.pop()] = file.pg_config.pop(_UNNAMED)
    # a pickle may refer to one list for many groups
    ranks_of = {id(one.ranks): one.ranks for one in file.pg_config.values()}
    ranks = {number: _ranks(stated) for number, stated in ranks_of.items()}
    for one in file.entries:
        # NCCL's watchdog retires what it gives up, too; other libraries never tell a state
        one.is_done = (
            one.state == "completed"
            or (one.retired and not one.profiling_name.startswith("nccl:"))
            or (not one.is_p2p and 0 <= one.collective_seq_id <= completed.get(one.group, -1))
        )
    return Dump(
        path=name,
        rank=rank,
        entries=file.entries,
        members={key: of for key, one in file.pg_config.items() if (of := ranks[id(one.ranks)])},
        enqueued={group: one.last_enqueued_collective for group, one in status.items()},
        completed=completed,
    )


def _refuse_repeated(entries: Any, size: int, name: str) -> None:
    """Refuse a dump whose entries have more values than the file has bytes.

    In a pickle, many entries may refer to one list, and that to others: a few bytes stand for
    billions of values.
    """
    for entry in entries if isinstance(entries, (list, tuple)) else ():
        if not isinstance(entry, dict):
            continue
        frames = entry.get("frames")
        size -= len(frames) if isinstance(frames, (list, tuple)) else 0
        inside = [entry.get("input_sizes"), entry.get("input_dtypes")]
        while inside and size >= 0:
            size -= 1
            value = inside.pop()
            if isinstance(value, dict):
                inside += value.values()
            elif isinstance(value, (list, tuple)):
                inside += value
        if size < 0:
            what = "its entries have more frames and sizes than the file has bytes"
            raise FormatError(name, what, "dump again")


def _ranks(stated: Any) -> tuple[int, ...]:
    """Return ranks that are stated as a list or as its text."""
    try:
        value = msgspec.json.decode(stated) if isinstance(stated, str) else stated
        return tuple(sorted(msgspec.convert(value, tuple[_Number, ...], strict=False)))
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeEncodeError):
        return ()
