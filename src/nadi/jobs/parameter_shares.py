"""How much of a layer's parameters tensor parallel ranks share, and so of its gradients.

Products share their weights. What a layer has beside them (norms, some biases, positions) each rank
has whole; of these, gradients that ranks have in parts are summed in the tensor parallel group,
which tells how many there are.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import polars as pl

from nadi.jobs.class_rows import RowSizes
from nadi.jobs.rank_blocks import RoleNames
from nadi.jobs.shared_sizes import comm_types, is_sharded, of_role
from nadi.trace.arrays import Floats
from nadi.trace.operations import OP_CLASSES
from nadi.trace.trace import Trace

GRADIENT = ".weight_gradient"
"""How names of products end that make the gradients of weights."""

FEW = 8
"""Bytes up to which a sum is one of numbers, such as a norm, and of no gradients."""

_GEMM = OP_CLASSES.index("gemm")
_EMBEDDING = "embedding"
_ITEM_SIZES = (4, 2, 1)  # of gradients, the largest first


class ParameterShares(NamedTuple):
    """By what sizes change that depend on parameters."""

    of_row: Floats  # float64, shape (nodes,): of data parallel communication
    of_stage: float  # of all parameters that are no experts', which the optimizer updates
    parameters: int  # how many these are on a rank


def parameter_shares(
    trace: Trace, sizes: RowSizes, names: RoleNames, share: float, products: Collection[str]
) -> ParameterShares:
    """Return by what the parameters of each layer change, if products have ``share`` of theirs.

    Parameters
    ----------
    products
        Names of those whose weights are shared, in the forward; those of experts are not among
        them.
    """
    text = trace.nodes["name"].cast(pl.String).to_list()
    layer = trace.column("layer").tolist()
    keys = [str(one) if one >= 0 else name.partition(".")[0]
            for one, name in zip(layer, text, strict=True)]  # fmt: skip
    of_optimizer = (trace.nodes["phase"].cast(pl.String) == "optimizer").to_numpy()
    types = comm_types(trace)
    is_sum = np.isin(types, ("all_reduce", "reduce_scatter")) & (sizes.comm_bytes > FEW)
    of_dp = of_role(trace, [names.dp]) if names.dp else np.zeros_like(is_sum)
    gradients = _first_of(text, keys, np.flatnonzero(of_dp & is_sum & ~of_optimizer))
    of_weights = (sizes.work.op_class == _GEMM) & np.array(
        [name.endswith(GRADIENT) and name.removesuffix(GRADIENT) in products for name in text],
        dtype=np.bool_,
    )
    weights: dict[str, int] = {}
    for key, rows in _first_of(text, keys, np.flatnonzero(of_weights)).items():
        weights[key] = sum(int(sizes.work.shape[row, 1:3].prod()) for row in rows)
    tables = np.flatnonzero(of_role(trace, [_EMBEDDING]) & is_sum)
    size = {key: sum(int(sizes.comm_bytes[row]) for row in rows)
            for key, rows in gradients.items()}  # fmt: skip
    itemsize = _item_size(size, weights)
    if _EMBEDDING in size:  # its table is that of the head
        table = int(sizes.comm_bytes[tables[0]]) if tables.size else 0
        weights[_EMBEDDING] = table // itemsize or weights.get("head", size[_EMBEDDING])
    shared = {key: min(whole, weights.get(key, 0) * itemsize) for key, whole in size.items()}
    if "head" in size and shared["head"] == size["head"] and weights.get("head", 0):
        shared["head"] = 0  # the product's weights are those of the embedding
    rest = sum(size[key] - shared[key] for key in size if key != _EMBEDDING)
    sums = np.flatnonzero(of_role(trace, [names.tp]) & is_sum & of_optimizer)
    in_parts = sums.size and is_sharded(trace, [names.tp])
    kept = min(int(sizes.comm_bytes[sums].sum()) / rest, 1.0) if in_parts and rest else 1.0
    new = {
        key: shared[key] * share + (size[key] - shared[key])
        * (1 if key == _EMBEDDING else kept + (1 - kept) * share)
        for key in size
    }  # fmt: skip
    by_key = {key: new[key] / size[key] for key in size}
    whole = sum(new.values()) / sum(size.values()) if size else share
    of_ends = by_key.get(_EMBEDDING, by_key.get("head", whole))
    of_row = np.array([by_key.get(key, of_ends) for key in keys], dtype=np.float64)
    count = sum(size.values()) // itemsize if size else sum(weights.values())
    return ParameterShares(of_row, whole, count)


def _first_of(text: list[str], keys: list[str], rows: np.ndarray) -> dict[str, list[int]]:
    """Return for each key the first row of each name."""
    found: dict[str, dict[str, int]] = {}
    for row in rows.tolist():
        found.setdefault(keys[row], {}).setdefault(text[row], row)
    return {key: list(of_name.values()) for key, of_name in found.items()}


def _item_size(size: dict[str, int], weights: dict[str, int]) -> int:
    """Return the bytes of a gradient: the most with which weights of layers fit in."""
    layers = [key for key in size if key.isdigit() and key in weights]
    for itemsize in _ITEM_SIZES:
        if all(weights[key] * itemsize <= size[key] for key in layers):
            return itemsize
    return _ITEM_SIZES[-1]
