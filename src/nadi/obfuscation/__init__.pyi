"""What ``nadi.obfuscation`` gives; each name is loaded when it is first used."""

from .allowed_words import WORDS as WORDS
from .attacks import ATTACKS as ATTACKS
from .certified_box import BOX as BOX, network_of as network_of
from .fidelity import Fidelity as Fidelity
from .guarantees import (
    GUARANTEES as GUARANTEES,
    IN_BOX as IN_BOX,
    LEVELS as LEVELS,
    NOT_GUARANTEED as NOT_GUARANTEED,
    Guarantee as Guarantee,
)
from .laplace_noise import (
    discrete_laplace as discrete_laplace,
    discrete_laplace_probability as discrete_laplace_probability,
)
from .obfuscated_job import ObfuscatedJob as ObfuscatedJob, PrivacyLoss as PrivacyLoss
from .secret_key import SecretKey as SecretKey
