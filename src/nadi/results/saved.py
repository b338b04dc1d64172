"""Results that a command wrote as JSON, such as ``summary.json``, read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from nadi.errors import FormatError
from nadi.files.files import read_file, read_head
from nadi.files.settings_text import decode_json
from nadi.files.trace_files import sniff

RESULT_FILES = ("summary.json", "critical_path.csv", "timeline.json.gz")
"""Names of files that commands write beside each other."""
RESULT_KINDS: dict[str, tuple[str, frozenset[str]]] = {
    "run": ("nadi run", frozenset({"critical_path_by_kind", "verdict"})),
    "what_if": ("nadi what-if", frozenset({"changes", "ideals"})),
    "simulation": ("nadi simulate", frozenset({"makespan_ns", "per_rank"})),
    "estimate": ("nadi estimate", frozenset({"seconds", "tier1_bytes", "times"})),
    "search": ("nadi search", frozenset({"executions", "feasible", "best"})),
    "waits": ("nadi waits", frozenset({"bottlenecks", "knots"})),
    "fold": ("nadi fold", frozenset({"classes", "kept_nodes"})),
    "similarity": ("nadi similarity", frozenset({"measures", "reference_system"})),
    "placement": ("nadi memory place", frozenset({"each_role_alone", "with_tiers_ns"})),
    "second_tier": ("nadi memory plan", frozenset({"pays_from_gbps", "without"})),
    "serving": ("nadi serve", frozenset({"output_tokens_per_second", "latencies", "bound_by"})),
    "server_sweep": ("nadi serve --sweep", frozenset({"fields", "points"})),
    "server_search": ("nadi serve --search", frozenset({"without_tiers", "has_tiers"})),
}
"""Of each kind of results, the command that writes it, and keys that no other has."""
_MAX_SIZE = 1 << 30
_MOST = 1 << 63


class SavedSummary(NamedTuple):
    """Results that were read again."""

    kind: str  # one of ``RESULT_KINDS``
    data: Any  # its content: an object, of ``second_tier`` a list of objects


def read_summary(path: Path | str) -> SavedSummary | None:
    """Read results from a file, or from a folder with a ``summary.json``.

    Returns
    -------
    SavedSummary or None
        None if the file is something else, such as a trace.

    Raises
    ------
    FormatError
        If a ``summary.json`` in a folder is no JSON, or not of Nadi.
    """
    place = Path(path)
    is_folder = place.is_dir()
    if is_folder:
        place = place / RESULT_FILES[0]
    if not place.is_file() or place.suffix != ".json" or place.stat().st_size > _MAX_SIZE:
        return None
    if read_head(place, 64).lstrip()[:1] not in (b"{", b"[") or sniff(place) is not None:
        return None
    remedy = "write it again with nadi run -o"
    try:
        found: Any = decode_json(bytes(read_file(place).content), object, str(place), remedy)
        if not _is_plain(found):
            raise FormatError(str(place), "a number has over 63 bits", remedy)
    except FormatError:
        if not is_folder:
            return None  # readers of traces say what is wrong
        raise
    first = found[0] if isinstance(found, list) and found else found
    if isinstance(first, dict):
        for kind, (_, keys) in RESULT_KINDS.items():
            if keys <= first.keys() and isinstance(found, list) == (kind == "second_tier"):
                return SavedSummary(kind, found)
    if is_folder:
        raise FormatError(
            str(place), "is not a summary of Nadi", "write it again with nadi run -o FOLDER"
        )
    return None


def _is_plain(value: Any) -> bool:
    """Return whether all whole numbers within are those that Nadi writes: of 64 bits."""
    if isinstance(value, dict):
        return all(map(_is_plain, value.values()))
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return not isinstance(value, int) or abs(value) < _MOST
