"""What ``nadi.obfuscation`` gives; each name is loaded when it is first used."""

from .fidelity import Fidelity as Fidelity
from .guarantees import (
    GUARANTEES as GUARANTEES,
    LEVELS as LEVELS,
    NOT_GUARANTEED as NOT_GUARANTEED,
    Guarantee as Guarantee,
)
from .obfuscated_job import ObfuscatedJob as ObfuscatedJob, PrivacyLoss as PrivacyLoss
from .secret_key import SecretKey as SecretKey
