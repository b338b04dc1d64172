"""Dumps as PyTorch's flight recorder writes them, of jobs whose culprit is known."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["Job", "dump_of"]

_START = 1_700_000_000_000_000_000


class Job:
    """A job whose ranks call collectives; what a rank does not call is what the test says."""

    def __init__(self, groups: Mapping[str, Sequence[int]]) -> None:
        self.groups = {name: list(ranks) for name, ranks in groups.items()}
        self.size = 1 + max(rank for ranks in self.groups.values() for rank in ranks)
        self.entries: dict[int, list[dict[str, Any]]] = {rank: [] for rank in range(self.size)}
        self.numbers: dict[tuple[int, str], int] = {}
        self.clock = _START

    def call(
        self, group: str, operation: str = "all_reduce", *, ranks: Sequence[int] | None = None,
        state: str = "completed", size: int = 8, late: Mapping[int, int] | None = None,
        is_p2p: bool = False,
    ) -> None:  # fmt: skip
        """Let ranks of a group call a collective, by default all members."""
        self.clock += 1_000_000
        for rank in self.groups[group] if ranks is None else ranks:
            key = rank, ("p2p " if is_p2p else "") + group
            self.numbers[key] = number = self.numbers.get(key, 0) + 1
            self.entries[rank].append({
                "record_id": len(self.entries[rank]), "pg_id": list(self.groups).index(group),
                "process_group": (group, "default_pg" if group == "0" else f"the group {group}"),
                "collective_seq_id": 0 if is_p2p else number,
                "p2p_seq_id": number if is_p2p else 0, "op_id": number,
                "profiling_name": f"nccl:{operation}", "time_created_ns": self.clock + rank * 100
                + (late or {}).get(rank, 0), "input_sizes": [[size]], "input_dtypes": ["Float"],
                "output_sizes": [[size]], "output_dtypes": ["Float"], "state": state,
                "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
                "retired": state == "completed", "timeout_ms": 600000, "is_p2p": is_p2p,
                "frames": [{"name": "step", "filename": "train.py", "line": 7}],
            })  # fmt: skip

    def dumps(self) -> dict[int, dict[str, Any]]:
        """Give the dump of each rank."""
        return {rank: dump_of(entries, self.groups) for rank, entries in self.entries.items()}

    def write(self, folder: Path, *, without: Sequence[int] = (), as_json: bool = False) -> Path:
        """Write the dumps of all ranks but some."""
        folder.mkdir(exist_ok=True)
        for rank, dump in self.dumps().items():
            if rank not in without:
                content = json.dumps(dump).encode() if as_json else pickle.dumps(dump, 2)
                (folder / f"nccl_trace_rank_{rank}").write_bytes(content)
        return folder


def dump_of(entries: list[dict[str, Any]], groups: Mapping[str, list[int]]) -> dict[str, Any]:
    """Give a dump with some entries, and the state of the groups in them."""
    status: dict[str, dict[str, int]] = {}
    for entry in entries:
        if not entry["is_p2p"]:
            of = status.setdefault(str(entry["pg_id"]), {
                "last_enqueued_collective": 0, "last_started_collective": 0,
                "last_completed_collective": 0})  # fmt: skip
            of["last_enqueued_collective"] = entry["collective_seq_id"]
            if entry["state"] == "completed":
                of["last_completed_collective"] = entry["collective_seq_id"]
    return {
        "version": "2.10", "comm_lib_version": "2.27.3",
        "pg_config": {name: {"name": name, "desc": "", "ranks": str(ranks)}
                      for name, ranks in groups.items()},
        "pg_status": status, "entries": entries, "nccl_comm_state": {},
    }  # fmt: skip
