"""An obfuscated job, and the report that is shared with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nadi.sharing.obfuscation.certified_box import BOX
from nadi.sharing.obfuscation.fidelity import Fidelity
from nadi.sharing.obfuscation.guarantees import GUARANTEES, IN_BOX, NOT_GUARANTEED
from nadi.trace.trace import Job
from nadi.units import format_bytes, format_ns

__all__ = ["ObfuscatedJob", "PrivacyLoss"]


@dataclass(frozen=True)
class PrivacyLoss:
    """What a release at level ``private`` spends.

    Attributes
    ----------
    epsilon
        Of the whole release.
    spent
        Its parts: what was released, and the epsilon of that.
    unit_ns, unit_bytes
        Neighboring jobs differ by one computation that lasts at most so long, or by one
        communication by which each member sends at most so many bytes.
    computations
        The number of computations, with noise.
    """

    epsilon: float
    spent: dict[str, float]
    unit_ns: int
    unit_bytes: int
    computations: int

    @property
    def relation(self) -> str:
        """Which jobs are neighbors."""
        return (
            "two jobs whose ranks communicate along the same axes, and of which the same ranks "
            "share a trace, are neighbors if one trace of one of them has one more computation, "
            f"of at most {format_ns(self.unit_ns)}; or if it has one more communication, by which "
            f"each member sends at most {format_bytes(self.unit_bytes)}"
        )


@dataclass(frozen=True, eq=False)
class ObfuscatedJob:
    """A job that can be shared, and what its owner knows about it.

    Attributes
    ----------
    job
        The job to share.
    level
        One of ``names``, ``shapes``, ``structure`` and ``private``.
    salt, key_check
        Hexadecimal: what pseudonyms depend on besides the key, and by what the key is recognized.
    recorded
        Whether it is still a recording, which is written as ``.nadi``, or nodes for a simulator.
    fidelity
        Of each system on which both jobs were simulated. It is for the owner: at ``private`` it
        is computed from the original and would spend more than epsilon.
    original_nodes
        Number of nodes of the original.
    in_box
        By which share of the step time it differs at most on any system of the box, at ``shapes``
        of a job whose computations have times; for the owner, too.
    privacy
        At level ``private``.
    """

    job: Job
    level: str
    salt: str
    key_check: str
    recorded: bool
    original_nodes: int
    fidelity: tuple[Fidelity, ...] = ()
    in_box: float | None = None
    privacy: PrivacyLoss | None = None

    @property
    def report(self) -> dict[str, Any]:
        """What is shared with the job: what is preserved, how far, what is not, against whom."""
        promised = GUARANTEES[self.level]
        found: dict[str, Any] = {
            "level": self.level,
            "preserved": promised.preserved,
            "removed": promised.removed,
            "against": promised.against,
            "not_guaranteed": list(NOT_GUARANTEED),
            "salt": self.salt,
            "key_check": self.key_check,
        }
        if self.fidelity and promised.tolerance > 0:
            found["how_far"] = {
                "measure": "difference of simulated step time, and of the time of any kind of the "
                "critical path, as shares of the step time",
                "at_most": promised.tolerance,
                "systems": [one.system for one in self.fidelity],
            }
        if self.in_box is not None:
            found["how_far"]["box"] = {
                "measure": "difference of simulated step time", "at_most": IN_BOX,
                "network": "a switch between all ranks", "bandwidth_gb_per_s": [
                    BOX.slowest, BOX.fastest,
                ],
                "latency_us": [BOX.shortest / 1000, BOX.longest / 1000],
                "speed_of_computations": [BOX.slower, BOX.faster],
            }  # fmt: skip
        if self.privacy is not None:
            found["privacy"] = {
                "epsilon": self.privacy.epsilon,
                "spent": self.privacy.spent,
                "neighboring_relation": self.privacy.relation,
                "mechanism": "discrete Laplace noise",
                "computations": self.privacy.computations,
            }
        return found
