"""The text syntax of changes: ``scale aten::mm kind=kernel rank=0,2 0.5``."""

import math
import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from nadi.errors import Parameter, UsageError, check_kind
from nadi.units import parse_ns, parse_rate
from nadi.whatif.balance_change import Balance
from nadi.whatif.changes import (
    CUTTABLE,
    AddDependency,
    Change,
    CutDependencies,
    NoGaps,
    NoOverhead,
    OnNetwork,
    Remove,
    Scale,
    ScaleWait,
    SetTime,
)
from nadi.whatif.selection import CONDITIONS, KINDS, WAIT, Selection, compile_expression
from nadi.whatif.stream_changes import Fuse, Graphed, MoveToStream

_MOST_VALUES = 1_000
_SELECT = "where SELECT is a regular expression for names and conditions such as kind=kernel"
_QUOTED = r"""'(?:[^']|'')*'(?!\S)|"(?:[^"]|"")*"(?!\S)"""
_WORD = re.compile(rf"(?<!\S)(?:({'|'.join(CONDITIONS)})=)?({_QUOTED}|\S+)")
_MOST = 2**62
_CUTTABLE = {kind.name.lower(): kind for kind in CUTTABLE}


def given_changes(changes: str | Change | Iterable[str | Change]) -> list[Change]:
    """Return changes as values, of which one or each is a value, or a text of one.

    - Raises UsageError if one is neither, or no valid change.
    """
    several = changes if isinstance(changes, list | tuple) else [changes]
    return [parse_change(one) if isinstance(one, str) else _value(one) for one in several]


def _value(change: Any) -> Change:
    if not hasattr(change, "apply"):
        raise UsageError(
            Parameter("changes"), f"{change!r} is of type {type(change).__name__}, and no change",
            "give a text such as 'scale gemm 0.5', or a value of nadi.whatif",
        )  # fmt: skip
    return change  # type: ignore[no-any-return]


def parse_change(text: str) -> Change:
    """Parse a change as written on the command line, such as ``scale gemm 0.5``.

    Raises
    ------
    UsageError
        If the text is not a valid change.
    """
    check_kind("text", text, str, "write it as 'scale gemm 0.5'")
    verb, _, rest = text.strip().partition(" ")
    if verb not in FORMS:
        forms = "; ".join(form for form, _ in FORMS.values())
        raise UsageError(f"change {text!r}", "is not a known change", f"one of: {forms}")
    form, read = FORMS[verb]
    try:
        return read(rest.strip())
    except ValueError as error:
        remedy = f"write {form}"
        if "SELECT" in remedy:
            remedy = f"{remedy}, {_SELECT}"
        raise UsageError(f"change {text!r}", str(error), remedy) from None


def parse_selection(text: str) -> Selection:
    """Parse a selection: a regular expression for the name, and conditions, in any order.

    Conditions are ``kind=``, ``rank=``, ``stream=``, ``thread=``, ``step=`` and ``in=``; several
    values are separated by commas. A quoted expression may contain anything; quotes inside are
    doubled. A single ``.`` selects all operations.

    Raises
    ------
    ValueError
        If a condition is invalid.
    """
    name, conditions = _split(text)
    for expression in (name, conditions.get("in", "")):
        compile_expression(expression)
    kinds = tuple(_values("kind", conditions))
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"kind={kind} is not one of {', '.join(KINDS)}")
    steps = tuple(_values("step", conditions))
    if not all(re.fullmatch(r"[\w-]+", step) for step in steps):
        raise ValueError(f"step={conditions['step']}: expected numbers or kinds of steps")
    return Selection(
        name=name,
        kinds=kinds,
        ranks=_numbers("rank", conditions),
        streams=_numbers("stream", conditions),
        threads=_numbers("thread", conditions),
        inside=conditions.get("in", ""),
        steps=steps,
    )


def _split(text: str) -> tuple[str, dict[str, str]]:
    """Separate the conditions from the name."""
    conditions: dict[str, str] = {}
    words: list[str] = []
    rest, at = [], 0
    for found in _WORD.finditer(text):
        key, value = found[1], found[2]
        if key is None and value.removesuffix("=") in CONDITIONS and value.endswith("="):
            raise ValueError(f"{value} says nothing")
        if key is None:
            words.append(value)
            continue
        if key in conditions:
            raise ValueError(f"{key}= is given twice: separate several values with commas")
        conditions[key] = _unquoted(value)
        rest.append(text[at : found.start()].strip())
        at = found.end()
    rest.append(text[at:].strip())
    if words == ["."]:
        return "", conditions
    return _unquoted(words[0]) if len(words) == 1 else " ".join(filter(None, rest)), conditions


def _unquoted(word: str) -> str:
    if re.fullmatch(_QUOTED, word):
        return word[1:-1].replace(2 * word[0], word[0])
    return word


def _values(key: str, conditions: dict[str, str]) -> list[str]:
    values = [value.strip() for value in conditions.get(key, "").split(",")]
    if key in conditions and not all(values):
        raise ValueError(f"{key}={conditions[key]}: a value is missing")
    return [value for value in values if value]


