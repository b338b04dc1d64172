"""The axes of a sweep: a field of a model, a machine or an execution, and the values it takes.

A field is named by its path in the file that states it, such as ``memory.tier2.bandwidth`` or
``network.dimensions.0.latency`` of a system, ``mem2.GBps`` of Calculon's, ``tp`` or ``tensor_par``.

The values of a sweep as they are written: lists, ranges, and quantities with units.
"""

import difflib
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from nadi.errors import NadiError, Parameter, UsageError
from nadi.estimates.calculon.rules import DEFAULT, EstimateRules
from nadi.estimates.described_systems import model_of_language_model
from nadi.estimates.estimated_model import ModelDescription
from nadi.estimates.execution import CODES
from nadi.estimates.plan_execution import PLAN_NAMES
from nadi.estimates.stated_files import (
    Described,
    FileKey,
    StatedFiles,
    file_key,
    keys_of,
    nearest_key,
)
from nadi.units import lowered, parse_bytes, parse_ns, parse_operations, parse_rate

MOST_POINTS = 1_000_000
Value = float | int | str | bool
_TRUTH = {"true": True, "false": False}
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_BARE = re.compile(_NUMBER)
_WITH_UNIT = re.compile(rf"x?({_NUMBER})\s*([A-Za-z][A-Za-z/]*)")
_FACTOR = re.compile(rf"x({_NUMBER})")


class AxisUnit(NamedTuple):
    """What numbers of a field are in."""

    name: str  # such as ``GB/s``
    parse: Callable[[str], float]  # reads a number with a unit of its own


_RATE = AxisUnit("GB/s", lambda text: parse_rate(text) / 1e9)
_SIZE = AxisUnit("GiB", lambda text: parse_bytes(text) / 2**30)
_FLOPS = AxisUnit("TFLOP/s", lambda text: parse_operations(text) / 1e12)
_TIME = AxisUnit("ns", parse_ns)
UNITS_OF_CALCULON = {
    "GBps": _RATE, "bandwidth": _RATE, "GiB": _SIZE, "tflops": _FLOPS,
    "latency": AxisUnit("s", lambda text: parse_ns(text) / 1e9),
}  # fmt: skip
"""By the names of fields in Calculon's files."""
UNITS_OF_FILES = {
    "bandwidth": _RATE, "read": _RATE, "write": _RATE, "capacity": _SIZE, "peak": _FLOPS,
    "least_chunk": AxisUnit("B", parse_bytes),
    **dict.fromkeys(
        ("latency", "most", "overhead", "pause", "reduction", "start", "endpoint_delay",
         "group_endpoint_delay"),
        _TIME,
    ),
}  # fmt: skip
"""By the keys of Nadi's system files."""
NUMBERS = (int, float)


def read_values(
    name: str, text: str, like: object, field: str, units: Mapping[str, AxisUnit]
) -> tuple[Value, ...]:
    """Read the values of an axis.

    - ``name``: Of the axis, for errors.
    - ``like``: A value of the field's type; of a field with a unit, a float.
    - ``field``: Its last key, which says what unit it has.
    - Raises UsageError if one is no such value, or a range that cannot be.
    """
    pieces = [one.strip() for one in text.split(",")]
    if isinstance(like, bool):
        return tuple(dict.fromkeys(_TRUTH.get(one.lower(), one) for one in pieces))
    if isinstance(like, str):
        return tuple(dict.fromkeys(pieces))
    reader = _Numbers(name, units.get(field), isinstance(like, int))
    reader.check_units(text)
    found: list[Value] = []
    for piece in pieces:
        found += reader.range(piece)
    return tuple(dict.fromkeys(found))


