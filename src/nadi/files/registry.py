"""Every format that Nadi reads or writes: its name, suffixes, and module.

A new format is one file in this package and one line in :data:`FORMATS`:

1. Write ``my_format.py``, or ``my_format/`` if it takes several files, with kernels beside their
   callers (``my_format_kernels.py``).

   - To read it: ``decode(raw: RawFile) -> Trace``. ``raw.content`` has the bytes, already
     decompressed. Build the tables by ``NODES.build`` and ``DEPS.build``, which fill in missing
     columns. Keep values without a column as attributes, record losses and oddities in an
     ``IssueLog``, and raise ``FormatError`` with the place in the file. Nothing is dropped
     silently.
   - To write it: ``encode(trace: Trace, log: IssueLog) -> Iterator[bytes]``, piece by piece. Record
     in the log what the format cannot hold. The caller writes the file atomically and compresses
     it. For a viewer's format, make a ``timeline.Timeline`` of the trace and write that; for a
     drawing of the graph, ``drawing.encode_graph`` needs only the texts.

2. Add its line here, with what identifies it: ``keys`` of JSON, or ``looks_like``.

A format of another package is a :class:`Format` that its entry point ``nadi.formats`` names; its
functions are written as ``package.module:function``. It is asked if no format here fits.

Then ``nadi.read``, ``nadi.write``, ``nadi convert``, folders of files and the documentation
include it. Add a test that a written trace reads back as the same trace (``tests/formats``), and
its name to ``tests/fuzz``. ``astra_sim_text.py`` (reading) and ``drawing/graphml.py`` (writing) are
short examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nadi.errors import InputError, Parameter, UsageError

if TYPE_CHECKING:
    from nadi.files.files import RawFile

SNAPSHOT = "memory-snapshot"
"""The name of PyTorch's memory snapshots: beside the traces of a job they are of its ranks, too."""


@dataclass(frozen=True)
class Format:
    """One format that Nadi reads or writes.

    Attributes
    ----------
    name
        Name for ``nadi convert --to``.
    title
        Description for users.
    suffixes
        File name suffixes; new files get the first. ``.gz`` may follow each.
    decoder, encoder
        Module and function in :mod:`nadi.files`, or ``package.module:function`` of another package;
        empty if it cannot be read, or written.
    keys
        For JSON: it is this format if the object has all keys of one of these sets.
    events
        For a file of another tool that is read as a device trace: a function that gives what it has
        (:class:`nadi.files.kineto.foreign_events.ForeignRecording`).
    looks_like
        A function that recognizes it from the first bytes of a file, if keys do not suffice. For
        formats whose first suffix ends in .json it is called only for JSON, for others never.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    decoder: str = ""
    encoder: str = ""
    keys: tuple[frozenset[str], ...] = ()
    looks_like: str = ""
    events: str = ""

    @property
    def is_device_trace(self) -> bool:
        """Whether its files have the work of devices, and belong to the host trace of a rank."""
        return self.name == "kineto" or bool(self.events)

    def fits(self, head: bytes, keys: frozenset[str] | None) -> bool:
        """Return whether a file may be of this format.

        ``head`` is its first bytes, ``keys`` those of its object, or None if it is not JSON.
        """
        if keys is not None and any(needed <= keys for needed in self.keys):
            return True
        is_json = self.suffixes[0].endswith(".json")
        if not self.looks_like or is_json != (keys is not None):
            return False
        return bool(_function(self.looks_like)(head))

    def decode(self, *arguments: Any) -> Any:
        """Call the decoder; its module is imported on first use."""
        return _function(self.decoder)(*arguments)

    def events_of(self, raw: RawFile) -> RawFile:
        """Return a file as a Kineto trace's JSON, which of a Kineto trace is the file."""
        if not self.events:
            return raw
        from nadi.files.kineto.foreign_events import kineto_content

        return raw.with_content(kineto_content(_function(self.events)(raw), raw))

    def encode(self, *arguments: Any, **options: Any) -> Any:
        """Call the encoder; its module is imported on first use."""
        return _function(self.encoder)(*arguments, **options)


def _function(place: str) -> Callable[..., Any]:
    package, of_other, name = place.partition(":")
    if not of_other:
        module, _, name = place.rpartition(".")
        package = f"nadi.files.{module}"
    found: Callable[..., Any] = getattr(import_module(package), name)
    return found


