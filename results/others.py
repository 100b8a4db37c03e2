"""The blocks about the other methods of the paper's comparison."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fscil import grid, paper
from fscil.pairing import at_zero
from fscil.reproduce import released
from fscil.results import Result
from fscil.table_lines import COSTS, RELATIVE, costs
from results.accuracy import CHOSEN_EPOCHS, published
from results.elsewhere import paper_lines
from results.speed import WHOLE
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
    spread,
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
            "limit-released", "fact", "decoupled-deepemd", "teen", "cec", "rebalancing", "topic", "eeil", "icarl",
            "finetune",
        )
    },
}  # fmt: skip
JOINT = {"joint": "joint", "joint-means": "joint rows=means"}  # the upper bound with either rows: file and name
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
        parts.append(own_lines(f"**{name}**, {seeds(results)}", results))
        if name in PAPERS:
            label, augmentation = PAPERS[name]
            row = published(name, augmentation)
            without = "" if augmentation == "autoaug" else ", without AutoAugment"
            parts.append(paper_line(f"_paper: {label}{without}_", row.accuracy, row.pd))
    limit, upper = runs["limit"], load_joint("methods")
    parts += [own_lines(f"**{name}**, {seeds(results)}", results) for name, results in upper.items()]
    said = [
        f"{difference(same_seeds(limit, its), its, 'area')} (`{name}`)"
        for name, its in runs.items()
        if name != "limit" and len(its) > 1
    ]
    above = [f"`{name}`" for name in OURS if mean(runs[name], "last") > mean(limit, "last")]
    ends = "none of these ends above it" if not above else f"{listed(above)} end above it"
    text = f"""The area of `limit` minus that of another method, in pairs of the same seed: {listed(said)}; {ends} in
        the last session. The sessions of `decoupled-deepemd` took
        {runs["decoupled-deepemd"][0].seconds["sessions"]["seconds"]:.0f} seconds in all, on an H200 that other runs
        shared."""
    whole = json.loads(WHOLE.read_text())
    taken = f"""`{whole["command"]}`, with `joint` and both augmentations of `limit` and `cec`, takes
        {whole["seconds"] / 60:.1f} minutes from an empty cache on one H200 with {whole["cores"]} cores."""
    texts = [
        taken,
        text,
        upper_bound(upper, limit),
        teens_alpha(runs["teen"], runs["decoupled-cosine"]),
        repeated(runs["fact"][0]),
        released_code(runs["limit-released"]),
    ]
    return "\n".join([session_table(*parts), *map(paragraph, texts)])


def load_joint(folder: str) -> Runs:
    return {name: read(FOLDER / folder, file) for file, name in JOINT.items()}


def upper_bound(runs: Runs, limit: Results) -> str:
    """Why `joint` may end below others."""
    trained, means = (results[0] for results in runs.values())
    (own,) = same_seeds(limit, [trained])
    return f"""`joint` is trained afresh in the last session; before that, class means answer. It sees far more images
        of a base class than of a new one, so its trained rows are at {trained.new:.2f} on new classes and end at
        {trained.last:.2f}; class means of its encoder end at {means.last:.2f}. It is an upper bound of what no margin
        changes: its area is {trained.area:.2f} ({means.area:.2f} with class means), that of `limit` with the same seed
        {own.area:.2f}; the best last session on its curve is {trained.best_last:.2f}, on that of `limit`
        {own.best_last:.2f}."""


def teens_alpha(results: Results, means: Results) -> str:
    """What TEEN gains, and what the value that its authors have for other benchmarks would."""
    class_means, half, theirs = (
        read(FOLDER / "methods", f"{name}-embedded")[0]
        for name in ("decoupled-cosine", "teen-alpha-0.5", "teen-alpha-0.9")
    )

    def told(result: Result) -> str:
        return f"{result.last:.2f} in the last session, HM {result.harmonic_mean:.2f} and area {result.area:.2f}"

    return f"""`teen` {compared(results, means, "last")} class means, {compared(results, means, "harmonic_mean")}
        them and {compared(results, means, "area")} them. Its `alpha` is 0.9, its authors' for CIFAR100. With 0.5, which
        they have for other benchmarks, the trade is another: from the embedded encoder {told(half)}, with 0.9
        {told(theirs)}, and class means {told(class_means)}."""


def repeated(result: Result) -> str:
    """How much one seed of FACT is worth."""
    (other,) = read(FOLDER / "methods", "fact-rounded")
    return f"""The same training of `fact`, from a start that differed by rounding alone, ended at {other.last:.2f}
        instead of {result.last:.2f} (area {other.area:.2f} and {result.area:.2f}), so trust one seed to about half a
        point of accuracy and one of area. Today's code draws another start than these two runs had."""


