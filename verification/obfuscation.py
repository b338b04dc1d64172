"""Obfuscated jobs against their originals: answers, strings, attacks, and what privacy spends.

Usage: python verification/obfuscation.py [--all] [JOB ...]

A JOB is a folder as nadi simulate takes it; by default recordings of ../shared/data and generated
jobs. At each level the job is written and read again. On every system that ships with Nadi and
allows its ranks, the makespan and the time of each kind of the critical path differ
by at most 1 % (names, shapes) or 3 % (structure) of the makespan. No string of the original is in
any byte of the output, but words of the list of allowed words. Of jobs of known models, at most
1.5 times as many as by chance are identified at structure. At shapes, equations of FLOPs and bytes
rank the true hidden size at most 10 points above chance: that is over three deviations of the mean
of 100 keys, of who knows nothing. At private, the share that is identified may not be one that has
a probability below 0.1 % if it were 5 points more than by chance, whichever of four guessers is the
best. The noise comes never again: so the check fails by chance in one run of a thousand at most,
and of 500 jobs it finds a share that is 15 points above chance in 91 of 100 runs. The noise is that
of its epsilon, whose parts add up. By default a third of the systems is tried, and three models;
--all takes all, and more jobs.
"""

from __future__ import annotations

import io
import re
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise
from math import comb, exp
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import numpy as np
import polars as pl
from _report import SHARED, Checks

import nadi
from nadi.sharing import (
    BOX,
    GUARANTEES,
    IN_BOX,
    NOT_GUARANTEED,
    WORDS,
    PrivacyLoss,
    discrete_laplace,
    discrete_laplace_probability,
    network_of,
)
from nadi.sharing.attacks.attack_features import seen_of
from nadi.sharing.attacks.attacked_jobs import (
    attacked_corpus,
    identify,
    released_targets,
    vectors_of,
)

_RECORDINGS = ("cpu_ddp4", "cpu_mlp")
_MORE_RECORDINGS = (
    "cpu_transformer4",
    "cpu_transformer_mid",
    "gpu_resnet_pair",
    "gpu_simple_add_pair",
)
_PLANS: tuple[dict[str, Any], ...] = ({"tp": 2, "dp": 2},)
_MORE_PLANS: tuple[dict[str, Any], ...] = (
    {"pp": 2, "dp": 2, "global_batch": 8},
    {"tp": 4, "pp": 2},
    {"dp": 8},
    {"tp": 2, "pp": 2},
)
# not among those that ship, on which jobs are checked when they are obfuscated
_UNSEEN = {
    "a slow ring": {"topology": "ring", "bandwidth": "12.5GB/s", "latency": "5us"},
    "a fast switch": {"topology": "switch", "bandwidth": "300GB/s", "latency": "600ns"},
}
_FEW_MODELS = ("gpt3-1.3b", "llama2-13b", "qwen3-8b")
_LEVELS = ("names", "shapes", "structure")
_SHORTEST = 4  # shorter strings are found in any file
_IDENTIFIED = 0.9
_MOST_OF_CHANCE = 1.5
_ABOVE_CHANCE, _RANKED_HIGHER, _SOLVED = 0.05, 0.1, 0.85
_GUESSERS, _IMPROBABLE = 4, 1e-3  # of which the best counts
_WORD = re.compile(r"[A-Za-z_][\w.\-/]{3,}")
_STEPS = re.compile(rb"ProfilerStep#\d+")  # which stay, numbered anew
_DIGITS = 16  # of a pseudonym
_BEGIN = 4  # bytes of a text of more than 12 that a table has beside its place
_DRAWN, _OFF = 20_000, 0.012
_DRAWN_SYSTEMS, _ORDER_ON_LINKS = 200, 5e-4
_RELATION = PrivacyLoss(1.0, {}, 100_000, 0).relation
# of obfuscation.json besides its sentences
_KEYS = (
    "level", "names", "shapes", "structure", "private", "not_guaranteed", "salt", "key_check",
    "how_far", "measure", "systems", "at_most", "privacy", "epsilon", "spent", "times", "count",
    "neighboring_relation", "mechanism", "discrete Laplace noise", "computations",
    "comm_group.json", "box", "network", "a switch between all ranks", "bandwidth_gb_per_s",
    "latency_us",
    "speed_of_computations", "difference of the simulated time of the whole job",
    ("difference of the simulated time of the whole job, and of the time of any kind of the "
     "critical path, as shares of the time of the whole job"),
)  # fmt: skip


