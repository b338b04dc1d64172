"""What ``nadi.sharing`` gives; each name is loaded when it is first used."""

from .attacks.attacked_jobs import (
    ATTACKED_MODELS as ATTACKED_MODELS,
    ATTACKS as ATTACKS,
    attack as attack,
)
from .conditional.conditional_model import (
    ConditionalModel as ConditionalModel,
    write_generator as write_generator,
)
from .conditional.generators import (
    PrivateLearning as PrivateLearning,
    generator_job as generator_job,
    learn_generator as learn_generator,
    learn_privately as learn_privately,
    read_generator as read_generator,
)
from .conditional.released_corpus import (
    LearnedTimes as LearnedTimes,
    PrivateCorpus as PrivateCorpus,
    Release as Release,
    margins_of as margins_of,
    times_of as times_of,
)
from .conversion.convert import Conversion as Conversion, convert as convert
from .conversion.link_files import (
    LinkedFile as LinkedFile,
    Linking as Linking,
    link_files as link_files,
)
from .obfuscation.fidelity import (
    BOX as BOX,
    GUARANTEES as GUARANTEES,
    IN_BOX as IN_BOX,
    LEVELS as LEVELS,
    NOT_GUARANTEED as NOT_GUARANTEED,
    Fidelity as Fidelity,
    Guarantee as Guarantee,
    ObfuscatedJob as ObfuscatedJob,
    PrivacyLoss as PrivacyLoss,
    network_of as network_of,
)
from .obfuscation.obfuscate import (
    obfuscate as obfuscate,
    reveal as reveal,
    write_obfuscated as write_obfuscated,
)
from .obfuscation.private_job import (
    WORDS as WORDS,
    discrete_gaussian as discrete_gaussian,
    discrete_laplace as discrete_laplace,
    discrete_laplace_probability as discrete_laplace_probability,
)
from .obfuscation.secret_key import SecretKey as SecretKey
from .parts.extract import (
    Cut as Cut,
    Extraction as Extraction,
    Half as Half,
    cut_graph as cut_graph,
    extract as extract,
)
from .similarity.similarity import (
    JobMeasures as JobMeasures,
    Likeness as Likeness,
    Similarity as Similarity,
    compare as compare,
    distances_of as distances_of,
    independent_sample as independent_sample,
    measures_of as measures_of,
)
from .synthesis.column_traces import job_of_columns as job_of_columns
from .synthesis.job_columns import (
    JobColumns as JobColumns,
    RankColumns as RankColumns,
    columns_of_job as columns_of_job,
)
from .synthesis.learned_jobs import learn as learn, synthesize as synthesize
from .synthesis.learned_model import Template as Template, TraceModel as TraceModel
from .synthesis.model_bytes import (
    read_trace_model as read_trace_model,
    write_trace_model as write_trace_model,
)
from .synthesis.synthetic_jobs import JobWishes as JobWishes, synthetic_job as synthetic_job
