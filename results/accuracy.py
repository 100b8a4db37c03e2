"""The blocks about accuracy: tables over all sessions, and the sentences that need numbers."""

from __future__ import annotations

import statistics
import textwrap
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from fscil import grid, paper
from fscil.results import Result, read_result

FOLDER = Path(__file__).resolve().parent
COMPARED = {"last": "last session", "harmonic_mean": "harmonic mean"}  # these runs have no area


@cache
def load(pattern: str) -> list[Result]:
    """The results whose file is results/PATTERN-seedN.json."""
    found = [read_result(path) for path in FOLDER.glob(f"{pattern}-seed*.json")]
    return sorted(found, key=lambda result: result.seed)


def mean(results: Sequence[Result], key: str) -> str:
    return f"{statistics.fmean(getattr(result, key) for result in results):.2f}"


def seeds(results: Sequence[Result]) -> str:
    return "1 seed" if len(results) == 1 else f"{len(results)} seeds"


def settings(results: Sequence[Result]) -> str:
    """The settings that were typed after the preset's name."""
    return " ".join(word for word in results[0].command.split() if "=" in word)


def published(method: str, augmentation: str = "autoaug") -> paper.Row:
    row = paper.find("cifar100", method, augmentation)
    assert row is not None
    assert row.augmentation == augmentation, f"the paper has no {method} with {augmentation}"
    return row


def against(results: Sequence[Result], row: paper.Row) -> str:
    """How far our last session is above or below the paper's."""
    return points(statistics.fmean(result.last for result in results) - row.accuracy[-1])


def points(gap: float) -> str:
    return f"{abs(gap):.2f} points {'above' if gap > 0 else 'below'}"


def paragraph(text: str) -> str:
    """Text in lines of equal length; a list item keeps its indent."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(" ".join(text.split()), 118, subsequent_indent=indent, break_on_hyphens=False) + "\n"


# tables


def ours(label: str, results: Sequence[Result]) -> list[list[str]]:
    """Means over the seeds, and below them the standard deviations."""
    label = f"{label}, {seeds(results)}"
    rows = [[*r.accuracy, r.pd, r.average, r.base, r.new, r.harmonic_mean] for r in results]
    columns = [[value for value in column if value is not None] for column in zip(*rows, strict=True)]
    lines = [[label, *(f"{statistics.fmean(column):.2f}" for column in columns)]]
    if len(results) > 1:
        lines.append(["", *(f"±{statistics.stdev(column):.2f}" for column in columns)])
    return lines


def theirs(label: str, accuracy: Sequence[float], pd: float) -> list[list[str]]:
    return [[label, *(f"{value:.2f}" for value in (*accuracy, pd, statistics.fmean(accuracy))), "", "", ""]]


def session_table(*parts: list[list[str]]) -> str:
    header = ["", *map(str, range(len(parts[0][0]) - 6)), "PD", "average", "base", "new", "HM"]
    return grid.markdown([header, *(line for part in parts for line in part)])


# blocks

SAME_EMBEDDING = "decoupled-cosine-same-embedding"


def short() -> str:
    """The README's own table, and what a reader needs to know about it."""
    limit, plain, same = (load(f"cifar100/{name}") for name in ("limit", "decoupled-cosine", SAME_EMBEDDING))
    letter, row, cosine_row = load("cifar100/limit-paper"), published("limit"), published("decoupled-cosine", "basic")
    lines = [["CIFAR100", "last session", "average", "harmonic mean"]]
    for label, results in (
        ("**`limit`**", limit),
        ("**`limit-paper`**", letter),
        ("**class means** (`decoupled-cosine`)", plain),
        ("**class means** on the embedding of `limit`", same),
    ):
        values = [[getattr(result, key) for result in results] for key in ("last", "average", "harmonic_mean")]
        lines.append([f"{label}, {seeds(results)}", *map(grid.mean_and_deviation, values)])
    for label, their in (("_paper: LIMIT_", row), ("_paper: Decoupled-Cosine, without AutoAugment_", cosine_row)):
        lines.append([label, f"{their.accuracy[-1]:.2f}", f"{statistics.fmean(their.accuracy):.2f}", ""])
    over_glyphs = [grid.difference(load("glyphs/limit"), load(f"glyphs/{SAME_EMBEDDING}"), key) for key in COMPARED]
    return "\n".join(
        [
            grid.markdown(lines),
            paragraph(
                f"""Much of the gain over the paper is the embedding, not LIMIT's calibration: against class means
                on the same embedding, `limit` gives {grid.difference(limit, same, "last")} points in the last session
                and {grid.difference(limit, same, "harmonic_mean")} in harmonic mean, as old classes give way
                ({mean(same, "base")} to {mean(limit, "base")}) to new ones ({mean(same, "new")} to
                {mean(limit, "new")}), with the help of a margin on the old classes' logits. `limit-paper`, the paper
                to the letter, ends {against(letter, row)} the paper's last session. Most of our novel shots are not
                the published ones."""
            ),
            paragraph(
                f"""On `glyphs`, the embedded benchmark, `limit` gives {over_glyphs[0]} points in the last session and
                {over_glyphs[1]} in harmonic mean over class means on the same embedding
                ({seeds(load("glyphs/limit"))})."""
            ),
        ]
    )