class _Numbers(NamedTuple):
    """Reads the numbers of a field."""

    name: str
    unit: AxisUnit | None
    is_whole: bool

    def check_units(self, text: str) -> None:
        """Refuse a number without a unit beside one with another unit than the field's.

        Of ``512,1TiB`` one reads 512 GiB, and another 512 TiB.
        """
        found = [one.strip() for piece in text.split(",") for one in piece.split(":")]
        others = {unit[2] for one in found if (unit := _WITH_UNIT.fullmatch(one)) and self.unit} - {
            self.unit.name if self.unit else ""
        }
        bare = [one for one in found if _BARE.fullmatch(one) and float(one) != 0]
        if others and bare:
            raise UsageError(
                Parameter("sweep", f"{self.name}={text}"),
                f"{bare[0]} has no unit, and another value is in {min(others)}",
                f"write a unit with each, such as {bare[0]}{min(others)}",
            )

    def range(self, piece: str) -> list[float]:
        """Read a number, or a range of them."""
        parts = [one.strip() for one in piece.split(":")]
        if len(parts) == 1:
            return [self.number(piece)]
        try:
            first, last = (self.number(one) for one in parts[:2])
            factor = _FACTOR.match(parts[2]) if len(parts) == 3 else None
            step = float(factor[1]) if factor else self.number(parts[2])
            if not (first <= last and (step > 1 and first > 0 if factor else step > 0)):
                raise ValueError
            count = math.log(last / first) / math.log(step) if factor else (last - first) / step
            if len(parts) > 3 or not count <= MOST_POINTS:
                raise ValueError
        except (ValueError, IndexError):
            raise UsageError(
                Parameter("sweep", self.name),
                f"{piece} is not a range of at most {MOST_POINTS:,} values",
                "write FROM:TO:STEP, or FROM:TO:xFACTOR",
            ) from None
        steps = range(int(count + 1e-9) + 1)
        if factor:
            found = [first * step**k for k in steps]
            return [round(one) for one in found] if self.is_whole else found
        return [first + k * step for k in steps]

    def number(self, text: str) -> float:
        """Read a number; without a unit it is in the field's."""
        try:
            return int(text) if self.is_whole else float(text)
        except ValueError:
            pass
        try:
            if self.unit is None:
                raise ValueError(f"{text} is not a {'whole number' if self.is_whole else 'number'}")
            return self.unit.parse(text)
        except ValueError as error:
            told = f" in {self.unit.name}" if self.unit else ""
            raise UsageError(
                Parameter("sweep", self.name), str(error), f"give numbers{told}"
            ) from None


_MOST_AXES = 2
_LANGUAGE = "language"
_NO_EFFECT = ("name", "price_per_hour", "currency")
_OWN_OF_TIER = {"latency", "shared_by", "loaded"}  # which Calculon's rules do not have
# by the default rules, kernels are priced for each value of all else
_COLUMNS = {("mem1", "GiB"), ("mem2", "GiB"), ("mem2", "GBps"), ("mem2", "latency")}
# numbers that the core looks up, and does not compute with
_LOOKED_UP = {"gflops_efficiency", "MB_efficiency", "ops"}
_SECOND_TIER, _REMOTE, _FIRST_OF_TIERS = "memory.tier2.", "memory.remote.", "memory.tiers.0."
# by the names of Nadi's systems
_OF_CALCULON = {
    "memory.bandwidth": "mem1.GBps", "memory.capacity": "mem1.GiB",
    f"{_SECOND_TIER}bandwidth": "mem2.GBps", f"{_SECOND_TIER}capacity": "mem2.GiB",
    f"{_SECOND_TIER}latency": "mem2.latency",
}  # fmt: skip


def _whole_bytes(gib: float) -> float:
    return round(gib * 2**30) / 2**30


# keys of a system file that are numbers which the core takes many of at once: where, and how they
# are taken from the key's unit, rounded as a file's are
_FILE_COLUMNS: dict[tuple[str | int, ...], tuple[tuple[str, str], Callable[[float], float]]] = {
    ("memory", "capacity"): (("mem1", "GiB"), _whole_bytes),
    ("memory", "remote", "capacity"): (("mem2", "GiB"), _whole_bytes),
    ("memory", "remote", "bandwidth"): (("mem2", "GBps"), lambda rate: float(round(rate))),
    ("memory", "remote", "latency"): (("mem2", "latency"), lambda ns: round(ns) / 1e9),
}


