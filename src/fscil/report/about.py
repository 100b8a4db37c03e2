"""The background of the numbers: warnings, time, size, and how to reproduce them."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from fscil.labels import Labels, name_of, weights_name
from fscil.report.markup import Markup, bar, beside, details, join, table, tag
from fscil.results import Result

Groups = list[list[Result]]


def warnings_list(results: Sequence[Result]) -> Markup:
    """Warnings and notes, each once; with the methods' names if not all are concerned."""
    methods = list(dict.fromkeys(map(name_of, results)))
    concerned: dict[str, dict[str, None]] = {}
    for result in results:
        for text in filter(None, [*result.warnings, result.note]):
            concerned.setdefault(text, {})[name_of(result)] = None
    said = [text if len(who) == len(methods) else f"{', '.join(who)}: {text}" for text, who in concerned.items()]
    return tag("ul", *(tag("li", text) for text in said), class_="warnings") if said else Markup()


def time_and_size(groups: Groups, named: Labels) -> Markup:
    stages = list(dict.fromkeys(stage for group in groups for result in group for stage in result.seconds))
    times = {(i, s): [r.seconds[s] for r in g if s in r.seconds] for i, g in enumerate(groups) for s in stages}
    means = {key: statistics.fmean(t["seconds"] for t in measured) for key, measured in times.items() if measured}
    rows = []
    for (i, stage), seconds in means.items():
        cached = sum(t["cached"] for t in times[i, stage])
        of = "" if len(groups[i]) == 1 else f" in {cached} of {len(times[i, stage])}"
        text = duration(seconds) + (f" (from the cache{of})" if cached else "")
        rows.append([named.each[i].text, stage, bar(seconds, max(means.values()), text)])
    return beside(table(["", "stage", "time"], rows, "text"), sizes(groups, named))


def sizes(groups: Groups, named: Labels) -> Markup:
    """Parameters; also weights and images kept, if any method has them."""
    heads = ["", "parameters", "of training only", "pre-trained weights", "memory", "images kept"]
    rows = [
        [
            label.text,
            f"{group[0].parameters['inference']:,}",
            f"{group[0].parameters['training_only']:,}",
            weights_name(group[0]) or "none",
            group[0].memory,
            f"{group[0].exemplars:,}",
        ]
        for group, label in zip(groups, named.each, strict=True)
    ]
    nothing = {"pre-trained weights": "none", "memory": "none", "images kept": "0"}
    told = [i for i, head in enumerate(heads) if any(row[i] != nothing.get(head) for row in rows)]
    return table([heads[i] for i in told], [[row[i] for i in told] for row in rows], "numbers stack roomy")


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def provenance(results: Sequence[Result]) -> Markup:
    heads = [
        "method",
        "seed",
        "draw",
        "augmentation",
        "weights",
        "device",
        "captured",
        "split",
        "configuration",
        "command",
    ]
    rows = [
        [
            name_of(r),
            str(r.seed),
            str(r.trial),
            r.augmentation,
            r.weights,
            r.device,
            "yes" if r.captured else "no",
            tag("code", r.split_checksum),
            tag("code", r.config_hash),
            tag("code", r.command),
        ]
        for r in results
    ]
    versions = dict.fromkeys(", ".join(f"{name} {v}" for name, v in r.versions.items()) for r in results)
    said = [tag("p", f"Versions: {text}", class_="soft") for text in versions if text]
    meaning = "Draw: which draw of the few training images. Captured: whether the optimiser step ran as a CUDA graph."
    return details(
        "How these numbers were made: commands, devices, versions, checksums",
        join([table(heads, rows, "text stack roomy wide"), tag("p", meaning, class_="soft"), *said]),
    )
