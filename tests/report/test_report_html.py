from __future__ import annotations

import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

from fscil import paper
from fscil.errors import UserError
from fscil.report.about import duration
from fscil.report.html import report, write_report
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
        return " ".join(" ".join(self.words).split())


def outside_details(text: str) -> str:
    """What is seen before anything is unfolded."""
    return Page(re.sub(r"<details>.*?</details>", "", text, flags=re.DOTALL)).text


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
        memory="10 a class",
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
        "10 a class",
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


def test_the_first_sentence_says_how_many_images_were_right(make_result: MakeResult) -> None:
    confusion = [[4, 1, 0, 0], [1, 4, 0, 0], [2, 0, 2, 1], [0, 0, 4, 1]]
    result = make_result((2, 2), benchmark="folder", title="my birds", confusion=confusion, base=80.0, new=30.0)
    words = Page(report([result])).text
    sentence = (
        "11 of 20 test photos right after the last session (base classes 80 %, new classes 30 %); "
        "guessing among 4 classes gives 5."
    )
    assert sentence in words
    assert words.index(sentence) < words.index("Accuracy after every session")


def test_every_method_has_its_sentence_with_the_mean_over_its_seeds(make_result: MakeResult) -> None:
    def of(preset: str, seed: int, right: int) -> Result:
        confusion = [[right, 10 - right, 0], [0, 0, 0], [0, 0, 0]]
        return make_result((3,), preset=preset, seed=seed, confusion=confusion)

    words = Page(report([of("a", 1, 4), of("a", 2, 6), of("b", 1, 9)])).text
    assert "a : 5 of 10 test images right after the last session, the mean of 2 seeds; guessing" in words
    assert "b : 9 of 10 test images right after the last session; guessing among 3 classes gives about 3." in words


def test_the_benchmark_goes_by_its_title(make_result: MakeResult) -> None:
    text = report([make_result(benchmark="folder", title="my <birds>")])
    assert text.count("my &lt;birds&gt;") == 3  # title, h1, h2
    assert "<h1>limit on my &lt;birds&gt;</h1>" in text


def test_every_class_is_listed_with_its_arrival_and_its_score(make_result: MakeResult) -> None:
    confusion = [[3, 1, 0], [0, 5, 0], [0, 0, 0]]
    text = report([make_result((1, 1, 1), class_names=["finch", "wren", "robin"], confusion=confusion)])
    words = outside_details(text)  # so few need not be unfolded
    assert "finch base 3 of 4" in words
    assert "wren new, session 1 5 of 5" in words
    assert "robin new, session 2 no test images" in words


def test_many_classes_fold_away(make_result: MakeResult) -> None:
    text = report([make_result((60, 5))])
    assert "class 64 new, session 1" in Page(text).text
    assert "class 64 new, session 1" not in outside_details(text)


def test_methods_are_compared_over_the_seeds_that_they_share(make_result: MakeResult) -> None:
    a = [make_result(preset="a", seed=s, last=v) for s, v in [(1, 51.0), (2, 53.0), (9, 0.0)]]
    b = [make_result(preset="b", seed=s, last=v) for s, v in [(1, 50.0), (2, 50.0)]]
    assert "a − b 2 seeds +2.00 ± 1.00" in Page(report([*a, *b])).text
    assert "a − b" not in Page(report([a[2], *b])).text  # no seed in common
    elsewhere = [make_result(preset="b", seed=1, split_checksum="another")]
    assert "a − b" not in Page(report([*a, *elsewhere])).text


def test_settings_stand_in_the_labels(make_result: MakeResult) -> None:
    results = [make_result(), make_result(changed=["lr=0.1"], config_hash="1-1"), make_result(config_hash="2-1")]
    words = Page(report(results)).text
    assert "limit lr=0.1 :" in words
    assert "[a] configuration" in words


def test_memory_and_weights_are_shown_where_there_are_any(make_result: MakeResult) -> None:
    plain = outside_details(report([make_result()]))
    assert "images kept" not in plain
    assert "pre-trained weights" not in plain
    result = make_result(memory="20 a class", exemplars=2000, weights="imagenet sha256:0123456789abcdef")
    words = outside_details(report([result]))
    assert "270,000 12,000 imagenet 20 a class 2,000" in words


def test_what_only_experts_ask_for_is_folded_away(make_result: MakeResult) -> None:
    result = make_result(device="a fast device", weights="imagenet sha256:0123456789abcdef")
    text = report([result])
    for fact in ("a fast device", result.split_checksum, result.config_hash, result.command, result.weights):
        assert fact in Page(text).text
        assert fact not in outside_details(text)


def test_wide_tables_name_their_columns_in_every_cell_for_narrow_screens(make_result: MakeResult) -> None:
    text = report([make_result(CIFAR, benchmark="cifar100", accuracy=[50.0 + i for i in range(9)])])
    assert '<td data-column="session 8">58.00' in text
    assert '<td data-column="average">54.00' in text


def test_every_line_of_ours_has_its_margin(make_result: MakeResult) -> None:
    text = report([make_result(preset="plus", margin=0.35), make_result(preset="means", method="decoupled-cosine")])
    assert re.findall(r'<td data-column="margin">([^<]*)', text) == ["0.35", "0.00", "0.00"]  # "margin 0" is the second


def test_a_warning_is_said_once_and_for_whom(make_result: MakeResult) -> None:
    both = [make_result(preset=name, warnings=["few images"], note="simplified" * (name == "a")) for name in "ab"]
    words = Page(report(both)).text
    assert words.count("few images") == 1
    assert "a: simplified" in words


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