class SweepAxis(NamedTuple):
    """A field and its values.

    Attributes
    ----------
    name
        The path as it was given.
    owner
        Of which the field is: ``model``, ``machine`` or ``execution``.
    path
        From there, or from the top of its file, to the field: names, and numbers in lists.
    values
        Of which each is allowed.
    unit
        Of the values, such as ``GB/s``; empty if they have none.
    is_column
        Whether the core takes all values at once.
    is_key
        Whether the path is that of a key of Nadi's own files.
    """

    name: str
    owner: str
    path: tuple[str | int, ...]
    values: tuple[Value, ...]
    unit: str
    is_column: bool
    is_key: bool = False

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
    """Read axes such as ``memory.tier2.bandwidth=32,64,128GB/s`` or ``batch_size=64:512:64``.

    Parameters
    ----------
    texts
        One or two. Values are a list, or ranges: ``FROM:TO:STEP``, or ``FROM:TO:xFACTOR``. A
        number has the unit of its field, or one that is written: ``memory.capacity=80,96GiB``.
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
    files = described.files
    if axis.is_key and files is not None:
        if axis.is_column and not isinstance(value, NUMBERS):
            return _with_column(described, _FILE_COLUMNS[axis.path][0], value)
        unit = f" {axis.unit}" if axis.unit else None
        told = value if unit is None else f"{value}{unit}"
        return _anew(described._replace(files=files.with_value(axis.owner, axis.path, told)),
                     axis, value)  # fmt: skip
    owner, path = getattr(described, axis.owner), axis.path
    if axis.owner == "model" and path[0] == _LANGUAGE:
        language = _with_value(owner.language, path[1:], value)
        tokens = value if path[1:] == ("sequence",) else owner.seq_size
        model = model_of_language_model(language, tokens)
        return _anew(described._replace(model=model), axis, value)
    changed = _with_value(owner, path, value)
    device = described.machine.device
    if path == ("mem1", "GBps") and device is not None:  # which has it, too
        changed = _with_value(changed, ("device", "bandwidth"), value * 1e9)
    described = described._replace(**{axis.owner: changed})
    return _anew(described, axis, value) if path == ("num_procs",) else described


def field_values(axis: SweepAxis) -> list[Value]:
    """Give the values of an axis whose ``is_column``, as the core takes them."""
    if not axis.is_key:
        return list(axis.values)
    value = _FILE_COLUMNS[axis.path][1]
    return [value(float(one)) for one in axis.values]


def _anew(described: Described, axis: SweepAxis, value: Any) -> Described:
    """Describe again what depends on a value that changed."""
    if described.files is None:
        return described
    try:
        return described.files.describe(described)
    except NadiError as error:
        raise UsageError(
            Parameter("sweep", f"{axis.name}={value}"), f"{error.where}: {error.what}",
            error.remedy,
        ) from None  # fmt: skip


def _with_column(described: Described, path: tuple[str, str], column: Any) -> Described:
    return described._replace(machine=_with_value(described.machine, path, column))


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
            Parameter("sweep", text), "is not FIELD=VALUE,...",
            f"such as {_SECOND_TIER}bandwidth=32,64,128GB/s",
        )  # fmt: skip
    fields = _fields(described, rules)
    path = name.removeprefix("system.")
    if "machine" in fields:
        path = _OF_CALCULON.get(path, path)
    files = described.files
    if files is not None and path.partition(".")[0] not in _names(fields):
        found = _key_axis(name, path, values, described, files)
        if found is not None:
            return found
    return _field_axis(name, path, values, described, rules, fields)


def _key_axis(
    name: str, path: str, values: str, described: Described, files: StatedFiles
) -> SweepAxis | None:
    """Read an axis over a key of Nadi's own files; None if they cannot have it."""
    if f"{path}.".startswith(_SECOND_TIER):
        path = f"{path}.".replace(_SECOND_TIER, _second_tier(files), 1).removesuffix(".")
    owner, key = "", None
    for owner, told in files.told.items():
        key = file_key(files.kinds[owner], told, path.removeprefix(f"{owner}.").split("."))
        if key is not None:
            break
    if key is None:
        return None
    if key.like is None:
        raise _no_single_value(name, path, key, files)
    field = str(key.path[-1])
    unit = UNITS_OF_FILES.get(field) if key.like == "" else None
    found = read_values(name, values, 1.0 if unit else key.like, field, UNITS_OF_FILES)
    is_column = key.path in _FILE_COLUMNS
    axis = SweepAxis(
        name, owner, key.path, found, unit.name if unit else "", is_column, is_key=True
    )
    numbers = [value for value in found if isinstance(value, NUMBERS)]
    tried = [
        described_with(described, axis, value)
        for value in ((min(numbers), max(numbers)) if len(numbers) == len(found) else found)
    ]
    if (
        not is_column
        and len(set(found)) > 1
        and all(_used(one) == _used(tried[0]) for one in tried)
    ):
        raise UsageError(
            Parameter("sweep", name), "nothing that is estimated uses it",
            ["vary another field, or name the tier: ", Parameter("offload", "optimizer=cxl")],
        )  # fmt: skip
    return axis


