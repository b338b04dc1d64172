"""How nccl-tests counts the bytes of a collective, and what its bus bandwidth is."""

from __future__ import annotations

__all__ = ["nccl_tests_factors"]

_IN_PARTS = ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter")


def nccl_tests_factors(comm_type: str, members: int) -> tuple[int, float]:
    """Return the factors that make algbw and busbw of the bytes that a member contributes.

    Parameters
    ----------
    comm_type
        ``comm_type`` of the nodes table, such as ``all_gather``.
    members
        How many ranks take part.

    Returns
    -------
    whole
        A member's bytes times this is the size of nccl-tests: the larger of a member's input and
        output.
    bus
        Algbw times this is busbw; 0 for types that have none.

    Notes
    -----
    Source: nccl-tests, doc/PERFORMANCE.md.
    """
    n = max(members, 1)
    whole = n if comm_type in ("all_gather", "gather") else 1
    if comm_type == "all_reduce":
        return whole, 2 * (n - 1) / n
    if comm_type in ("broadcast", "reduce"):
        return whole, 1.0
    return whole, (n - 1) / n if comm_type in _IN_PARTS else 0.0