def _numbers(key: str, conditions: dict[str, str]) -> tuple[int, ...]:
    values = _values(key, conditions)
    if not all(map(_is_number, values)):
        raise ValueError(f"{key}={conditions[key]}: expected numbers with commas between them")
    return tuple(int(value) for value in values)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < len(str(_MOST))


def parse_values(text: str, parameter: str = "text") -> list[str]:
    """Parse the values of a sweep: a list ``0.5,1,2``, or ``0.5:2:0.25`` (from, to, step).

    Parameters
    ----------
    parameter
        Whose value it is, for errors.

    Raises
    ------
    UsageError
        If a range is invalid or has over 1,000 values.
    """
    if ":" not in text:
        return [value.strip() for value in text.split(",") if value.strip()]
    try:
        first, last, step = (Decimal(part) for part in text.split(":"))
        steps = (last - first) / step
        count = int(steps) + 1 if 0 <= steps < _MOST_VALUES else 0
    except (ArithmeticError, ValueError):
        count = 0
    if not count:
        raise UsageError(
            Parameter(parameter, text),
            "is not a range of at most 1,000 values",
            "write from:to:step",
        )
    return [str(first + k * step) for k in range(count)]


def _chosen(text: str) -> Selection:
    if not text:
        raise ValueError("does not select any operations")
    return parse_selection(text)


def _with_last_word(text: str) -> tuple[Selection, str]:
    words = text.split()
    if len(words) < 2:
        raise ValueError("is not a known change: a word is missing")
    return _chosen(text[: len(text) - len(words[-1])].strip()), words[-1]


def _of_waits(text: str) -> tuple[bool, str]:
    """Return whether a text begins with the word ``wait``, and the text without it."""
    first, _, rest = text.partition(" ")
    return (True, rest.strip()) if first == WAIT else (False, text)


def _remove(text: str) -> Change:
    waits, rest = _of_waits(text)
    return ScaleWait(parse_selection(rest), 0.0) if waits else Remove(_chosen(rest))


def _scale(text: str) -> Change:
    waits, rest = _of_waits(text)
    # all waits, if nothing but the factor follows
    selection, last = _with_last_word(rest if not waits or " " in rest else f". {rest}")
    try:
        factor = float(last)
    except ValueError:
        raise ValueError(f"expected a number, got {last!r}") from None
    if not (math.isfinite(factor) and factor >= 0):
        raise ValueError(f"the factor {last} is not a finite number of 0 or more")
    return ScaleWait(selection, factor) if waits else Scale(selection, factor)


def _set(text: str) -> SetTime:
    selection, last = _with_last_word(text)
    return SetTime(selection, _time(last))


def _move(text: str) -> MoveToStream:
    before, to, last = text.rpartition(" to ")
    if not to or not _is_number(last.strip()):
        raise ValueError("does not name a stream")
    return MoveToStream(_chosen(before), int(last))


def _add(text: str) -> AddDependency:
    arrows = [found for found in _WORD.finditer(text) if found[0] == "->"]
    if len(arrows) != 1:
        raise ValueError("needs exactly one arrow between spaces")
    source, target = text[: arrows[0].start()], text[arrows[0].end() :]
    return AddDependency(_chosen(source.strip()), _chosen(target.strip()))


def _cut(text: str) -> CutDependencies:
    kind, _, rest = text.partition(" ")
    if kind not in _CUTTABLE:
        raise ValueError(f"{kind!r} is not one of {', '.join(_CUTTABLE)}")
    return CutDependencies(_CUTTABLE[kind], _chosen(rest.strip()))


def _network(text: str) -> OnNetwork:
    words = text.split()
    if len(words) not in (1, 2):
        raise ValueError("expected a bandwidth and an optional latency")
    return OnNetwork(parse_rate(words[0]), _time(words[1]) if len(words) == 2 else 0)


def _time(text: str) -> int:
    time = parse_ns(text)
    if time >= _MOST:
        raise ValueError(f"{text} exceeds a century")
    return time


def _no_overhead(text: str) -> NoOverhead:
    return NoOverhead(parse_selection(text) if text else Selection(kinds=("device",)))


def _no_gaps(text: str) -> NoGaps:
    if text:
        raise ValueError("takes no arguments")
    return NoGaps()


def _balanced(text: str) -> Balance:
    if text != "ranks":
        raise ValueError("does not say what is balanced")
    return Balance()


FORMS: dict[str, tuple[str, Callable[[str], Change]]] = {
    "scale": ("scale [wait] SELECT FACTOR", _scale),
    "set": ("set SELECT TIME", _set),
    "remove": ("remove [wait] SELECT", _remove),
    "balance": ("balance SELECT", lambda text: Balance(_chosen(text))),
    "fuse": ("fuse SELECT", lambda text: Fuse(_chosen(text))),
    "cuda-graph": ("cuda-graph SELECT", lambda text: Graphed(_chosen(text))),
    "move": ("move SELECT to STREAM", _move),
    "add": ("add SELECT -> SELECT", _add),
    "cut": ("cut KIND SELECT", _cut),
    "no-overhead": ("no-overhead [SELECT]", _no_overhead),
    "no-gaps": ("no-gaps", _no_gaps),
    "network": ("network BANDWIDTH [LATENCY]", _network),
    "balanced": ("balanced ranks", _balanced),
}
"""Of each change by its first word, how it is written and what reads the rest."""
