"""Read measured tables of collectives, and NCCL's logs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from nadi.errors import UsageError
from nadi.files.files import read_file
from nadi.systems.nccl.measured import MeasuredCollective, parse_nccl_tests
from nadi.systems.nccl.nccl_log import NcclLog, parse_nccl_log

__all__ = ["read_measured_collectives", "read_nccl_log"]


def read_measured_collectives(paths: Sequence[Path | str]) -> tuple[MeasuredCollective, ...]:
    """Read outputs of nccl-tests, one collective, number of ranks and number of nodes each.

    Raises
    ------
    InputError
        If a file cannot be read, or is no such output.
    UsageError
        If two are of the same collective, ranks and nodes.
    """
    tables: dict[tuple[str, int, int], MeasuredCollective] = {}
    for path in paths:
        table = parse_nccl_tests(bytes(read_file(Path(path)).content), str(path))
        key = table.collective, table.ranks, table.nodes
        if key in tables:
            raise UsageError(
                str(path),
                f"{table.collective} of {table.ranks} ranks on {table.nodes} nodes is also in "
                f"{tables[key].name}", "give one of the two",
            )  # fmt: skip
        tables[key] = table
    return tuple(tables.values())


def read_nccl_log(path: Path | str) -> NcclLog:
    """Read a log that NCCL printed.

    Raises
    ------
    InputError
        If it cannot be read, or describes no graph.
    """
    return parse_nccl_log(bytes(read_file(Path(path)).content), str(path))
