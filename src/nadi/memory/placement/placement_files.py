"""Files of a placed job: where tensors live, and the plan of a generated job."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nadi.errors import FormatError
from nadi.estimates.estimate_files import read_plan_fields
from nadi.files.files import read_settings
from nadi.files.settings_text import decode_json
from nadi.recordings.jobs import read_job
from nadi.trace.trace import Job, Trace
from nadi.units import lowered

__all__ = ["PLAN_SUFFIXES", "read_job_or_plan", "read_placement"]

PLAN_SUFFIXES = (".toml", ".yaml", ".yml")
_COLUMNS = ("tensor", "tier")


def read_placement(path: Path | str) -> dict[str, str]:
    """Read where tensors live: from a role or a tensor (``0:17``) to the name of a tier.

    A CSV file has the columns ``tensor`` and ``tier``, and others are not read; a JSON file has an
    object.

    Raises
    ------
    InputError
        If it cannot be read, or has another form.
    """
    path = Path(path)
    content = read_settings(path)
    remedy = 'write {"optimizer": "cxl"}, or a CSV file with the columns tensor and tier'
    if path.suffix == ".json":
        return decode_json(content, dict[str, str], str(path), remedy)
    try:
        rows = list(csv.DictReader(io.StringIO(content.decode())))
    except (ValueError, csv.Error) as error:
        raise FormatError(str(path), lowered(str(error)), remedy) from None
    if not rows or not set(_COLUMNS) <= set(rows[0]):
        raise FormatError(
            str(path), "it has no columns tensor and tier, or no rows",
            "write a row such as optimizer,cxl below tensor,tier",
        )  # fmt: skip
    return {row["tensor"] or "": row["tier"] or "" for row in rows}


def read_job_or_plan(
    path: str, progress: Callable[[str], None] = lambda _: None
) -> Job | list[Trace] | dict[str, Any]:
    """Read a job to simulate, or the fields of a plan: a table with ``model`` and how it is run.

    Raises
    ------
    InputError
        As :func:`nadi.recordings.read_job`, or if a plan does not say of which model.
    """
    if Path(path).suffix not in PLAN_SUFFIXES:
        return read_job(path, progress)
    fields = read_plan_fields(path)
    if not fields or not isinstance(fields.get("model"), str):
        raise FormatError(path, "it states no model", 'such as model = "llama3-8b"')
    return fields
