"""The report of a model that was taught, as `fscil report MODEL` writes it."""

from __future__ import annotations

import base64
import io
import json
import re
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from cli_call import Fscil
from fscil.report.taught import Confused, TaughtPage, taught_parts


def text_of(page: str) -> str:
    return re.sub(r"<[^>]+>", " ", page)


def test_a_page_opens_with_a_sentence_and_names_every_class(fscil: Fscil, model: Path) -> None:
    assert fscil("rename", model, "class1", "<script>alert(1)</script>").code == 0
    found = fscil("report", model, "--out", "page.html")
    assert found.code == 0, found.err
    sentence, written = found.out.splitlines()
    assert written == "report  page.html"
    assert sentence.startswith("It knows 4 classes, all taught from 24 photos; each left out in turn, ")
    page = Path("page.html").read_text(encoding="utf-8")
    assert f'<h1>flowers</h1><p class="headline">{sentence}</p>' in page
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    scores = json.loads(fscil("classes", model, "--measure", "--json").out)["classes"]
    for each in scores:
        assert f"{each['recognised']} of {each['tried']}" in text_of(page)
    assert "rename" in page[page.index("<details") :]
    assert not re.search(r'(?:src|href)="(?!data:)', page)
    again = fscil("report", model, "--out", "page.html", "--json")  # ours, so it may be overwritten
    assert json.loads(again.out) == {"report": "page.html", "sentence": sentence}


def test_mistakes_on_test_photos_are_shown(fscil: Fscil, model: Path, photos: Path) -> None:
    assert fscil("rename", model, "class0", "class9").code == 0
    (photos / "class0").rename(photos / "class9")
    (photos / "class1").rename(photos / "swap")
    (photos / "class2").rename(photos / "class1")
    (photos / "swap").rename(photos / "class2")  # so that there are mistakes
    found = json.loads(fscil("evaluate", model, photos, "--json").out)
    assert fscil("report", model, "--test", photos, "--out", "page.html").code == 0
    page = Path("page.html").read_text(encoding="utf-8")
    assert f"{found['right']} of {found['photos']} photos are right" in page
    pictures = [base64.b64decode(each) for each in re.findall(r'src="data:image/jpeg;base64,([^"]+)"', page)]
    assert len(pictures) == len(found["wrong"]) > 10
    assert {Image.open(io.BytesIO(each)).format for each in pictures} == {"JPEG"}
    for mistake in found["mistakes"][:3]:
        assert f"{mistake['name']}</th>" in page
        assert f"taken for <b>{mistake['taken_for']}</b>" in page


def test_a_runs_tables_are_folded_away(fscil: Fscil, tiny_dataset: str, photo_folder: Callable[..., Path]) -> None:
    assert fscil("run", "decoupled-cosine", tiny_dataset, "--out", "run").code == 0
    assert json.loads(fscil("report", "run", "--out", "run.html", "--json").out) == {"report": "run.html", "runs": 1}
    assert fscil("teach", "run", photo_folder(classes=2, images=3)).code == 0
    assert fscil("report", "run/model", "--out", "page.html").out.startswith("It knows 9 classes, 2 of them taught")
    page = Path("page.html").read_text(encoding="utf-8")
    assert "<h1>run</h1>" in page  # every run's model is called model
    counts = re.findall(r'<td data-column="photos"[^>]*>(?:<span>)?([^<]*)', page.partition("<h3>")[0])
    assert counts == [*[""] * 7, "3", "3"]  # nobody counted the photos of the training here
    before, _, folded = page.partition("<details><summary>The run that trained it</summary>")
    assert "harmonic" not in before
    assert "Old and new classes after the last session" in folded


def test_a_page_says_how_many_kinds_of_mistakes_it_leaves_out() -> None:
    mistakes = [Confused(f"class {i}", "another", 30 - i) for i in range(25)]
    page = "".join(taught_parts(TaughtPage("flowers", ["A sentence."], [], mistakes, [])))
    assert page.count("another</td>") == 20
    assert "and 40 more photos, in 5 other ways" in page


def test_a_page_is_of_one_model(fscil: Fscil, model: Path, photos: Path) -> None:
    for arguments in ([model, model], [model, "--test", "nowhere"], ["run", "--test", photos], ["run"]):
        found = fscil("report", *arguments)
        assert (found.code, found.out) == (2, "")
        assert found.err.count("\n") == 1
    assert not Path("report.html").exists()
