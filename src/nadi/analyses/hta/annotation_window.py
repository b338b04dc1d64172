"""The events that HTA's critical path covers: those of an annotation, or all.

The rules are numbered W1 to W3 as in ``docs/critical-path.md``.
"""

from __future__ import annotations

import re

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError

__all__ = ["Instance", "clip_events"]

Instance = int | tuple[int, int]
_SHOWN = 12  # annotations listed where one is not found
_NUMBER = re.compile(r"\d+")


def clip_events(events: pl.DataFrame, annotation: str, instance: Instance) -> pl.DataFrame:
    """Return the events of the chosen instances of an annotation, in order of their index.

    Parameters
    ----------
    events
        As :func:`nadi.analyses.hta.parsing.parse_events` gives them.
    annotation
        Text that the name contains; an empty text selects the whole trace.
    instance
        Number of the instance among the events with such a name, from 0; or the first and
        the last of several, both included.

    Raises
    ------
    UsageError
        If the annotation or instance does not exist; the message lists existing ones.
    """
    begin, end = _window(events, annotation, instance)
    stream = events["stream"].to_numpy()
    start = events["start"].to_numpy()
    in_window = (start >= begin) & (start <= end) & (events["duration"].to_numpy() > 0)
    host = (stream == -1) & in_window
    launched = np.isin(events["index"].to_numpy(), events["partner"].to_numpy()[host])
    waits = (events["name"] == "Stream Wait Event").to_numpy()
    return events.filter(host | ((stream != -1) & (launched | waits))).sort("index")


def _window(events: pl.DataFrame, annotation: str, instance: Instance) -> tuple[int, int]:
    """W1: from the first start to the last end of the chosen instances, in ns."""
    first, last = instance if isinstance(instance, tuple) else (instance, instance)
    chosen = events
    if annotation:
        found = events.filter(pl.col("name").str.contains(annotation, literal=True))
        if found.is_empty():
            raise UsageError(
                Parameter("annotation", annotation), "no event name contains this text",
                f"annotations in the trace: {_listed(events)}",
            )  # fmt: skip
        chosen = found.slice(first, max(last + 1 - first, 0)) if first >= 0 else found.clear()
        if chosen.is_empty() or last >= found.height:
            names = ", ".join(
                f"{number} ({name})" for number, name in enumerate(found["name"].head(_SHOWN))
            )
            more = f" and {found.height - _SHOWN} more" if found.height > _SHOWN else ""
            raise UsageError(
                Parameter("instance"), f"{annotation!r} has no instance {_text(instance)}",
                f"instances: {names}{more}",
            )  # fmt: skip
    start, duration = chosen["start"].to_numpy(), chosen["duration"].to_numpy()
    return int(start.min()), int((start + duration).max())


def _text(instance: Instance) -> str:
    return f"{instance[0]}:{instance[1]}" if isinstance(instance, tuple) else str(instance)


def _listed(events: pl.DataFrame) -> str:
    """List annotations; names that differ only in a number appear once."""
    names = events.filter(pl.col("category") == "annotation")["name"]
    alike: dict[str, str] = {}
    for name in names.unique(maintain_order=True):
        alike.setdefault(_NUMBER.sub("0", name), name)
    shown = list(alike.values())[:_SHOWN]
    more = f" and {len(alike) - _SHOWN} more" if len(alike) > _SHOWN else ""
    return (", ".join(map(repr, shown)) or "no annotations at all") + more
