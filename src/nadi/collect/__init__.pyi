"""What ``nadi.collect`` gives; each name is loaded when it is first used."""

from .recorder import Recording as Recording, record as record
