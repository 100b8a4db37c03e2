"""HTML in a few lines: whatever is not markup already gets escaped, so nothing can be forgotten."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

VOID = {"meta", "link"}


class Markup(str):
    """Text that is HTML already."""


def tag(name: str, /, *children: str, **attributes: str) -> Markup:
    """An element; class_ is class, http_equiv is http-equiv."""
    inside = "".join(f' {key.strip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items())
    if name in VOID:
        return Markup(f"<{name}{inside}>")
    return Markup(f"<{name}{inside}>{join(children)}</{name}>")


def join(children: Iterable[str]) -> Markup:
    return Markup("".join(child if isinstance(child, Markup) else escape(child) for child in children))


def table(head: Iterable[str], rows: Iterable[Iterable[str]], class_: str = "numbers") -> Markup:
    """A table that scrolls sideways when it must. Cells may be text or ready-made <td>; class_ is numbers or text."""
    header = tag("thead", row_of(tag("th", cell, scope="col") for cell in head))
    body = tag("tbody", *(row_of(row) for row in rows))
    return tag("div", tag("table", header, body, class_=class_), class_="scroll")


def row_of(cells: Iterable[str], **attributes: str) -> Markup:
    def cell_of(cell: str) -> Markup:
        ready = isinstance(cell, Markup) and cell.startswith(("<td", "<th"))
        return Markup(cell) if ready else tag("td", cell)

    return tag("tr", *map(cell_of, cells), **attributes)


def bar(value: float, most: float, text: str) -> Markup:
    """A cell whose background shows the value as a share of the greatest one."""
    share = 0.0 if most <= 0 else max(0.0, min(100.0, 100 * value / most))
    return tag("td", tag("span", text), class_="bar", style=f"--share:{share:.1f}%")
