"""The owner's key: what pseudonyms, factors and the check of a key are derived from."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence
from dataclasses import dataclass, field

import polars as pl

from nadi.errors import InputError
from nadi.trace.trace import Trace

_LEAST_BYTES = 16
_LEAST_DIFFERENT = 8
_PER_UNIT = 1 << 64
_DIGITS = 16
_REMEDY = "make one with: openssl rand -hex 32 > FILE"


@dataclass(frozen=True)
class SecretKey:
    """A key, and the salt of one job: pseudonyms of two jobs have nothing in common.

    Attributes
    ----------
    secret
        The bytes of the key.
    salt
        Differs from job to job; it is derived from the key and the job, and is not secret.
    """

    secret: bytes = field(repr=False)
    salt: bytes = b""

    def for_job(self, digest: bytes) -> SecretKey:
        """Return the key with the salt of a job, from a digest of its content."""
        return SecretKey(self.secret, SecretKey(self.secret).digest("salt", digest)[:_DIGITS])

    def digest(self, *parts: str | bytes) -> bytes:
        """Return the HMAC-SHA256 of some parts, 32 bytes (RFC 2104)."""
        message = [self.salt, *(p.encode() if isinstance(p, str) else p for p in parts)]
        # lengths keep ("ab", "c") and ("a", "bc") apart
        joined = b"".join(len(part).to_bytes(8, "big") + part for part in message)
        return hmac.new(self.secret, joined, hashlib.sha256).digest()

    def word(self, *parts: str) -> str:
        """Return 16 hexadecimal digits that stand for some parts."""
        return self.digest(*parts).hex()[:_DIGITS]

    def unit(self, *parts: str) -> float:
        """Return a number from -1 to 1 that follows from some parts, evenly distributed."""
        return 2 * int.from_bytes(self.digest(*parts)[:8], "big") / _PER_UNIT - 1

    @property
    def check(self) -> str:
        """What a report states, by which the key is recognized and not found."""
        return self.word("check")


def key_of(content: bytes, where: str) -> SecretKey:
    """Return the key of a file's content; white space around it does not count.

    - Raises InputError if it is too short, or too regular to be random.
    """
    secret = content.strip()
    if len(secret) < _LEAST_BYTES:
        what = f"a key of {len(secret)} bytes can be guessed: at least {_LEAST_BYTES} are needed"
        raise InputError(where, what, _REMEDY)
    if len(set(secret)) < _LEAST_DIFFERENT:
        what = f"a key of {len(set(secret))} different bytes is not random"
        raise InputError(where, what, _REMEDY)
    return SecretKey(secret)


def job_digest(traces: Sequence[Trace]) -> bytes:
    """Return a digest of what a job's operations are and how long they took. O(nodes)."""
    found = hashlib.blake2b(digest_size=_DIGITS)
    for trace in {id(one): one for one in traces}.values():
        for column in ("id", "start", "duration", "comm_bytes"):
            found.update(trace.column(column).tobytes())
        found.update("\n".join(trace.nodes["name"].cast(pl.String).to_list()).encode())
    return found.digest()
