"""The blocks about the other methods of the paper's comparison."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fscil import grid, paper
from fscil.reproduce import released
from fscil.results import Result
from fscil.table_lines import COSTS, RELATIVE, costs
from results.accuracy import CHOSEN_EPOCHS, SINCE_CHANGED, published
from results.elsewhere import paper_lines
from results.summaries import (
    FOLDER,
    Results,
    Runs,
    compared,
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

OURS = {  # folder and file of each method; all but fact start from the encoders of the same seeds
    "limit": ("cifar100", "limit"),
    "limit-paper": ("cifar100", "limit-paper"),
    "limit-released": ("methods", "limit-released"),
    "decoupled-cosine": ("cifar100", "decoupled-cosine-paper"),
    "fact": ("methods", "fact"),
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
ON_CUB200 = {
    "limit": ("cub200", "limit"),
    "decoupled-cosine": ("cub200", "decoupled-cosine"),
    **{
        name: ("cub200-methods", name)
        for name in (
            "fact", "decoupled-deepemd", "teen", "cec", "rebalancing", "topic", "eeil", "icarl", "finetune",
        )
    },
}  # fmt: skip
SINCE_CHANGED_ON_CUB200 = {"fact": " alpha=0.5", "finetune": " head=cosine session_epochs=70"}
WITH_AUTOAUGMENT = ("limit", "cec")  # on CUB200
WITH_BASIC = {  # with CEC's own recipe: file, settings and the paper's method
    "decoupled-cosine-basic": ("decoupled-cosine", "", "Decoupled-Cosine"),
    "cec-basic": ("cec", "", "CEC"),
    "limit-basic": ("limit", "", "LIMIT"),
    "limit-rotated-basic": ("limit", " fake_classes=rotated encoder_lr=2e-3", ""),
}
RELEASED = FOLDER / "methods" / "released-code.json"
EPOCHS = FOLDER / "methods" / "released-epochs.json"


def load_methods() -> Runs:
    return {name: read(FOLDER / folder, file) for name, (folder, file) in OURS.items()}


def methods() -> str:
    runs = load_methods()
    parts = []
    for name, results in runs.items():
        parts.append(own_lines(f"**{name}**{SINCE_CHANGED.get(name, '')}, {seeds(results)}", results))
        if name in PAPERS:
            label, augmentation = PAPERS[name]
            row = published(name, augmentation)
            without = "" if augmentation == "autoaug" else ", without AutoAugment"
            parts.append(paper_line(f"_paper: {label}{without}_", row.accuracy, row.pd))
    limit = runs["limit"]
    said = [  # those with several seeds
        f"{difference(same_seeds(limit, runs[name]), runs[name], 'area')} (`{name}{SINCE_CHANGED.get(name, '')}`)"
        for name in ("limit-paper", "decoupled-cosine", "limit-released", "teen", "cec", "icarl")
    ]
    above = [f"`{name}`" for name in OURS if mean(runs[name], "last") > mean(limit, "last")]
    ends = "none of these ends above it" if not above else f"{listed(above)} end above it"
    text = f"""The area of `limit` minus that of another method, in pairs of the same seed: {listed(said)}; {ends} in
        the last session. The sessions of `decoupled-deepemd` took
        {runs["decoupled-deepemd"][0].seconds["sessions"]["seconds"]:.0f} seconds in all, on an H200 that other runs
        shared."""
    texts = [text, authors_alpha(), released_code(runs["limit-released"])]
    return "\n".join([session_table(*parts), *map(paragraph, texts)])


def authors_alpha() -> str:
    """What TEEN's rows in the table would gain by the value that its authors have for CIFAR100."""
    means, half, theirs = (
        read(FOLDER / "methods", f"{name}-embedded")[0]
        for name in ("decoupled-cosine", "teen-alpha-0.5", "teen-alpha-0.9")
    )

    def told(result: Result) -> str:
        return f"{result.last:.2f} in the last session, HM {result.harmonic_mean:.2f} and area {result.area:.2f}"

    return f"""The rows of `teen` have `alpha=0.5`, its authors' value for other benchmarks. For CIFAR100 they have 0.9,
        and so has the preset now. From the embedded encoder, which had the same training, `alpha=0.9` gives
        {told(theirs)}; `alpha=0.5` {told(half)}; class means {told(means)}."""


def method_costs() -> str:
    """Other columns of `fscil compare`, but not seconds: the GPU was not always as busy."""
    runs = load_methods()
    rows = [["method", f"{RELATIVE}, PD minus that of `limit`", *COSTS[1:]]]
    for name, results in runs.items():
        ((_, (_, *cells)),) = costs(results)
        rows.append([f"`{name}`", f"{mean(results, 'pd') - mean(runs['limit'], 'pd'):+.2f}", *cells])
    return grid.markdown(rows)


def load_basic() -> Runs:
    return {file: read(FOLDER / "methods", file) for file in WITH_BASIC}


