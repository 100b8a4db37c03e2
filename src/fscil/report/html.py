"""The report: one HTML file with everything in it, no scripts, nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fscil.errors import UserError
from fscil.files import write_atomically
from fscil.labels import by_benchmark, labels, name_of, repetitions
from fscil.report.about import provenance, time_and_size, warnings_list
from fscil.report.classes import classes
from fscil.report.curve import are_many, curve_figure, forgetting_figure
from fscil.report.figures import inline_svg
from fscil.report.margins import margins
from fscil.report.markup import Markup, beside, join, picture, tag
from fscil.report.page import page
from fscil.report.summary import Comparable, always, base_and_new, differences, headlines, session_lines, tiles
from fscil.results import Result
from fscil.table_lines import published_row


def write_report(results: Sequence[Result], path: Path, comparable: Comparable = always) -> Path:
    """Write the report of these results to path and return it; only comparable ones are subtracted from each other."""
    write_atomically(path, report(results, comparable).encode("utf-8", "replace"))
    return Path(path)


def report(results: Sequence[Result], comparable: Comparable = always) -> str:
    """The page as text; results of several benchmarks get a section each."""
    if not results:
        raise UserError("no results to report; name at least one run folder")
    methods = list(dict.fromkeys(name_of(result) for result in results))
    named = ", ".join(methods) if len(methods) <= 3 else f"{len(methods)} methods"
    titles = by_benchmark(results)
    title = f"{named} on {', '.join(titles)}"
    sections = [section(name, those, comparable) for name, those in titles.items()]
    versions = dict.fromkeys(result.versions.get("fscil", "") for result in results)
    return page(title, sections, ", ".join(filter(None, versions)))


def section(title: str, results: list[Result], comparable: Comparable) -> Markup:
    """Everything about one benchmark, the simplest first."""
    groups = repetitions(results)
    named = labels(groups)
    parts = [
        tag("h2", title),
        *(tag("p", text, class_="soft") for text in dict.fromkeys(map(stream_in_words, results))),
        headlines(groups, named),
        tiles(groups[0]) if len(groups) == 1 else Markup(),
        warnings_list(results),
        session_lines(results),
        differences(groups, named, comparable),
        curves(results) if any(len(result.accuracy) > 1 for result in results) else Markup(),
        tag("h3", "Old and new classes after the last session"),
        base_and_new(groups, named),
        margins(groups, named, comparable),
        classes(groups, named),
        tag("h3", "Time and size"),
        time_and_size(groups, named),
        provenance(results),
    ]
    return tag("section", *parts)


def stream_in_words(result: Result) -> str:
    base, *ways = result.classes_per_session
    if not ways:
        return f"{base} classes in one session."
    ways_text = str(ways[0]) if len(set(ways)) == 1 else ", ".join(map(str, ways))
    sessions = "one session" if len(ways) == 1 else f"{len(ways)} sessions"
    return f"{base} base classes, then {sessions} of {ways_text} new classes."


def curves(results: Sequence[Result]) -> Markup:
    with_paper = any(map(published_row, results)) and not are_many(repetitions(results))
    dashed = "Dashed: the numbers the paper gives." if with_paper else ""
    forgotten = "For the classes of each session: best accuracy so far minus accuracy now; the mean over sessions."
    return join(
        [
            tag("h3", "Accuracy and forgetting, drawn"),
            beside(
                picture(inline_svg(curve_figure(results), "accuracy per session"), dashed),
                picture(inline_svg(forgetting_figure(results), "forgetting per session"), forgotten),
            ),
        ]
    )
