"""The rules of an estimate as far as programs differ: Calculon's by name, and Nadi's own."""

from __future__ import annotations

from typing import NamedTuple

from nadi.errors import Parameter, UsageError

__all__ = ["CALCULON", "DEFAULT", "EstimateRules", "rules_named"]


class EstimateRules(NamedTuple):
    """What an estimate does where one can do otherwise; True is what Calculon does.

    Attributes
    ----------
    recomputed_sums_are_cumulative
        Each layer that is computed again counts all flops and bytes of the block up to it, and
        not its own alone. The time of recomputing is right; flops, bytes and their times, which
        the overlap of data parallelism uses, are not.
    exposed_time_is_of_base_block
        Of layers that overlap their communication, the edge block exposes what the base block
        does, although it does another operation under ``p2p_rs_ag``.
    lone_stage_has_latency
        A pipeline of one stage still spends a point-to-point latency at each edge block, where
        the overlap of offloading and of data parallelism looks at it.
    checkpoints_are_whole
        With full recomputation each rank keeps whole inputs of blocks, also where sequence
        parallelism splits them.
    blocks_of_calculon
        A model is equal blocks of Calculon's layers, without embedding, head and loss, and stages
        are equal; else it is what ``nadi generate llm`` generates, and the rules above and
        below have no effect.
    compute_slows_once
        Communication of data parallelism that overlaps with the last chunk slows the computing
        of one block, whatever the number of blocks.
    """

    recomputed_sums_are_cumulative: bool = True
    exposed_time_is_of_base_block: bool = True
    lone_stage_has_latency: bool = True
    checkpoints_are_whole: bool = True
    compute_slows_once: bool = True
    blocks_of_calculon: bool = True


CALCULON = EstimateRules()
DEFAULT = EstimateRules(*(False for _ in EstimateRules._fields))


def rules_named(compat: str) -> EstimateRules:
    """Give the rules of another program, or the default for an empty name.

    Raises
    ------
    UsageError
        If there is no such program.
    """
    known = {"": DEFAULT, "calculon": CALCULON}
    if compat not in known:
        raise UsageError([Parameter("compat", compat)], "no such rules", "known: calculon")
    return known[compat]
