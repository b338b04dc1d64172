"""The tables that analyses and simulations give."""

import polars as pl

from nadi.trace.categories import ROLE_SOURCES, TENSOR_ROLES
from nadi.trace.tables.trace_tables import Column, Table

_INT = pl.Int64
_NAME = pl.String

SCHEDULE = Table(
    "schedule",
    "one operation: when it ran, measured or predicted, and which dependency set its start",
    (
        Column("rank", _INT, "global rank"),
        Column("node", _INT, "the operation", references="nodes row of that rank"),
        Column("start", _INT, "start since the job's first event", "ns"),
        Column("end", _INT, "end since the job's first event", "ns"),
        Column("resource", _NAME, "thread or stream on which it ran"),
        Column("bound_by", pl.String, "kind of the dependency that set its start", missing=""),
        Column("bound_rank", _INT, "rank of the operation that set its start", missing=-1),
        Column("bound_node", _INT, "the operation that set its start", missing=-1,
               references="nodes row of bound_rank"),
    ),
)  # fmt: skip

LINKS = Table(
    "links",
    "one link of a simulated network, in one direction",
    (
        Column("dimension", _INT, "dimension of the network"),
        Column("kind", _NAME, "ring or mesh: to a neighbor; direct: in a fully "
               "connected dimension; to switch, from switch: between a rank and a switch"),
        Column("src", _INT, "rank that sends; missing for a link from a switch",
               missing=-1),
        Column("dst", _INT, "rank that receives; missing for a link to a switch",
               missing=-1),
        Column("bytes", _INT, "bytes that it carried", "bytes"),
        Column("busy", _INT, "time that it takes to send these bytes one after the other", "ns"),
        Column("utilization", pl.Float64, "busy divided by the time of the job; exceeds 1 only by "
               "ASTRA-sim's rules, where messages do not slow each other down"),
        Column("peak_queue", _INT, "largest number of queued messages, with congestion",
               missing=-1),
    ),
)  # fmt: skip

LINK_USE = Table(
    "link_use",
    "one physical link of a simulated network, or of memory, in one direction, that carried "
    "anything",
    (
        Column("link", pl.String, "its name, as network.links of a system and network_graph "
               "have it; of memory the tier or path, whose it is, and .read or .write, but of "
               "devices that both share"),
        Column("bandwidth", pl.Float64, "what it can carry; of devices that reads and writes "
               "share, of such a mixture", "GB/s"),
        Column("bytes", _INT, "bytes that it carried", "bytes"),
        Column("utilization", pl.Float64, "the time that these bytes take on it, divided by the "
               "time of the job; exceeds 1 only by ASTRA-sim's rules, where transfers do not slow "
               "each other down"),
        Column("full", _INT, "for how long it was full, so that it kept transfers from being "
               "faster; missing where transfers share no links", "ns", missing=-1),
        Column("users", pl.List(pl.String), "who used it, most bytes first: collectives by type "
               "and process group, messages from rank to rank, loads and stores by tier"),
        Column("user_bytes", pl.List(_INT), "the bytes of each of them", "bytes"),
    ),
)  # fmt: skip

JOB_TIMES = Table(
    "job_times",
    "one of several jobs that were simulated on one machine at the same time",
    (
        Column("job", pl.String, "its name"),
        Column("ranks", pl.List(_INT), "the rank of the machine that each of its ranks is"),
        Column("finish", _INT, "when its last rank finished", "ns"),
        Column("alone", _INT, "the same if all other ranks of the machine are idle", "ns"),
        Column("slowdown", pl.Float64, "finish divided by alone"),
    ),
)  # fmt: skip

