"""The report: one HTML file with everything in it, no scripts, nothing fetched from anywhere."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from fscil.errors import UserError
from fscil.files import write_atomically
from fscil.report.confusion import confusion_figure, most_confused
from fscil.report.curve import curve_figure, forgetting_figure, label_of
from fscil.report.figures import inline_svg
from fscil.report.markup import Markup, bar, join, row_of, table, tag
from fscil.results import Result
from fscil.tables import (
    Line,
    Value,
    benchmarks,
    column_names,
    is_gain,
    mean_and_deviation,
    name_of,
    number,
    published_row,
    repetitions,
    table_lines,
)

Groups = list[list[Result]]

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # the browser itself refuses any request


def write_report(results: Sequence[Result], path: Path) -> Path:
    """Write the report of these results to path and return it."""
    write_atomically(path, report(results).encode("utf-8", "replace"))
    return Path(path)


def report(results: Sequence[Result]) -> str:
    """The page as text; results of several benchmarks get a section each."""
    if not results:
        raise UserError("no results to report; name at least one run folder")
    methods = list(dict.fromkeys(name_of(result) for result in results))
    named = ", ".join(methods) if len(methods) <= 3 else f"{len(methods)} methods"
    title = f"{named} on {', '.join(benchmarks(results))}"
    sections = [section([r for r in results if r.benchmark == name]) for name in benchmarks(results)]
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Markup(files("fscil.report").joinpath("report.css").read_text(encoding="utf-8"))),
    )
    versions = dict.fromkeys(result.versions.get("fscil", "") for result in results)
    footer = tag("footer", f"Written by fscil {', '.join(filter(None, versions))}.")
    introduction = tag(
        "p",
        "Accuracy is top-1 in percent, per test image, over all classes seen so far. PD is the first session's "
        "accuracy minus the last one's. HM: harmonic mean of base and new. ±: one standard deviation over the seeds.",
        class_="soft",
    )
    body = tag("body", tag("main", tag("h1", title), introduction, *sections), footer)
    return "<!doctype html>\n" + tag("html", head, body, lang="en")


def section(results: list[Result]) -> Markup:
    """Everything about one benchmark."""
    groups = repetitions(results)
    matrix = picture(
        inline_svg(confusion_figure(groups), "confusion matrix"),
        "After the last session; lines separate the sessions. Colours are on a square-root scale.",
    )
    mistakes = [confusions(group, results) for group in groups]
    parts = [
        tag("h2", results[0].benchmark),
        tag("p", stream_in_words(results[0].classes_per_session), class_="soft"),
        tiles(groups[0]) if len(groups) == 1 else Markup(),
        warnings_list(results),
        session_lines(results),
        curves(results) if any(len(result.accuracy) > 1 for result in results) else Markup(),
        tag("h3", "Old and new classes after the last session"),
        base_and_new(groups, results),
        tag("h3", "What is taken for what"),
        beside(matrix, *mistakes) if len(groups) == 1 else join([matrix, beside(*mistakes)]),
        tag("h3", "Time and size"),
        time_and_size(groups, results),
        tag("h3", "How these numbers were made"),
        provenance(results),
    ]
    return tag("section", *parts)


def curves(results: Sequence[Result]) -> Markup:
    dashed = "Dashed: the numbers the paper gives." if any(map(published_row, results)) else ""
    forgotten = "For the classes of each session: best accuracy so far minus accuracy now; the mean over sessions."
    return join(
        [
            tag("h3", "Accuracy and forgetting after every session"),
            beside(
                picture(inline_svg(curve_figure(results), "accuracy per session"), dashed),
                picture(inline_svg(forgetting_figure(results), "forgetting per session"), forgotten),
            ),
        ]
    )


def stream_in_words(classes_per_session: Sequence[int]) -> str:
    base, *ways = classes_per_session
    if not ways:
        return f"{base} classes in one session."
    ways_text = str(ways[0]) if len(set(ways)) == 1 else ", ".join(map(str, ways))
    sessions = "one session" if len(ways) == 1 else f"{len(ways)} sessions"
    return f"{base} base classes, then {sessions} of {ways_text} new classes."


def tiles(group: Sequence[Result]) -> Markup:
    """The four numbers to remember of a single method, with the distance to the paper's."""
    lines = table_lines(group)
    ours = lines[0]
    published = next((line for line in lines if line.kind == "paper"), None)
    gap = next((line for line in lines if line.kind == "difference"), None)
    last = str(len(group[0].accuracy) - 1)
    columns = column_names(group)

    def tile(name: str, column: str) -> Markup:
        at = columns.index(column)
        beside, theirs = (gap.values[at], published.values[at]) if gap and published else (None, None)
        note = Markup()
        if beside is not None:
            note = tag("span", signed(column, beside), f" against the paper's {number(theirs)}")
        elif theirs is not None:
            note = tag("span", f"the paper, per class: {number(theirs)}")
        return tag("div", tag("span", name), tag("b", number(ours.values[at])), note, class_="tile")

    named = [("Last session", last), ("Drop (PD)", "PD"), ("Average", "average"), ("Harmonic mean", "HM")]
    return tag("div", *(tile(name, column) for name, column in named), class_="tiles")


