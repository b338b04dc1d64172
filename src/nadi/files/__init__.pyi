"""What ``nadi.files`` gives; each name is loaded when it is first used."""

from .goal import (
    Action as Action,
    MessageProgram as MessageProgram,
    read_goal as read_goal,
    write_goal as write_goal,
)
from .registry import Format as Format
from .trace_files import read as read, sniff as sniff, write as write