def check_job(job: Any, name: str, key: Path, checks: Checks, *, takes_all: bool) -> None:
    """Check answers and strings of a job at every level."""
    traces = job.traces if isinstance(job, nadi.Job) else tuple(job)
    systems = dict(_systems(len(traces)))
    if not takes_all:  # of all, nadi obfuscate itself has made sure
        systems = dict(list(systems.items())[::3])
    before = {which: _answers(job, system) for which, system in systems.items()}
    unseen = {which: _system(text, len(traces)) for which, text in _UNSEEN.items()}
    strings = _strings(traces)
    for level in (*_LEVELS, "private"):
        with tempfile.TemporaryDirectory() as folder:
            try:
                done = nadi.obfuscate(job, key, level)
            except nadi.NadiError as error:
                print(f"     {name} {level}: {error}")
                continue
            nadi.sharing.write_obfuscated(done, folder)
            again = nadi.recordings.read_job(folder)
            leaked = _leak(Path(folder), strings)
            checks.add(f"{name} {level}: no string of {len(strings)} is left", not leaked, leaked)
            if level == "private":
                continue
            allowed = GUARANTEES[level].tolerance
            off = {which: _difference(before[which], _answers(again, system))
                   for which, system in systems.items()}  # fmt: skip
            within = sum(one <= allowed for one in off.values())
            detail = f"largest difference {max(off.values()):.2%}"
            checks.add_many(f"{name} {level}: answers within {allowed:.0%}", within, len(off),
                            detail)  # fmt: skip
            if done.in_box is not None:
                random = Random(f"{name} {level}")
                count = _DRAWN_SYSTEMS if takes_all else _DRAWN_SYSTEMS // 10
                drawn = [_drawn(random, len(traces)) for _ in range(count)]
                apart = [_step_difference(job, again, one) for one in drawn]
                held = sum(one <= IN_BOX + _ORDER_ON_LINKS for one in apart)
                checks.add_many(f"{name} {level}: step within {IN_BOX:.0%} on drawn systems", held,
                                len(apart), f"largest {max(apart):.2%}")  # fmt: skip
            others = [_difference(_answers(job, one), _answers(again, one))
                      for one in unseen.values()]  # fmt: skip
            print(f"     {name} {level}: on systems never seen {max(others):.2%}")


def _drawn(random: Random, ranks: int) -> Any:
    """Draw a system from the box of which level shapes promises something."""
    bandwidth = BOX.slowest * (BOX.fastest / BOX.slowest) ** random.random()
    latency = BOX.shortest * (BOX.longest / BOX.shortest) ** random.random()
    return network_of(ranks, bandwidth, latency)


def _step_difference(job: Any, again: Any, system: Any) -> float:
    before, after = nadi.simulate(job, system).makespan, nadi.simulate(again, system).makespan
    return abs(after / before - 1)


def _systems(ranks: int) -> Iterator[tuple[str, Any]]:
    for name in nadi.systems.shipped_systems():
        try:
            yield name, nadi.load_system(name, ranks)
        except nadi.NadiError:
            continue


def _system(stated: dict[str, str], ranks: int) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "system.json"
        dimension = {**stated, "size": ranks}
        path.write_bytes(msgspec.json.encode({"network": {"dimensions": [dimension]}}))
        return nadi.load_system(path, ranks)


def _answers(job: Any, system: Any) -> tuple[int, dict[str, int]]:
    done = nadi.simulate(job, system)
    return done.makespan, dict(nadi.simulation.simulated_path(done).by_kind())


def _difference(before: tuple[int, dict[str, int]], after: tuple[int, dict[str, int]]) -> float:
    kinds = {*before[1], *after[1]}
    apart = [abs(before[1].get(kind, 0) - after[1].get(kind, 0)) for kind in kinds]
    return max(abs(before[0] - after[0]), *apart) / max(before[0], 1)


def _strings(traces: Any) -> set[bytes]:
    """Return every text of a job: names, groups, values of attributes, words in them, sources."""
    texts: set[str] = set()
    for trace in dict.fromkeys(traces):
        texts |= set(trace.nodes["name"].cast(str).to_list())
        texts |= set(trace.nodes["phase"].cast(str).to_list())
        texts |= {text for row in trace.groups.rows() for text in row if isinstance(text, str)}
        texts |= set(trace.attributes.names)
        texts |= {text for one in trace.provenance.sources for text in (one.path, one.hash)}
        texts |= set(trace.issues["detail"].to_list())
        texts |= set(trace.attrs["value"].to_list())
    words = {word for text in texts for word in _WORD.findall(text)}
    long = {text.encode() for text in texts | words if len(text) >= _SHORTEST}
    return {text for text in long if re.search(rb"[A-Za-z]", text)}


