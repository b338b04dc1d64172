"""The tables that analyses and simulations give."""

from __future__ import annotations

import polars as pl

from nadi.model.tables.declaration import Column, Table

__all__ = [
    "COLLECTIVE_TIMES",
    "LINKS",
    "LIVE_MEMORY",
    "RANK_TIMES",
    "SCHEDULE",
]

_INT = pl.Int64
_NAME = pl.Categorical()

SCHEDULE = Table(
    "schedule",
    "when one operation ran, or would run, and what it waited for",
    (
        Column("rank", _INT, "global rank"),
        Column("node", _INT, "the operation", references="nodes row of that rank"),
        Column("start", _INT, "start since the job's first event", "ns"),
        Column("end", _INT, "end since the job's first event", "ns"),
        Column("resource", pl.Categorical(), "thread or stream that it ran on"),
        Column("bound_by", pl.String, "kind of the dependency that set its start", missing=""),
        Column("bound_rank", _INT, "rank of the operation waited for", missing=-1),
        Column("bound_node", _INT, "the operation waited for", missing=-1,
               references="nodes row of bound_rank"),
    ),
)  # fmt: skip

LINKS = Table(
    "links",
    "one link of a simulated network, one way",
    (
        Column("dimension", _INT, "dimension of the network"),
        Column("kind", pl.Categorical(), "ring or mesh: to a neighbour; direct: of a dimension "
               "that is fully connected; to switch, from switch"),
        Column("src", _INT, "rank that it leads from; of a link from a switch that of none",
               missing=-1),
        Column("dst", _INT, "rank that it leads to; of a link to a switch that of none",
               missing=-1),
        Column("bytes", _INT, "what it carried", "bytes"),
        Column("busy", _INT, "time in which it sent these bytes, one after the other", "ns"),
        Column("utilisation", pl.Float64, "that time by the time of the job; above 1 only without "
               "congestion, where collectives share a link without being slower"),
        Column("peak_queue", _INT, "how many messages waited for it at most, with congestion",
               missing=-1),
    ),
)  # fmt: skip

RANK_TIMES = Table(
    "rank_times",
    "one rank of a simulated job, and what it did until it had finished",
    (
        Column("rank", _INT, "global rank"),
        Column("finish", _INT, "when it had finished", "ns"),
        Column("computing", _INT, "computation was under way", "ns"),
        Column("transferring", _INT, "no computation was, and bytes of sends, receives or "
               "collectives were: communication past its waiting", "ns"),
        Column("accessing", _INT, "none of these was, and remote memory served the rank", "ns"),
        Column("hosting", _INT, "none of these was, and the host worked", "ns"),
        Column("other", _INT, "none of these was, and a node of another kind was under way", "ns"),
        Column("awaiting_members", _INT, "nothing was under way but waiting: it was in a "
               "collective whose last member had not entered", "ns"),
        Column("awaiting_sender", _INT, "nothing but waiting, not of the former kind: a receive "
               "whose send had not been issued", "ns"),
        Column("awaiting_receiver", _INT, "nothing but waiting, not of the former kinds: with "
               "rendezvous, a send whose receive had not been issued", "ns"),
        Column("awaiting_memory", _INT, "nothing but waiting, not of the former kinds: remote "
               "memory served others", "ns"),
        Column("idle", _INT, "no node was under way", "ns"),
        Column("host", _INT, "the host worked, whatever else was under way", "ns"),
        Column("communicating", _INT, "communication was under way, waiting or not", "ns"),
        Column("exposed", _INT, "communication was under way, waiting or not, and no "
               "computation", "ns"),
        Column("overlapped", _INT, "both were under way", "ns"),
        Column("blocked", _INT, "some node was ready and its slot was not free, whatever was "
               "under way", "ns"),
    ),
)  # fmt: skip

COLLECTIVE_TIMES = Table(
    "collective_times",
    "one collective of a simulated job",
    (
        Column("type", _NAME, "what it does, as comm_type of the nodes"),
        Column("algorithm", _NAME, "that of each of its phases, in order, the same ones once",
               missing=""),
        Column("group", _NAME, "its process group; empty for all ranks", missing=""),
        Column("number", _INT, "which of its group's collectives it is, from 0"),
        Column("members", _INT, "number of ranks that take part"),
        Column("bytes", _INT, "bytes that each member gives", "bytes"),
        Column("first_entry", _INT, "when the first member entered it", "ns"),
        Column("last_entry", _INT, "when the last member did", "ns"),
        Column("last_rank", _INT, "the member that entered last; of several the lowest rank"),
        Column("end", _INT, "when the last member had done its part", "ns"),
        Column("time", _INT, "from the last entry to the end", "ns"),
        Column("waiting", _INT, "from its own entry to the last one, or to its own end if that "
               "comes first, summed over members", "ns"),
        Column("bandwidth", pl.Float64, "algorithm bandwidth: bytes of the larger of a member's "
               "input and output, by time", "GB/s", missing=-1.0),
        Column("bus_bandwidth", pl.Float64, "the same times the part of it that has to pass a "
               "member's links, as nccl-tests define it", "GB/s", missing=-1.0),
        Column("bound", pl.Float64, "least time that the links allow for the bytes of its phases, "
               "without any latency", "ns", missing=-1.0),
        Column("fraction", pl.Float64, "bound by time", missing=-1.0),
    ),
)  # fmt: skip

LIVE_MEMORY = Table(
    "live_memory",
    "what the live tensors of a simulated rank take on one device at most",
    (
        Column("rank", _INT, "global rank"),
        Column("device", _NAME, "where they are, such as cuda:0", missing=""),
        Column("peak", _INT, "largest sum of the sizes of live storages", "bytes"),
        Column("at", _INT, "when it is first reached", "ns"),
        Column("storages", _INT, "number of storages that nodes of the rank use"),
    ),
)  # fmt: skip
