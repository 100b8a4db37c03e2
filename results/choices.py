"""The blocks of the paper's tables of one choice: which tasks, which augmentation, which set function."""

from __future__ import annotations

from fscil import grid, paper
from fscil.pairing import at_zero
from fscil.reproduce.choices import AUGMENTATION, SET_FUNCTIONS, TASK_SAMPLING, Choice
from results.summaries import (
    FOLDER,
    Results,
    Runs,
    compared,
    difference,
    mean,
    paragraph,
    points,
    read,
    same_seeds,
    seeds,
)

ROWS = {  # folder and file behind every row of these tables; some are in other tables, too
    "cec pil": ("methods", "cec"),
    "cec fit": ("choices", "cec-fit"),
    "limit pil": ("choices", "limit-pil"),
    "limit fit": ("cifar100", "limit"),
    "cec basic": ("choices", "cec-basic"),
    "cec autoaug": ("methods", "cec"),
    "limit basic": ("choices", "limit-basic"),
    "limit autoaug": ("cifar100", "limit"),
    "limit transformer": ("cifar100", "limit"),
    "limit deep-sets": ("choices", "limit-deep-sets"),
    "limit bi-lstm": ("choices", "limit-bi-lstm"),
}
WHAT = {"last": "the last session", "harmonic_mean": "harmonic mean"}


def load(choice: Choice) -> Runs:
    """The rows of a table, all of the same seeds."""
    found = {name: read(FOLDER / ROWS[name][0], ROWS[name][1]) for name in rows_of(choice)}
    fewest = min(found.values(), key=len)
    return {name: same_seeds(results, fewest) for name, results in found.items()}


def rows_of(choice: Choice) -> list[str]:
    return [f"{method} {shown}" for method in choice.methods for shown in choice.values]


def table(choice: Choice, name: str, text: str) -> str:
    runs = load(choice)
    results = next(iter(runs.values()))
    command = f"fscil reproduce {name} --seeds {len(results)} --first-seed {results[0].seed}"
    return f"{grid.markdown(choice.cells(runs))}\n{paragraph(f'`{command}`. {text}')}"


def task_sampling() -> str:
    runs = load(TASK_SAMPLING)
    gaps = {method: difference(runs[f"{method} fit"], runs[f"{method} pil"], "area") for method in ("limit", "cec")}
    text = f"""Fake tasks in place of pseudo-incremental ones change area by {gaps["limit"]} in `limit` and by
        {gaps["cec"]} in `cec`."""
    return table(TASK_SAMPLING, "task-sampling", text)


def augmentation() -> str:
    runs = load(AUGMENTATION)
    said = []
    for shown, label in (("autoaug", "AutoAugment"), ("basic", "BasicAug")):
        limit, cec = runs[f"limit {shown}"], runs[f"cec {shown}"]
        said.append(f"With {label} `limit` {compared(limit, cec, 'area')} `cec`{ends(limit, cec)}.")
    return table(AUGMENTATION, "augmentation", " ".join(said))


def ends(limit: Results, cec: Results) -> str:
    gaps = {key: mean(limit, key) - mean(cec, key) for key in WHAT}
    return ", with " + " and ".join(f"{gap:+.2f} in {WHAT[key]}" for key, gap in gaps.items())


def set_functions() -> str:
    runs = load(SET_FUNCTIONS)
    usual, sets, lstm = runs.values()
    orders = [float(result.note.rpartition("changes ")[2].partition(" %")[0]) for result in lstm]
    text = f"""Over {seeds(usual)}, `deep-sets` {compared(sets, usual, "area")} the transformer, and `bi-lstm`
        {compared(lstm, usual, "area")} it. A bi-LSTM reads classes in an order: another one changes
        {min(orders):.1f} to {max(orders):.1f} % of its answers."""
    return table(SET_FUNCTIONS, "set-functions", text)


def lead_over_cec() -> str:
    """In the README: what LIMIT's lead depends on."""
    runs, row = load(AUGMENTATION), paper.find("cifar100", "limit", "basic")
    assert row is not None
    gaps = {
        shown: mean(runs[f"limit {shown}"], "last") - mean(runs[f"cec {shown}"], "last")
        for shown in AUGMENTATION.values
    }
    behind = points(mean(runs["limit basic"], "last") - row.accuracy[-1])
    return f"""With AutoAugment `limit` ends {points(gaps["autoaug"])} CEC, with BasicAug {points(gaps["basic"])} CEC
        and {behind} the paper's LIMIT ({seeds(runs["limit basic"])}, the same encoders)"""


def rotated_against_cec() -> str:
    """What the best change to LIMIT does with BasicAug."""
    cec, rotated = (read(FOLDER / "methods", file) for file in ("cec-basic", "limit-rotated-basic"))
    return f"""With rotated fake classes, which CEC has, and an encoder that learns as fast as CEC's, the best of six
        changes on base classes, `limit` with BasicAug {compared(rotated, cec, "area")} CEC, with
        {difference(rotated, cec, at_zero("last"))} in the last session without margins and
        {difference(rotated, cec, "last")} with those that one rule gives both ({seeds(rotated)}, CEC's recipe)"""
