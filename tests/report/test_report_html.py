from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fscil import paper
from fscil.errors import UserError
from fscil.report.html import duration, report, write_report
from fscil.results import Result

MakeResult = Callable[..., Result]
CIFAR = (60, *[5] * 8)
HOSTILE = """<script>alert("x")</script>'&"""


class Page(HTMLParser):
    """Collects what a browser would see, and insists that every element is closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.links: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "action")]
        assert not [name for name, _ in attrs if name.startswith("on")]
        if tag not in ("meta", "link"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in ("meta", "link"):
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(self.words)


def test_the_report_is_one_file_that_asks_for_nothing(tmp_path: Path, make_result: MakeResult) -> None:
    path = write_report([make_result(), make_result(seed=2)], tmp_path / "report.html")
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not page.tags & {"script", "iframe", "object", "img", "form"}
    assert [link for link in page.links if not link.startswith(("data:", "#"))] == []
    assert not re.search(r"url\((?!#)|@import", text)  # url(#...) is a clip path of the same picture
    assert "default-src 'none'" in text.replace("&#x27;", "'")


def test_numbers_stand_beside_the_papers(make_result: MakeResult) -> None:
    accuracy = [value + 1.5 for value in paper.row("cifar100", "limit") or []]
    text = Page(report([make_result(CIFAR, benchmark="cifar100", accuracy=accuracy)])).text
    for number in ("52.73", "51.23", "+1.50", "22.58"):
        assert number in text


def test_everything_a_reader_asks_for_is_there(make_result: MakeResult) -> None:
    result = make_result(
        warnings=["class 7 has few images"],
        note="one exemplar a class",
        command="fscil run limit glyphs lr=0.1",
        device="a fast device",
        versions={"torch": "9.8.7"},
        exemplars=400,
        class_names=["weevil", *[f"class {i}" for i in range(9)]],
    )
    text = Page(report([result])).text
    for phrase in (
        "limit on glyphs",
        "6 base classes, then 2 sessions of 2 new classes.",
        "class 7 has few images",
        "one exemplar a class",
        "fscil run limit glyphs lr=0.1",
        "a fast device",
        "torch 9.8.7",
        "0123456789abcdef",
        result.config_hash,
        "270,000",
        "400",
        "1 min 2 s (from the cache)",
        "12.2 s",
        f"{result.harmonic_mean:.2f}",
        f"{result.per_class['base']:.2f}",
        "weevil",
        "forgetting (points)",
    ):
        assert phrase in text, phrase


def test_no_text_of_a_result_becomes_markup(make_result: MakeResult) -> None:
    result = make_result(
        method=HOSTILE,
        preset=HOSTILE,
        benchmark=HOSTILE,
        augmentation=HOSTILE,
        weights=HOSTILE,
        warnings=[HOSTILE],
        note=HOSTILE,
        command=HOSTILE,
        device=HOSTILE,
        split_checksum=HOSTILE,
        config_hash=HOSTILE,
        versions={HOSTILE: HOSTILE, "fscil": HOSTILE},
        seconds={HOSTILE: {"seconds": 1.0, "cached": False}},
        class_names=[HOSTILE] * 10,
    )
    text = report([result, make_result()])
    page = Page(text)
    assert "script" not in page.tags
    assert "<script" not in text
    assert page.text.count(HOSTILE) > 15


def test_letters_that_no_encoding_knows_do_not_stop_the_report(tmp_path: Path, make_result: MakeResult) -> None:
    names = ["caf\udce9", "甲虫", *"abcdefgh"]
    text = write_report([make_result(class_names=names)], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "caf?" in text
    assert "甲虫" in text


def test_several_methods_and_benchmarks_get_their_sections(make_result: MakeResult) -> None:
    results = [make_result(preset=name, seed=seed) for name in "abcd" for seed in (1, 2)]
    text = report([*results, make_result((3,), benchmark="digits")])
    page = Page(text)
    assert "5 methods on glyphs, digits" in page.text
    assert text.count("<section>") == 2
    assert "from the cache in 2 of 2" in page.text
    assert "3 classes in one session." in page.text


def test_the_papers_base_and_new_are_shown_where_it_has_them(make_result: MakeResult) -> None:
    text = Page(report([make_result((100, *[10] * 10), benchmark="cub200")])).text
    for number in ("73.60", "41.80", "53.30"):
        assert number in text


def test_nothing_to_report_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no results"):
        write_report([], tmp_path / "report.html")
    assert list(tmp_path.iterdir()) == []


def test_durations_read_naturally() -> None:
    assert [duration(s) for s in (0.04, 59.0, 61.5, 3600.0, 5400.0)] == [
        "0.0 s",
        "59.0 s",
        "1 min 2 s",
        "1 h 0 min",
        "1 h 30 min",
    ]
