"""Load networks by name, from those shipped with Nadi or from files."""

from __future__ import annotations

from pathlib import Path

from nadi.formats.files import read_settings
from nadi.generate.networks.network_description import NeuralNetwork
from nadi.generate.networks.network_file import parse_network
from nadi.load.shipped_files import Shelf

__all__ = ["load_network", "shipped_networks"]

_SHELF = Shelf("networks", "network", "nadi.load.shipped_networks() lists them")


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
    if _SHELF.has_name(path_or_name):
        text = _SHELF.text(str(path_or_name))
        return parse_network(text.encode(), ".toml", str(path_or_name))
    path = Path(path_or_name)
    content = read_settings(path, f"check the path; {_SHELF.listing}")
    return parse_network(content, path.suffix, str(path))