def _used(described: Described) -> tuple[Any, ...]:
    """Return what an estimate uses: of tiers, the one that the machine has as its second."""
    machine = described.machine
    if machine.system is not None:
        bare = msgspec.structs.replace(
            machine.system, tiers=(), memory_paths=(), remote_memory=None, ignored=()
        )
        machine = msgspec.structs.replace(machine, system=bare)
    return described.model, machine, described.execution


def _second_tier(files: StatedFiles) -> str:
    """Return where a system's file states the second tier, or could."""
    memory = files.told.get("machine", {}).get("memory") or {}
    has_tiers = memory.get("tiers") and not memory.get("remote")
    return _FIRST_OF_TIERS if has_tiers else _REMOTE


def _no_single_value(name: str, path: str, key: FileKey, files: StatedFiles) -> UsageError:
    place, missing, known = key.place
    near = nearest_key(files, path) if missing else ""
    hint = f"did you mean {_as_users_say(near)}; " if near else ""
    what = f"{_as_users_say(place)} has no {missing}" if missing else "is not a single value"
    return UsageError(Parameter("sweep", name), what, f"{hint}{known}")


def _as_users_say(path: str) -> str:
    for there in (_REMOTE, _FIRST_OF_TIERS):
        path = f"{path}.".replace(there, _SECOND_TIER, 1).removesuffix(".")
    return path


def _field_axis(
    name: str, path_text: str, values: str, described: Described, rules: EstimateRules,
    fields: dict[str, dict[str, Any]],
) -> SweepAxis:  # fmt: skip
    """Read an axis over a field of what is described."""
    owner, path, now = _resolved(name, path_text, fields, described.files)
    unit = UNITS_OF_CALCULON.get(str(path[-1])) if isinstance(now, float) else None
    found = read_values(name, values, now, str(path[-1]), UNITS_OF_CALCULON)
    stated = _stated(getattr(described, owner), rules)
    _check(name, stated, path, found)
    if stated is not getattr(described, owner):
        path = (_LANGUAGE, *path)
    is_column = (owner == "execution" and not (described.files and path == ("num_procs",))) or (
        all(type(value) in NUMBERS for value in found)
        and not _LOOKED_UP.intersection(path)
        and (rules.blocks_of_calculon or path in _COLUMNS)
    )
    return SweepAxis(name, owner, path, found, unit.name if unit else "", is_column)


def _names(fields: dict[str, dict[str, Any]]) -> set[str]:
    return {name for of_owner in fields.values() for name in of_owner} | set(fields)


def _stated(owner: Any, rules: EstimateRules) -> Any:
    """Give what states a model's sizes by some rules: itself, or the language model."""
    is_language = isinstance(owner, ModelDescription) and not rules.blocks_of_calculon
    return (is_language and owner.language) or owner