RANK_TIMES = Table(
    "rank_times",
    "one rank of a simulated job, and how it spent its time until it finished",
    (
        Column("rank", _INT, "global rank"),
        Column("finish", _INT, "when it finished", "ns"),
        Column("computing", _INT, "computation was running", "ns"),
        Column("transferring", _INT, "no computation was running, and sends, receives or "
               "collectives transferred data", "ns"),
        Column("accessing", _INT, "none of the above, and remote memory or a memory tier "
               "served the rank", "ns"),
        Column("hosting", _INT, "none of the above, and the host was working", "ns"),
        Column("other", _INT, "none of the above, and a node of another kind was running", "ns"),
        Column("awaiting_members", _INT, "none of the above, and the rank waited in a collective "
               "for the last member to enter", "ns"),
        Column("awaiting_sender", _INT, "none of the above, and a receive waited for its send "
               "to be issued", "ns"),
        Column("awaiting_receiver", _INT, "none of the above, and, with rendezvous, a send waited "
               "for its receive to be issued", "ns"),
        Column("awaiting_memory", _INT, "none of the above, and the rank waited for remote "
               "memory that served other ranks, or for links to memory that others used", "ns"),
        Column("idle", _INT, "no node was running", "ns"),
        Column("host", _INT, "the host was working, whatever else was running", "ns"),
        Column("communicating", _INT, "communication was running, including its wait time", "ns"),
        Column("exposed", _INT, "communication was running, including its wait time, and "
               "no computation was", "ns"),
        Column("overlapped", _INT, "communication and computation were running", "ns"),
        Column("blocked", _INT, "a node was ready and its slot was not free, whatever else was "
               "running", "ns"),
    ),
)  # fmt: skip

COLLECTIVE_TIMES = Table(
    "collective_times",
    "one collective of a simulated job",
    (
        Column("type", _NAME, "type of the collective, as comm_type of the nodes"),
        Column("algorithm", _NAME, "algorithm of each phase, in order, without repetitions",
               missing=""),
        Column("group", _NAME, "its process group; empty for all ranks", missing=""),
        Column("number", _INT, "its number among the collectives of its group, from 0"),
        Column("members", _INT, "number of ranks that take part"),
        Column("bytes", _INT, "bytes that each member contributes", "bytes"),
        Column("first_entry", _INT, "when the first member entered it", "ns"),
        Column("last_entry", _INT, "when the last member entered it", "ns"),
        Column("last_rank", _INT, "the straggler: the member that entered last; of "
               "several the lowest rank"),
        Column("end", _INT, "when the last member finished its part", "ns"),
        Column("time", _INT, "from the last entry to the end", "ns"),
        Column("waiting", _INT, "wait time: from a member's entry to the last entry, or to its own "
               "end if that is earlier, summed over members", "ns"),
        Column("bandwidth", pl.Float64, "algbw: the larger of a member's input and output, "
               "divided by time", "GB/s", missing=-1.0),
        Column("bus_bandwidth", pl.Float64, "busbw: algbw times the fraction of the data that "
               "crosses a member's links, as nccl-tests define it", "GB/s", missing=-1.0),
        Column("bound", pl.Float64, "least time in which the links can carry the bytes of its "
               "phases, without latency", "ns", missing=-1.0),
        Column("fraction", pl.Float64, "efficiency: bound divided by time", missing=-1.0),
        Column("copies", _INT, "how many collectives the row stands for: those of other ranks "
               "that run at the same time in the same way, and this one", missing=1),
    ),
)  # fmt: skip

LIVE_MEMORY = Table(
    "live_memory",
    "the peak memory of the live tensors of a simulated rank on one device",
    (
        Column("rank", _INT, "global rank"),
        Column("device", _NAME, "device of the tensors, such as cuda:0", missing=""),
        Column("peak", _INT, "largest sum of the sizes of live storages", "bytes"),
        Column("at", _INT, "when the peak is first reached", "ns"),
        Column("storages", _INT, "number of storages that nodes of the rank use"),
    ),
)  # fmt: skip

TIER_TRAFFIC = Table(
    "tier_traffic",
    "one memory of a tier, and what a simulated job read from it and wrote to it",
    (
        Column("tier", _NAME, "name of the tier"),
        Column("memory", _INT, "which of the tier's memories, in order of the ranks that have it"),
        Column("loads", _INT, "number of loads"),
        Column("stores", _INT, "number of stores"),
        Column("bytes_read", _INT, "bytes that loads read", "bytes"),
        Column("bytes_written", _INT, "bytes that stores wrote", "bytes"),
        Column("busy", _INT, "time with a load or store under way", "ns"),
        Column("waiting", _INT, "queueing: how much longer its loads and stores took than alone, "
               "in all", "ns"),
        Column("utilization", pl.Float64, "time in which its devices can move these bytes, divided "
               "by the time of the job", missing=-1.0),
    ),
)  # fmt: skip

