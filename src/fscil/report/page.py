"""A page of HTML around its parts: no scripts, nothing fetched from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files

from fscil.report.markup import Markup, tag

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"  # makes the browser refuse any request


def page(title: str, parts: Sequence[Markup], version: str) -> str:
    """A whole page that fetches nothing."""
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", name="generator", content="fscil"),
        tag("meta", http_equiv="Content-Security-Policy", content=POLICY),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Markup(files("fscil.report").joinpath("report.css").read_text(encoding="utf-8"))),
    )
    footer = tag("footer", f"Written by fscil {version}.")
    body = tag("body", tag("main", tag("h1", title), *parts), footer)
    return "<!doctype html>\n" + tag("html", head, body, lang="en")
