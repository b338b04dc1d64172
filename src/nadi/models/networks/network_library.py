"""Load networks by name, from those shipped with Nadi or from files."""

from __future__ import annotations

from pathlib import Path

from nadi.files.shipped_files import Shelf
from nadi.models.networks.network_description import NeuralNetwork
from nadi.models.networks.network_file import parse_network

__all__ = ["load_network", "shipped_networks"]

_SHELF = Shelf("networks", "network", "nadi generate network --model list prints them")


def shipped_networks() -> list[str]:
    """Return the names of the networks shipped with Nadi, in alphabetical order."""
    return _SHELF.names()


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