FORMATS = (
    Format("nadi", "Nadi's own file", (".nadi",), "native.nadi_file.read",
           "native.nadi_file.encode",
           looks_like="native.nadi_file.looks_like"),
    Format("chakra", "Chakra execution trace", (".et",), "chakra.et_decode.decode",
           "chakra.et_encode.encode", looks_like="chakra.et_decode.looks_like"),
    Format("chakra-json", "Chakra trace as JSON", (".json",), "chakra.chakra_json.decode",
           "chakra.chakra_json.encode", looks_like="chakra.chakra_json.looks_like"),
    Format("linked-json", "host trace with device work, as chakra_trace_link writes it",
           (".linked.json",), "", "pytorch.linked_json.encode"),
    Format("kineto", "Kineto trace", (".trace.json", ".chrome.json"), "kineto.kineto_trace.decode",
           "kineto.kineto_encode.encode",
           keys=(frozenset(("schemaVersion",)), frozenset(("traceEvents",))),
           looks_like="kineto.kineto_trace.looks_like"),
    Format("pytorch", "PyTorch execution trace", (".json",), "pytorch.execution_trace.decode",
           keys=(frozenset(("schema", "nodes")),)),
    Format("nsight", "SQLite export of Nsight Systems", (".sqlite",), "nsight.decode",
           looks_like="nsight.looks_like", events="nsight.recording"),
    Format("rocprof", "JSON of rocprofv3", (".json",), "rocprof.decode",
           keys=(frozenset(("rocprofiler-sdk-tool",)),), events="rocprof.recording"),
    Format("xplane", "XPlane of JAX, TensorFlow and torch-xla", (".xplane.pb",), "xplane.decode",
           looks_like="xplane.looks_like", events="xplane.recording"),
    Format(SNAPSHOT, "memory snapshot of PyTorch", (".pickle", ".pkl"),
           "memory_snapshot.decode",
           looks_like="memory_snapshot.looks_like", events="memory_snapshot.recording"),
    Format("astra-text", "ASTRA-sim text workload", (".txt",), "astra_sim_text.decode",
           looks_like="astra_sim_text.looks_like"),
    Format("perfetto", "Perfetto trace (read: of PyTorch's profiler)",
           (".pftrace", ".perfetto-trace"), "pftrace.decode", "timeline.trace_timeline.encode",
           looks_like="pftrace.looks_like", events="pftrace.recording"),
    Format("graphml", "GraphML", (".graphml",), "", "drawing.graphml.encode"),
    Format("dot", "Graphviz text", (".dot", ".gv"), "", "drawing.drawings.encode"),
    Format("svg", "drawing of the graph", (".svg",), "", "drawing.drawings.encode_svg"),
    Format("pdf", "drawing of the graph", (".pdf",), "", "drawing.drawings.encode_pdf"),
    Format("csv", "a CSV file per table", (".csv",), "", "csv_tables.encode_table"),
)  # fmt: skip

_BY_NAME = {one.name: one for one in FORMATS}


def suffixes_of(formats: Iterable[Format]) -> tuple[str, ...]:
    """Return the suffixes of formats that can be read, compressed or not."""
    readable = [suffix for one in formats if one.decoder for suffix in one.suffixes]
    return tuple(suffix + compressed for suffix in readable for compressed in ("", ".gz"))


READABLE_SUFFIXES = suffixes_of(FORMATS)


@cache
def added_formats() -> tuple[Format, ...]:
    """Return the formats of other packages, as their entry points ``nadi.formats`` give them.

    - Raises InputError if one cannot be loaded, is no :class:`Format`, or has the name of another.
    """
    from importlib.metadata import entry_points

    found: dict[str, Format] = {}
    for point in entry_points(group="nadi.formats"):
        try:
            one = point.load()
        except Exception as error:  # whatever another package does
            raise _broken_package(point.value, f"it cannot be loaded: {error!r}"[:300]) from None
        if not isinstance(one, Format):
            raise _broken_package(point.value, f"it is a {type(one).__name__}, not a Format")
        if one.name in _BY_NAME or one.name in found:
            raise _broken_package(point.value, f"there is another format {one.name!r}")
        found[one.name] = one
    return tuple(found.values())


def _broken_package(place: str, what: str) -> InputError:
    return InputError(f"entry point nadi.formats: {place}", what, "update or remove its package")


def format_named(name: str) -> Format:
    """Return the format with a name.

    - Raises UsageError if the name is unknown; the message lists all formats.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    added = {one.name: one for one in added_formats()}
    if name not in added:
        known = ", ".join([*_BY_NAME, *added])
        raise UsageError(Parameter("to", name), "unknown format", f"there are {known}")
    return added[name]


def format_for_writing(path: Path, to: str = "") -> Format:
    """Return the format of a file to write, by name or else by the file's suffix.

    - Raises UsageError if neither identifies a format that can be written; the message lists these
      formats.
    """
    writable = [one for one in FORMATS if one.encoder]
    if to:
        chosen = format_named(to)
        if not chosen.encoder:
            names = ", ".join(one.name for one in writable)
            raise UsageError(
                Parameter("to", to), f"{chosen.title} can only be read", f"there are {names}"
            )
        return chosen
    name = path.name.removesuffix(".gz")
    fitting = [f for f in writable if name.endswith(f.suffixes)]
    if not fitting:
        suffixes = ", ".join(suffix for one in writable for suffix in one.suffixes)
        raise UsageError(
            str(path),
            "unknown suffix",
            [f"use one of {suffixes}, or ", Parameter("to")],
        )
    # .linked.json is more than .json
    return max(fitting, key=lambda f: max(len(s) for s in f.suffixes if name.endswith(s)))
