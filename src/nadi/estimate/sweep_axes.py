"""The axes of a sweep: a field of a model, a machine or an execution, and the values it takes.

A field is named by its path, such as ``mem2.GBps``, ``networks.1.bandwidth`` or ``tensor_par``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec

from nadi.errors import Parameter, UsageError
from nadi.estimate.described_systems import model_of_language_model
from nadi.estimate.estimate_rules import DEFAULT, EstimateRules
from nadi.estimate.estimated_model import ModelDescription
from nadi.estimate.execution import CODES, Execution
from nadi.estimate.machine_description import MachineDescription
from nadi.units import lowered, parse_bytes, parse_ns, parse_operations, parse_rate

__all__ = ["MOST_POINTS", "Described", "SweepAxis", "described_with", "num_points", "parse_axes"]

MOST_POINTS = 1_000_000
_MOST_AXES = 2
_UNITS: dict[str, tuple[str, Callable[[str], float]]] = {
    "GBps": ("GB/s", lambda text: parse_rate(text) / 1e9),
    "bandwidth": ("GB/s", lambda text: parse_rate(text) / 1e9),
    "GiB": ("GiB", lambda text: parse_bytes(text) / 2**30),
    "tflops": ("TFLOP/s", lambda text: parse_operations(text) / 1e12),
    "latency": ("s", lambda text: parse_ns(text) / 1e9),
}
_LANGUAGE = "language"
_NO_EFFECT = ("name", "price_per_hour", "currency")
_OWN_OF_TIER = {"latency", "shared_by", "loaded"}  # which Calculon's rules do not have
# by the default rules, kernels are priced for each value of all else
_COLUMNS = {("mem1", "GiB"), ("mem2", "GiB"), ("mem2", "GBps"), ("mem2", "latency")}
_TRUTH = {"true": True, "false": False}
# numbers that the core looks up, and does not compute with
_LOOKED_UP = {"gflops_efficiency", "MB_efficiency", "ops"}
Value = float | int | str | bool


class Described(NamedTuple):
    """What an estimate is of."""

    model: ModelDescription
    machine: MachineDescription
    execution: Execution


class SweepAxis(NamedTuple):
    """A field and its values.

    Attributes
    ----------
    name
        The path as it was given.
    owner
        Of which the field is: ``model``, ``machine`` or ``execution``.
    path
        From there to the field: names, and numbers in lists.
    values
        Of which each is allowed.
    unit
        Of the values, such as ``GB/s``; empty if they have none.
    is_column
        Whether the core takes all values at once.
    """

    name: str
    owner: str
    path: tuple[str | int, ...]
    values: tuple[Value, ...]
    unit: str
    is_column: bool

    @property
    def title(self) -> str:
        """The name with the unit."""
        return f"{self.name} ({self.unit})" if self.unit else self.name


def num_points(axes: Sequence[SweepAxis]) -> int:
    """Give the number of points of a sweep over all combinations of values."""
    return math.prod(len(axis.values) for axis in axes)


def parse_axes(
    texts: Sequence[str], described: Described, rules: EstimateRules = DEFAULT
) -> tuple[SweepAxis, ...]:
    """Read axes such as ``mem2.GBps=32,64,128`` or ``batch_size=64:512:64``.

    Parameters
    ----------
    texts
        One or two. Values are a list, or ranges: ``FROM:TO:STEP``, or ``FROM:TO:xFACTOR``. A
        number has the unit of its field, or one that is written: ``mem2.GiB=512,1TiB``.
    described
        What has the fields.
    rules
        By which points are evaluated: fields without an effect by them are unknown.

    Raises
    ------
    UsageError
        If a path does not exist, with the names that do; if a value is not allowed; or if there
        are over 1,000,000 points.
    """
    if not 1 <= len(texts) <= _MOST_AXES:
        raise UsageError(Parameter("sweep"), f"{len(texts)} axes were given", "give one or two")
    axes = tuple(_axis(text, described, rules) for text in texts)
    if len({(axis.owner, axis.path) for axis in axes}) < len(axes):
        raise UsageError(
            Parameter("sweep", axes[0].name), "is given twice", "join its values with a comma"
        )
    if num_points(axes) > MOST_POINTS:
        raise UsageError(
            Parameter("sweep"), f"has {num_points(axes):,} points", f"take at most {MOST_POINTS:,}"
        )
    return axes


def described_with(described: Described, axis: SweepAxis, value: Any) -> Described:
    """Give what is described with another value, or a column of them, of an axis."""
    owner, path = getattr(described, axis.owner), axis.path
    if axis.owner == "model" and path[0] == _LANGUAGE:
        language = _with_value(owner.language, path[1:], value)
        tokens = value if path[1:] == ("sequence",) else owner.seq_size
        return described._replace(model=model_of_language_model(language, tokens))
    changed = _with_value(owner, path, value)
    device = described.machine.device
    if path == ("mem1", "GBps") and device is not None:  # which has it, too
        changed = _with_value(changed, ("device", "bandwidth"), value * 1e9)
    return described._replace(**{axis.owner: changed})


def _with_value(described: Any, path: Sequence[str | int], value: Any) -> Any:
    """Give a description with another value, or a column of values, at a path."""
    if not path:
        return value
    key, rest = path[0], path[1:]
    if isinstance(described, msgspec.Struct):
        inner = _with_value(getattr(described, str(key)), rest, value)
        return msgspec.structs.replace(described, **{str(key): inner})
    if isinstance(described, dict):
        return described | {key: _with_value(described[key], rest, value)}
    items = list(described)
    items[int(key)] = _with_value(items[int(key)], rest, value)
    return tuple(items)


def _axis(text: str, described: Described, rules: EstimateRules) -> SweepAxis:
    name, equals, values = (part.strip() for part in text.partition("="))
    if not (equals and name and values):
        raise UsageError(
            Parameter("sweep", text), "is not FIELD=VALUE,...", "such as mem2.GBps=32,64,128"
        )
    owner, path, now = _resolved(name, _fields(described, rules))
    unit = _UNITS.get(str(path[-1]), ("", None))[0] if isinstance(now, float) else ""
    found = _values(name, values, str(path[-1]), now)
    stated = _stated(getattr(described, owner), rules)
    _check(name, stated, path, found)
    if stated is not getattr(described, owner):
        path = (_LANGUAGE, *path)
    is_column = owner == "execution" or (
        all(type(value) in (int, float) for value in found)
        and not _LOOKED_UP.intersection(path)
        and (rules.blocks_of_calculon or path in _COLUMNS)
    )
    return SweepAxis(name, owner, path, found, unit, is_column)


def _stated(owner: Any, rules: EstimateRules) -> Any:
    """Give what states a model's sizes by some rules: itself, or the language model."""
    is_language = isinstance(owner, ModelDescription) and not rules.blocks_of_calculon
    return (is_language and owner.language) or owner


