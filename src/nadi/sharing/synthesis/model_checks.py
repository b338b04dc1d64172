"""Whether the parts of a learned model belong together: files of them are sent around.

What is drawn by a model takes its numbers as rows and sizes, and as how much to draw.
"""

from typing import Any

import numpy as np

from nadi.sharing.synthesis.back_off import ORDERS, Counts
from nadi.sharing.synthesis.grammar import Repeat
from nadi.sharing.synthesis.learned_model import END, Quantities, Template, TraceModel
from nadi.sharing.synthesis.quantities import EDGES, NUM_VARIANTS
from nadi.sharing.synthesis.storage_lives import LearnedStorages
from nadi.sharing.synthesis.tokens import Token
from nadi.trace.operations import DTYPE_NAMES, OP_CLASSES
from nadi.trace.schema import COMM_TYPES, NODE_KINDS

_MOST = 1 << 31  # of what is counted: ranks, layers, turns
_FURTHEST = 1 << 40  # operations between two
_LARGEST = 1 << 60  # of a size, and ns of a duration
_SLOWEST = 1e6  # times as long as usual
_BY_ENTRY = Quantities._fields.index("context")
# by field of a token, the least and the most
_OF_TOKEN = {
    "kind": (0, len(NODE_KINDS) - 1), "comm_type": (0, len(COMM_TYPES) - 1),
    "op_class": (0, len(OP_CLASSES)), "dtype": (0, len(DTYPE_NAMES)),
    **dict.fromkeys(("thread", "stream", "nth_group", "size"), (-1, _MOST)),
    "peer": (-_MOST, _MOST),
}  # fmt: skip


def check_model(model: TraceModel) -> None:
    """Raise ValueError if parts of a model do not belong together, or numbers are out of range."""
    _check_tokens(model.tokens)
    _check_rules(model.rules, len(model.tokens))
    if len(model.counts) != len(ORDERS):
        raise ValueError("counts")
    for one in model.counts:
        _check_counts(one, len(model.tokens), len(model.rules))
    _check_range("lengths", [model.longest, model.largest], 0, _MOST)
    _check_quantities(model.quantities, len(model.tokens))
    if not model.templates:
        raise ValueError("no job")
    for template in model.templates:
        _check_template(template)


def _check_range(what: str, values: Any, least: float, most: float) -> None:
    """Raise ValueError unless all numbers are in a range; what is no number is not."""
    found = np.asarray(values)
    if found.size and not (found.min() >= least and found.max() <= most):
        raise ValueError(what)


def _check_tokens(tokens: tuple[Token, ...]) -> None:
    for name, (least, most) in _OF_TOKEN.items():
        _check_range(name, [getattr(one, name) for one in tokens], least, most)
    _check_range("group", [apart for one in tokens for apart in one.group], -_MOST, _MOST)
    waits = [wait for one in tokens for wait in one.waits]
    _check_range("waits", [lane for lane, _ in waits], -1, 2 * _MOST + 1)
    _check_range("waits", [between for _, between in waits], -_FURTHEST, _FURTHEST)


def _check_rules(rules: tuple[Repeat, ...], tokens: int) -> None:
    for number, rule in enumerate(rules):
        _check_range("rules", rule.body, -number, tokens - 1)  # those before it
        _check_range("turns", [rule.turns, rule.per_layers], 1, _MOST)
        _check_range("growth", [rule.growth], 0, _MOST)


def _check_counts(known: Counts, tokens: int, rules: int) -> None:
    first = known.first
    fits = first.shape == (known.context.size + 1,) and known.symbol.shape == known.times.shape
    if not fits or first[0] or first[-1] != known.symbol.size or (np.diff(first) < 0).any():
        raise ValueError("counts")
    _check_range("symbols", known.symbol[known.symbol != END], -rules, tokens - 1)
    _check_range("times", known.times, 0, _FURTHEST)


def _check_quantities(known: Quantities, tokens: int) -> None:
    size = known.token.size
    shapes = [getattr(known, name).shape[0] for name in Quantities._fields[:_BY_ENTRY]]
    if shapes != [size] * _BY_ENTRY or known.duration.shape[1:] != (EDGES.size - 1,):
        raise ValueError("quantities")
    for name in ("flops", "bytes", "comm_bytes"):
        if getattr(known, name).shape[1:] != (NUM_VARIANTS,):
            raise ValueError("sizes")
        _check_range(name, getattr(known, name), -1, _LARGEST)
    if known.shape.shape[1:] != (NUM_VARIANTS, 4):
        raise ValueError("sizes")
    _check_range("shape", known.shape, -1, _FURTHEST)
    _check_range("durations", known.duration, -1, _LARGEST)
    _check_range("ranks", known.ranks, 1, _MOST)
    _check_range("widths", known.hidden, 0, _MOST)
    keys = list(zip(known.token.tolist(), known.ranks.tolist(), known.hidden.tolist(), strict=True))
    if keys != sorted(set(keys)) or {key[0] for key in keys} != set(range(tokens)):
        raise ValueError("tokens")
    if known.context.ndim != 1 or known.effect.shape != known.context.shape:
        raise ValueError("contexts")
    if (known.context[1:] <= known.context[:-1]).any():
        raise ValueError("contexts")
    _check_range("effects", known.effect, -_SLOWEST, _SLOWEST)
    _check_range("memory", [known.memory], 0, _SLOWEST)


def _check_template(template: Template) -> None:
    ranks, roles = len(template.role), len(template.roles)
    steps, course = (ranks, template.num_steps), template.course.shape
    fits = template.load.shape == course[:-1] == steps and course[-1] > 0
    if not fits or not ranks or not template.num_steps or len(template.groups) != ranks:
        raise ValueError("templates")
    if {*template.role} != set(range(roles)):
        raise ValueError("roles")
    _check_range("layers", [template.num_layers, *(one.layers for one in template.roles)], 0, _MOST)
    _check_range("width", [template.hidden], 0, _MOST)
    for members in {own for every in template.groups for own in every}:
        _check_range("groups", members, 0, ranks - 1)
        if not members or (np.diff(members) <= 0).any():
            raise ValueError("groups")
    _check_range("loads", template.load, 0, _SLOWEST)
    _check_range("course", template.course, 0, _SLOWEST)
    _check_range("noise", [template.noise_share], 0, _SLOWEST)
    _check_memory(template.memory, ranks, roles)


def _check_memory(known: LearnedStorages, ranks: int, roles: int) -> None:
    if len(known.made) != roles or len(known.lasting) != ranks:
        raise ValueError("storages")
    _check_range("storages", known.lasting, 0, _LARGEST)
    for of_role in known.made:
        _check_range("contexts", list(of_role), 0, 2**64 - 1)
        if not all(of_role.values()):
            raise ValueError("storages")
        flat = [one for every in of_role.values() for made in every for one in made]
        _check_range("storages", [amount for amount, _ in flat], 0, _LARGEST)
        _check_range("storages", [lasts for _, lasts in flat], -1, _FURTHEST)
