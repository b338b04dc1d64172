"""Load language models by name, from those shipped with Nadi or from files."""

from __future__ import annotations

from pathlib import Path

from nadi.generate.llm.model_description import LanguageModel, parse_language_model
from nadi.load.shipped_files import Shelf

__all__ = ["load_language_model", "shipped_language_models"]

_SHELF = Shelf(
    "models", "language model", "nadi generate llm --model list prints them"
)  # fmt: skip


def shipped_language_models() -> list[str]:
    """Return the names of the language models shipped with Nadi, in alphabetical order."""
    return _SHELF.names()


def load_language_model(path_or_name: Path | str) -> LanguageModel:
    """Load the description of a language model.

    Parameters
    ----------
    path_or_name
        A file in TOML, YAML or JSON, or the name of a model shipped with Nadi.

    Raises
    ------
    InputError
        If the file cannot be read or is invalid; the message states the JSON path.
    UsageError
        If no model has this name; the message lists similar names.
    """
    return parse_language_model(*_SHELF.described(path_or_name))