def cifar100() -> str:
    limit, plain, same = (load(f"cifar100/{name}") for name in ("limit", "decoupled-cosine", SAME_EMBEDDING))
    letter, row = load("cifar100/limit-paper"), published("limit")
    basic = {name: load(f"cifar100/basic-{name}") for name in ("limit", "limit-paper", "decoupled-cosine")}
    basic_row, cosine_row = published("limit", "basic"), published("decoupled-cosine", "basic")
    table = session_table(
        ours("**limit**", limit),
        ours("**limit-paper**", letter),
        theirs("_paper: LIMIT_", row.accuracy, row.pd),
        ours("**decoupled-cosine**", plain),
        ours("**decoupled-cosine** with LIMIT's embedding", same),
        ours("**limit**, BasicAug", basic["limit"]),
        ours("**limit-paper**, BasicAug", basic["limit-paper"]),
        theirs("_paper: LIMIT, BasicAug_", basic_row.accuracy, basic_row.pd),
        ours("**decoupled-cosine**, BasicAug", basic["decoupled-cosine"]),
        theirs("_paper: Decoupled-Cosine, BasicAug_", cosine_row.accuracy, cosine_row.pd),
    )
    return "\n".join(
        [
            table,
            paragraph(
                f"""`limit`, mean of {seeds(limit)} ({limit[0].seed} to {limit[-1].seed}): {mean(limit, "last")} in the
                last session against the paper's {row.accuracy[-1]:.2f}, {mean(limit, "average")} on average against
                {statistics.fmean(row.accuracy):.2f}, and a harmonic mean of base and new classes of
                {mean(limit, "harmonic_mean")}."""
            ),
            paragraph(
                f"""- **The embedding.** Much of the gain over the paper is the embedding, not the calibration: class
                means on the same embedding (`{settings(same)}`) reach
                {" / ".join(mean(same, key) for key in ("last", "average", "harmonic_mean"))} (last / average / HM).
                Against them LIMIT gives {grid.difference(limit, same, "last")} in the last session and
                {grid.difference(limit, same, "harmonic_mean")} in harmonic mean (paired standard error): old classes
                give way ({mean(same, "base")} to {mean(limit, "base")}) to new ones ({mean(same, "new")} to
                {mean(limit, "new")})."""
            )
            + paragraph(
                f"""- **The paper's rows.** `limit-paper` ends {against(letter, row)} the paper's last session. With
                BasicAug, {seeds(basic["limit"])} each, `limit` ends {against(basic["limit"], basic_row)} the paper's
                LIMIT, `limit-paper` {against(basic["limit-paper"], basic_row)} it, and `decoupled-cosine`
                {against(basic["decoupled-cosine"], cosine_row)} the paper's Decoupled-Cosine."""
            ),
        ]
    )


def ablation() -> str:
    rows = paper.ablation()
    groups = {name: load(f"ablation/{name}") for name in rows}
    parts = []
    for name, results in groups.items():
        parts += [ours(f"**{name}**", results), theirs("_paper_", rows[name], rows[name][0] - rows[name][-1])]
    steps = [
        ("calibration learned on plain batches of base classes", "calibration", "prototype"),
        ("calibration learned on fake tasks of one phase", "meta-1", "prototype"),
        ("fake tasks of two phases", "meta-c", "meta-1"),
    ]
    lines = [["in pairs of the same seed", "over", *COMPARED.values()]]
    for label, row, over in steps:
        lines.append([label, over, *(grid.difference(groups[row], groups[over], key) for key in COMPARED)])
    gap = statistics.fmean(result.last for result in groups["prototype"]) - rows["prototype"][-1]
    first, n = groups["meta-c"][0].seed, len(groups["meta-c"])
    command = paragraph(
        f"""`fscil reproduce ablation --seeds {n} --first-seed {first}`: rows of one seed share their encoder. Our
        prototypes end {points(gap)} the paper's."""
    )
    return "\n".join([session_table(*parts), grid.markdown(lines), command])


def glyphs() -> str:
    limit, plain, same = (load(f"glyphs/{name}") for name in ("limit", "decoupled-cosine", SAME_EMBEDDING))
    table = session_table(
        ours("**limit**", limit),
        ours("**decoupled-cosine**", plain),
        ours("**decoupled-cosine** with LIMIT's embedding", same),
    )
    over_plain, over_same = ([grid.difference(limit, other, key) for key in COMPARED] for other in (plain, same))
    text = paragraph(
        f"""`fscil compare glyphs --methods limit,decoupled-cosine --seeds {len(limit)}` on two CPU cores. LIMIT minus
        class means, in pairs of the same seed: {over_plain[0]} in the last session and {over_plain[1]} in harmonic
        mean; minus class means on the same embedding (`{settings(same)}`): {over_same[0]} and {over_same[1]}."""
    )
    return f"{table}\n{text}"
