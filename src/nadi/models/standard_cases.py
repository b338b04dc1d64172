"""Small jobs of one kind of node each, to test a simulator: Chakra's fourteen, and more.

Chakra's ``chakra_generator`` writes the first fourteen. What differs here:

- Node ids begin at 0 in every case and are the same on all ranks, where its own go on counting
  from rank to rank and from case to case.
- Sends and receives state ranks, tag and size, and match: rank 0 has the other end of each. Its own
  have only a ``tensor_size``, so that a simulator waits forever.
- Collectives with a root state it; all nodes state ``category``, all traces rank and world size.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from nadi.errors import InputError, Parameter, UsageError
from nadi.files.files import locate
from nadi.models.job_builder import JobBuilder
from nadi.models.job_files import JobFiles, check_place, write_job
from nadi.models.rank_program import BuiltNode
from nadi.trace.protobuf_values import VALUE_TYPES

_COLLECTIVE_BYTES = 65_536
_BYTES = 1_024
_DURATION = 5_000  # ns
_SCHEMA = "1.0.0"
_LEAST_RANKS = 2
_MOST_RANKS = 4_096
# of each type, as in Chakra's generator: a value, and a list of values
_TEXTS = [str(number) for number in range(12345, 12355)]
_WORDS = 12345, [12345, 23456]
_LONG_WORDS = 9876543210, [9876543210, 1234567890]
_SIGNED = -12345, [12345, -23456]
_LONG_SIGNED = -9876543210, [9876543210, -1234567890]
_FRACTIONS = 1.2345, [1.2345, 2.3456]
_VALUES: Mapping[str, tuple[Any, list[Any]]] = {
    "double": _FRACTIONS, "float": _FRACTIONS, "int32": _WORDS, "int64": _LONG_WORDS,
    "uint32": _WORDS, "uint64": _LONG_WORDS, "sint32": _SIGNED, "sint64": _LONG_SIGNED,
    "fixed32": _WORDS, "fixed64": _LONG_WORDS, "sfixed32": _SIGNED, "sfixed64": _LONG_SIGNED,
    "bool": (True, [True, False] * 5), "string": (_TEXTS[0], _TEXTS),
    "bytes": (_TEXTS[0].encode(), [text.encode() for text in _TEXTS]),
}  # fmt: skip
# whose value has a comment, as there: the name of the type
_COMMENTED = (
    "double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "bool", "string",
)  # fmt: skip


def _state(node: BuiltNode, type_name: str) -> None:
    """Give a node an attribute of a type, which is named like it."""
    value = _VALUES[type_name.removesuffix("_list")][type_name.endswith("_list")]
    node.attribute(type_name, value, type_name, type_name if type_name in _COMMENTED else "")


def _metadata_of_all_types(job: JobBuilder) -> None:
    node = job.all_ranks.metadata("METADATA_NODE")
    for type_name in VALUE_TYPES:
        _state(node, type_name)


def _attribute_types(job: JobBuilder) -> None:
    for type_name in VALUE_TYPES:
        _state(job.all_ranks.compute("COMP_NODE", duration=_DURATION), type_name)


def _load(job: JobBuilder) -> None:
    job.all_ranks.load("MEM_LOAD_NODE", _BYTES)


def _store(job: JobBuilder) -> None:
    job.all_ranks.store("MEM_STORE_NODE", _BYTES)


def _compute(job: JobBuilder) -> None:
    job.all_ranks.compute("COMP_NODE", duration=_DURATION)


def _independent(job: JobBuilder) -> None:
    for _ in range(2):
        job.all_ranks.unordered.compute("COMP_NODE", duration=_DURATION)


def _dependent(job: JobBuilder) -> None:
    for _ in range(2):
        job.all_ranks.compute("COMP_NODE", duration=_DURATION)


def _collective(comm_type: str, name: str) -> Callable[[JobBuilder], None]:
    size = None if comm_type == "barrier" else _COLLECTIVE_BYTES

    def write(job: JobBuilder) -> None:
        job.all_ranks.collective(comm_type, size, name=name)

    return write


def _sends(job: JobBuilder) -> None:
    """Let every rank but the first have one send, and the first the receives."""
    first, *others = job.ranks
    for rank in others:
        rank.send(0, _BYTES, name="COMM_SEND_NODE")
        first.unordered.recv(rank.number, _BYTES, name="COMM_RECV_NODE")


def _receives(job: JobBuilder) -> None:
    """Let every rank but the first have one receive, and the first the sends."""
    first, *others = job.ranks
    for rank in others:
        first.unordered.send(rank.number, _BYTES, name="COMM_SEND_NODE")
        rank.recv(0, _BYTES, name="COMM_RECV_NODE")


def _ring(job: JobBuilder) -> None:
    """Let every rank send to the next, and receive from the one before."""
    for rank in job.ranks:
        rank.unordered.send((rank.number + 1) % job.world_size, _BYTES, name="COMM_SEND_NODE")
        rank.unordered.recv((rank.number - 1) % job.world_size, _BYTES, name="COMM_RECV_NODE")


def _groups(job: JobBuilder) -> None:
    """Let each half of the ranks reduce by itself, and then all together."""
    middle = (job.world_size + 1) // 2
    for number, ranks in enumerate((range(middle), range(middle, job.world_size)), 1):
        group = job.group(str(number), ranks)
        together = job.together(ranks)
        together.collective("all_reduce", _COLLECTIVE_BYTES, group=group, name="ALL_REDUCE")
        together.collective("all_reduce", _COLLECTIVE_BYTES, name="ALL_REDUCE")


_WRITERS: dict[str, Callable[[JobBuilder], None]] = {
    "one_metadata_node_all_types": _metadata_of_all_types,
    "one_remote_mem_load_node": _load,
    "one_remote_mem_store_node": _store,
    "one_comp_node": _compute,
    "two_comp_nodes_independent": _independent,
    "two_comp_nodes_dependent": _dependent,
    "ALL_REDUCE": _collective("all_reduce", "ALL_REDUCE"),
    "ALL_TO_ALL": _collective("all_to_all", "ALL_TO_ALL"),
    "ALL_GATHER": _collective("all_gather", "ALL_GATHER"),
    "REDUCE_SCATTER": _collective("reduce_scatter", "REDUCE_SCATTER"),
    "BROADCAST": _collective("broadcast", "BROADCAST"),
    "BARRIER": _collective("barrier", "BARRIER"),
    "one_comm_send_node": _sends,
    "one_comm_recv_node": _receives,
    "REDUCE": _collective("reduce", "REDUCE"),
    "GATHER": _collective("gather", "GATHER"),
    "SCATTER": _collective("scatter", "SCATTER"),
    "send_recv_ring": _ring,
    "process_groups": _groups,
    "one_comp_node_per_attribute_type": _attribute_types,
}
CASES: Mapping[str, str] = MappingProxyType({
    "one_metadata_node_all_types": "a metadata node with an attribute of each type",
    "one_remote_mem_load_node": "a load of 1,024 bytes from remote memory",
    "one_remote_mem_store_node": "a store of 1,024 bytes to remote memory",
    "one_comp_node": "a computation of 5 us",
    "two_comp_nodes_independent": "two computations, without a dependency",
    "two_comp_nodes_dependent": "two computations, the second after the first",
    "ALL_REDUCE": "a collective of 65,536 bytes",
    "ALL_TO_ALL": "a collective of 65,536 bytes",
    "ALL_GATHER": "a collective of 65,536 bytes",
    "REDUCE_SCATTER": "a collective of 65,536 bytes",
    "BROADCAST": "a collective of 65,536 bytes, from rank 0",
    "BARRIER": "a barrier",
    "one_comm_send_node": "each rank sends 1,024 bytes to rank 0, which receives them",
    "one_comm_recv_node": "each rank receives 1,024 bytes from rank 0, which sends them",
    "REDUCE": "a collective of 65,536 bytes, to rank 0",
    "GATHER": "a collective of 65,536 bytes, to rank 0",
    "SCATTER": "a collective of 65,536 bytes, from rank 0",
    "send_recv_ring": "each rank sends 1,024 bytes to the next, and receives from the one before",
    "process_groups": "an all-reduce of each half of the ranks, then of all",
    "one_comp_node_per_attribute_type": "30 computations, each with an attribute of one type",
})  # fmt: skip


def cases(folder: Path | str, ranks: int = 2, *, overwrite: bool = False) -> dict[str, JobFiles]:
    """Write small jobs, each of one kind of node; ``docs/generate.md`` lists them.

    Parameters
    ----------
    folder
        A folder or address. Each case becomes ``FOLDER/CASE/CASE.<rank>.et`` for each rank, and
        ``FOLDER/CASE/comm_group.json``.
    ranks
        Number of ranks, 2 to 4,096.
    overwrite
        Whether existing files are replaced.

    Returns
    -------
    dict
        The files of each case, by name.

    Raises
    ------
    UsageError
        If the number of ranks is out of range.
    InputError
        If a file exists already, or cannot be written. Nothing is written if one exists.
    """
    if not _LEAST_RANKS <= ranks <= _MOST_RANKS:
        raise UsageError(
            Parameter("ranks", ranks), f"there must be {_LEAST_RANKS} to {_MOST_RANKS:,} ranks",
            "choose another number",
        )  # fmt: skip
    place = locate(folder)
    if place.is_file():
        raise InputError(str(place), "is a file, but each case becomes a folder", "name a folder")
    for name in _WRITERS:
        check_place(place / name, name, ranks, overwrite=overwrite)
    found = {}
    for name, write in _WRITERS.items():
        with JobBuilder(ranks) as job:
            write(job)
        found[name] = write_job(
            job.job, place / name, name=name, schema=_SCHEMA, overwrite=overwrite
        )
    return found
