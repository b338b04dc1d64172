"""Units: parse quantities from input, and format figures for output.

Inside Nadi, time is int64 nanoseconds and size is int64 bytes.
"""

import math
import re
from collections.abc import Iterable

_TIME_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"))
_SIZE_UNITS = ((1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"))


_DECIMAL = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}
_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
# possessive quantifiers, so that a long text that is not a quantity is scanned only once
_QUANTITY = re.compile(
    r"\s*+((?:[0-9]++(?:\.[0-9]++)?+|\.[0-9]++)(?:[eE][-+]?[0-9]++)?+)\s*+([^\s0-9]\S*+)\s*+"
)
_LARGEST = 2**63 - 1  # of a time or a size
UNSHOWN = r"\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""What no file for people has of names, as characters of a pattern: control characters, and those
that change the direction of the text after them, so that a name reads as another."""
_LONGEST_SHOWN = 60
_COMPILED_GRAPH = re.compile(r"^## Call CompiledFxGraph( \w{0,8})?\w* ##$")


def parse_ns(text: str) -> int:
    """Read a duration such as ``10us`` or ``1.5 ms``; ns.

    - Raises ValueError if the text is not valid; the message shows a valid example.
    """
    number, unit = _parts(text)
    if unit not in _NS:
        raise ValueError(f"{_shown(text)} is not a time such as 10us (ns, us, ms, s)")
    whole = text.strip().removesuffix(unit).strip()
    # a float has no more than 53 bits
    if (
        time := (int(whole) if whole.isdecimal() and len(whole) < 20 else number) * _NS[unit]
    ) > _LARGEST:
        raise ValueError(f"{_shown(text)} exceeds the largest time, 2^63 - 1 ns")
    return round(time)


def parse_rate(text: str) -> float:
    """Read a bandwidth such as ``400 GB/s`` (10^9) or ``25GiB/s`` (2^30); bytes per second.

    - Raises ValueError if the text is not valid; the message shows a valid example.
    """
    number, name = _parts(text)
    unit = re.fullmatch(r"([KMGT]i?|)(B|b|bit)/s", name)
    if unit is None or number <= 0:
        raise ValueError(f"{_shown(text)} is not a bandwidth such as 400GB/s, 25GiB/s or 100Gb/s")
    rate = number * {**_DECIMAL, **_BINARY}[unit[1]] / (1 if unit[2] == "B" else 8)
    if math.isinf(rate):
        raise ValueError(f"{_shown(text)} exceeds the largest bandwidth")
    if rate < 1:  # at which times could not be held
        raise ValueError(f"{_shown(text)} is below 1 B/s")
    return rate


def parse_bytes(text: str) -> int:
    """Read a size such as ``80 GB`` (10^9) or ``80 GiB`` (2^30); bytes.

    - Raises ValueError if the text is not valid; the message shows a valid example.
    """
    number, name = _parts(text)
    unit = re.fullmatch(r"([KMGT]i?|)B", name)
    if unit is None:
        raise ValueError(f"{_shown(text)} is not a size such as 80 GB or 80 GiB")
    if (size := number * {**_DECIMAL, **_BINARY}[unit[1]]) > _LARGEST:
        raise ValueError(f"{_shown(text)} exceeds the largest size, 2^63 - 1 bytes")
    return round(size)


def parse_operations(text: str) -> float:
    """Read a compute rate such as ``312 TFLOP/s`` (10^12); operations per second.

    - Raises ValueError if the text is not valid; the message shows a valid example.
    """
    number, name = _parts(text)
    unit = re.fullmatch(r"([KMGTP]|)(FLOP|OP)/s", name)
    if unit is None or number <= 0:
        raise ValueError(f"{_shown(text)} is not a rate such as 312 TFLOP/s or 2.5 PFLOP/s")
    rate = number * {**_DECIMAL, "P": 10**15}[unit[1]]
    if math.isinf(rate):
        raise ValueError(f"{_shown(text)} exceeds the largest rate")
    return rate


def parse_frequency(text: str) -> float:
    """Read a frequency such as ``1.5 GHz``; a number alone is MHz; cycles per second.

    - Raises ValueError if the text is not valid; the message shows a valid example.
    """
    number, name = _parts(text if text.strip()[-1:].isalpha() else f"{text.strip()}MHz")
    unit = re.fullmatch(r"([kKMG]?)Hz", name)
    if unit is None or number <= 0:
        raise ValueError(f"{_shown(text)} is not a frequency such as 1.5GHz or 1500 (MHz)")
    return number * _DECIMAL[unit[1].upper()]


def _parts(text: str) -> tuple[float, str]:
    """Split a quantity into number and unit; the unit is empty if the text is not a quantity."""
    found = _QUANTITY.fullmatch(text)
    return (float(found[1]), found[2]) if found else (0.0, "")


def _shown(text: str) -> str:
    """Quote a text for a message, shortened if it is too long."""
    return repr(printable(text, _LONGEST_SHOWN))


def format_ns(nanoseconds: int) -> str:
    """Write a duration with four significant digits: ``200.7 ms``, ``1.004 s``, ``17 ns``."""
    magnitude = abs(nanoseconds)
    for scale, unit in _TIME_UNITS:
        if magnitude >= scale:
            return f"{_four_digits(nanoseconds / scale)} {unit}"
    return f"{nanoseconds} ns"


def format_range(low: int, high: int) -> str:
    """Write two durations with three significant digits, in one unit: ``310 to 412 ms``."""
    longest = max(abs(low), abs(high))
    scale, unit = next(
        ((scale, unit) for scale, unit in _TIME_UNITS if longest >= scale), (1, "ns")
    )
    shown = [f"{nanoseconds / scale:.3g}" if abs(nanoseconds) < 1000 * scale else
             f"{nanoseconds / scale:.0f}" for nanoseconds in (low, high)]  # fmt: skip
    return f"{' to '.join(dict.fromkeys(shown))} {unit}"


def exact_ns(nanoseconds: int) -> str:
    """Write a duration in the largest unit without a fraction, for :func:`parse_ns`."""
    scale, unit = next(
        (scale, unit)
        for scale, unit in (*_TIME_UNITS, (1, "ns"))
        if nanoseconds % scale == 0 and (nanoseconds or scale == 1)
    )
    return f"{nanoseconds // scale}{unit}"


def exact_rate(rate: float) -> str:
    """Write bytes per second in the largest exact unit, for :func:`parse_rate`."""
    for prefix, scale in reversed(_DECIMAL.items()):
        text = f"{plain_number(rate / scale)}{prefix}B/s"
        if rate >= scale and parse_rate(text) == rate:
            return text
    return f"{plain_number(rate)}B/s"


def plain_number(value: float) -> str:
    """Write a number so that it reads back as the same, without a trailing ``.0``."""
    return repr(float(value)).removesuffix(".0")


def format_bytes(size: int) -> str:
    """Write a size in binary units: ``12.5 MiB``."""
    for scale, unit in _SIZE_UNITS:
        if abs(size) >= scale:
            return f"{_four_digits(size / scale)} {unit}"
    return f"{size} B"


def format_count(count: int) -> str:
    """Write a count with thousands separators: ``194,994``."""
    return f"{count:,}"


def printable(text: str, longest: int = 0) -> str:
    """Write a text on one line: control characters escaped, the middle cut if it is too long."""
    line = "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    if longest and len(line) > longest:
        half = (longest - 5) // 2
        line = f"{line[:half]} ... {line[-half:]}"
    return line


def shown_name(name: str, longest: int = 0) -> str:
    """Write the name of an operation as ``printable`` does, that of a compiled graph shortly.

    The call of a graph that torch.compile compiled has a key of 52 characters in its name.
    """
    return printable(_COMPILED_GRAPH.sub(r"compiled graph\1", name), longest)


def format_counted(count: int, what: str, plural: str = "s") -> str:
    """Write a number and what it counts: ``1 rank``, ``1,024 ranks``."""
    return f"{format_count(count)} {what}{'' if count == 1 else plural}"


def format_number(value: float) -> str:
    """Write a number with four significant digits: ``13.80``, ``0.4267``, ``12,345``."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:#.4g}"


def format_percent(part: float, whole: float) -> str:
    """Write ``part / whole`` as a percentage with one decimal; ``-`` if ``whole`` is 0."""
    return f"{100 * part / whole:.1f} %" if whole else "-"


def format_change(after: float, before: float, decimals: int = 1) -> str:
    """Write how much ``after`` exceeds ``before``, as a percentage with its sign."""
    if not before:
        return "-"
    change = round(100 * (after / before - 1), decimals)
    return f"{change:+.{decimals}f} %" if change else f"{0:.{decimals}f} %"


def _four_digits(value: float) -> str:
    digits_before_point = len(str(int(abs(value))))
    return f"{value:.{max(0, 4 - digits_before_point)}f}"


def lowered(message: str) -> str:
    """Return a library's message with a lower-case first letter, except for abbreviations."""
    return message if message[:2].isupper() else message[:1].lower() + message[1:]


def as_list(texts: str | Iterable[str]) -> list[str]:
    """Return texts as a list; a single text, which is a sequence of letters too, is one."""
    return [texts] if isinstance(texts, str) else list(texts)
