"""Load networks by name, from those shipped with Nadi or from files."""

from __future__ import annotations

from pathlib import Path

from nadi.errors import NadiError
from nadi.files.settings_text import parse_settings
from nadi.files.shipped_files import Shelf
from nadi.models.networks.network_description import NeuralNetwork
from nadi.models.networks.network_file import parse_network

__all__ = ["is_network", "load_network", "shipped_networks"]

_SHELF = Shelf("networks", "network", "nadi generate network --model list prints them")


def shipped_networks() -> list[str]:
    """Return the names of the networks shipped with Nadi, in alphabetical order."""
    return _SHELF.names()


def is_network(path_or_name: Path | str) -> bool:
    """Tell whether this is the name of a network, or a file that lists layers."""
    if str(path_or_name) in shipped_networks():
        return True
    if not Path(path_or_name).is_file():
        return False
    try:
        found = parse_settings(*_SHELF.described(path_or_name), "network")
    except NadiError:
        return False  # and reading it as another model says what is wrong
    return isinstance(found, dict) and isinstance(found.get("layers"), list)


def load_network(path_or_name: Path | str) -> NeuralNetwork:
    """Load a network of layers: for images, recommendations or diffusion.

    Parameters
    ----------
    path_or_name
        A file in TOML, YAML or JSON, or the name of a network shipped with Nadi.

    Raises
    ------
    InputError
        If the file cannot be read or is invalid; the message states the JSON path.
    UsageError
        If no network has this name; the message lists similar names.
    """
    return parse_network(*_SHELF.described(path_or_name))
