"""Files that are shipped with Nadi and found by name: systems, devices and language models."""

import difflib
from importlib import resources
from os.path import isdir, isfile  # which take names of any length
from pathlib import Path
from typing import NamedTuple

from nadi.errors import UsageError
from nadi.files.files import read_settings
from nadi.files.settings_text import SETTINGS_ENDINGS


class Shelf(NamedTuple):
    """A folder of shipped TOML files."""

    folder: str  # its name in ``nadi/data``
    what: str  # what a file describes, such as ``system``
    listing: str  # what lists them, as the end of a remedy: ``nadi systems lists them``

    def names(self) -> list[str]:
        """Return the names of the files, in alphabetical order."""
        place = resources.files("nadi") / "data" / self.folder
        names = (entry.name for entry in place.iterdir())
        return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))

    def text(self, name: str) -> str:
        """Return the text of the file with a name.

        - Raises UsageError if there is none; the message lists similar names.
        """
        known = self.names()
        where = f"{self.what} {name!r}"
        if name not in known and isdir(name):
            raise UsageError(where, "is a folder, not a file", "pass the file in it")
        if name not in known and isfile(name):
            raise UsageError(where, "is a file, not the name of one that ships with Nadi",
                             self.listing)  # fmt: skip
        if name not in known:
            near = difflib.get_close_matches(name.lower(), known, n=2, cutoff=0.4)
            remedy = f"did you mean {' or '.join(near)}" if near else f"known: {', '.join(known)}"
            what = f"no file and no {self.what} has this name"
            raise UsageError(where, what, f"{remedy}; {self.listing}")
        place = resources.files("nadi") / "data" / self.folder / f"{name}.toml"
        return place.read_text(encoding="utf-8")

    def described(self, path_or_name: Path | str) -> tuple[bytes, str, str]:
        """Return the content of a shipped file by its name, or of the user's own by its path.

        - Returns tuple of bytes, str and str: Content, suffix, and what errors call it.
        - Raises InputError if the file cannot be read.
        - Raises UsageError if it is a name that no shipped file has; the message lists similar
          names.
        """
        if self.has_name(path_or_name):
            return self.text(str(path_or_name)).encode(), ".toml", str(path_or_name)
        path = Path(path_or_name)
        return read_settings(path, f"check the path; {self.listing}"), path.suffix, str(path)

    def has_name(self, path_or_name: Path | str) -> bool:
        """Return whether this is meant as a name, not as a file.

        - Raises UsageError if it is neither.
        """
        if not isinstance(path_or_name, str | Path):
            what = f"it is of type {type(path_or_name).__name__}, neither a name nor a path"
            raise UsageError(self.what, what, self.listing)
        path = Path(path_or_name)
        return path.suffix.lower() not in SETTINGS_ENDINGS and not isfile(path)