def _leak(folder: Path, strings: set[bytes]) -> str:
    """Return a string of the original in any byte of any file; "" for none."""
    # alone, or before the digits of a pseudonym
    words = {word.encode() + end for word in WORDS for end in (b"", b"_")}
    allowed = sorted(words, key=len, reverse=True)
    for path in sorted(folder.iterdir()):
        content = _STEPS.sub(b"\0", _pseudonyms().sub(b"\0", _content(path)))
        for text in sorted(_present(strings, content)):
            rest = content
            for word in (*_plain(path.suffix), *allowed):  # it may be a part of one, and no more
                rest = rest.replace(word, b"\0") if text in word else rest
            rest = _begins().sub(b"\0", rest) if len(text) == _BEGIN else rest
            if text in rest:
                at = rest.index(text)
                return f"{path.name}: {text!r} in {rest[max(at - 20, 0) : at + 40]!r}"
    return ""


@cache
def _pseudonyms() -> re.Pattern[bytes]:
    """Match an allowed word with the digits of a pseudonym, which may stand by any others."""
    words = b"|".join(re.escape(one.encode()) for one in sorted(WORDS, key=len, reverse=True))
    return re.compile(b"(?:%s)_[0-9a-f]{%d}" % (words, _DIGITS))


@cache
def _begins() -> re.Pattern[bytes]:
    """Match the begin of an allowed word where a table has its length before.

    Arrow's string views, compressed or not: the texts themselves are elsewhere, and searched there.
    """
    begins = {one.encode()[:_BEGIN] for one in WORDS if len(one) > _BEGIN}
    words = b"|".join(map(re.escape, sorted(begins)))
    return re.compile(rb"[\x0d-\xff]\0\0\0(?:" + words + rb")")


def _present(strings: set[bytes], content: bytes) -> set[bytes]:
    """Return the strings that are in some bytes; most are ruled out by their first four bytes."""
    data = np.frombuffer(content, dtype=np.uint8).astype(np.uint32)
    places = [data[n : data.size - 3 + n] << np.uint32(24 - 8 * n) for n in range(4)]
    starts = set(np.unique(places[0] | places[1] | places[2] | places[3]).tolist())
    likely = {text for text in strings if int.from_bytes(text[:4], "big") in starts
              and int.from_bytes(text[-4:], "big") in starts}  # fmt: skip
    return {text for text in likely if text in content}


def _content(path: Path) -> bytes:
    """Return the bytes of a file, and those of compressed tables in it as they are unpacked."""
    found = path.read_bytes()
    if path.suffix != ".nadi":
        return found
    with zipfile.ZipFile(path) as members:
        for name in members.namelist():
            if name.endswith(".arrow"):
                out = io.BytesIO()
                pl.read_ipc(members.read(name)).write_ipc(out, compression="uncompressed")
                found += out.getvalue()
    return found


@cache
def _plain(suffix: str) -> list[bytes]:
    """Return the words in a file of a format that has nothing to hide, longest first."""
    if suffix == ".json":
        told = [text for one in GUARANTEES.values() for text in one if isinstance(text, str)]
        texts = [*told, *NOT_GUARANTEED, *_KEYS, *nadi.systems.shipped_systems(), _RELATION]
        return sorted((text.encode() for text in texts), key=len, reverse=True)
    with nadi.JobBuilder(2) as job:
        group = job.group("1", (0, 1))
        job.all_ranks.compute("x", duration="1 us")
        job.all_ranks.collective("all_reduce", 64, group=group)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"x{suffix}"
        nadi.write(job.job.traces[0], path)
        content = _content(path)
    columns = {name.encode() for table in nadi.trace.schema.TABLES for name in table.dtypes}
    return sorted({*re.findall(rb"[\w.]{4,}", content), *columns}, key=len, reverse=True)


def check_attacks(checks: Checks, *, takes_all: bool) -> None:
    """Check that models are identified before, and hardly more often than by chance after."""
    models = nadi.sharing.ATTACKED_MODELS if takes_all else _FEW_MODELS
    jobs = 10 if takes_all else 4
    found = nadi.sharing.attack(models, levels=("shapes", "structure"), jobs=jobs)
    rows = {row["level"]: row for row in found.filter(attack="identification").to_dicts()}
    check_private(models, 100 if takes_all else 12, checks)
    solved = found.filter(pl.col("attack") == "hidden size by equations")
    ranks = dict(solved.select("level", "accuracy").iter_rows())
    checks.add("equations find hidden sizes of the original", ranks["original"] > _SOLVED)
    checks.add(
        f"at shapes equations rank hidden sizes at most {_RANKED_HIGHER:.0%} above chance",
        ranks["shapes"] <= 0.5 + _RANKED_HIGHER, f"{ranks['shapes']:.0%}",
    )  # fmt: skip
    before, after = rows["original"], rows["structure"]
    checks.add("identification of the original succeeds", before["accuracy"] > _IDENTIFIED,
               f"{before['accuracy']:.0%} of {before['jobs']} jobs")  # fmt: skip
    checks.add(
        f"identification at structure is at most {_MOST_OF_CHANCE} times chance",
        after["accuracy"] <= _MOST_OF_CHANCE * after["chance"],
        f"{after['accuracy']:.0%} of {after['jobs']} jobs, chance {after['chance']:.0%}",
    )


