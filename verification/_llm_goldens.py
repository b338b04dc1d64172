"""What the programs that compare generated language models share: goldens, and tables of nodes."""

from __future__ import annotations

import gzip
import json
from typing import Any

import polars as pl
from _report import SHARED

import nadi
from nadi.models import LanguageModel

__all__ = ["collectives", "flops_of", "golden", "product_flops", "stage_nodes"]


def golden(folder: str, file: str) -> list[dict[str, Any]]:
    """Read the records of a golden file."""
    content = json.loads(gzip.decompress((SHARED / "golden" / folder / file).read_bytes()))
    records: list[dict[str, Any]] = content["records"] if isinstance(content, dict) else content
    return records


def stage_nodes(model: LanguageModel | str, stage: int = 0, **plan: Any) -> pl.DataFrame:
    """Make a job, and give the nodes of a rank of one stage.

    Columns: ``name``, ``type`` of the collective, ``role`` of its group, ``flops``, ``bytes`` of
    communication, and ``op_class`` and ``phase`` of computations.
    """
    trace = list(dict.fromkeys(nadi.llm_job(model, **plan).traces))[stage]
    roles = dict(enumerate(trace.groups["name"].to_list()))
    nodes = trace.nodes
    return nodes.select(
        pl.col("name").cast(pl.String),
        pl.col("comm_type").cast(pl.String).alias("type"),
        pl.col("group").replace_strict(roles, default="", return_dtype=pl.String).alias("role"),
        "flops",
        pl.col("comm_bytes").alias("bytes"),
        pl.Series("op_class", _texts(trace, "op_class")),
        pl.col("phase").cast(pl.String),
    )


def _texts(trace: nadi.Trace, name: str) -> list[str]:
    """Give an attribute that is text of every node, empty where a node has none."""
    attributes = trace.attributes_without_operands
    found, of_place = [""] * trace.nodes.height, {}
    for row in attributes.rows_named(name).tolist():
        place = int(attributes.value[row])  # equal texts are stored once
        if place not in of_place:
            of_place[place] = str(attributes.python_value(row))
        found[int(attributes.node[row])] = of_place[place]
    return found


def flops_of(nodes: pl.DataFrame, pattern: str) -> int:
    """Sum the FLOPs of nodes whose whole name matches a pattern."""
    return int(nodes.filter(pl.col("name").str.contains(f"^(?:{pattern})$"))["flops"].sum())


def product_flops(nodes: pl.DataFrame, phase: str = ".*") -> int:
    """Sum the FLOPs of matrix products."""
    chosen = (pl.col("op_class") == "gemm") & pl.col("phase").str.contains(f"^(?:{phase})$")
    return int(nodes.filter(chosen)["flops"].sum())


def collectives(
    nodes: pl.DataFrame, pattern: str, comm_type: str, role: str, phase: str, ranks: int = 1
) -> tuple[int, int]:
    """Sum the bytes of collectives whose name begins with a pattern, in a phase, and count them.

    An ``all_gather`` states what a rank contributes: ``ranks`` of them are the whole tensor.
    """
    chosen = nodes.filter(
        (pl.col("type") == comm_type) & (pl.col("role") == role) & (pl.col("phase") == phase)
        & pl.col("name").str.contains(f"^(?:{pattern})")
    )  # fmt: skip
    times = ranks if comm_type == "all_gather" else 1
    return times * int(chosen["bytes"].sum()), chosen.height
