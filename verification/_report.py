"""What every verification program prints: a line per check, and ``N of M exact`` at the end."""

from __future__ import annotations

import sys
from pathlib import Path

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


class Checks:
    """Counts checks and remembers whether all held."""

    def __init__(self) -> None:
        self.num_exact = 0
        self.num_checks = 0

    def add(self, what: str, exact: bool, detail: str = "") -> None:
        """Count one check, and print it if it does not hold."""
        self.add_many(what, int(exact), 1, detail)

    def add_many(self, what: str, num_exact: int, num_checks: int, detail: str = "") -> None:
        """Count several checks of one kind, with a line that says how many held."""
        self.num_exact += num_exact
        self.num_checks += num_checks
        mark = "ok  " if num_exact == num_checks else "FAIL"
        print(f"{mark} {what}: {num_exact} of {num_checks}{'; ' + detail if detail else ''}")

    def finish(self) -> None:
        """Print the last line and leave with 0 if every check held, and there were any."""
        print(f"{self.num_exact} of {self.num_checks} exact")
        sys.exit(0 if self.num_checks and self.num_exact == self.num_checks else 1)


def arguments(*defaults: str) -> list[Path]:
    """Give the paths named on the command line, or the defaults below the shared data."""
    given = [Path(argument) for argument in sys.argv[1:]]
    return given or [SHARED / default for default in defaults]
