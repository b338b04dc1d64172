"""Whether two paths are two recordings, or parts of one."""

from __future__ import annotations

import re
from pathlib import Path

from nadi.files.addresses import locate
from nadi.recordings.discover import RANK_IN_NAME, list_files, peek

__all__ = ["are_two_recordings"]


def are_two_recordings(first: Path | str, second: Path | str) -> bool:
    """Return whether each path is a recording by itself, with a device trace of the same rank.

    Ranks are those that the traces state. Where one states none, two files are one recording if
    their names differ in numbers only, such as ``device_0.json`` and ``device_1.json``, and two
    folders if their names have a rank, such as ``rank_0`` and ``rank_1``. A host and a device
    trace are one recording.

    Raises
    ------
    InputError
        If a path does not exist, or has no trace.
    """
    places = locate(first), locate(second)
    devices = [list_files([place]).devices for place in places]
    if not all(devices):
        return False
    sides = [[peek(file) for file in files] for files in devices]
    if all(one.rank >= 0 for side in sides for one in side):
        ranks = [{one.rank for one in side} for side in sides]
        return bool(ranks[0] & ranks[1])
    if all(place.is_dir() for place in places):
        return not all(RANK_IN_NAME.search(place.name) for place in places)
    names = {place.name for place in places}
    alike = {re.sub(r"\d+", "0", name) for name in names}
    return len(names) == 1 or len(alike) == 2
