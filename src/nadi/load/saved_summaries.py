"""Results that a command wrote as JSON, such as ``summary.json``, read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from nadi.errors import FormatError
from nadi.formats.files import read_file, read_head
from nadi.load.discover import RESULT_FILES

__all__ = ["read_summary"]

# what the objects of `nadi run`, `nadi what-if` and `nadi simulate` have, and no trace
_MARKS = ({"critical_path_by_kind", "verdict"}, {"changes", "ideals"}, {"makespan_ns", "per_rank"})
_MAX_SIZE = 1 << 30


def read_summary(path: Path | str) -> dict[str, Any] | None:
    """Read results from a file, or from a folder with a ``summary.json``.

    Returns
    -------
    dict or None
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
    if not read_head(place, 64).lstrip().startswith(b"{"):
        return None
    try:
        found = msgspec.json.decode(bytes(read_file(place).content))
    except msgspec.DecodeError as error:
        if not is_folder:
            return None  # readers of traces say what is wrong
        raise FormatError(
            str(place), f"is not JSON: {error}", "write it again with nadi run -o"
        ) from None
    if isinstance(found, dict) and any(marks <= found.keys() for marks in _MARKS):
        return found
    if is_folder:
        raise FormatError(
            str(place), "is not a summary of Nadi", "write it again with nadi run -o FOLDER"
        )
    return None
