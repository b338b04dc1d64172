"""Traces whose attributes do not restate their columns, as those that are made in code."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import polars as pl

from nadi.files.chakra.chakra_attributes import NAMES_OF_COLUMNS
from nadi.trace.attributes import LazyAttributes
from nadi.trace.provenance import Provenance
from nadi.trace.trace import Trace

__all__ = ["plain_trace"]

_ON_HOST = "is_cpu_op"


def plain_trace(trace: Trace) -> Trace:
    """Return a trace of a Chakra file without attributes that restate columns.

    Where a node runs is a column then, too: in such a file it is on the host only if it says so.
    Other traces stay as they are.
    """
    sources = trace.provenance.sources
    if not (sources and sources[0].format.startswith("Chakra")):
        return trace
    given = trace.attributes
    stated = np.zeros(trace.nodes.height, dtype=np.bool_)
    stated[trace.given_attributes.nodes_with(_ON_HOST)] = True
    on_host = trace.nodes["is_cpu"].to_numpy() & stated
    restating = [k for k, name in enumerate(given.names) if name in NAMES_OF_COLUMNS]
    kept = given.filtered(~np.isin(given.name, restating))
    return replace(
        trace,
        nodes=trace.nodes.with_columns(is_cpu=pl.Series(on_host)),
        provenance=Provenance(trace.provenance.nadi_version, ()),
        given_attributes=LazyAttributes(lambda: kept),
    )
