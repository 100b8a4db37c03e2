"""A minimal HTML builder: whatever is not markup already is escaped, so nothing can be forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

VOID = {"img", "link", "meta"}


class Markup(str):
    """Text that is HTML already."""


class Cell(Markup):
    """A whole <td> or <th>."""


def tag(name: str, /, *children: str, **attributes: str) -> Markup:
    """An element; class_ is class, http_equiv is http-equiv."""
    inside = "".join(f' {key.strip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{inside}>")
    return Markup(f"<{name}{inside}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    class_: str,
    kinds: Sequence[str] = (),
    on_cards: Sequence[str] | None = None,
) -> Markup:
    """A table. Cells are text, markup or a whole Cell; the first of a row is its heading. kinds: the class of each row.

    class_ is numbers or text; with stack, rows become cards on a narrow screen, where every cell names its column (as
    in on_cards, if given); with roomy, the cells of such a card are wide ones.
    """
    header = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head)))
    body = []
    for i, row in enumerate(rows):
        cells = [named(cell, name) for cell, name in zip(row[1:], (on_cards or head)[1:], strict=True)]
        look = {"class_": kinds[i]} if kinds else {}
        body.append(tag("tr", tag("th", row[0], scope="row"), *cells, **look))
    return tag("div", tag("table", header, tag("tbody", *body), class_=class_), class_="scroll")


def named(cell: str, column: str) -> Markup:
    """The cell with its column's name, which the style sheet shows if there is no room for the table's head."""
    if isinstance(cell, Cell):
        return Cell(f'<td data-column="{escape(column)}"{cell.removeprefix("<td")}')
    return tag("td", cell, data_column=column)


def bar(value: float, most: float, text: str) -> Cell:
    """A cell whose background shows the value as a share of the maximum."""
    share = 0.0 if most <= 0 else max(0.0, min(100.0, 100 * value / most))
    return Cell(tag("td", tag("span", text), class_="bar", style=f"--share:{share:.1f}%"))


def details(summary: str, *parts: Markup, is_open: bool = False) -> Markup:
    """Parts that fold away."""
    state = {"open": ""} if is_open else {}
    return tag("details", tag("summary", summary), *parts, **state)


def picture(svg: str, caption: str) -> Markup:
    return tag("figure", Markup(svg), *([tag("figcaption", caption)] if caption else []))


def beside(*parts: Markup) -> Markup:
    """Side by side where there is room."""
    return tag("div", *parts, class_="beside")
