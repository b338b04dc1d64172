"""Changes of a system's memory as text: ``memory cxl.bandwidth 2x``, ``memory cxl.latency 1us``."""

import re
from dataclasses import dataclass
from typing import Any

import msgspec

from nadi.errors import UsageError
from nadi.systems.memory_tiers import MemoryPath, MemoryTier
from nadi.systems.system import System
from nadi.units import parse_bytes, parse_ns, parse_rate

FORM = "memory NAME.KEY VALUE"
_TEXT = re.compile(r"memory\s+([\w-]+)\.(\w+)\s+(\S.*)")
_FACTOR = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)x")
_FIELDS = {
    "bandwidth": ("read_bandwidth", "write_bandwidth"),
    "read": ("read_bandwidth",),
    "write": ("write_bandwidth",),
    "latency": ("latency",),
    "capacity": ("capacity",),
}
_PARSERS = {
    "latency": lambda text: float(parse_ns(text)),
    "capacity": parse_bytes,
}
# what a curve has in the place of a tier's figures
_OF_CURVE = {
    "read_bandwidth": "read_gbps",
    "write_bandwidth": "write_gbps",
    "latency": "idle_ns",
}


@dataclass(frozen=True)
class MemoryChange:
    """Another figure of a memory tier, or of a path to tiers.

    Attributes
    ----------
    name
        Of the tier or path.
    key
        ``bandwidth`` (of both directions), ``read``, ``write``; of a tier also ``latency`` and
        ``capacity``.
    text
        The value as written.
    factor
        By which the figure is multiplied; 0 if it is replaced.
    value
        What replaces it: bytes per ns, ns or bytes. Of a tier's bandwidth or capacity that of all
        its devices together.
    """

    name: str
    key: str
    text: str
    factor: float = 0.0
    value: float = 0.0

    def __str__(self) -> str:
        return f"memory {self.name}.{self.key} {self.text}"

    def apply(self, system: System) -> System:
        """Return the system with the other figure.

        Raises
        ------
        UsageError
            If the system has no such tier or path, or that has no such figure.
        """
        known: list[MemoryTier | MemoryPath] = [*system.tiers, *system.memory_paths]
        for one in known:
            if one.name == self.name:
                return self._with(system, one, self._changed(one))
        names = ", ".join(one.name for one in known) or "none"
        raise UsageError(
            f"change {str(self)!r}", f"the system has no memory tier or path {self.name!r}",
            f"it has {names}",
        )  # fmt: skip

    def _changed(self, one: MemoryTier | MemoryPath) -> MemoryTier | MemoryPath:
        """Return a tier or path with the other figure."""
        fields = [field for field in _FIELDS[self.key] if field in one.__struct_fields__]
        if not fields:
            raise UsageError(
                f"change {str(self)!r}", f"a path has no {self.key}",
                "change its bandwidth, read or write",
            )  # fmt: skip
        changes: dict[str, Any] = {}
        for field in fields:
            stated = getattr(one, field)
            found = stated * self.factor if self.factor else self.value
            changes[field] = round(found) if field == "capacity" else found
        if isinstance(one, MemoryTier) and one.loaded:
            curve = {
                _OF_CURVE[field]: value / (1 if field == "latency" else one.devices)
                for field, value in changes.items()
                if field in _OF_CURVE
            }
            changes["loaded"] = msgspec.structs.replace(one.loaded, **curve)
        return msgspec.structs.replace(one, **changes)

    def _with(
        self, system: System, old: MemoryTier | MemoryPath, new: MemoryTier | MemoryPath
    ) -> System:
        replaced = {
            field: tuple(new if one is old else one for one in getattr(system, field))
            for field in ("tiers", "memory_paths")
        }
        return msgspec.structs.replace(system, **replaced)


def parse_memory_change(text: str) -> MemoryChange:
    """Parse a change of memory: ``memory NAME.KEY VALUE``.

    ``VALUE`` is a factor such as ``2x`` or a figure with its unit.

    Raises
    ------
    UsageError
        If the text is not valid.
    """
    where, example = f"change {text!r}", "such as memory cxl.bandwidth 2x"
    found = _TEXT.fullmatch(text.strip())
    if not found:
        raise UsageError(where, "is not a change of memory", f"write {FORM}, {example}")
    name, key, value = found.groups()
    if key not in _FIELDS:
        raise UsageError(where, f"{key!r} is no figure of memory", f"one of: {', '.join(_FIELDS)}")
    factor = _FACTOR.fullmatch(value)
    if factor and float(factor[1]) > 0:
        return MemoryChange(name, key, value, factor=float(factor[1]))
    try:
        figure = _PARSERS[key](value) if key in _PARSERS else parse_rate(value) / 1e9
    except ValueError as error:
        remedy = f"write it with its unit, or a factor {example}"
        raise UsageError(where, str(error), remedy) from None
    return MemoryChange(name, key, value, value=figure)
