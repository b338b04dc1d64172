"""What ``nadi.formats`` gives; each name is loaded when it is first used."""

from .registry import Format as Format
from .trace_files import read as read, sniff as sniff, write as write
