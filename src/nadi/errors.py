"""Every exception that Nadi raises on purpose.

    NadiError
    ├── UsageError          a request that makes no sense (unknown step, bad expression)
    └── InputError          a file or folder that cannot be used
        ├── FormatError     a file whose bytes are not what its format says
        └── PairError       files that do not belong together, or a missing partner

Each message says where, what was met, the rule, and the remedy, in that order
and on one line. The command line prints it and exits with 2.
"""

from __future__ import annotations

from nadi.units import printable

__all__ = ["FormatError", "InputError", "NadiError", "PairError", "UsageError"]


class NadiError(Exception):
    """Base of all of Nadi's own errors.

    Parameters
    ----------
    where
        The file, row, JSON path or option at fault.
    what
        What was met there, and the rule that it breaks.
    remedy
        What the user can do about it; may be empty.
    """

    def __init__(self, where: str, what: str, remedy: str = "") -> None:
        self.where = where
        self.what = what
        self.remedy = remedy
        text = f"{where}: {what}" if where else what
        # names in it may hold line ends, and what a terminal would take for a command
        super().__init__(printable(f"{text}; {remedy}" if remedy else text))

    def __reduce__(self) -> tuple[type[NadiError], tuple[str, str, str]]:
        """Come back from another process as it was."""
        return type(self), (self.where, self.what, self.remedy)


class UsageError(NadiError):
    """The request itself is wrong: an unknown step, an expression that does not parse."""


class InputError(NadiError):
    """A file or folder that cannot be used."""


class FormatError(InputError):
    """A file whose content breaks the rules of its format."""


class PairError(InputError):
    """Traces that do not belong together, or one without its partner."""