def basic() -> str:
    """CEC's own recipe, which its paper and so the paper's rows with BasicAug have."""
    parts, runs = [], load_basic()
    for file, results in runs.items():
        name, settings, label = WITH_BASIC[file]
        parts.append(own_lines(f"**{name}**{settings}, {seeds(results)}", results))
        if label:
            row = published(name, "basic")
            parts.append(paper_line(f"_paper: {label}, without AutoAugment_", row.accuracy, row.pd))
    means, cec, limit, rotated = runs.values()
    text = f"""In pairs of the same seed, `cec` {compared(cec, means, "area")} class means, `limit`
        {compared(limit, means, "area")} them, and with rotated fake classes and the faster encoder
        {compared(rotated, means, "area")} them. So changed, `limit` {compared(rotated, cec, "area")} `cec`, with
        {difference(rotated, cec, "harmonic_mean")} in harmonic mean and {difference(rotated, cec, "last")} in the last
        session."""
    return f"{session_table(*parts)}\n{paragraph(text)}"


def on_cub200() -> str:
    """Each beside the paper's row with the same augmentation."""
    runs = {name: read(FOLDER / folder, file) for name, (folder, file) in ON_CUB200.items()}
    parts, gaps = [], []
    for name, results in runs.items():
        parts.append(own_lines(f"**{name}**{SINCE_CHANGED_ON_CUB200.get(name, '')}, {seeds(results)}", results))
        if name in PAPERS:
            parts.append(paper_lines("cub200", PAPERS[name][0], name, "basic"))
            row = paper.find("cub200", name, "basic")
            assert row is not None
            gaps.append(f"`{name}` {points(mean(results, 'last') - row.accuracy[-1])}")
    for name in WITH_AUTOAUGMENT:
        results = read(FOLDER / "cub200-methods", f"{name}-autoaug")
        parts.append(own_lines(f"**{name}**, AutoAugment, {seeds(results)}", results))
        parts.append(paper_lines("cub200", f"{PAPERS[name][0]}, AutoAugment", name, "autoaug"))
    means = same_seeds(runs["decoupled-cosine"], runs["fact"])
    ahead = [
        f"`{name}` ({mean(same_seeds(results, means), 'area'):.2f})"
        for name, results in runs.items()
        if mean(same_seeds(results, means), "area") > mean(means, "area")
    ]
    text = f"""The last session, measured from the paper's row: {listed(gaps)}. Methods with a larger area than class
        means ({mean(means, "area"):.2f}) on the same seed, without AutoAugment: {listed(ahead) or "none"}."""
    return "\n".join([session_table(*parts), paragraph(text), paragraph(worth_of_chosen_epochs())])


def worth_of_chosen_epochs() -> str:
    """Measured on CIFAR100, with session_epochs.py."""
    accuracy = json.loads(CHOSEN_EPOCHS.read_text())["accuracy"]
    ends = []
    for name in ("icarl", "topic"):
        (own,) = accuracy[name].values()
        last, chosen = (f"{own[which][-1]:.2f}" for which in ("last", "chosen"))
        ends.append(f"`{name}` at {last} either way" if last == chosen else f"`{name}` at {chosen} instead of {last}")
    return f"""On CIFAR100, from the embedded encoder, choosing every session's epoch on test images, by TOPIC's rule as
        we know it, ends {listed(ends)} (one seed)."""


def departures() -> str:
    """The released code's departures from the paper, undone one by one."""
    runs = {row: read(FOLDER / "released", row.replace("=", "-")) for row in released.UNDONE}
    first = runs[released.RELEASED]
    command = f"fscil reproduce released-code --seeds {len(first)} --first-seed {first[0].seed} meta_steps=1872"
    return f"{grid.markdown(released.cells(runs))}\n{paragraph(f'`{command}`: 8 epochs, on the encoders of `limit`.')}"


def released_code(results: Results) -> str:
    theirs = json.loads(RELEASED.read_text())["accuracy"]
    gaps = [
        mean(results, lambda result, session=session: result.accuracy[session]) - accuracy
        for session, accuracy in enumerate(theirs)
    ]
    return f"""The authors' code itself, run from another encoder of the same recipe for 8 of its 20 epochs and with
        its epoch chosen by test accuracy, gave {theirs[0]:.2f} in the first session and {theirs[-1]:.2f} in the last.
        `limit-released`, which chooses nothing by test images, differs from it by {min(gaps):+.2f} to
        {max(gaps):+.2f}, depending on the session. {epoch_by_epoch(theirs)}"""


def epoch_by_epoch(theirs: Sequence[float]) -> str:
    """What it is worth to choose the epoch as the released code does."""
    runs = json.loads(EPOCHS.read_text())["accuracy"]
    chosen = {seed: max(epochs, key=lambda accuracy: accuracy[1]) for seed, epochs in runs.items()}
    which = sorted({runs[seed].index(best) + 1 for seed, best in chosen.items()})
    gains = [a - b for seed, best in chosen.items() for a, b in zip(best, runs[seed][-1], strict=True)]
    gaps = [a - b for best in chosen.values() for a, b in zip(best, theirs, strict=True)]
    return f"""Most of that is the choice of the epoch: by test accuracy in session 1, which is what that code looks at,
        our runs are best after epoch {listed([str(epoch) for epoch in which])} of {len(runs[min(runs)])}. There they
        are {min(gains):.2f} to {max(gains):.2f} above their last epoch, and differ from the authors' code by
        {min(gaps):+.2f} to {max(gaps):+.2f} ({len(runs)} seeds, every session)."""
