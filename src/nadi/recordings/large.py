"""Device traces for analyses: as much of each as the analyses need, and memory has room for."""

from collections.abc import Sequence
from pathlib import Path

from nadi.errors import InputError
from nadi.files.files import available_memory, is_local, read_head
from nadi.files.kineto.kineto_columns import read_columns
from nadi.files.kineto.kineto_trace import looks_like as is_bare_list
from nadi.files.trace_files import read, sniff
from nadi.recordings.discover import find_files
from nadi.trace.trace import Trace

_LARGE = 1 << 29  # bytes of content
_SMALL = 1 << 27  # a process takes about a second to start
_LIKELY_RATIO = 20  # of content to gzip
_GZIP_MAGIC = b"\x1f\x8b"
# memory by content, as benchmarks/large_recordings.py measures it
_WHOLE = 3.4
_LINKED = 5.0
_COLUMNS_OF_HOSTS = 1.1
_CHOOSE = "choose a part of it, with --step or --window of the command line"


def are_large(paths: Sequence[Path | str]) -> bool:
    """Tell whether some device trace of a recording has half a GiB of events or more."""
    return any(content_of(file) >= _LARGE for file in find_files(list(paths)).devices)


def are_small(devices: Sequence[Path]) -> bool:
    """Tell whether device traces are read sooner than processes for it have started."""
    return all(map(is_local, devices)) and sum(map(content_of, devices)) < _SMALL


def read_what_is_needed(
    file: Path, *, operators: bool, arguments: bool, launches: bool, at_once: int = 1
) -> Trace:
    """Read a device trace; of one with half a GiB of events or more, what analyses need.

    Such a file is read as a whole only if arguments of its events are needed. What does not fit
    into memory is not read, and the issues of the trace say so.

    - ``operators``: Whether events of hosts are needed that are neither annotations nor calls which
      launch.
    - ``arguments``: Whether arguments of events are needed, or events that are no operations.
    - ``launches``: Whether calls are needed that launch work.
    - ``at_once``: How many files are read at the same time.
    - Raises InputError if it cannot be read.
    """
    content = content_of(file)
    if content < _LARGE or not _is_kineto_object(file):
        return read(file)
    room = available_memory() / at_once
    if arguments and content * _WHOLE < room:
        return read(file)
    hosts = (operators or arguments) and content * _COLUMNS_OF_HOSTS < room
    return read_columns(file, hosts=hosts, launches=launches)


def check_room(paths: Sequence[Path | str]) -> None:
    """Check that a job can be linked as a whole, as far as the size of its files tells.

    - Raises InputError if memory is too small.
    """
    sizes = [content_of(file) for file in find_files(list(paths)).devices]
    needed = sum(sizes) * _LINKED
    if max(sizes, default=0) >= _LARGE and needed > (room := available_memory()):
        raise InputError(
            "", f"linking {sum(sizes) / 1e9:.1f} GB of events takes about {needed / 1e9:.0f} GB of "
            f"memory, and {room / 1e9:.1f} GB are available", _CHOOSE,
        )  # fmt: skip


def _is_kineto_object(file: Path) -> bool:
    """Tell whether a file is a Kineto trace that can be read in pieces."""
    found = sniff(file)
    return found is not None and found.name == "kineto" and not is_bare_list(read_head(file))


def content_of(file: Path) -> int:
    """Estimate the bytes of a file's content."""
    if not is_local(file):
        return 0
    with file.open("rb") as opened:
        is_gzip = opened.read(2) == _GZIP_MAGIC
    return file.stat().st_size * (_LIKELY_RATIO if is_gzip else 1)
