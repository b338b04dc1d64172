"""Files with the switches of threads, as the system recorded them."""

from __future__ import annotations

from pathlib import Path

from nadi.errors import FormatError
from nadi.files.addresses import locate
from nadi.files.files import HEAD_SIZE, read_file, read_head
from nadi.files.switch_events import SwitchEvents
from nadi.files.switch_text import decode_switch_text, is_switch_text
from nadi.files.switches import decode_perfetto_switches

__all__ = ["is_switches", "read_switches"]

_PERFETTO_PACKET = 0x0A  # field 1 with a length


def is_switches(path: Path | str) -> bool:
    """Return whether a file has switches: text of the scheduler's events, or a Perfetto trace.

    Raises
    ------
    InputError
        If it cannot be read.
    """
    place = locate(path)
    if place.is_dir():
        return False
    head = read_head(place)
    return is_switch_text(head) or _is_perfetto(head)


def read_switches(path: Path | str) -> SwitchEvents:
    """Read the switches of a file: text, or a Perfetto trace; either may be compressed.

    Raises
    ------
    InputError
        If it cannot be read, or has no switches; the message has the line of a text.
    """
    raw = read_file(locate(path))
    content = raw.content.tobytes()
    decode = decode_perfetto_switches if _is_perfetto(content[:HEAD_SIZE]) else decode_switch_text
    try:
        return decode(content)
    except FormatError as error:
        place = f"{path}: {error.where}" if error.where else str(path)
        raise FormatError(place, error.what, error.remedy) from None


def _is_perfetto(head: bytes) -> bool:
    """Return whether a file begins like a Perfetto trace: with a line feed, but as no text."""
    is_text = head[:256].strip()[:1] in (b"{", b"[") or is_switch_text(head)
    return head[:1] == bytes([_PERFETTO_PACKET]) and not is_text
