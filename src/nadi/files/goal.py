"""GOAL: programs of messages as text, for LogGOPSim, ATLAHS, htsim and ns-3.

A file has ``num_ranks N`` and a block for each rank, whose lines are operations and
dependencies::

    rank 0 {
    l1: calc 1500
    l2: send 4096b to 1 tag 7 cpu 0 nic 0
    l2 requires l1
    }

``calc`` takes integer time units, which are nanoseconds here. ``irequires`` waits for the other
operation only to start. What is left out is 0. Lines may end with a comment after ``//``.

LogGOPSim wants ranks in order, and a label before it is used; here any order will do. Its way of
writing is described in T. Hoefler et al., LogGOPSim: Simulating Large-Scale Applications in the
LogGOPS Model (LSAP 2010).

GOAL files: read as programs of messages, and written.

Programs of messages: what each rank sends, receives and computes, and in which order.

They are what GOAL files hold (:mod:`nadi.files.goal`), and what LogGP models run
(:mod:`nadi.simulation.loggp`): collectives are taken apart into their messages.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np
import polars as pl

from nadi.errors import FormatError
from nadi.files import goal as goal_text
from nadi.files.files import RawFile, check_target, locate, read_file, write_pieces
from nadi.trace.arrays import Bools, Ints

ANY = -1
"""A receive with this source, or this tag, takes any."""


class Action(IntEnum):
    """What an operation does."""

    SEND = 0
    RECEIVE = 1
    COMPUTE = 2


@dataclass(frozen=True, eq=False)
class MessageProgram:
    """The operations of all ranks, in order of rank.

    Attributes
    ----------
    first
        int64, shape (ranks + 1,): where the operations of each rank begin.
    action
        int64, shape (operations,): of :class:`Action`.
    size
        int64: bytes of a message, or ns of a computation.
    peer
        int64: to whom an operation sends, or from whom it receives; :data:`ANY` for any sender.
    tag
        int64: a receive takes the first message of its sender with its tag, or with any.
    cpu, interface
        int64: the processor of the rank that the operation occupies, and the network interface
        that its message takes, each counted from 0.
    waiting, awaited
        int64, shape (dependencies,): an operation, and one of the same rank that it waits for.
    at_start
        bool, shape (dependencies,): whether it waits only for that one to start.
    """

    first: Ints
    action: Ints
    size: Ints
    peer: Ints
    tag: Ints
    cpu: Ints
    interface: Ints
    waiting: Ints
    awaited: Ints
    at_start: Bools

    @property
    def num_ranks(self) -> int:
        """Number of ranks."""
        return self.first.size - 1

    @property
    def num_operations(self) -> int:
        """Number of operations over all ranks."""
        return self.action.size

    def rank_of(self, operation: int) -> int:
        """Return the rank of an operation."""
        return int(np.searchsorted(self.first, operation, "right")) - 1

    def describe(self, operation: int) -> str:
        """Describe an operation for messages: what it does, of which rank, with whom."""
        rank = self.rank_of(operation)
        number = operation - int(self.first[rank]) + 1
        action = Action(int(self.action[operation]))
        name = f"rank {rank} operation {number}"
        if action == Action.COMPUTE:
            return f"{name} (compute {self.size[operation]} ns)"
        peer, tag = int(self.peer[operation]), int(self.tag[operation])
        way = "to" if action == Action.SEND else "from"
        other = "any rank" if peer == ANY else f"rank {peer}"
        verb = "send" if action == Action.SEND else "receive"
        return f"{name} ({verb} {self.size[operation]} bytes {way} {other}, tag {tag})"


# ASCII only: classes of Unicode take several times as long
_OPERATION = (
    r"^(?:(?P<label>[0-9A-Za-z_]+)[ \t]*:[ \t]*)?(?:calc[ \t]+(?P<time>[0-9]+)"
    r"|(?P<verb>send|recv)[ \t]+(?P<size>[0-9]+)b?[ \t]+(?P<way>to|from)[ \t]+(?P<peer>-1|[0-9]+)"
    r"(?:[ \t]+tag[ \t]+(?P<tag>-1|[0-9]+))?)"
    r"(?:[ \t]+cpu[ \t]+(?P<cpu>[0-9]+))?(?:[ \t]+nic[ \t]+(?P<nic>[0-9]+))?$"
)
_DEPENDENCY = (
    r"^(?P<waiting>[0-9A-Za-z_]+)[ \t]+(?P<early>i?)requires[ \t]+(?P<awaited>[0-9A-Za-z_]+)$"
)
_HEAD = re.compile(r"num_ranks[ \t]+([0-9]+)")
_RANK = r"^rank[ \t]+([0-9]+)[ \t]*\{$"
_LARGEST = 2**62
_MOST_RANKS = 1 << 24
_MOST_PARTS = 1 << 16  # processors or interfaces of a rank
_EXAMPLE = "write lines such as 'l1: calc 100', 'l2: send 8b to 1 tag 0' or 'l2 requires l1'"
_SHOWN = 60  # letters of a line in a message


class _Text:
    """The lines of a file that say something, without comments, and what is wrong with them."""

    def __init__(self, raw: RawFile) -> None:
        try:
            text = raw.content.tobytes().decode()
        except UnicodeDecodeError:
            raise FormatError(raw.name, "it is not text in UTF-8", "pass a GOAL file") from None
        self.name = raw.name
        lines = pl.Series("text", [text]).str.split("\n").explode()
        kept = lines.str.replace(r"//.*$", "").str.strip_chars()
        table = pl.DataFrame({"text": kept}).with_row_index("line", offset=1)
        self.table = table.filter(kept != "")
        # of each mistake its row, what was met, and what would do
        self.mistakes: list[tuple[int, str, str]] = []

    def add(self, wrong: pl.Series, what: str, remedy: str, rows: pl.Series | None = None) -> None:
        """Note the first row, of all or of these, that is wrong; ``{}`` is its text."""
        found = wrong.fill_null(value=False).arg_max() if wrong.any() else None
        if found is not None:
            row = found if rows is None else int(rows[found])
            self.mistakes.append((row, what, remedy))

    def fail_if_wrong(self) -> None:
        """Raise the error of the first row with a mistake."""
        if self.mistakes:
            row, what, remedy = min(self.mistakes, key=lambda mistake: mistake[0])
            line, text = self.table.row(row)
            raise self.error(line, what.replace("{}", repr(text[:_SHOWN])), remedy)

    def error(self, line: int, what: str, remedy: str) -> FormatError:
        return FormatError(f"{self.name}, line {line}", what, remedy)


def decode(raw: RawFile) -> MessageProgram:
    """Read a program. O(lines).

    - Raises FormatError if a line is not GOAL, names a rank or label that is not there, or is
      missing.
    """
    text = _Text(raw)
    num_ranks = _num_ranks(text)
    rank = _rank_of_lines(text, num_ranks)
    operations = _operations(text, rank, num_ranks)
    dependencies = _dependencies(text, rank, operations)
    columns = operations.sort("rank", "row")
    place = np.empty(columns.height, dtype=np.int64)
    place[columns["number"].to_numpy()] = np.arange(columns.height)
    of_rank = columns["rank"].to_numpy()
    names = ("action", "size", "peer", "tag", "cpu", "nic")
    action, size, peer, tag, cpu, nic = (columns[name].to_numpy().copy() for name in names)
    return MessageProgram(
        np.searchsorted(of_rank, np.arange(num_ranks + 1)).astype(np.int64),
        action, size, peer, tag, cpu, nic, place[dependencies["waiting"].to_numpy()],
        place[dependencies["awaited"].to_numpy()], dependencies["early"].to_numpy().copy(),
    )  # fmt: skip


def _num_ranks(text: _Text) -> int:
    """Read the first line, and leave the others."""
    if not text.table.height:
        raise text.error(1, "it is empty", "begin with num_ranks N")
    line, first = text.table.row(0)
    found = _HEAD.fullmatch(first)
    if not found or not 0 < int(found[1]) <= _MOST_RANKS:
        what = f"{first[:_SHOWN]!r} is not a number of ranks"
        raise text.error(line, what, "begin with num_ranks N")
    text.table = text.table[1:]
    return int(found[1])


def _rank_of_lines(text: _Text, num_ranks: int) -> pl.Series:
    """Return the rank of each line, which is in the braces of one."""
    lines = text.table["text"]
    stated = lines.str.extract(_RANK).cast(pl.Int64, strict=False)
    begins, ends = lines.str.contains(_RANK), lines == "}"
    inside = begins.cum_sum().cast(pl.Int64) - ends.cum_sum().cast(pl.Int64)
    is_first = stated.is_first_distinct()
    least = "write each of 0 to num_ranks - 1 once"
    text.add((inside == 0) & ~ends, "{} is outside of a rank", "begin one with 'rank 0 {'")
    text.add(begins & (inside > 1), "{} is inside of a rank", "end that one with '}' before")
    text.add(ends & (inside < 0), "{} ends no rank", "begin one with 'rank 0 {'")
    too_high = begins & ((stated >= num_ranks) | stated.is_null())
    text.add(too_high, f"{{}} exceeds num_ranks {num_ranks}", least)
    text.add(begins & ~is_first, "{} occurs twice", least)
    text.fail_if_wrong()
    if text.table.height and inside[-1]:
        raise text.error(text.table["line"][-1], "the last rank has no end", "end it with '}'")
    return stated.forward_fill()


def _operations(text: _Text, rank: pl.Series, num_ranks: int) -> pl.DataFrame:
    """Return the operations: rank, row of the text, number, label, and their columns."""
    lines = text.table["text"]
    is_one = lines.str.contains(_OPERATION)
    other = lines.str.contains(_DEPENDENCY) | lines.str.contains(_RANK) | (lines == "}")
    text.add(~is_one & ~other, "{} is neither an operation nor a dependency", _EXAMPLE)
    text.fail_if_wrong()
    found = (
        pl.DataFrame({"rank": rank, "text": lines})
        .with_row_index("row")
        .filter(is_one)
        .with_row_index("number")
        .with_columns(pl.col("text").str.extract_groups(_OPERATION).alias("group"))
        .drop("text")
        .unnest("group")
    )
    rows, sends, computes = found["row"], found["verb"] == "send", found["verb"].is_null()
    text.add((found["way"] == "to") != sends, "{}", "write send to, recv from", rows)
    numbers = ("time", "size", "peer", "tag", "cpu", "nic")
    stated = found.select(numbers).with_columns(pl.col(numbers).cast(pl.Int64, strict=False))
    high = "a number in {} is too large", f"sizes and tags are below {_LARGEST}"
    for name in numbers:
        most = _MOST_PARTS if name in ("cpu", "nic") else _LARGEST
        lost = found[name].is_not_null() & stated[name].is_null()
        text.add(lost | (stated[name] >= most), *high, rows)
    wrong = (stated["peer"] >= num_ranks) | (sends & ((stated["peer"] < 0) | (stated["tag"] < 0)))
    remedy = f"name a rank of 0 to {num_ranks - 1}; only a recv takes any rank or tag, by -1"
    text.add(wrong, "{} names no rank, or no tag", remedy, rows)
    labeled = found.filter(found["label"].is_not_null())
    twice = ~labeled.select(pl.struct("rank", "label").is_first_distinct()).to_series()
    text.add(twice, "the label of {} occurs twice in its rank", "rename one", labeled["row"])
    text.fail_if_wrong()
    action = pl.when(computes).then(int(Action.COMPUTE)).when(sends).then(int(Action.SEND))
    return found.select("rank", "row", "number", "label").with_columns(
        action.otherwise(int(Action.RECEIVE)).cast(pl.Int64).alias("action"),
        pl.Series("size", stated["time"]).fill_null(stated["size"]),
        stated["peer"].fill_null(ANY),
        *(stated[name].fill_null(0) for name in ("tag", "cpu", "nic")),
    )


def _dependencies(text: _Text, rank: pl.Series, operations: pl.DataFrame) -> pl.DataFrame:
    """Return the numbers of operations that wait and are waited for, and whether for a start."""
    lines = text.table["text"]
    found = (
        pl.DataFrame({"rank": rank, "text": lines})
        .with_row_index("row")
        .filter(lines.str.contains(_DEPENDENCY))
        .with_columns(pl.col("text").str.extract_groups(_DEPENDENCY).alias("group"))
        .drop("text")
        .unnest("group")
    )
    labels = operations.filter(operations["label"].is_not_null()).select("rank", "label", "number")
    for name in ("waiting", "awaited"):
        found = found.join(
            labels.rename({"label": name, "number": f"{name}_number"}), on=["rank", name],
            how="left", maintain_order="left",
        )  # fmt: skip
        unknown = found[f"{name}_number"].is_null()
        what = "{} names a label that its rank does not have"
        text.add(unknown, what, "name an operation of this rank", found["row"])
    text.fail_if_wrong()
    return found.select(
        pl.col("waiting_number").cast(pl.Int64).alias("waiting"),
        pl.col("awaited_number").cast(pl.Int64).alias("awaited"), pl.col("early") != "",
    )  # fmt: skip


def encode(program: MessageProgram) -> Iterator[bytes]:
    """Write a program, a piece for each rank. O(operations + dependencies)."""
    yield f"num_ranks {program.num_ranks}\n".encode()
    rows = np.column_stack([
        program.action, program.size, program.peer, program.tag, program.cpu, program.interface,
    ])  # fmt: skip
    order = np.argsort(program.waiting, kind="stable")
    waiting, awaited = program.waiting[order], program.awaited[order]
    at_start = program.at_start[order]
    bounds = np.searchsorted(waiting, program.first)
    for rank in range(program.num_ranks):
        base, stop = int(program.first[rank]), int(program.first[rank + 1])
        lines = [f"\nrank {rank} {{"]
        lines += [_line(k, row) for k, row in enumerate(rows[base:stop].tolist(), 1)]
        chosen = slice(bounds[rank], bounds[rank + 1])
        pairs = zip(
            (waiting[chosen] - base + 1).tolist(), (awaited[chosen] - base + 1).tolist(),
            at_start[chosen].tolist(), strict=True,
        )  # fmt: skip
        lines += [f"l{a} {'i' if early else ''}requires l{b}" for a, b, early in pairs]
        yield ("\n".join([*lines, "}"]) + "\n").encode()


def _line(number: int, row: list[int]) -> str:
    action, size, peer, tag, cpu, interface = row
    if action == Action.COMPUTE:
        return f"l{number}: calc {size}" + (f" cpu {cpu}" if cpu else "")
    what = f"send {size}b to" if action == Action.SEND else f"recv {size}b from"
    where = (f" cpu {cpu}" if cpu else "") + (f" nic {interface}" if interface else "")
    return f"l{number}: {what} {peer} tag {tag}{where}"


def is_goal(path: Path | str) -> bool:
    """Return whether a file's name is that of a GOAL file: ``.goal``, or ``.goal.gz``."""
    return str(path).removesuffix(".gz").endswith(".goal")


def read_goal(path: Path | str) -> MessageProgram:
    """Read a program of messages from a GOAL file, which may be compressed.

    Raises
    ------
    InputError
        If it cannot be read, or is not GOAL; the message has the line.
    """
    return goal_text.decode(read_file(locate(path)))


def write_goal(program: MessageProgram, path: Path | str, *, overwrite: bool = False) -> None:
    """Write a program of messages as a GOAL file, compressed if the name ends in .gz.

    Raises
    ------
    InputError
        If the file exists already, or cannot be written.
    """
    target = locate(path)
    check_target(target, [], overwrite=overwrite)
    write_pieces(target, goal_text.encode(program))
