"""From a written program to a Trace, like one that was read from an .et."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from nadi.models.given_values import Tensor
from nadi.models.rank_program import WORLD, Group, Program
from nadi.trace.attributes import AttributeBuilder, Attributes
from nadi.trace.provenance import Provenance
from nadi.trace.schema import DEPS, GROUPS, ISSUES, NODES
from nadi.trace.trace import Trace
from nadi.version import __version__

__all__ = ["trace_of"]

_COLUMNS = (
    "name", "kind", "category", "thread", "stream", "is_cpu", "duration", "flops", "bytes",
    "comm_type", "comm_bytes", "src", "dst", "tag", "tier",
)  # fmt: skip


def trace_of(program: Program, groups: Mapping[str, Group], rank: int, world_size: int) -> Trace:
    """Make the trace of a program; rank is -1 if several ranks share it. O(nodes)."""
    operations = program.operations
    used = dict.fromkeys(one.group for one in operations if one.group != WORLD)
    number = {WORLD: -1} | {name: row for row, name in enumerate(used)}
    nodes = NODES.build(len(operations), {
        "id": range(len(operations)),
        **{name: [getattr(one, name) for one in operations] for name in _COLUMNS},
        "group": [number[one.group] for one in operations],
    })  # fmt: skip
    edges = [(src, dst) for dst, waits in enumerate(program.waits) for src in waits]
    deps = DEPS.build(len(edges), {
        "src": [src for src, _ in edges], "dst": [dst for _, dst in edges], "kind": "data",
    })  # fmt: skip
    return Trace(
        nodes=nodes,
        deps=deps,
        groups=GROUPS.build(len(used), {
            "name": list(used), "ranks": [list(groups[name].ranks) for name in used],
        }),
        issues=ISSUES.empty(),
        provenance=Provenance(__version__, ()),
        rank=rank,
        world_size=world_size,
        given_attributes=_attributes(program),
    )  # fmt: skip


def _attributes(program: Program) -> Attributes:
    """Return the values without a column: stated ones, and operands as recordings write them."""
    builder = AttributeBuilder()
    for row, operands in program.operands.items():
        for side, tensors in zip(("inputs", "outputs"), operands, strict=True):
            for what, text in _texts(tensors).items() if tensors else ():
                builder.add(row, f"{side}.{what}", "operand", text)
    for row, attributes in program.attributes.items():
        for one in attributes:
            builder.add(row, one.name, one.type, one.value)
            if one.comment:
                builder.add(row, one.name, "doc_string", one.comment)
    return builder.build()


def _texts(tensors: tuple[Tensor, ...]) -> dict[str, str]:
    columns = {
        "values": [tensor.value() for tensor in tensors],
        "shapes": [list(tensor.shape) for tensor in tensors],
        "types": [f"Tensor({tensor.dtype})" for tensor in tensors],
    }
    return {name: msgspec.json.encode(values).decode() for name, values in columns.items()}