def _fields(described: Described, rules: EstimateRules) -> dict[str, dict[str, Any]]:
    """Give the fields that have an effect, by their owner, of what no file of Nadi's states."""
    stated = described.files.told if described.files else ()
    told = {
        owner: msgspec.to_builtins(_stated(getattr(described, owner), rules))
        for owner in ("model", "machine", "execution")
        if owner not in stated
    }
    left_out: dict[str, set[str]] = {
        "model": {"name", "about", "source", "published", _LANGUAGE},
        "machine": {*_NO_EFFECT, "nested", "device", "system"},
    }
    if rules.blocks_of_calculon and "machine" in told:
        for tier in ("mem1", "mem2"):
            told["machine"][tier] = {
                name: value
                for name, value in told["machine"][tier].items()
                if name not in _OWN_OF_TIER
            }
    return {
        owner: {
            name: value for name, value in fields.items()
            if name not in left_out.get(owner, ()) and value is not None
        }
        for owner, fields in told.items()
    }  # fmt: skip


def _resolved(
    name: str, path_text: str, told: dict[str, dict[str, Any]], files: StatedFiles | None
) -> tuple[str, tuple[str | int, ...], Any]:
    """Find whose field a path is, its parts, and its value now."""
    steps = path_text.split(".")
    owner = next((one for one, fields in told.items() if steps[0] in fields), "")
    if steps[0] in told and len(steps) > 1:
        owner, steps = steps[0], steps[1:]
    if not owner:
        raise _nothing_has(name, path_text, told, files)
    path: list[str | int] = []
    value: Any = told[owner]
    for step in steps:
        place = ".".join(map(str, path)) or owner
        if isinstance(value, dict) and step in value:
            path.append(step)
        elif isinstance(value, (list, tuple)) and step.isdecimal() and int(step) < len(value):
            path.append(int(step))
        else:
            near = difflib.get_close_matches(step, value, n=1) if isinstance(value, dict) else []
            hint = f"did you mean {near[0]}; " if near else ""
            what = f"{place} has no {step}"
            raise UsageError(Parameter("sweep", name), what, f"{hint}{_known(value)}")
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


def _other_names(path: str) -> list[str]:
    """Return what Nadi's files, or Calculon's, call a field of the other's."""
    pairs = [*_OF_CALCULON.items(), *PLAN_NAMES.items()]
    return [b if path == a else a for a, b in pairs if path in (a, b)]


def _nothing_has(
    name: str, path: str, told: dict[str, dict[str, Any]], files: StatedFiles | None
) -> UsageError:
    """Say what there is instead, the most similar first."""
    known = {owner: list(fields) for owner, fields in told.items()}
    for owner, kind in files.kinds.items() if files is not None else ():
        known[owner] = keys_of(kind)
    listed = [one for fields in known.values() for one in fields]
    near = next((one for one in _other_names(path) if one.partition(".")[0] in listed), "")
    near = near or (nearest_key(files, path) if files is not None else "")
    near = near or next(iter(difflib.get_close_matches(path, listed, n=1)), "")
    hint = f"did you mean {_as_users_say(near)}; " if near else ""
    names = {"machine": "system"}
    of_each = "; ".join(
        f"{names.get(owner, owner)}: {', '.join(fields)}" for owner, fields in known.items()
    )
    first = path.partition(".")[0]
    return UsageError(
        Parameter("sweep", name), f"nothing has a field {first}", f"{hint}known: {of_each}"
    )


def _check(name: str, owner: Any, path: tuple[str | int, ...], values: tuple[Value, ...]) -> None:
    """Refuse values that a file could not have; of numbers the smallest and the largest tell."""
    told = msgspec.to_builtins(owner)
    tried = values
    if all(type(value) in NUMBERS for value in values) and not _LOOKED_UP & set(path):
        tried = (min(values), max(values))
    for value in tried:
        try:
            msgspec.convert(_with_value(told, path, value), type(owner))
        except msgspec.ValidationError as error:
            what = lowered(str(error).partition(" - at ")[0])
            names = CODES.get(str(path[-1]), ())
            remedy = f"known: {', '.join(names)}" if names else "give other values"
            raise UsageError(Parameter("sweep", f"{name}={value}"), what, remedy) from None
