"""The block about the other methods of the paper's comparison, on the encoders of `limit`."""

from __future__ import annotations

from fscil import paper
from results.summaries import (
    FOLDER,
    Results,
    compared,
    listed,
    mean,
    own_lines,
    paper_line,
    paragraph,
    points,
    read,
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
RELEASED = (
    76.17,
    72.00,
    68.31,
    64.33,
    61.14,
    57.94,
    55.79,
    53.34,
    51.14,
)  # the authors' code, run from another encoder


def same_seeds(results: Results, others: Results) -> Results:
    known = {result.seed for result in others}
    return [result for result in results if result.seed in known]


def methods() -> str:
    runs = {name: read(FOLDER / folder, file) for name, (folder, file) in OURS.items()}
    parts = []
    for name, results in runs.items():
        parts.append(own_lines(f"**{name}**, {seeds(results)}", results))
        if name in PAPERS:
            label, augmentation = PAPERS[name]
            row = paper.find("cifar100", name, augmentation)
            assert row is not None
            without = "" if augmentation == "autoaug" else ", without AutoAugment"
            parts.append(paper_line(f"_paper: {label}{without}_", row.accuracy, row.pd))
    limit = runs["limit"]
    said = [  # those with more than one seed
        f"{compared(same_seeds(limit, runs[name]), runs[name], 'area')} `{name}`"
        for name in ("limit-paper", "decoupled-cosine", "limit-released", "teen", "cec", "icarl")
    ]
    behind = [name for name in OURS if mean(runs[name], "last") > mean(limit, "last")]
    text = f"""In pairs of the same seed, `limit` {listed(said)}.
        {"No method ends above it." if not behind else f"Above it ends {listed(behind)}."}"""
    return f"{session_table(*parts)}\n{paragraph(text)}\n{paragraph(released_code(runs['limit-released']))}"


def released_code(results: Results) -> str:
    gaps = [
        mean(results, lambda result, session=session: result.accuracy[session]) - theirs
        for session, theirs in enumerate(RELEASED)
    ]
    return f"""The authors' code itself, run from an encoder like ours and with its epoch chosen by test accuracy, gave
        {RELEASED[0]:.2f} at first and {RELEASED[-1]:.2f} at the end. `limit-released`, which chooses nothing, stands
        {points(max(gaps))} to {points(min(gaps))} it, depending on the session."""
