"""Ways to damage a file: pure functions of its bytes and of a seed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from typing import Any

__all__ = ["HOSTILE_NUMBERS", "HOSTILE_VALUES", "changed_value", "cuts", "mutated"]

_STRUCTURAL = b'{}[]",:\\-+.0129eEtfn\n \r\t\x00\x0a\x12\x1a\x52\x7f\x80\xc0\xe2\xed\xff'
HOSTILE_NUMBERS = (
    b"-1", b"0", b"1e300", b"-1e300", b"1e-300", b"1e999", b"9223372036854775807",
    b"9223372036854775808", b"-9223372036854775808", b"-9223372036854775809",
    b"18446744073709551615", b"18446744073709551616", b"4611686018427387904", b"0.5", b"-0",
    b"01", b"+1", b".5", b"1.", b"NaN", b"Infinity", b"-Infinity", b'"12"', b"null", b"true",
    b"[]", b"{}", b'""', b"4294967295", b"2147483648", b"9" * 400,
)  # fmt: skip
HOSTILE_VALUES: tuple[Any, ...] = (
    -1, 0, 1, 2**31, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -(2**63), 2**64, 10**400, 0.5, -0.0, 1e300,
    float("nan"), float("inf"), float("-inf"), "", "x", "10ns", "1e999 GB", "1e999 GB/s", "1e-320 B/s",
    "-5 ns", "\n\x1b[2J", "\ud800", "9" * 5000, "ring", "any", "4x4*", True, None, [], {}, [[]], [1, 2],
    {"1": 5}, {"": {"": []}}, "one" * 40,
)  # fmt: skip
_NUMBER = re.compile(rb"-?[0-9]+(?:\.[0-9]+)?")
_LARGEST_SPAN = 40


def cuts(size: int, count: int = 200) -> Iterator[int]:
    """Give the sizes of shorter files, 0 and ``size - 1`` among them: at most ``count``."""
    if size <= count:
        yield from range(size)
    else:
        yield from (number * (size - 1) // (count - 1) for number in range(count))


def mutated(content: bytes, other: bytes, seed: str) -> bytes:
    """Damage a file in one to three places, in ways that the seed chooses.

    Parameters
    ----------
    content
        The file.
    other
        Another file, of which a part may be put into this one.
    seed
        The same seed gives the same damage.
    """
    chance = random.Random(seed)
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        chance.choice(_DAMAGES)(changed, other, chance)
    return bytes(changed)


def changed_value(value: Any, chance: random.Random) -> Any:
    """Give a copy of a value as JSON has it, in which one thing has changed."""
    if isinstance(value, dict) and value and chance.random() < 0.95:
        key = chance.choice(sorted(value, key=str))
        changed = dict(value)
        damage = chance.random()
        if damage < 0.05:
            del changed[key]
        elif damage < 0.1:
            changed[chance.choice(("", "x", "\n", key * 2, "groups", "bus", "1"))] = value[key]
        else:
            changed[key] = changed_value(value[key], chance)
        return changed
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        damage = chance.random()
        if damage < 0.1:
            return value[:at] + value[at + 1 :]
        if damage < 0.2:
            return [*value, value[at]]
        return [*value[:at], changed_value(value[at], chance), *value[at + 1 :]]
    if isinstance(value, str) and value and chance.random() < 0.3:
        return mutated(value.encode(errors="replace"), b"1 GB/s", str(chance.random())).decode(
            errors="replace"
        )
    return chance.choice(HOSTILE_VALUES)


def _flip_bit(content: bytearray, _: bytes, chance: random.Random) -> None:
    if content:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)


def _replace_byte(content: bytearray, _: bytes, chance: random.Random) -> None:
    if content:
        content[chance.randrange(len(content))] = chance.choice(_STRUCTURAL)


def _any_byte(content: bytearray, _: bytes, chance: random.Random) -> None:
    if content:
        content[chance.randrange(len(content))] = chance.randrange(256)


def _insert_byte(content: bytearray, _: bytes, chance: random.Random) -> None:
    content.insert(chance.randint(0, len(content)), chance.choice(_STRUCTURAL))


def _replace_number(content: bytearray, _: bytes, chance: random.Random) -> None:
    """Put a number that is hard to hold where one stands, in texts of numbers."""
    found = list(_NUMBER.finditer(content))
    if found:
        start, end = chance.choice(found).span()
        content[start:end] = chance.choice(HOSTILE_NUMBERS)


def _swap_numbers(content: bytearray, _: bytes, chance: random.Random) -> None:
    """Write one of the file's numbers in place of another: ids that stand twice, cycles."""
    found = list(_NUMBER.finditer(content))
    if found:
        start, end = chance.choice(found).span()
        content[start:end] = bytes(chance.choice(found)[0])


def _span(size: int, chance: random.Random) -> tuple[int, int]:
    start = chance.randint(0, size)
    return start, min(start + chance.randint(1, _LARGEST_SPAN), size)


def _delete(content: bytearray, _: bytes, chance: random.Random) -> None:
    start, end = _span(len(content), chance)
    del content[start:end]


def _duplicate(content: bytearray, _: bytes, chance: random.Random) -> None:
    start, end = _span(len(content), chance)
    at = chance.choice((end, chance.randint(0, len(content))))
    content[at:at] = content[start:end]


def _overwrite(content: bytearray, _: bytes, chance: random.Random) -> None:
    """Write one part of the file over another."""
    start, end = _span(len(content), chance)
    at = chance.randint(0, len(content))
    content[at : at + end - start] = content[start:end]


def _splice(content: bytearray, other: bytes, chance: random.Random) -> None:
    """Put a part of another file in, or let the other go on where this one is cut."""
    if chance.random() < 0.5:
        start, end = _span(len(other), chance)
        at = chance.randint(0, len(content))
        content[at:at] = other[start:end]
    else:
        content[chance.randint(0, len(content)) :] = other[chance.randint(0, len(other)) :]


_DAMAGES = (
    _flip_bit, _flip_bit, _replace_byte, _replace_byte, _any_byte, _insert_byte, _replace_number,
    _replace_number, _swap_numbers, _delete, _duplicate, _overwrite, _splice,
)  # fmt: skip
