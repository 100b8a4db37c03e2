"""The blocks about the other methods of the paper's comparison."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fscil import paper
from results.accuracy import published
from results.elsewhere import paper_lines
from results.summaries import (
    FOLDER,
    Results,
    difference,
    listed,
    mean,
    own_lines,
    paper_line,
    paragraph,
    points,
    read,
    same_seeds,
    seeds,
    session_table,
)

OURS = {  # folder and file of each method; all start from the encoders of the same seeds
    "limit": ("cifar100", "limit"),
    "limit-paper": ("cifar100", "limit-paper"),
    "limit-released": ("methods", "limit-released"),
    "decoupled-cosine": ("cifar100", "decoupled-cosine-paper"),
    "teen": ("methods", "teen"),
    "cec": ("methods", "cec"),
    "decoupled-deepemd": ("methods", "decoupled-deepemd"),
    "rebalancing": ("methods", "rebalancing"),
    "topic": ("methods", "topic"),
    "eeil": ("methods", "eeil"),
    "icarl": ("methods", "icarl"),
    "finetune": ("ablation", "finetune"),
}
PAPERS = {  # rows of the paper beside ours: the name of its method there, and the augmentation it has
    "limit": ("LIMIT", "autoaug"), "cec": ("CEC", "autoaug"), "decoupled-cosine": ("Decoupled-Cosine", "basic"),
    "decoupled-deepemd": ("Decoupled-DeepEMD", "basic"), "rebalancing": ("Rebalancing", "basic"),
    "topic": ("TOPIC", "basic"), "eeil": ("EEIL", "basic"), "icarl": ("iCaRL", "basic"),
    "finetune": ("Finetune", "basic"),
}  # fmt: skip
SETTINGS = {"limit-released": "rows=means"}  # with which a row was made, where the preset has others today
ON_CUB200 = {
    "limit": ("cub200", "limit"),
    "decoupled-cosine": ("cub200", "decoupled-cosine"),
    "fact": ("cub200-methods", "fact"),
    "icarl": ("cub200-methods", "icarl"),
}
WITH_BASIC = {"decoupled-cosine": "Decoupled-Cosine", "cec": "CEC"}  # as CEC's paper trained their encoders
RELEASED = FOLDER / "methods" / "released-code.json"
EPOCHS = FOLDER / "methods" / "released-epochs.json"


def methods() -> str:
    runs = {name: read(FOLDER / folder, file) for name, (folder, file) in OURS.items()}
    parts = []
    for name, results in runs.items():
        settings = f" {SETTINGS[name]}" if name in SETTINGS else ""
        parts.append(own_lines(f"**{name}**{settings}, {seeds(results)}", results))
        if name in PAPERS:
            label, augmentation = PAPERS[name]
            row = published(name, augmentation)
            without = "" if augmentation == "autoaug" else ", without AutoAugment"
            parts.append(paper_line(f"_paper: {label}{without}_", row.accuracy, row.pd))
    for name, label in WITH_BASIC.items():
        basic, row = read(FOLDER / "methods", f"{name}-basic"), published(name, "basic")
        parts.append(own_lines(f"**{name}**, BasicAug and CEC's recipe, {seeds(basic)}", basic))
        parts.append(paper_line(f"_paper: {label}, without AutoAugment_", row.accuracy, row.pd))
    limit = runs["limit"]
    said = [  # those with several seeds
        f"{difference(same_seeds(limit, runs[name]), runs[name], 'area')} over `{name}`"
        for name in ("limit-paper", "decoupled-cosine", "limit-released", "teen", "cec", "icarl")
    ]
    above = [f"`{name}`" for name in OURS if mean(runs[name], "last") > mean(limit, "last")]
    ends = "none of these ends above it" if not above else f"{listed(above)} end above it"
    text = f"In pairs of the same seed, `limit` has in area {listed(said)}; {ends}."
    return f"{session_table(*parts)}\n{paragraph(text)}\n{paragraph(released_code(runs['limit-released']))}"


def on_cub200() -> str:
    """Those that have been run there, each beside the paper's row, which has no AutoAugment either."""
    runs = {name: read(FOLDER / folder, file) for name, (folder, file) in ON_CUB200.items()}
    parts = []
    for name, results in runs.items():
        parts.append(own_lines(f"**{name}**, {seeds(results)}", results))
        if name in PAPERS:
            parts.append(paper_lines("cub200", PAPERS[name][0], name, "basic"))
    gaps = []
    for name in PAPERS:
        if name in runs:
            row = paper.find("cub200", name, "basic")
            assert row is not None
            gaps.append(f"`{name}` {points(mean(runs[name], 'last') - row.accuracy[-1])} it")
    text = f"Beside the paper's row, {listed(gaps)} in the last session."
    return f"{session_table(*parts)}\n{paragraph(text)}"


def released_code(results: Results) -> str:
    theirs = json.loads(RELEASED.read_text())["accuracy"]
    gaps = [
        mean(results, lambda result, session=session: result.accuracy[session]) - accuracy
        for session, accuracy in enumerate(theirs)
    ]
    return f"""The authors' code itself, run from another encoder of the same recipe and with its epoch chosen by test
        accuracy, gave {theirs[0]:.2f} in the first session and {theirs[-1]:.2f} in the last. `limit-released`, which
        chooses nothing by test images, differs from it by {min(gaps):+.2f} to {max(gaps):+.2f}, depending on the
        session. {epoch_by_epoch(theirs)}"""


def epoch_by_epoch(theirs: Sequence[float]) -> str:
    """What it is worth to choose the epoch as the released code does."""
    epochs = json.loads(EPOCHS.read_text())["accuracy"]
    best = max(epochs, key=lambda accuracy: accuracy[1])
    gains, gaps = ([a - b for a, b in zip(best, others, strict=True)] for others in (epochs[-1], theirs))
    return f"""Most of that is the choice of the epoch: one of our runs (seed 81, for {len(epochs)} epochs like theirs,
        with trained rows in the first epoch, as that code has them) is best after epoch {epochs.index(best) + 1} by
        test accuracy in session 1, which is what that code looks at. There it is {min(gains):.2f} to {max(gains):.2f}
        above its last epoch, and differs from the authors' code by {min(gaps):+.2f} to {max(gaps):+.2f}."""
