"""What every verification program prints: a line per check, and ``N of M exact`` at the end."""

from __future__ import annotations

import sys
import tarfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"

_SHOWN = 5  # things that nothing explains, printed per check


@dataclass
class Tally:
    """Things compared one by one: equal, or different by a rule that has a name.

    Attributes
    ----------
    exact
        How many were equal.
    rules
        How many differed by each rule. Who counts one has shown that it comes from the rule.
    unexplained
        The others, each as a line of text.
    """

    exact: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)

    def add(self, *, exact: bool = False, rule: str = "", detail: str = "") -> None:
        """Count one thing: equal, else explained by ``rule``, else not explained."""
        if exact:
            self.exact += 1
        elif rule:
            self.rules[rule] += 1
        else:
            self.unexplained.append(detail)


class Checks:
    """Counts checks and remembers whether all held."""

    def __init__(self) -> None:
        self.num_exact = 0
        self.num_explained = 0
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

    def add_tally(self, what: str, tally: Tally) -> None:
        """Count what was compared one by one, with a line for each rule that was met."""
        explained = tally.rules.total()
        compared = tally.exact + explained + len(tally.unexplained)
        self.num_explained += explained
        detail = f"{explained} explained" if explained else ""
        if tally.unexplained:
            detail = f"{explained} explained, {len(tally.unexplained)} not"
        self.num_exact += tally.exact
        self.num_checks += compared
        mark = "FAIL" if tally.unexplained else "ok  "
        print(f"{mark} {what}: {tally.exact} of {compared}{'; ' + detail if detail else ''}")
        for rule, count in sorted(tally.rules.items()):
            print(f"       {count:6} {rule}")
        for line in tally.unexplained[:_SHOWN]:
            print(f"     ? {line}")

    @property
    def all_hold(self) -> bool:
        """Whether every check held, and there were any."""
        return 0 < self.num_checks == self.num_exact + self.num_explained

    def finish(self) -> None:
        """Print the last line and leave with 0 if every check held, and there were any."""
        held = f"{self.num_exact + self.num_explained} of {self.num_checks} exact"
        print(f"{held} or explained" if self.num_explained else held)
        sys.exit(0 if self.all_hold else 1)


def unpack(archive: Path, folder: Path | str) -> None:
    """Unpack a tar archive of this project, or of the shared data."""
    # Python 3.11.0 to 3.11.3 have no filters
    safely: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
    with tarfile.open(archive) as content:
        content.extractall(folder, **safely)


def arguments(*defaults: str) -> list[Path]:
    """Give the paths named on the command line, or the defaults below the shared data."""
    given = [Path(argument) for argument in sys.argv[1:]]
    return given or [SHARED / default for default in defaults]


def takes_all() -> bool:
    """Tell whether the command line asks for everything (--all), and take that word from it."""
    asked = "--all" in sys.argv
    sys.argv = [word for word in sys.argv if word != "--all"]
    return asked


def run_parts(parts: dict[str, Callable[[Checks], None]]) -> None:
    """Run the parts that the command line names, or all; exit code 1 unless everything holds."""
    chosen = sys.argv[1:] or list(parts)
    if unknown := [part for part in chosen if part not in parts]:
        sys.exit(f"unknown part {unknown[0]}; parts are {', '.join(parts)}")
    checks = Checks()
    for part in chosen:
        parts[part](checks)
    checks.finish()
