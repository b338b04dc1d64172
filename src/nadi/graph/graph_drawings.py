"""The event graph of a recording as a drawing, from files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from nadi.errors import Parameter, UsageError
from nadi.files.addresses import check_target, locate
from nadi.files.files import check_writable, write_beside
from nadi.graph.drawing import DrawnPart, condensed, find_operation, neighborhood
from nadi.graph.load_graph import load_graph
from nadi.graph.part_drawings import SUFFIXES, encode_part

__all__ = ["draw_graph"]


def draw_graph(
    paths: Sequence[Path | str],
    target: Path | str,
    *,
    operation: str = "",
    around: str = "",
    hops: int = 2,
    overwrite: bool = False,
    progress: Callable[[str], None] = lambda _: None,
) -> DrawnPart:
    """Draw what depends on an operation and what it depends on, or the whole job by module.

    Parameters
    ----------
    paths
        Folders or files, as in :func:`nadi.load_job`.
    target
        A ``.svg``, ``.dot``, ``.graphml`` or ``.pdf`` file.
    operation
        A regular expression; the part is drawn around the first operation whose name has it.
    around
        Instead, the id of an operation, or ``RANK:ID``.
    hops
        How many edges from that operation.
    overwrite
        Whether to replace an existing file.
    progress
        Called with a line of text before each longer stage.

    Returns
    -------
    DrawnPart
        What is drawn; its ``note`` says what is condensed or left out.

    Raises
    ------
    InputError
        If a file cannot be read or written, or Graphviz is needed and missing.
    UsageError
        If there is no such operation, or the target's suffix is another one.
    """
    place = locate(target)
    _check(place, operation, around)
    check_target(place, [locate(path) for path in paths], overwrite=overwrite)
    check_writable(place)
    graph = load_graph(paths, progress)
    progress("choosing what is drawn")
    if operation or around:
        op, which = find_operation(graph, operation, around)
        part = neighborhood(graph, op, hops, which)
    else:
        part = condensed(graph)
    content = encode_part(part.nodes, part.edges, place.suffix, part.note)
    with write_beside(place) as file:
        file.write(content)
    return part


def _check(place: Path, operation: str, around: str) -> None:
    """Refuse what cannot be drawn before files are read."""
    if place.suffix not in SUFFIXES:
        raise UsageError(str(place), "is no drawing of a graph",
                         f"give a name that ends in {', '.join(SUFFIXES)}")  # fmt: skip
    if operation and around:
        raise UsageError(
            [Parameter("around"), ", ", Parameter("operation")],
            "both are given",
            "give one of them",
        )
