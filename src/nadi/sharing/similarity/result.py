"""How alike two jobs are: distances with their reference points, and makespans on systems."""

from nadi.results.declared import ALL, LABEL, NAME, NS, Column, Lines, Result, Rows, decimals
from nadi.units import format_change

_DISTANCE = decimals(3)

SIMILARITY = Result(
    kind="similarity", title="Similarity of two jobs", order=84,
    facts=(Column("reference_system", get=lambda found: found.reference),),
    headline=None,
    parts=(
        Rows(
            "measures", "distance from 0 (equal) to 1 (nothing in common)",
            lambda found: found.measures,
            (
                Column("measure", "measure"),
                Column("distance", "distance", _DISTANCE),
                Column("floor", "same program", _DISTANCE, "of another recording of A's program",
                       is_rare=True),
                Column("ceiling", "independent draws", _DISTANCE, "of operations of A, drawn"),
                Column("is_near"),
                Column("is_near", " ", shown=lambda row: "near" if row["is_near"] else "far"),
            ),
            pick=lambda data: [
                i for i, row in enumerate(data["measures"]) if "makespan" not in row["measure"]
            ],
            top=ALL,
        ),
        Lines(lambda data: [
            "gaps, live memory, critical path and responses: as simulated on "
            + data["reference_system"], "",
        ]),
        Rows(
            "verbatim", "how much of B stands in A", lambda found: found.verbatim,
            (
                Column("measure", "operations with their sizes"),
                Column("share", "share", _DISTANCE),
                Column("floor", "same program", _DISTANCE, "of another recording of A's program",
                       is_rare=True),
                Column("ceiling", "independent draws", _DISTANCE, "of operations of A, drawn"),
            ),
            top=ALL,
        ),
        Lines(lambda _: [""]),
        Rows(
            "makespan_ns", "simulated time of the whole job",
            lambda found: [(*key, *both) for key, both in found.makespan_ns.items()],
            (
                Column("system", "system", NAME, get=lambda row: row[0]),
                Column("what_if", "what-if", NAME, get=lambda row: row[1]),
                Column("a", "A", NS, get=lambda row: row[2]),
                Column("b", "B", NS, get=lambda row: row[3]),
                Column("", "difference", LABEL,
                       shown=lambda row: format_change(row["b"], row["a"])),
            ),
            top=ALL,
        ),
    ),
)  # fmt: skip