def _fields(described: Described, rules: EstimateRules) -> dict[str, dict[str, Any]]:
    """Give the fields that have an effect, by their owner."""
    told = {
        owner: msgspec.to_builtins(_stated(one, rules))
        for owner, one in described._asdict().items()
    }
    left_out: dict[str, set[str]] = {
        "model": {"name", "about", "source", "published", _LANGUAGE},
        "machine": set(_NO_EFFECT),
    }
    machine = told["machine"]
    if rules.blocks_of_calculon:
        left_out["machine"] |= {"nested", "device"}
        for tier in ("mem1", "mem2"):
            machine[tier] = {
                name: value for name, value in machine[tier].items() if name not in _OWN_OF_TIER
            }
    elif described.machine.device is not None:
        left_out["machine"] |= {"matrix", "vector", "networks", "processing_mode"}
        machine["mem1"] = {name: machine["mem1"][name] for name in ("GiB", "GBps")}
    return {
        owner: {
            name: value for name, value in fields.items()
            if name not in left_out.get(owner, ()) and value is not None
        }
        for owner, fields in told.items()
    }  # fmt: skip


def _resolved(name: str, told: dict[str, dict[str, Any]]) -> tuple[str, tuple[str | int, ...], Any]:
    """Find whose field a path is, its parts, and its value now."""
    steps = name.split(".")
    owner = next((one for one, fields in told.items() if steps[0] in fields), "")
    if steps[0] in told and len(steps) > 1:
        owner, steps = steps[0], steps[1:]
    if not owner:
        known = "; ".join(f"{one}: {', '.join(fields)}" for one, fields in told.items())
        raise UsageError(
            Parameter("sweep", name), f"nothing has a field {steps[0]}", f"known: {known}"
        )
    path: list[str | int] = []
    value: Any = told[owner]
    for step in steps:
        place = ".".join(map(str, path)) or owner
        if isinstance(value, dict) and step in value:
            path.append(step)
        elif isinstance(value, (list, tuple)) and step.isdecimal() and int(step) < len(value):
            path.append(int(step))
        else:
            raise UsageError(Parameter("sweep", name), f"{place} has no {step}", _known(value))
        value = value[path[-1]]
    if isinstance(value, (dict, list, tuple)):
        raise UsageError(Parameter("sweep", name), "is not a single value", _known(value))
    return owner, tuple(path), value


