"""Every format that Nadi reads or writes: its name, its suffixes, and which module knows it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from nadi.errors import Parameter, UsageError

__all__ = ["FORMATS", "READABLE_SUFFIXES", "Format", "format_for_writing", "format_named"]


@dataclass(frozen=True)
class Format:
    """One format that Nadi reads or writes.

    Attributes
    ----------
    name
        As ``nadi convert --to`` has it.
    title
        What it is, for people.
    suffixes
        The first is given to new files; ``.gz`` may follow each.
    decoder, encoder
        Module and function in :mod:`nadi.formats`; empty if it is not read, or not written.
    """

    name: str
    title: str
    suffixes: tuple[str, ...]
    decoder: str = ""
    encoder: str = ""

    def decode(self, *arguments: Any) -> Any:
        """Call the decoder; imports what only this format needs."""
        return _function(self.decoder)(*arguments)

    def encode(self, *arguments: Any, **options: Any) -> Any:
        """Call the encoder; imports what only this format needs."""
        return _function(self.encoder)(*arguments, **options)


def _function(place: str) -> Callable[..., Any]:
    module, _, name = place.rpartition(".")
    found: Callable[..., Any] = getattr(import_module(f"nadi.formats.{module}"), name)
    return found


FORMATS = (
    Format("nadi", "Nadi's own file", (".nadi",), "native.read", "native.encode"),
    Format("chakra", "Chakra execution trace", (".et",), "chakra.et_decode.decode",
           "chakra.et_encode.encode"),
    Format("chakra-json", "Chakra trace as JSON", (".json",), "chakra.chakra_json.decode",
           "chakra.chakra_json.encode"),
    Format("linked-json", "host trace with device work, as chakra_trace_link writes it",
           (".linked.json",), "", "pytorch.linked_json.encode"),
    Format("pytorch", "PyTorch execution trace", (".json",), "pytorch.execution_trace.decode"),
    Format("kineto", "Kineto trace", (".trace.json", ".chrome.json"), "kineto.kineto_trace.decode",
           "timeline.chrome.encode"),
    Format("astra-text", "ASTRA-sim text workload", (".txt",), "astra_text.decode"),
    Format("perfetto", "Perfetto trace", (".pftrace", ".perfetto-trace"), "",
           "timeline.perfetto.encode"),
    Format("graphml", "GraphML", (".graphml",), "", "drawing.graphml.encode"),
    Format("dot", "Graphviz text", (".dot", ".gv"), "", "drawing.graphviz.encode"),
    Format("svg", "drawing of the graph", (".svg",), "", "drawing.graphviz.encode_svg"),
    Format("pdf", "drawing of the graph", (".pdf",), "", "drawing.graphviz.encode_pdf"),
    Format("csv", "a CSV file per table", (".csv",), "", "csv_tables.encode_table"),
)  # fmt: skip

_BY_NAME = {one.name: one for one in FORMATS}
READABLE_SUFFIXES = tuple(
    suffix + compressed
    for one in FORMATS
    if one.decoder
    for suffix in one.suffixes
    for compressed in ("", ".gz")
)


def format_named(name: str) -> Format:
    """Give the format of a name.

    Raises
    ------
    UsageError
        If there is none; it lists those that there are.
    """
    if name not in _BY_NAME:
        raise UsageError(
            Parameter("to", name), "there is no such format", f"there are {', '.join(_BY_NAME)}"
        )
    return _BY_NAME[name]


def format_for_writing(path: Path, to: str = "") -> Format:
    """Choose the format of a file to write, by name or else by the file's suffix.

    Raises
    ------
    UsageError
        If neither tells one that can be written; it lists those that can.
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
            "the suffix names no format",
            [f"use one of {suffixes}, or ", Parameter("to")],
        )
    # .linked.json is more than .json
    return max(fitting, key=lambda f: max(len(s) for s in f.suffixes if name.endswith(s)))
