"""The style of figures, and their output: a PNG file, or SVG inside a page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

INK = "#20252b"  # text and axes; becomes the page's own text colour in inline SVG
PAPER = "#fffffe"  # white; becomes the page's own background in inline SVG
COLOURS = ("#3d7fc4", "#e2654f", "#2f9e68", "#b58a1b", "#8c62c9", "#2ba3b5", "#cf5b9b", "#7d8791")  # on white and black
MARKERS = ("o", "^", "s", "D")
LONGEST_TEXT = 120  # characters; a line of a legend has room for fewer
USUAL_LEGEND, LEGEND_LINE = 5, 0.17  # lines that a figure has room for, and the height of one, in inches
PIXELS_PER_INCH = 104  # on the page, so that text has the same size in every picture


@contextmanager
def style() -> Iterator[None]:
    """Settings that must be active while a figure is drawn and saved. Names are text, never mathematics."""
    settings: dict[Any, Any] = {
        "font.size": 9,
        "text.color": INK,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "xtick.color": INK,
        "ytick.color": INK,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "text.parse_math": False,
        "svg.fonttype": "none",
        "svg.hashsalt": "fscil",
    }
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # a browser has the glyphs that we lack
        warnings.filterwarnings("ignore", message="constrained_layout not applied")  # of numbers that contradict
        yield


def colour(position: int) -> str:
    return COLOURS[position % len(COLOURS)]


def marker(position: int) -> str:
    """Another one wherever the colours begin again."""
    return MARKERS[position // len(COLOURS) % len(MARKERS)]


def quiet_grid(axes: Axes) -> None:
    axes.grid(axis="y", color=INK, alpha=0.12, linewidth=0.8)
    axes.set_axisbelow(True)


def legend_below(figure: Figure) -> None:
    """A long legend makes the figure taller, so that the picture above keeps its size."""
    _, names = figure.axes[0].get_legend_handles_labels()
    columns = 1 if max(map(len, names)) > 40 else 2
    width, height = figure.get_size_inches()
    more = max(0, -(-len(names) // columns) - USUAL_LEGEND)
    figure.set_size_inches(width, height + LEGEND_LINE * more)
    figure.legend(loc="outside lower center", ncols=columns, fontsize=8)


def drawable(text: str) -> str:
    """The text without characters that no font has, and cut to fit into a picture: a folder may have any name."""
    text = text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…"
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def png(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    with style():
        figure.savefig(buffer, format="png", dpi=160, facecolor="white", metadata={"Software": "fscil"})
    return buffer.getvalue()


def inline_svg(figure: Figure, description: str) -> str:
    """SVG to be placed in a page: transparent, in the page's text colour, without prolog, metadata or fixed size."""
    buffer = io.StringIO()
    with style():
        metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(buffer, format="svg", transparent=True, metadata=metadata)
    text = buffer.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r' (width|height)="[\d.]+pt"', "", text, count=2)
    width = figure.get_size_inches()[0] * PIXELS_PER_INCH
    label = description.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    text = text.replace(INK, "currentColor").replace(PAPER, "var(--page)")
    return text.replace("<svg", f'<svg role="img" aria-label="{label}" style="max-width:{width:.0f}px"', 1)
