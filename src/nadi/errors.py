"""Every exception that Nadi raises on purpose.

    NadiError
    ├── UsageError          a request that makes no sense (unknown step, bad expression)
    └── InputError          a file or folder that cannot be used
        ├── FormatError     a file whose bytes are not what its format says
        └── PairError       files that do not belong together, or a missing partner

Each message says where, what was met, the rule, and the remedy, in that order
and on one line. The command line prints it and exits with 2.

Where a message names a parameter, it holds a :class:`Parameter` and not its spelling: in Python
the message says ``step='9'``, and the command line prints ``--step 9`` instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from nadi.units import printable

__all__ = ["FormatError", "InputError", "NadiError", "PairError", "Parameter", "UsageError"]


class Parameter(NamedTuple):
    """A parameter that a message names, with the value given or wanted, if there is one."""

    name: str
    value: object = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"


Wording: TypeAlias = "str | Parameter | list[str | Parameter]"


class NadiError(Exception):
    """Base of all of Nadi's own errors.

    Parameters
    ----------
    where
        The file, row, JSON path or parameter at fault. This and the others are a text, a
        Parameter, or a list of both that is put together.
    what
        What was met there, and the rule that it breaks.
    remedy
        What the user can do about it; may be empty.

    Attributes
    ----------
    where, what, remedy
        The same as texts, in which parameters are spelled as in Python.
    """

    def __init__(self, where: Wording, what: Wording, remedy: Wording = "") -> None:
        self._parts = (where, what, remedy)
        self.where, self.what, self.remedy = (_spelled(part, str) for part in self._parts)
        super().__init__(self.message(str))

    def message(self, spell: Callable[[Parameter], str]) -> str:
        """Return the whole message, with each parameter spelled as ``spell`` has it."""
        where, what, remedy = (_spelled(part, spell) for part in self._parts)
        text = f"{where}: {what}" if where else what
        # names in it may hold line ends, and what a terminal would take for a command
        return printable(f"{text}; {remedy}" if remedy else text)

    def __reduce__(self) -> tuple[type[NadiError], tuple[object, ...]]:
        """Come back from another process as it was."""
        return type(self), self._parts


def _spelled(wording: Wording, spell: Callable[[Parameter], str]) -> str:
    if isinstance(wording, str):
        return wording
    if isinstance(wording, Parameter):
        return spell(wording)
    return "".join(_spelled(part, spell) for part in wording)


class UsageError(NadiError):
    """The request itself is wrong: an unknown step, an expression that does not parse."""


class InputError(NadiError):
    """A file or folder that cannot be used."""


class FormatError(InputError):
    """A file whose content breaks the rules of its format."""


class PairError(InputError):
    """Traces that do not belong together, or one without its partner."""