def _known(value: Any) -> str:
    if isinstance(value, dict):
        return f"known: {', '.join(value)}"
    if isinstance(value, (list, tuple)):
        return f"numbers from 0 to {len(value) - 1}"
    return "it is a single value"


def _values(name: str, text: str, field: str, now: Any) -> tuple[Value, ...]:
    """Read values as the field has them now."""
    found: list[Value] = []
    for piece in (one.strip() for one in text.split(",")):
        if isinstance(now, bool):
            found.append(_TRUTH.get(piece.lower(), piece))
        elif isinstance(now, str):
            found.append(piece)
        else:
            found += _numbers(name, piece, field, is_whole=isinstance(now, int))
    return tuple(dict.fromkeys(found))


def _numbers(name: str, piece: str, field: str, *, is_whole: bool) -> list[float]:
    """Read a number, or a range of them."""
    parts = [one.strip() for one in piece.split(":")]
    if len(parts) == 1:
        return [_number(name, piece, field, is_whole=is_whole)]
    try:
        first, last = (_number(name, one, field, is_whole=is_whole) for one in parts[:2])
        factor = len(parts) == 3 and parts[2].startswith("x")
        step = float(parts[2][1:]) if factor else _number(name, parts[2], field, is_whole=is_whole)
        if not (first <= last and (step > 1 and first > 0 if factor else step > 0)):
            raise ValueError
        count = math.log(last / first) / math.log(step) if factor else (last - first) / step
        if len(parts) > 3 or not count <= MOST_POINTS:
            raise ValueError
    except (ValueError, IndexError):
        raise UsageError(
            Parameter("sweep", name), f"{piece} is not a range of at most {MOST_POINTS:,} values",
            "write FROM:TO:STEP, or FROM:TO:xFACTOR",
        ) from None  # fmt: skip
    steps = range(int(count + 1e-9) + 1)
    if factor:
        found = [first * step**k for k in steps]
        return [round(one) for one in found] if is_whole else found
    return [first + k * step for k in steps]


def _number(name: str, text: str, field: str, *, is_whole: bool) -> float:
    try:
        return int(text) if is_whole else float(text)
    except ValueError:
        pass
    unit, parse = _UNITS.get(field, ("", None))
    try:
        if parse is None or is_whole:
            raise ValueError(f"{text} is not a {'whole number' if is_whole else 'number'}")
        return parse(text)
    except ValueError as error:
        raise UsageError(
            Parameter("sweep", name), str(error), f"give numbers{f' in {unit}' if unit else ''}"
        ) from None


def _check(name: str, owner: Any, path: tuple[str | int, ...], values: tuple[Value, ...]) -> None:
    """Refuse values that a file could not have; of numbers the smallest and the largest tell."""
    told = msgspec.to_builtins(owner)
    tried = values
    if all(type(value) in (int, float) for value in values) and not _LOOKED_UP & set(path):
        tried = (min(values), max(values))
    for value in tried:
        try:
            msgspec.convert(_with_value(told, path, value), type(owner))
        except msgspec.ValidationError as error:
            what = lowered(str(error).partition(" - at ")[0])
            names = CODES.get(str(path[-1]), ())
            remedy = f"known: {', '.join(names)}" if names else "give other values"
            raise UsageError(Parameter("sweep", f"{name}={value}"), what, remedy) from None