def signed(column: str, difference: float) -> Markup:
    """A difference, coloured by whether it speaks for us."""
    if not round(difference, 2):
        return tag("span", number(difference, signed=True))
    return tag("em", number(difference, signed=True), class_="gain" if is_gain(column, difference) else "loss")


def session_lines(results: Sequence[Result]) -> Markup:
    names = column_names(results)

    def cell(line: Line, column: str, value: Value, deviation: Value) -> Markup:
        if line.kind == "difference" and value is not None:
            return tag("td", signed(column, value))
        spread = tag("small", f"±{deviation:.2f}") if deviation is not None else Markup()
        return tag("td", number(value), spread)

    rows = []
    for line in table_lines(results):
        detail = tag("small", line.detail) if line.kind == "ours" else Markup()
        label = line.label if line.kind != "paper" else f"paper, {line.detail}"
        cells = [cell(line, *triple) for triple in zip(names, line.values, line.deviations, strict=True)]
        rows.append(row_of([tag("th", label, detail, scope="row"), *cells], class_=line.kind))
    head = tag("thead", row_of([tag("th", name, scope="col") for name in ["method", *names]]))
    return tag("div", tag("table", head, tag("tbody", *rows), class_="numbers"), class_="scroll")


def base_and_new(groups: Groups, results: Sequence[Result]) -> Markup:
    """Bars of base, new and harmonic mean; the per-class forms in figures."""
    rows = []
    for group in groups:
        sample, _ = mean_and_deviation([(r.base, r.new, r.harmonic_mean) for r in group])
        classes = [r.per_class for r in group]
        per_class, _ = mean_and_deviation([(c["base"], c["new"], c["harmonic_mean"]) for c in classes])
        bars = [bar(value or 0.0, 100.0, number(value)) for value in sample]
        rows.append([label_of(group, results), *bars, *map(number, per_class)])
        row = published_row(group[0])
        if row and row.new is not None:
            rows.append(
                [f"paper, {row.augmentation}", "", "", "", *map(number, (row.base, row.new, row.harmonic_mean))]
            )
    return table(["method", "base", "new", "HM", "base per class", "new per class", "HM per class"], rows, "text")


def confusions(group: Sequence[Result], results: Sequence[Result]) -> Markup:
    found = most_confused(group)
    if not found:
        return Markup()
    rows = [[true, taken, str(count), f"{share:.0f} %"] for true, taken, count, share in found]
    listing = table(["class", "taken for", "images", "of the class"], rows, "text")
    return tag("div", tag("p", tag("b", label_of(group, results)), ": commonest mistakes"), listing)


def time_and_size(groups: Groups, results: Sequence[Result]) -> Markup:
    stages = list(dict.fromkeys(stage for result in results for stage in result.seconds))
    times = {(i, s): [r.seconds[s] for r in g if s in r.seconds] for i, g in enumerate(groups) for s in stages}
    means = {key: statistics.fmean(t["seconds"] for t in measured) for key, measured in times.items() if measured}
    rows = []
    for i, group in enumerate(groups):
        for stage in stages:
            if (i, stage) not in means:
                continue
            cached = sum(t["cached"] for t in times[i, stage])
            of = "" if len(group) == 1 else f" in {cached} of {len(times[i, stage])}"
            text = duration(means[i, stage]) + (f" (from the cache{of})" if cached else "")
            rows.append([label_of(group, results), stage, bar(means[i, stage], max(means.values()), text)])
    sizes = [
        [
            label_of(group, results),
            f"{group[0].parameters['inference']:,}",
            f"{group[0].parameters['training_only']:,}",
            str(group[0].exemplars),
            "yes" if group[0].captured else "no",
        ]
        for group in groups
    ]
    heads = ["method", "parameters", "of training only", "images kept", "step captured"]
    return beside(table(["method", "stage", "time"], rows, "text"), table(heads, sizes))


def duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def warnings_list(results: Sequence[Result]) -> Markup:
    """Warnings and notes of all runs, each once."""
    said = [f"{name_of(r)}: {text}" for r in results for text in [*r.warnings, r.note] if text]
    return tag("ul", *(tag("li", text) for text in dict.fromkeys(said)), class_="warnings") if said else Markup()


def provenance(results: Sequence[Result]) -> Markup:
    heads = ["method", "seed", "trial", "augmentation", "weights", "device", "split", "settings", "command"]
    rows = [
        [
            name_of(r),
            str(r.seed),
            str(r.trial),
            r.augmentation,
            r.weights,
            r.device,
            tag("code", r.split_checksum),
            tag("code", r.config_hash),
            tag("code", r.command),
        ]
        for r in results
    ]
    versions = dict.fromkeys(", ".join(f"{name} {v}" for name, v in r.versions.items()) for r in results)
    return join(
        [table(heads, rows, "text"), *(tag("p", f"Versions: {text}", class_="soft") for text in versions if text)]
    )


def picture(svg: str, caption: str) -> Markup:
    return tag("figure", Markup(svg), tag("figcaption", caption))


def beside(*parts: Markup) -> Markup:
    """Side by side where there is room."""
    return tag("div", *parts, class_="beside")
