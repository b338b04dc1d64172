"""Read the owner's key from a file."""

from __future__ import annotations

from pathlib import Path

from nadi.errors import InputError
from nadi.files.addresses import locate
from nadi.sharing.obfuscation.secret_key import SecretKey, key_of

__all__ = ["read_key"]

_LARGEST = 1 << 16


def read_key(path: Path | str) -> SecretKey:
    """Read a key: at least 16 random bytes, or their text.

    Raises
    ------
    InputError
        If the file cannot be read, or holds no key.
    """
    try:
        with locate(path).open("rb") as file:  # of a pipe, too, which a program of keys writes
            content = file.read(_LARGEST + 1)
    except OSError as error:
        what = f"the key cannot be read: {error.strerror or error}"
        raise InputError(str(path), what, "make one with: openssl rand -hex 32 > FILE") from None
    if len(content) > _LARGEST:
        what = f"a file of over {_LARGEST} bytes is no key"
        raise InputError(str(path), what, "name the file of the key")
    return key_of(content, str(path))
