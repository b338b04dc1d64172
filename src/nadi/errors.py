"""The exceptions of Nadi.

    NadiError
    ├── UsageError          an invalid request (unknown step, bad expression)
    └── InputError          a file or folder that cannot be used
        ├── FormatError     a file whose content breaks the rules of its format
        └── PairError       files that do not belong together, or a missing partner

Each message states, on one line and in this order, where the problem is, what was found, the
rule that it breaks, and the remedy. The command line prints the message and exits with code 2.

If a message names a parameter, it holds a :class:`Parameter` instead of its spelling: the
message is ``step='9'`` in Python, and the command line prints ``--step 9``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

from nadi.units import printable

__all__ = [
    "FormatError", "InputError", "NadiError", "PairError", "Parameter", "UsageError", "check_kind",
]  # fmt: skip


class Parameter(NamedTuple):
    """A parameter in a message, optionally with the value that was passed or is needed."""

    name: str
    value: object = None

    def __str__(self) -> str:
        return self.name if self.value is None else f"{self.name}={self.value!r}"


Wording: TypeAlias = "str | Parameter | list[str | Parameter]"


class NadiError(Exception):
    """Base class of all errors of Nadi.

    Parameters
    ----------
    where
        The file, row, JSON path or parameter at fault. This and the other parameters are a string,
        a Parameter, or a list of both, which is concatenated.
    what
        What was found there, and the rule that it breaks.
    remedy
        What the user can do about it; may be empty.

    Attributes
    ----------
    where, what, remedy
        The same as strings, with parameters spelled as in Python.
    """

    def __init__(self, where: Wording, what: Wording, remedy: Wording = "") -> None:
        self._parts = (where, what, remedy)
        self.where, self.what, self.remedy = (_spelled(part, str) for part in self._parts)
        super().__init__(self.message(str))

    def message(self, spell: Callable[[Parameter], str]) -> str:
        """Return the whole message, with each parameter spelled by ``spell``."""
        where, what, remedy = (_spelled(part, spell) for part in self._parts)
        text = f"{where}: {what}" if where else what
        # names in the message may contain line breaks, or control sequences of terminals
        return printable(f"{text}; {remedy}" if remedy else text)

    def __reduce__(self) -> tuple[type[NadiError], tuple[object, ...]]:
        """Pickle the parts, so that the error arrives unchanged from another process."""
        return type(self), self._parts


def _spelled(wording: Wording, spell: Callable[[Parameter], str]) -> str:
    if isinstance(wording, str):
        return wording
    if isinstance(wording, Parameter):
        return spell(wording)
    return "".join(_spelled(part, spell) for part in wording)


class UsageError(NadiError):
    """An invalid request: an unknown step, an expression that does not parse."""


def check_kind(name: str, value: object, kind: type, remedy: str) -> None:
    """Refuse a value of another kind, where one is easily taken for another.

    Raises
    ------
    UsageError
        If the value of the parameter is not of this kind.
    """
    if not isinstance(value, kind):
        given, wanted = type(value).__name__, kind.__name__
        raise UsageError(Parameter(name), f"it is of type {given}, not {wanted}", remedy)


class InputError(NadiError):
    """A file or folder that cannot be used."""


class FormatError(InputError):
    """A file whose content breaks the rules of its format."""


class PairError(InputError):
    """Traces that do not belong together, or one without its partner."""
