"""Operations split among more tensor parallel ranks, or merged, by their shapes.

Which size of a product is shared follows from the collectives beside it, as in Megatron-LM
(Shoeybi et al., arXiv 1909.08053): a product whose output is summed by the tensor parallel group
shares what it sums over, and others share their outputs. Gradients have the sizes of the forward in
another order. Experts are either shared so, too, or each rank has its own and a part of the tokens.

Experts of a job with other tensor parallel ranks: their groups, and what they exchange.

Tensor parallel ranks either share each expert, as they share other products, or hold experts of
their own and share the tokens. Collectives say which: the outputs of shared experts are summed.

Products share their weights. What a layer has beside them (norms, some biases, positions) each rank
has whole; of these, gradients that ranks have in parts are summed in the tensor parallel group,
which tells how many there are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple, NoReturn, TypeAlias

import numpy as np
import polars as pl

from nadi.errors import Parameter, UsageError, Wording
from nadi.jobs.class_rows import (
    Origin,
    RankClass,
    RowSizes,
    comm_types,
    is_sharded,
    of_role,
    resized,
    row_sizes,
    with_more_members,
)
from nadi.jobs.replicated_classes import Classes, Replicas, RoleNames, outer_end, resized_axis
from nadi.systems.device import Device
from nadi.trace.arrays import Bools, Floats, Ints
from nadi.trace.groups import RankGroups, groups_along
from nadi.trace.operations import DTYPES, OP_CLASSES, Operations
from nadi.trace.trace import Trace

_PERMUTE = OP_CLASSES.index("permute")


class ExpertRows(NamedTuple):
    """Where the forward of a rank has experts."""

    # bool, shape (nodes,): between the permutation of tokens to experts and the one back
    inside: Bools
    # whether tensor parallel ranks share each expert; else each holds experts of its own
    is_split: bool


class ExpertShares(NamedTuple):
    """How experts change with the number of tensor parallel ranks."""

    # before, after: the number of tensor parallel ranks
    before: int
    after: int
    is_split: bool  # whether these ranks share each expert; else each holds experts of its own
    groups: RankGroups  # the groups of all ranks, as they were


def expert_rows(trace: Trace, sizes: RowSizes, names: RoleNames) -> ExpertRows:
    """Return where the forward of a rank has experts: between two permutations of tokens."""
    of_forward = (trace.nodes["phase"].cast(pl.String) == "forward").to_numpy()
    rows = np.flatnonzero(of_forward)
    permutes = sizes.work.op_class[rows] == _PERMUTE
    passed = np.cumsum(permutes)
    inside = np.zeros(of_forward.size, dtype=np.bool_)
    inside[rows] = (passed % 2 == 1) & ~permutes
    is_sum = of_role(trace, [names.tp]) & np.isin(
        comm_types(trace), ("all_reduce", "reduce_scatter")
    )
    return ExpertRows(inside, bool((inside & is_sum).any()))


def resized_groups(
    groups: RankGroups, names: RoleNames, shares: ExpertShares, axis: str, *, has_gradients: bool
) -> Replicas:
    """Give an axis within stages another size; groups of experts that lie across it follow.

    - ``axis``: ``tp`` or ``cp``.
    - ``has_gradients``: Whether the job has a backward.
    - Raises UsageError if groups of experts have ranks in another order than experts, copies of
      experts, stages, or if other ranks would have to sum gradients of experts than do now.
    """
    before, after = shares.before, shares.after
    along: Ints = groups.members[getattr(names, axis)]
    stride = int(along[0, 1] - along[0, 0])
    # tensor parallel ranks that share each expert stay next to each other
    together = groups.members[names.tp].shape[1] if shares.is_split and axis != "tp" else 1
    is_across = axis != "tp" or not shares.is_split
    roles = [role for role in (names.ep, names.edp) if role and is_across]
    kept = {role: ranks for role, ranks in groups.members.items() if role not in roles}
    resized = resized_axis(RankGroups(kept, groups.world_size), stride, before, after)
    if not roles:
        return resized
    of_stage = (names.tp, names.dp, names.cp, names.ep, names.edp)
    inner = max(outer_end(groups, role) for role in of_stage if role)
    copies = groups.members[names.ep].shape[1] if names.ep else 1
    made = _groups_of_experts(names, roles, (together, copies, inner), groups.world_size)
    if any(not np.array_equal(made[role], _sorted(groups.members[role])) for role in roles):
        raise UsageError(
            Parameter(axis), "experts are not on neighbouring ranks of a stage, so it is not known "
            "where they would be", ["change ", Parameter("dp"), " and ", Parameter("pp"), " only"],
        )  # fmt: skip
    inner, world = inner // before * after, resized.groups.world_size
    if inner % (together * copies):
        raise UsageError(
            Parameter(axis), f"{copies} ranks that share experts do not divide the {inner} ranks "
            "of a stage", "give a multiple",
        )  # fmt: skip
    owners = inner // (together * copies)
    if has_gradients and not names.edp and owners > 1:
        raise UsageError(
            Parameter(axis), f"each expert is on one rank, and would be on {owners}: nothing "
            "says how its gradients are summed", "scale a job of 2 or more times as many "
            "replicas as share the experts",
        )  # fmt: skip
    made = _groups_of_experts(names, roles, (together, copies, inner), world)
    listed = {role: made[role] if role in made else resized.groups.members[role]
              for role in groups.members}  # fmt: skip
    return Replicas(RankGroups(listed, world), resized.old)


def _groups_of_experts(
    names: RoleNames, roles: list[str], ranks: tuple[int, int, int], world: int
) -> dict[str, Ints]:
    """Return the groups of experts, of so many ranks that share one, all of them, and a stage."""
    together, copies, inner = ranks
    sizes = {
        "expert_tp": together, "ep": copies, "edp": inner // (together * copies),
        "pp": world // inner,
    }  # fmt: skip
    axes: Mapping[str, str] = {names.ep: "ep", names.edp: "edp"}
    return {role: _sorted(groups_along(sizes, [axes[role]])) for role in roles}


def _sorted(ranks: Ints) -> Ints:
    return ranks[np.lexsort(ranks.T[::-1])]


def share_experts(
    trace: Trace, sizes: RowSizes, names: RoleNames, shares: ExpertShares, *, of_tokens: bool
) -> Ints:
    """Change in place what experts exchange, and the sums of their gradients.

    - ``of_tokens``: Whether tensor parallel ranks share tokens outside of products.
    - Returns: Shape (nodes,): values of :class:`Origin`.
    """
    before, after = shares.before, shares.after
    origin = np.zeros(trace.nodes.height, dtype=np.int64)
    smaller = np.zeros(origin.size, dtype=np.bool_)
    if names.ep and of_tokens:
        smaller |= of_role(trace, [names.ep])
    if names.edp and shares.is_split:
        smaller |= of_role(trace, [names.edp])
    rows = np.flatnonzero(smaller & (sizes.comm_bytes > FEW))
    sizes.comm_bytes[rows] = -(-sizes.comm_bytes[rows] * before // after)
    origin[rows] = Origin.RESIZED
    if names.edp and not shares.is_split:
        more = with_more_members(trace, sizes, [names.edp], before, after)
        origin = np.maximum(origin, more)
    return origin


def updated(
    trace: Trace, names: RoleNames, dense: ParameterShares, experts: int, shares: ExpertShares
) -> float:
    """Return by what the parameters change that a rank updates, with those of its experts.

    - ``dense``: By what those change that are no experts'.
    - ``experts``: Parameters of experts on a rank.
    """
    own = {"dp": float(dense.parameters), "edp": float(experts)}
    for axis, role in (("dp", names.dp), ("edp", names.edp)):
        if role and is_sharded(trace, [role]):
            own[axis] /= shares.groups.members[role].shape[1]
    is_less = shares.is_split or bool(names.edp and is_sharded(trace, [names.edp]))
    of_experts = shares.before / shares.after if is_less else 1.0
    whole = own["dp"] + own["edp"]
    return (own["dp"] * dense.of_stage + own["edp"] * of_experts) / whole if whole else of_experts


_CODE = {name: code for code, name in enumerate(OP_CLASSES)}
_SHARED = ("softmax", "activation", "rope", "cross_entropy")  # by all, in each job
_BETWEEN = ("norm", "add", "permute")  # on the stream of tokens, or inside of what is shared
ITEM_SIZES = (2, *(dtype.itemsize for dtype in DTYPES))
"""Bytes of an element by the type of an operation."""
_WHOLE, _M, _N, _K = 0, 1, 2, 3
_ELSEWHERE: Wording = [
    "change ", Parameter("dp"), " and ", Parameter("pp"),
    " only, or generate the job with this degree (nadi generate llm)",
]  # fmt: skip


class _Stream(NamedTuple):
    """What tensor parallel ranks pass from one shared product to the next."""

    # tokens, width, itemsize: its sizes
    tokens: int
    width: int
    itemsize: int
    is_shared: bool  # whether each rank has a part of the tokens (sequence parallelism)

    @property
    def bytes(self) -> int:
        return self.tokens * self.width * self.itemsize


class _Product(NamedTuple):
    """A product of the forward."""

    # row, shape: where it is, and its sizes
    row: int
    shape: tuple[int, ...]
    shared: int  # which of these ranks share: tokens, outputs, what is summed, or none
    is_padded: bool  # whether that one is rounded up, as a vocabulary is
    is_experts: bool  # whether it is of experts

    @property
    def shares_weights(self) -> bool:
        return self.shared in (_N, _K) and not self.is_experts


_Products: TypeAlias = dict[str, _Product]


class _Change(NamedTuple):
    """The number of tensor parallel ranks, before and after."""

    before: int
    after: int

    def of(self, size: int, what: str) -> int:
        """Return the share of one rank, if all have the same."""
        if size * self.before % self.after:
            _refuse(f"{self.after} does not divide {size * self.before} {what}", "give a divisor")
        return size * self.before // self.after

    def about(self, sizes: Ints) -> Ints:
        """Return shares that are rounded up."""
        return -(-sizes * self.before // self.after)


def with_shares(job: Classes, names: RoleNames, wanted: int, device: Device | None) -> Classes:
    """Return a job with so many tensor parallel ranks.

    - Raises UsageError if the job does not say how operations share work, or cannot share it so.
    """
    members = job.groups.members.get(names.tp)
    change = _Change(1 if members is None else members.shape[1], wanted)
    if change.before == change.after:
        return job
    check_rows(job, "tp")
    if members is None:
        _refuse("the job has no tensor parallel groups, so nothing says which operations share "
                "work", "scale a job with 2 tensor parallel ranks")  # fmt: skip
    if others := [role for role in job.groups.members if role not in _known(names)]:
        _refuse(f"it is not known how the sizes of groups {', '.join(others)} depend on it",
                _ELSEWHERE)  # fmt: skip
    found = [expert_rows(one.trace, row_sizes(one.trace), names) for one in job.listed]
    is_split = any(one.is_split for one in found)
    experts = ExpertShares(change.before, change.after, is_split, job.groups)
    has_gradients = any("backward" in one.trace.nodes["phase"] for one in job.listed)
    axis = resized_groups(job.groups, names, experts, "tp", has_gradients=has_gradients)
    listed = [
        _shared(one, names, rows, experts, device)
        for one, rows in zip(job.listed, found, strict=True)
    ]
    return Classes(tuple(listed), job.of[axis.old], axis.groups)


def _known(names: RoleNames) -> tuple[str, ...]:
    return (names.tp, names.dp, names.pp, names.cp, names.ep, names.edp, "embedding")


def _refuse(what: str, remedy: Wording) -> NoReturn:
    raise UsageError(Parameter("tp"), what, remedy)


def check_rows(job: Classes, axis: str) -> None:
    """Raise UsageError if computations do not say what they are."""
    count, first = 0, ""
    for one in job.listed:
        nodes = one.trace.nodes
        rows = (nodes["kind"] == "COMP").to_numpy() & (row_sizes(one.trace).work.op_class == 0)
        count += int(rows.sum())
        if rows.any() and not first:
            first = str(nodes["name"][int(np.flatnonzero(rows)[0])])
    if count:
        raise UsageError(
            Parameter(axis), f"{count:,} operations state no op_class, the first is {first!r}, so "
            "it cannot be told how ranks share them", ["change ", Parameter("dp"), " only"],
        )  # fmt: skip


def _shared(
    one: RankClass, names: RoleNames, rows_of: ExpertRows, experts: ExpertShares,
    device: Device | None,
) -> RankClass:  # fmt: skip
    trace, change = one.trace, _Change(experts.before, experts.after)
    sizes, text = row_sizes(trace), trace.nodes["name"].cast(pl.String).to_list()
    products = _products(trace, sizes, names, rows_of)
    stream = _stream(trace, sizes, names, products)
    _check_heads(sizes.work, products, stream, change)
    products = _with_own_tokens(products, stream, change)
    dense = [name for name, product in products.items() if product.shares_weights]
    parameters = parameter_shares(trace, sizes, names, change.before / change.after, dense)
    of_update = updated(trace, names, parameters, _in_experts(sizes, text, products), experts)
    origin = with_more_members(trace, sizes, [names.tp], change.before, change.after)
    done = np.zeros(len(text), dtype=np.bool_)
    for row in np.flatnonzero(sizes.work.op_class == _CODE["gemm"]).tolist():
        _share_product(row, text[row], sizes.work, products, change)
        done[row] = True
    done |= sizes.work.op_class == _CODE["embedding"]  # of all tokens, whose rows are zero or not
    for row in np.flatnonzero(sizes.work.op_class == _CODE["attention"]).tolist():
        sizes.work.shape[row, 0] = change.of(int(sizes.work.shape[row, 0]), "heads")
    chosen = _in_parts(sizes.work, stream) & ~_of_whole(text, sizes.work, products)
    updates = _is_any(sizes.work, ("optimizer",))
    for column in (sizes.work.flops, sizes.work.bytes):
        column[chosen] = change.about(column[chosen])
        column[updates] = np.rint(column[updates] * of_update)
    done |= chosen | updates | _is_any(sizes.work, _BETWEEN)
    origin[done & (sizes.work.op_class != _CODE["embedding"])] = Origin.RESIZED
    origin[updates] = Origin.GUESSED
    computes = (trace.nodes["kind"] == "COMP").to_numpy()
    if (left := np.flatnonzero(computes & ~done)).size:
        _refuse(f"it is not known how ranks share {text[int(left[0])]!r}", _ELSEWHERE)
    _share_communication(trace, sizes, origin, names, change, stream)
    of_experts = share_experts(trace, sizes, names, experts, of_tokens=stream.is_shared)
    origin = np.maximum(origin, of_experts)
    if names.dp:
        rows = np.flatnonzero(of_role(trace, [names.dp]) & (sizes.comm_bytes > FEW))
        sizes.comm_bytes[rows] = np.ceil(sizes.comm_bytes[rows] * parameters.of_row[rows])
        origin[rows] = Origin.GUESSED
    return resized(one, sizes, origin, device)


def _is_any(work: Operations, classes: tuple[str, ...]) -> Bools:
    found: Bools = np.isin(work.op_class, [_CODE[name] for name in classes])
    return found


def _products(
    trace: Trace, sizes: RowSizes, names: RoleNames, experts: ExpertRows
) -> _Products:  # fmt: skip
    """Return for each product of the forward its row, and which of its sizes is shared."""
    phase = trace.nodes["phase"].cast(pl.String).to_numpy()
    is_product = sizes.work.op_class == _CODE["gemm"]
    is_product &= (sizes.work.shape[:, 0] == 1) | experts.inside
    is_sum = of_role(trace, [names.tp]) & np.isin(
        comm_types(trace), ("all_reduce", "reduce_scatter")
    )
    of_forward = np.flatnonzero((phase == "forward") & (is_product | is_sum)).tolist()
    text = trace.nodes["name"].cast(pl.String)
    whole = _whole_products(sizes.work, phase == "forward")
    step_of = trace.column("micro_batch")
    found: _Products = {}
    for row, after in zip(of_forward, [*of_forward[1:], -1], strict=True):
        name = text[row]
        if not is_product[row] or name in found:
            continue
        shape = tuple(sizes.work.shape[row].tolist())
        output = shape[_M] * shape[_N]
        is_summed = after >= 0 and is_sum[after] and step_of[row] == step_of[after]
        is_summed &= sizes.comm_bytes[after] % output == 0
        follower = sizes.work.op_class[row + 1 : row + 2].tolist()
        is_padded = follower == [_CODE["cross_entropy"]]
        shared = _K if is_summed else _N
        if whole[row] and not experts.inside[row]:
            shared = _WHOLE
        elif experts.inside[row] and not experts.is_split:
            shared = _M
        found[name] = _Product(row, shape, shared, is_padded, bool(experts.inside[row]))
    return found


def _whole_products(work: Operations, of_forward: Bools) -> Bools:
    """Return which products have outputs that all ranks need.

    They say which expert a token goes to, or are compressed keys or queries: a norm is between
    them and the product that unfolds them.
    """
    rows = np.flatnonzero(of_forward & (work.op_class > 0))
    kinds = np.append(work.op_class[rows], [0, 0])
    routes = kinds[1:-1] == _CODE["permute"]
    compresses = (kinds[1:-1] == _CODE["norm"]) & (kinds[2:] == _CODE["gemm"])
    found = np.zeros(of_forward.size, dtype=np.bool_)
    found[rows] = (kinds[:-2] == _CODE["gemm"]) & (routes | compresses)
    return found


def _with_own_tokens(products: _Products, stream: _Stream, change: _Change) -> _Products:
    """Let products share tokens that have those of one rank, where ranks share tokens."""
    if not stream.is_shared:
        return products
    return {
        name: one._replace(shared=_M)
        if not one.is_experts and one.shape[_M] * change.before == stream.tokens
        else one
        for name, one in products.items()
    }


def _in_experts(sizes: RowSizes, text: list[str], products: _Products) -> int:
    """Count the parameters of experts that a rank has."""
    found = {}
    for row, name in enumerate(text):
        known = products.get(name.removesuffix(GRADIENT)) if name.endswith(GRADIENT) else None
        if known is not None and known.is_experts:
            found[name] = int(sizes.work.shape[row, :3].prod())
    return sum(found.values())


def _stream(trace: Trace, sizes: RowSizes, names: RoleNames, products: _Products) -> _Stream:
    """Return what passes from product to product: the output of those that are summed."""
    is_sum = of_role(trace, [names.tp]) & np.isin(
        comm_types(trace), ("all_reduce", "reduce_scatter")
    )
    found = set()
    for row, shape, shared, _, is_experts in products.values():
        if shared == _K and not is_experts:
            _, m, n, _ = shape
            after = row + int(np.argmax(is_sum[row:]))
            parts = comm_types(trace)[after] == "reduce_scatter"
            found.add(_Stream(m, n, int(sizes.comm_bytes[after]) // (m * n), bool(parts)))
    if len(found) != 1:
        _refuse("tensor parallel ranks do not sum the outputs of products of one size, so it "
                "cannot be told how they share work", _ELSEWHERE)  # fmt: skip
    return found.pop()


def _check_heads(work: Operations, products: _Products, stream: _Stream, change: _Change) -> None:
    """Raise UsageError if heads of keys would have to be held by several ranks."""
    starts = sorted(one.row for one in products.values())
    for row in np.flatnonzero(work.op_class == _CODE["attention"])[:1].tolist():
        heads, queries, _, width = work.shape[row].tolist()
        before = [start for start in starts if start < row]
        if not before or stream.tokens % queries:
            return
        heads = heads * change.before * queries // stream.tokens
        keys = (int(work.shape[before[-1], _N]) * change.before - heads * width) / (2 * width)
        if keys > 0 and keys == int(keys) and int(keys) % change.after:
            _refuse(f"{change.after} does not divide {int(keys)} heads of keys", "give a divisor")


def _share_product(
    row: int, name: str, work: Operations, products: _Products, change: _Change
) -> None:
    shape = work.shape[row].tolist()
    moved = int(work.bytes[row])
    known = _forward_of(name, shape, products)
    if shape[0] > 1 and (known is None or not known[0].is_experts):  # a product for each head
        work.flops[row] = change.about(work.flops[row : row + 1])[0]
        work.shape[row, 0] = change.of(shape[0], "heads")
        work.bytes[row] = change.about(work.bytes[row : row + 1])[0]
        return
    if known is None:
        _refuse(f"no product of the forward has the sizes of {name!r}", _ELSEWHERE)
    product, order = known
    if product.shared == _WHOLE:
        return
    place = 1 + order.index(product.shared)
    new = list(shape)
    if product.is_padded:
        new[place] = -(-shape[place] * change.before // change.after)
    elif product.is_experts and product.shared == _M:  # tokens of each expert
        new[place] = max(shape[place] * change.before // change.after, 1)
    else:
        new[place] = change.of(shape[place], f"sizes of {name!r}")
    work.flops[row] = -(-int(work.flops[row]) * new[place] // shape[place])
    work.shape[row] = new
    itemsize = ITEM_SIZES[int(work.dtype[row])]
    output = (moved - _read(shape, itemsize)) / (shape[_M] * shape[_N])
    work.bytes[row] = _read(new, itemsize) + round(output * new[_M] * new[_N])


def _read(shape: list[int], itemsize: int) -> int:
    return itemsize * shape[0] * shape[_K] * (shape[_M] + shape[_N])


def _forward_of(
    name: str, shape: list[int], products: _Products
) -> tuple[_Product, tuple[int, ...]] | None:
    """Return the product of the forward that a product belongs to, and where its sizes are."""
    for suffix, order in (("", (_M, _N, _K)), (".input_gradient", (_M, _K, _N)),
                          (GRADIENT, (_K, _N, _M))):  # fmt: skip
        known = products.get(name.removesuffix(suffix)) if name.endswith(suffix) else None
        if known is not None and shape[1:] == [known.shape[k] for k in order]:
            return known, order
    return None


def _in_parts(work: Operations, stream: _Stream) -> Bools:
    """Return which operations, but for products, each rank does a part of."""
    found = _is_any(work, ("attention", *_SHARED))
    between = _is_any(work, _BETWEEN)
    if not stream.is_shared:  # all do the same on whole tokens, and parts on features
        between &= ~np.isin(work.bytes, [passes * stream.bytes for passes in (2, 3)])
        between &= work.op_class != _CODE["permute"]
    return found | between


def _of_whole(text: list[str], work: Operations, products: _Products) -> Bools:
    """Return which norms are of outputs that each rank has whole, forward and backward."""
    rows = np.flatnonzero(work.op_class > 0)
    after = dict(zip(rows[:-1].tolist(), rows[1:].tolist(), strict=True))
    norms = {text[after[one.row]] for one in products.values() if one.shared == _WHOLE}
    named = [name.removesuffix(".input_gradient").removesuffix(GRADIENT) in norms for name in text]
    return np.array(named, dtype=np.bool_) & _is_any(work, ("norm",))


def _share_communication(
    trace: Trace, sizes: RowSizes, origin: Ints, names: RoleNames, change: _Change, stream: _Stream
) -> None:  # fmt: skip
    """Change the bytes of other groups in place: keys and values, messages, the embedding."""
    parts = [role for role in (names.cp, "embedding") if role]
    resized_rows = of_role(trace, parts)
    if stream.is_shared and names.pp:
        resized_rows |= of_role(trace, [names.pp])
    rows = np.flatnonzero(resized_rows & (sizes.comm_bytes > FEW))
    sizes.comm_bytes[rows] = change.about(sizes.comm_bytes[rows])
    origin[rows] = Origin.RESIZED


GRADIENT = ".weight_gradient"
"""How names of products end that make the gradients of weights."""

FEW = 8
"""Bytes up to which a sum is one of numbers, such as a norm, and of no gradients."""

_GEMM = OP_CLASSES.index("gemm")
_EMBEDDING = "embedding"
_GRADIENT_SIZES = (4, 2, 1)  # of gradients, the largest first


class ParameterShares(NamedTuple):
    """By what sizes change that depend on parameters."""

    of_row: Floats  # float64, shape (nodes,): of data parallel communication
    of_stage: float  # of all parameters that are no experts', which the optimizer updates
    parameters: int  # how many these are on a rank


def parameter_shares(
    trace: Trace, sizes: RowSizes, names: RoleNames, share: float, products: Collection[str]
) -> ParameterShares:
    """Return by what the parameters of each layer change, if products have ``share`` of theirs.

    - ``products``: Names of those whose weights are shared, in the forward; those of experts are
      not among them.
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
    for itemsize in _GRADIENT_SIZES:
        if all(weights[key] * itemsize <= size[key] for key in layers):
            return itemsize
    return _GRADIENT_SIZES[-1]
