"""A generator of jobs, as values that a file holds."""

from pathlib import Path

import msgspec

from nadi.errors import FormatError
from nadi.files.files import check_target, locate, write_pieces
from nadi.sharing.conditional.decision_trees import DecisionTree
from nadi.sharing.conditional.released_corpus import PrivateCorpus
from nadi.sharing.conditional.size_laws import Law
from nadi.sharing.conditional.stage_programs import OperationKey
from nadi.sharing.conditional.stage_values import group_ways, with_usual
from nadi.trace.operations import DTYPE_NAMES, OP_CLASSES
from nadi.trace.schema import COMM_TYPES, NODE_KINDS

HEAD = b"nadi generator 1\n"
_LARGEST, _FACTORS, _MOST_STREAMS = 2.0**60, 12, 1 << 31


class Relation(msgspec.Struct, frozen=True):
    """What an operation waits for.

    Attributes
    ----------
    stream, template
        The last operation before it on a stream, or that of a template; -1 for the other, and for
        both it is the last one of all. With ``FIRST_OF_VISIT`` for the template it is the first
        one on the stream in the layer before.
    holds
        When.
    """

    stream: int
    template: int
    holds: DecisionTree


class OperationTemplate(msgspec.Struct, frozen=True):
    """An operation that comes back in other jobs, layers and micro-batches.

    Attributes
    ----------
    key
        What is equal for all of them.
    present
        When it is there.
    waits
        For what it waits.
    flops, bytes, comm_bytes
        Laws; None where it states none.
    sides
        Laws of the four sides of a product; none if it has no sides.
    way
        How its process group lies along the axes; empty for none.
    peer
        Of a message, how many stages further its other end is.
    """

    key: OperationKey
    present: DecisionTree
    waits: tuple[Relation, ...]
    flops: Law | None
    bytes: Law | None
    comm_bytes: Law | None
    sides: tuple[Law, ...]
    way: str
    peer: int


class Body(msgspec.Struct, frozen=True):
    """The templates of one slot of a kind of segments, in their order."""

    kind: str
    slot: int
    templates: tuple[int, ...]


class Fit(msgspec.Struct, frozen=True):
    """How well the generator makes what it was learned from.

    Attributes
    ----------
    stages, stages_alike
        Of all jobs, and those whose operations come back in their order.
    laws, laws_alike
        Of sizes, and those within 0.1 % in all cases.
    """

    stages: int
    stages_alike: int
    laws: int
    laws_alike: int


class ConditionalModel(msgspec.Struct, frozen=True):
    """What jobs are, given conditions.

    Attributes
    ----------
    templates, bodies
        The operations, and where they come.
    kinds
        Kinds of segments, such as ``forward``.
    climbs
        For each, whether it takes the layers in ascending order.
    batched
        For each, whether it comes once for each micro-batch.
    schedule
        Which kind of segment comes next: a position in ``kinds``, or their number for the end.
    jobs
        The conditions of each job that was learned.
    fit
        How well these come back.
    private
        What is stated of a corpus that was learned privately; the rest is then of generated jobs.
    """

    templates: tuple[OperationTemplate, ...]
    bodies: tuple[Body, ...]
    kinds: tuple[str, ...]
    climbs: tuple[bool, ...]
    batched: tuple[bool, ...]
    schedule: DecisionTree
    jobs: tuple[dict[str, int | str | bool], ...]
    fit: Fit
    private: PrivateCorpus | None = None


def decode_generator(content: bytes, name: str) -> ConditionalModel:
    """Return the generator of the bytes of a file.

    - Raises FormatError if they are something else, or damaged.
    """
    remedy = "give a file that nadi learn of this version wrote"
    try:
        model = msgspec.msgpack.decode(content.removeprefix(HEAD), type=ConditionalModel)
        _check(model, name)
    except (msgspec.MsgspecError, ValueError) as error:
        raise FormatError(name, f"the generator is damaged: {error}", remedy) from None
    return model


def _check(model: ConditionalModel, name: str) -> None:
    """Raise ValueError or InputError if parts do not belong together, or conditions cannot be."""
    kinds = len(model.kinds)
    if not model.jobs or not kinds or len(model.climbs) != kinds or len(model.batched) != kinds:
        raise ValueError("kinds")
    for known in model.jobs:
        if with_usual(known, name) != known:
            raise ValueError("conditions")
    places = range(len(model.templates))
    for body in model.bodies:
        if body.kind not in model.kinds or not all(one in places for one in body.templates):
            raise ValueError("bodies")
    ways = {"", *group_ways()}
    for one in model.templates:
        key = one.key
        words = (
            (key.node_kind, NODE_KINDS), (key.comm_type, COMM_TYPES), (key.op_class, OP_CLASSES),
            (key.dtype, DTYPE_NAMES), (one.way, ways),
        )  # fmt: skip
        if not all(word in known for word, known in words) or not -1 <= key.stream < _MOST_STREAMS:
            raise ValueError("templates")
        if len(one.sides) not in (0, 4) or not all(map(_is_sound, _laws(one))):
            raise ValueError("laws")
    if model.private and not model.private.is_sound():
        raise ValueError("released sums")


def _laws(template: OperationTemplate) -> list[Law]:
    stated = (template.flops, template.bytes, template.comm_bytes, *template.sides)
    return [law for law in stated if law is not None]


def _is_sound(law: Law) -> bool:
    if law.low is not None and law.high is not None:
        return _is_sound(law.low) and _is_sound(law.high)
    return all(0 <= factor < _LARGEST and len(names) <= _FACTORS for factor, names in law.terms)


def write_generator(model: ConditionalModel, path: Path | str, *, overwrite: bool = False) -> int:
    """Write a generator to a file; returns its size in bytes. Equal ones give equal files.

    Raises
    ------
    InputError
        If the file exists and ``overwrite`` is not given, or it cannot be written.
    """
    target = locate(path)
    check_target(target, (), overwrite=overwrite)
    content = HEAD + msgspec.msgpack.encode(model)
    write_pieces(target, [content])
    return len(content)