def method_costs() -> str:
    """Other columns of `fscil compare`, but not seconds: the GPU was not always as busy."""
    runs = load_methods()
    rows = [["method", f"{RELATIVE}, PD minus that of `limit`", *COSTS[1:]]]
    for name, results in {**runs, "joint": load_joint("methods")["joint"]}.items():
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
    below = [
        f"`{name}` {points(mean(runs[file], at_zero('last')) - published(name, 'basic').accuracy[-1])}"
        for file, (name, _, label) in WITH_BASIC.items()
        if label
    ]
    text = f"""With margin 0 the last session is, measured from the paper's row: {listed(below)}. In pairs of the same
        seed, `cec` {compared(cec, means, "area")} class means, `limit`
        {compared(limit, means, "area")} them, and with rotated fake classes and the faster encoder
        {compared(rotated, means, "area")} them. So changed, `limit` {compared(rotated, cec, "area")} `cec`, with
        {difference(rotated, cec, at_zero("harmonic_mean"))} in harmonic mean and
        {difference(rotated, cec, at_zero("last"))} in the last session without margins, and
        {difference(rotated, cec, "harmonic_mean")} and {difference(rotated, cec, "last")} with those that the rule
        gives them. The best last session on its curve is {spread(rotated, "best_last")}, on that of `cec`
        {spread(cec, "best_last")}."""
    return f"{session_table(*parts)}\n{paragraph(text)}"


def on_cub200() -> str:
    """Each beside the paper's row with the same augmentation."""
    runs = {name: read(FOLDER / folder, file) for name, (folder, file) in ON_CUB200.items()}
    parts, gaps = [], []
    for name, results in runs.items():
        parts.append(own_lines(f"**{name}**, {seeds(results)}", results))
        if name in PAPERS:
            parts.append(paper_lines("cub200", PAPERS[name][0], name, "basic"))
            row = paper.find("cub200", name, "basic")
            assert row is not None
            gaps.append(f"`{name}` {points(mean(results, 'last') - row.accuracy[-1])}")
    for name in WITH_AUTOAUGMENT:
        results = read(FOLDER / "cub200-methods", f"{name}-autoaug")
        parts.append(own_lines(f"**{name}**, AutoAugment, {seeds(results)}", results))
        parts.append(paper_lines("cub200", f"{PAPERS[name][0]}, AutoAugment", name, "autoaug"))
    upper = load_joint("cub200-methods")
    parts += [own_lines(f"**{name}**, {seeds(results)}", results) for name, results in upper.items()]
    means = same_seeds(runs["decoupled-cosine"], runs["fact"])
    ahead = [
        f"`{name}` ({mean(same_seeds(results, means), 'area'):.2f})"
        for name, results in runs.items()
        if mean(same_seeds(results, means), "area") > mean(means, "area")
    ]
    text = f"""The last session, measured from the paper's row: {listed(gaps)}. Methods with a larger area than class
        means ({mean(means, "area"):.2f}) on the same seed, without AutoAugment: {listed(ahead) or "none"}."""
    texts = [text, upper_bound(upper, runs["limit"]), worth_of_chosen_epochs()]
    return "\n".join([session_table(*parts), *map(paragraph, texts)])


def worth_of_chosen_epochs() -> str:
    """Measured on CIFAR100, with session_epochs.py."""
    accuracy = json.loads(CHOSEN_EPOCHS.read_text())["accuracy"]
    ends = []
    for name in ("icarl", "topic"):
        (own,) = accuracy[name].values()
        last, chosen = (f"{own[which][-1]:.2f}" for which in ("last", "chosen"))
        ends.append(f"`{name}` at {last} either way" if last == chosen else f"`{name}` at {chosen} instead of {last}")
    return f"""On CIFAR100, at our rates and from the embedded encoder, choosing every session's epoch on test images,
        by TOPIC's rule as we know it, ends {listed(ends)} (one seed)."""


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
