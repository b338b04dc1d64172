"""Names of communications in PyTorch and its communication libraries."""

import re
from functools import cache

from nadi.trace.collectives import COLLECTIVES

_COMM_KERNEL = re.compile(
    r"(nccl|rccl|msccl|oneccl)\w*kernel|ncclsymk|oneccl_|oneapi::ccl::", re.IGNORECASE
)
# kernels that communicate without NCCL: of serving engines and of expert parallelism
_ALL_REDUCE_KERNEL = re.compile(
    r"\bcross_device_reduce|allreduce_fusion_kernel|quick_?reduce", re.IGNORECASE
)
_OTHER_LIBRARIES = re.compile(
    r"\bdeep_ep::|\bep::(?:internode|intranode)::|nvshmem|mscclpp", re.IGNORECASE
)
_TOLD_BY_CALL = re.compile(r"SendRecv|Generic", re.IGNORECASE)
# NCCL's send and receive name both ranks too, counted within the group: nccl:send 0->1
_HOST_COMM = re.compile(r"^(?:gloo|nccl|mpi|ucc|xccl):(\w+)(?: (\d{1,9})(->|<-)(\d{1,9}))?$")
_NAMES = {name.replace("_", ""): name for name in (*COLLECTIVES, "send", "recv")}
# longest names first: reduce is part of all_reduce and of reduce_scatter; NCCL's barrier is an
# all_reduce of one element, nccl:all_reduce_barrier
_SQUEEZED = sorted(
    (_NAMES | {"sendrecv": "all_to_all"}).items(),
    key=lambda one: (one[1] != "barrier", -len(one[0])),
)


@cache
def comm_type_of_kernel(name: str) -> str:
    """Return the communication that a device kernel performs.

    ``none`` if it performs none, ``other`` if its name does not say which (RCCL's generic kernel,
    the kernels of expert parallelism).
    """
    if _ALL_REDUCE_KERNEL.search(name):
        return "all_reduce"
    if not (_COMM_KERNEL.search(name) or _OTHER_LIBRARIES.search(name)):
        return "none"
    found = comm_type_of_text(name)
    return "other" if found == "none" else found


@cache
def comm_type_of_host(name: str) -> str:
    """Return the communication that an annotation such as ``gloo:all_reduce`` marks."""
    found = _HOST_COMM.match(name)
    return comm_type_of_text(found[1]) if found else "none"


@cache
def is_told_by_call(kernel: str) -> bool:
    """Return whether a kernel serves several communications, so that only its call identifies one.

    NCCL has one kernel for sends and receives, which also implements all_to_all, gather and
    scatter; RCCL has one kernel for all.
    """
    return bool(_TOLD_BY_CALL.search(kernel))


@cache
def ranks_of_host(name: str) -> tuple[int, int]:
    """Return the ranks that send and receive, counted within the group; -1 if not named."""
    found = _HOST_COMM.match(name)
    if not found or found[2] is None:
        return -1, -1
    own, peer = int(found[2]), int(found[4])
    return (own, peer) if found[3] == "->" else (peer, own)


@cache
def comm_type_of_call(name: str) -> str:
    """Return the communication that a call such as ``c10d::allreduce_`` issues."""
    return comm_type_of_text(name.removeprefix("c10d::")) if name.startswith("c10d::") else "none"


def comm_kind(comm_type: str) -> str:
    """Return Chakra's node kind of a communication."""
    return {"none": "COMP", "send": "COMM_SEND", "recv": "COMM_RECV"}.get(comm_type, "COMM_COLL")


@cache
def comm_type_of_text(name: str) -> str:
    """Return the communication that a text names, in any spelling; ``none`` if none."""
    squeezed = name.lower().replace("_", "").replace("-", "")
    return next((comm_type for part, comm_type in _SQUEEZED if part in squeezed), "none")
