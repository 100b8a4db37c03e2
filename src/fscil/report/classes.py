"""The report's section on classes: how many images of each were right, and what the others were taken for."""

from __future__ import annotations

from fscil.labels import Labels
from fscil.report.confusion import FEW, class_counts, confusion_figure, most_confused
from fscil.report.figures import inline_svg
from fscil.report.markup import Cell, Markup, bar, details, join, picture, table, tag
from fscil.results import Result

Groups = list[list[Result]]


def classes(groups: Groups, named: Labels) -> Markup:
    names = [label.text for label in named.each]
    tables = class_tables(groups, names)
    matrices = [matrix(group, name, alone=len(groups) == 1) for group, name in zip(groups, names, strict=True)]
    caption = (
        "In a matrix, rows are true classes and columns what their images were taken for; lines separate sessions."
    )
    few = all(len(group[0].class_names) <= FEW for group in groups)
    return join(
        [
            tag("h3", "Every class, and what it was taken for"),
            tag("p", caption if few else f"{caption} Colours are on a square-root scale.", class_="soft"),
            tag("div", *tables, *matrices, class_="grid")
            if few
            else join([*tables, tag("div", *matrices, class_="grid")]),
        ]
    )


def class_tables(groups: Groups, names: list[str]) -> list[Markup]:
    """One for every stream of classes; usually there is only one."""
    streams: dict[tuple[object, ...], list[int]] = {}
    for i, group in enumerate(groups):
        streams.setdefault((*group[0].class_names, *group[0].classes_per_session), []).append(i)
    return [class_table([groups[i] for i in those], [names[i] for i in those]) for those in streams.values()]


def class_table(groups: Groups, names: list[str]) -> Markup:
    """Classes as they arrived, with a bar for every method; many of them fold away."""
    first = groups[0][0]
    arrived = [i for i, count in enumerate(first.classes_per_session) for _ in range(count)]
    counts = [class_counts(group) for group in groups]
    rows = [
        [name, "base" if arrived[i] == 0 else f"new, session {arrived[i]}", *(class_bar(*c[i]) for c in counts)]
        for i, name in enumerate(first.class_names)
    ]
    starts = ["first" if i and arrived[i] != arrived[i - 1] else "" for i in range(len(rows))]
    heads = ["class", "arrived", *(names if len(names) > 1 else ["named right"])]
    shown = table(heads, rows, "text stack roomy" if len(groups) > 1 else "text classes", starts)
    return shown if len(rows) <= FEW else details(f"Images named right, for each of the {len(rows)} classes", shown)


def class_bar(right: int, images: int) -> Cell:
    return bar(right, images, f"{right} of {images}" if images else "no test images")


def matrix(group: list[Result], name: str, alone: bool) -> Markup:
    """The confusion matrix and the commonest mistakes of one method."""
    svg = inline_svg(confusion_figure(group, name), f"confusion matrix of {name}")
    found = most_confused(group)
    rows = [[true, taken, str(count), f"{share:.0f} %"] for true, taken, count, share in found]
    listing = table(["class", "taken for", "images", "of the class"], rows, "text")
    commonest = details(f"Commonest mistakes of {name}", listing, is_open=alone) if found else Markup()
    return tag("div", picture(svg, ""), commonest)
