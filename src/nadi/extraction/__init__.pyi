"""What ``nadi.extraction`` gives; each name is loaded when it is first used."""

from .cut_graphs import Cut as Cut, Half as Half, cut_graph as cut_graph
from .part_selection import PartOf as PartOf, part_operations as part_operations