TIER_USE = Table(
    "tier_use",
    "one memory of a tier in one part of the time of a simulated job",
    (
        Column("tier", _NAME, "name of the tier"),
        Column("memory", _INT, "which of the tier's memories"),
        Column("start", _INT, "where the part begins", "ns"),
        Column("end", _INT, "where it ends", "ns"),
        Column("bytes_read", _INT, "bytes read in it", "bytes"),
        Column("bytes_written", _INT, "bytes written in it", "bytes"),
        Column("utilization", pl.Float64, "time in which the devices can move these bytes, divided "
               "by that of the part; above 1 only as the bytes of an access are taken to move "
               "evenly", missing=-1.0),
        Column("latency", pl.Float64, "latency of an access under this load, by the tier's curve",
               "ns"),
    ),
)  # fmt: skip

TIER_WAITS = Table(
    "tier_waits",
    "one operation of a simulated job that waited for a load or store",
    (
        Column("rank", _INT, "global rank"),
        Column("node", _INT, "the operation", references="nodes row of that rank"),
        Column("name", _NAME, "its name"),
        Column("tier", _NAME, "tier of the load or store that ended last"),
        Column("waiting", _INT, "time from when nothing else kept it from starting to the end of "
               "that load or store", "ns"),
    ),
)  # fmt: skip

TENSOR_LIVES = Table(
    "tensor_lives",
    "one life of a storage: memory of a tensor from its making to its last use, in the ranks that "
    "share a trace",
    (
        Column("trace", _INT, "which of the different traces of the job"),
        Column("storage", _INT, "number of the storage in the trace; a freed one may be made anew"),
        Column("bytes", _INT, "its size", "bytes"),
        Column("role", pl.Enum(TENSOR_ROLES), "what it is for"),
        Column("source", pl.Enum(ROLE_SOURCES), "stated: by what generated the trace; inferred: "
               "from its uses"),
        Column("begin", _INT, "when it is made; 0 if it was there before", "ns"),
        Column("end", _INT, "when its last use ends", "ns"),
        Column("is_before", pl.Boolean, "whether it was there before the trace, and stays"),
        Column("first_use", _INT, "the operation that uses it first", references="nodes row"),
        Column("last_use", _INT, "the operation that uses it last", references="nodes row"),
        Column("uses", _INT, "number of operations that use it"),
        Column("read", _INT, "bytes that operations read of it", "bytes"),
        Column("written", _INT, "bytes that operations write of it", "bytes"),
        Column("reuse", _INT, "reuse distance: bytes that operations read and write between two "
               "of its uses, on average; of what stays, from its last use to its first one, too",
               "bytes"),
        Column("loaded", _INT, "bytes that are loaded to a device, if it lives elsewhere",
               "bytes"),
        Column("stored", _INT, "bytes that are stored from a device, if it lives elsewhere",
               "bytes"),
    ),
)  # fmt: skip

WAITS = Table(
    "waits",
    "one dependency of a part of a job on an operation outside: the moment is no sooner than "
    "after_ns after at_ns",
    (
        Column("rank", _INT, "global rank in the whole job"),
        Column("node", _INT, "the operation of the part: position in traceEvents of a device "
               "trace, else id"),
        Column("name", pl.String, "its name"),
        Column("moment", pl.Enum(("start", "end")), "which of its moments waits"),
        Column("at_ns", _INT, "when what it waits for occurred, since the epoch", "ns"),
        Column("after_ns", _INT, "least time after that", "ns"),
        Column("kind", pl.String, "kind of the dependency, as in the event graph"),
        Column("waits_for", pl.String, "name of the operation outside; empty for a collective "
               "with members outside", missing=""),
        Column("of_rank", _INT, "its rank", missing=-1),
    ),
)  # fmt: skip

PART_TENSORS = Table(
    "part_tensors",
    "one tensor that a part of a job gets from outside, or leaves for operations outside",
    (
        Column("rank", _INT, "global rank in the whole job"),
        Column("is_output", pl.Boolean, "whether the part leaves it"),
        Column("storage_id", _INT, "id of its storage"),
        Column("tensor_id", _INT, "its id in the execution trace"),
        Column("dtype", pl.String, "type of its elements as recorded", missing=""),
        Column("shape", pl.List(_INT), "its size in each dimension"),
        Column("device", pl.String, "its device, such as cuda:0", missing=""),
        Column("bytes", _INT, "bytes of its elements", "bytes"),
        Column("node", _INT, "the operation of the part that reads it first, or has it as an "
               "output last; as in waits"),
        Column("name", pl.String, "name of that operation"),
        Column("outside", pl.String, "the operation outside that had it as an output before, or "
               "reads it next", missing=""),
    ),
)  # fmt: skip
