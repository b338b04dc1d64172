"""``python -m nadi``."""

from nadi.cli import run

run()