def check_private(models: Sequence[str], jobs: int, checks: Checks) -> None:
    """Check that a job's model is not found at private; noise makes each run another."""
    random = np.random.default_rng(0)
    corpus = attacked_corpus(models, jobs, random)
    known = [seen_of(made.recordings[0]) for made in corpus]
    targets = released_targets(corpus, known, "private", random)
    share = identify([target.model for target in targets], *vectors_of(targets))
    most, size = 1 / len(models) + _ABOVE_CHANCE, len(targets)
    by_chance = _GUESSERS * _at_least(round(share * size), size, most)
    checks.add(
        f"identification at private is not over {_ABOVE_CHANCE:.0%} above chance",
        by_chance >= _IMPROBABLE, f"{share:.1%} of {size} jobs, chance {1 / len(models):.0%}; if "
        f"{most:.0%} were found, so many have a probability of {min(by_chance, 1):.2g}",
    )  # fmt: skip


def _at_least(right: int, trials: int, share: float) -> float:
    """Return how probable so many right guesses or more are, if a share of all is right."""
    terms = (comb(trials, k) * share**k * (1 - share) ** (trials - k)
             for k in range(right, trials + 1))  # fmt: skip
    return sum(terms)


def check_noise(checks: Checks) -> None:
    """Check the probabilities of the noise, and that they keep what epsilon promises."""
    random = Random(0)
    for scale in (Fraction(1, 2), Fraction(3), Fraction(50, 7)):
        drawn = [discrete_laplace(scale, random) for _ in range(_DRAWN)]
        wanted = [discrete_laplace_probability(k, scale) for k in range(-3, 4)]
        off = max(abs(drawn.count(k) / _DRAWN - wanted[k + 3]) for k in range(-3, 4))
        checks.add(f"noise of scale {scale} has its probabilities", off < _OFF, f"off {off:.4f}")
        chance = [discrete_laplace_probability(k, scale) for k in range(-20, 21)]
        ratio = max(one / other for one, other in pairwise(chance))
        checks.add(f"noise of scale {scale} spends 1 / scale", ratio <= exp(1 / scale) * (1 + 1e-9))


def check_accounting(job: Any, key: Path, checks: Checks) -> None:
    """Check that the parts of epsilon add up, and that more of it leaves less noise."""
    apart = []
    for epsilon in (0.01, 10.0):  # noise is drawn anew each time, so the two are far apart
        done = nadi.obfuscate(job, key, "private", epsilon=epsilon)
        spent = done.report["privacy"]["spent"]
        checks.add(f"epsilon {epsilon:g} is the sum of its parts",
                   abs(sum(spent.values()) - epsilon) < 1e-9)  # fmt: skip
        again = nadi.obfuscate(job, key, "private", epsilon=epsilon)
        times = [int(one.job.traces[0].column("duration").clip(0).sum()) for one in (done, again)]
        apart.append(abs(times[0] - times[1]))
        checks.add(f"epsilon {epsilon:g}: noise never comes again", apart[-1] > 0)
    checks.add("with less noise two releases are nearer to each other", apart[1] < apart[0],
               ", ".join(f"{one:,} ns" for one in apart))  # fmt: skip


def main() -> None:
    """Check the jobs that are given, or the default ones, and all the rest."""
    given = [argument for argument in sys.argv[1:] if argument != "--all"]
    takes_all = "--all" in sys.argv[1:]
    checks = Checks()
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "key"
        key.write_text("3b1f0c27d5a84e96b2780c9d1ea34f65")
        names = given or [
            str(SHARED / "traces" / name)
            for name in (*_RECORDINGS, *(_MORE_RECORDINGS if takes_all else ()))
        ]
        for name in names:
            if Path(name).exists():
                read = nadi.recordings.read_job(name)
                check_job(read, Path(name).name, key, checks, takes_all=takes_all)
        plans = () if given else (*_PLANS, *(_MORE_PLANS if takes_all else ()))
        for plan in plans:
            job = _timed(plan)
            check_job(job, f"llama3-8b {plan}", key, checks, takes_all=takes_all)
        if plans:
            check_accounting(_timed({"dp": 2}), key, checks)
            check_attacks(checks, takes_all=takes_all)
    check_noise(checks)
    checks.finish()


def _timed(plan: dict[str, Any]) -> Any:
    """Return a generated job with the times that an H100 takes."""
    job = nadi.llm_job("llama3-8b", **plan)
    system = nadi.load_system("dgx-h100", len(job.traces))
    return nadi.systems.price_job(job, system)[0]


if __name__ == "__main__":
    main()
