"""GOAL files: read as programs of messages, and written."""

from __future__ import annotations

from pathlib import Path

from nadi.files import goal as goal_text
from nadi.files.addresses import check_target, locate
from nadi.files.files import read_file, write_pieces
from nadi.files.message_programs import MessageProgram

__all__ = ["is_goal", "read_goal", "write_goal"]


def is_goal(path: Path | str) -> bool:
    """Return whether a file's name is that of a GOAL file: ``.goal``, or ``.goal.gz``."""
    return str(path).removesuffix(".gz").endswith(".goal")


def read_goal(path: Path | str) -> MessageProgram:
    """Read a program of messages from a GOAL file, which may be compressed.

    Raises
    ------
    InputError
        If it cannot be read, or is not GOAL; the message has the line.
    """
    return goal_text.decode(read_file(locate(path)))


def write_goal(program: MessageProgram, path: Path | str, *, overwrite: bool = False) -> None:
    """Write a program of messages as a GOAL file, compressed if the name ends in .gz.

    Raises
    ------
    InputError
        If the file exists already, or cannot be written.
    """
    target = locate(path)
    check_target(target, [], overwrite=overwrite)
    write_pieces(target, goal_text.encode(program))
