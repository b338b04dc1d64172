"""Machines for offloaded inference as users write them: quantities with units."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from nadi.errors import FormatError
from nadi.files.settings_text import convert_settings, parse_settings
from nadi.memory.offloading.flexgen_costs import OffloadMachine
from nadi.units import parse_bytes, parse_operations, parse_rate

__all__ = ["parse_offload_machine"]

_SIZES = ("gpu_memory", "cpu_memory", "disk")
_OPERATIONS = (
    "prefill_matmul", "prefill_attention", "decode_matmul", "decode_attention", "cpu_attention",
)  # fmt: skip
_TEXTS = ("about", "source")  # for people


def parse_offload_machine(content: bytes, suffix: str, name: str) -> OffloadMachine:
    """Read the description of a machine, in TOML, YAML or JSON.

    Raises
    ------
    FormatError
        If it is invalid; the message names the path in it.
    """
    settings = parse_settings(content, suffix, name, "machine")
    if not isinstance(settings, dict):
        raise FormatError(name, "it has no keys", "docs/offload.md lists them")
    values = {key: value for key, value in settings.items() if key not in _TEXTS}
    for field in msgspec.structs.fields(OffloadMachine):
        parse = _parser(field.name)
        if parse is not None and field.name in values:
            values[field.name] = _quantity(name, field.name, values[field.name], parse)
    return convert_settings(values, OffloadMachine, name, _remedy)


def _parser(key: str) -> Callable[[str], float] | None:
    if key in _SIZES:
        return parse_bytes
    if key in _OPERATIONS:
        return parse_operations
    return parse_rate if "_to_" in key else None


def _quantity(name: str, key: str, text: Any, parse: Callable[[str], float]) -> float:
    if not isinstance(text, str):
        raise FormatError(f"{name}: $.{key}", f"{text!r} has no unit", 'write it as "15 GiB"')
    try:
        return parse(text)
    except ValueError as error:
        raise FormatError(f"{name}: $.{key}", str(error), "give another one") from None


def _remedy(what: str, path: str) -> str:
    if "unknown field" in what:
        keys = [field.name for field in msgspec.structs.fields(OffloadMachine)]
        return f"known keys: {', '.join(keys)}"
    where = path.removeprefix("$.") or "it"
    return f"docs/offload.md says what {where} is" if "missing" not in what else "state it"
