"""Load language models by name, from those shipped with Nadi or from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nadi.files.settings_text import parse_settings
from nadi.files.shipped_files import Shelf
from nadi.models.llm.language_model import LanguageModel, language_model_from

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
    return language_model_from(read_model_keys(path_or_name), str(path_or_name))


def read_model_keys(path_or_name: Path | str) -> Any:
    """Read what the file of a language model states, unchecked: dicts, lists and plain values.

    Raises
    ------
    InputError, UsageError
        As for :func:`load_language_model`, but for what is invalid in it.
    """
    content, suffix, name = _SHELF.described(path_or_name)
    return parse_settings(content, suffix, name, "language model")
