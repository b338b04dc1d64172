"""What tensors are for: weights, gradients, optimizer state, activations, KV cache, prefixes.

Generated traces state it. Elsewhere it follows from the phases of a step in which operations read
and write a tensor:

- there before, used by the optimizer and by forward or backward: ``weights``;
- there before, used by the optimizer alone, or made by it: ``optimizer``;
- written in the backward, and read by the optimizer: ``gradients``; also what is there before and
  written in the backward alone (buckets), and what a collective of the backward reduces to
  gradients;
- there before and only read: ``weights``, if the trace has no optimizer, and the elements are not
  integers of 8 bytes; else ``other`` (inputs);
- there before and written in a trace without a backward: ``kv``;
- there before and only read, by operations that each write a ``kv``: ``prefix``;
- there before and used by rows alone: ``tables``, or ``optimizer`` if no forward looks them up;
- made from weights alone (gathered or cast): ``weights``;
- made otherwise: ``activations``, with their gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.memory.operation_accesses import Accesses
from nadi.trace.ancestors import nearest
from nadi.trace.arrays import Bools, Ints
from nadi.trace.schema import TENSOR_ROLES
from nadi.trace.trace import Trace

__all__ = ["UsedLives", "inferred_roles", "phases_of", "update_accesses"]

FORWARD, BACKWARD, OPTIMIZER = range(3)
_PHASE = {"backward": BACKWARD, "optimizer": OPTIMIZER}  # what is recomputed is forward
_WEIGHTS, _GRADIENTS, _STATE, _ACTIVATIONS, _KV, _OTHER, _PREFIX, _TABLES = range(len(TENSOR_ROLES))
_STEP = r"(?i)^Optimizer\.step|^optimizer[._]step"
_BACKWARD = r"^autograd::engine::evaluate_function|Backward\d*$|^torch::autograd::"


class UsedLives(NamedTuple):
    """What is known of lives of storages before their roles; arrays of shape (lives,).

    Attributes
    ----------
    is_before
        bool: whether it was there before.
    is_word
        bool: whether its elements have 8 bytes.
    of_access
        int64, shape (accesses,): the life that each access is of.
    """

    is_before: Bools
    is_word: Bools
    of_access: Ints


def phases_of(trace: Trace) -> Ints:
    """Return the phase of a step that each row belongs to; int64, shape (nodes,).

    0 forward, 1 backward, 2 optimizer: as the trace states it, or by what operations are nested in.
    """
    stated = trace.nodes["phase"]
    if (stated != "").any():
        names = stated.cast(pl.String)
        found = names.replace_strict(_PHASE, default=FORWARD, return_dtype=pl.Int64)
        return found.to_numpy().astype(np.int64)
    every, parent = np.arange(trace.nodes.height), trace.column("parent")
    phase = np.zeros(trace.nodes.height, dtype=np.int64)
    phase[nearest(every, parent, trace.name_mask(_BACKWARD)) >= 0] = BACKWARD
    phase[nearest(every, parent, trace.name_mask(_STEP)) >= 0] = OPTIMIZER
    return phase


def inferred_roles(trace: Trace, accesses: Accesses, lives: UsedLives) -> Ints:
    """Return the role of each life as its uses show it: positions in ``schema.TENSOR_ROLES``.

    Parameters
    ----------
    trace
        That states operands.
    accesses
        Of it.

    Returns
    -------
    int64, shape (lives,)
        O(accesses).
    """
    phase = phases_of(trace)
    of_access = phase[accesses.row]
    size = lives.is_before.size
    reads, writes = np.zeros((2, 3, size), dtype=np.bool_)
    for flags, chosen in ((reads, accesses.reads), (writes, accesses.writes)):
        flags[of_access[chosen], lives.of_access[chosen]] = True
    uses = reads | writes
    before = lives.is_before
    model, optimizer = uses[FORWARD] | uses[BACKWARD], uses[OPTIMIZER]
    written = writes.any(axis=0)
    has_backward, has_optimizer = (phase == BACKWARD).any(), (phase == OPTIMIZER).any()
    role = np.full(size, _ACTIVATIONS)
    role[before] = _OTHER
    if not has_backward:
        role[before & written] = _KV
    if not has_optimizer:
        kept = before & ~written & ~lives.is_word
        role[kept] = _WEIGHTS
        role[kept & _only_with_caches(trace, accesses, lives, role)] = _PREFIX
    role[before & ~optimizer & writes[BACKWARD]] = _GRADIENTS
    role[optimizer & ~model] = _STATE
    role[before & optimizer & model] = _WEIGHTS
    by_rows = before & (np.bincount(lives.of_access, accesses.width == 0, minlength=size) == 0)
    role[by_rows] = np.where(uses[FORWARD], _TABLES, _STATE)[by_rows]
    # also where its buffer stays from step to step
    gradients = writes[BACKWARD] & reads[OPTIMIZER] & ~reads[FORWARD]
    role[gradients & ~by_rows] = _GRADIENTS
    _add_copies(trace, accesses, lives, role)
    return role


def update_accesses(trace: Trace, accesses: Accesses, role: Ints) -> Accesses:
    """Return accesses where updates from states with copies of weights do not read the weights.

    They are operations that state fewer bytes than their tensors have, read and written.

    Parameters
    ----------
    role
        int64, shape (accesses,): of each one's tensor.
    """
    height = trace.nodes.height
    changed = accesses.reads & accesses.writes
    moved = (accesses.end - accesses.begin) * (accesses.reads + accesses.writes.astype(np.int64))
    total = np.bincount(accesses.row, moved, minlength=height)
    states = np.bincount(accesses.row, changed & (role == _STATE), minlength=height)
    stated = trace.column("bytes")
    is_update = (stated >= 0) & (stated < total) & (states > 0)
    copied = changed & (role == _WEIGHTS) & is_update[accesses.row]
    return accesses._replace(reads=accesses.reads & ~copied)


def _only_with_caches(trace: Trace, accesses: Accesses, lives: UsedLives, role: Ints) -> Bools:
    """Return which lives are used only by operations that write a KV cache."""
    writes_cache = np.zeros(trace.nodes.height, dtype=np.bool_)
    writes_cache[accesses.row[accesses.writes & (role[lives.of_access] == _KV)]] = True
    found = np.ones(role.size, dtype=np.bool_)
    found[lives.of_access[~writes_cache[accesses.row]]] = False
    return found


def _add_copies(trace: Trace, accesses: Accesses, lives: UsedLives, role: Ints) -> None:
    """Find what is made from weights alone, and what a collective reduces to gradients."""
    size = trace.nodes.height

    def rows_with(chosen: Bools) -> Bools:
        found = np.zeros(size, dtype=np.bool_)
        found[accesses.row[chosen]] = True
        return found

    of_access = role[lives.of_access]
    # what an operation gives, it may be given as well
    given = accesses.reads & ~accesses.writes
    from_weights = rows_with(given & (of_access == _WEIGHTS))
    from_weights &= ~rows_with(given & (of_access != _WEIGHTS))
    copied = accesses.writes & (of_access == _ACTIVATIONS)
    # each use that writes it is a copy
    is_copy = np.zeros(role.size, dtype=np.bool_)
    is_copy[lives.of_access[copied & from_weights[accesses.row]]] = True
    is_copy[lives.of_access[copied & ~from_weights[accesses.row]]] = False
    reduces = (trace.nodes["kind"] == "COMM_COLL").to_numpy()
    reduces &= rows_with(accesses.writes & (of_access == _GRADIENTS))
    given_to = accesses.reads & (of_access == _ACTIVATIONS) & reduces[accesses.row]
    role[lives.of_access[given_to]] = _GRADIENTS
    role[is_copy] = _WEIGHTS
