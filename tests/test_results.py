from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

import fscil
from fscil.config import config_hash
from fscil.errors import UserError
from fscil.margins import Measures
from fscil.results import MANY_CLASSES, Result, paired_difference, read_result, write_result

MakeResult = Callable[..., Result]
ZERO = {
    "accuracy": [9.0, 8.0, 7.0],
    "last": 7.0,
    "pd": 2.0,
    "average": 8.0,
    "base": 1.0,
    "new": 1.0,
    "harmonic_mean": 1,
}
COMMITTED = Path(__file__).parents[1] / "results"


@pytest.fixture
def rewrite(tmp_path: Path, make_result: MakeResult) -> Callable[..., Path]:
    """rewrite(drop, **values): a result.json without the fields of drop, and with these values."""

    def write(drop: tuple[str, ...] = (), **values: Any) -> Path:
        write_result(make_result(), path := tmp_path / "result.json")
        held = {key: value for key, value in json.loads(path.read_text()).items() if key not in drop}
        path.write_text(json.dumps({**held, **values}))
        return path

    return write


def test_what_is_written_is_read_back(tmp_path: Path, make_result: MakeResult) -> None:
    trials = [{"trial": 2, "accuracy": [70.0, 60.0, 50.0], "harmonic_mean": None, "area": 31.5}]
    result = make_result(class_names=['<script>"', "Käfer", "\ud800", *"abcdefg"], trials=trials)
    write_result(result, tmp_path / "result.json")
    assert read_result(tmp_path / "result.json") == result
    assert read_result(tmp_path) == result  # a run folder works, too


def test_the_file_has_exactly_the_fields_one_a_line(tmp_path: Path, make_result: MakeResult) -> None:
    write_result(make_result(), tmp_path / "result.json")
    text = (tmp_path / "result.json").read_text()
    names = [field.name for field in fields(Result) if field.name != "folder"]  # which may be moved
    assert list(json.loads(text)) == names
    assert len(text.splitlines()) == len(names) + 2


def test_fields_with_a_default_may_be_missing_and_unknown_ones_are_ignored(rewrite: Callable[..., Path]) -> None:
    result = read_result(rewrite(drop=("memory", "title", "changed"), colour="blue"))
    assert (result.memory, result.title, result.changed) == ("none", "", [])


def test_a_file_of_a_newer_version_is_refused_in_one_line(rewrite: Callable[..., Path]) -> None:
    for version in (4, "2.1", None):
        with pytest.raises(UserError, match=f"version {version}.*update fscil") as caught:
            read_result(rewrite(version=version))
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("command", "changed"),
    [
        ("fscil run limit glyphs --seed 3", []),
        ("fscil run limit cifar100 lr=0.1 augmentation=basic --out=x --seed 3", ["lr=0.1", "augmentation=basic"]),
        ("fscil run limit folder 'path=my photos' way=3", ["path=my photos", "way=3"]),
        ("fscil run limit folder path=it's", ["path=it's"]),
    ],
)
def test_what_was_changed_in_a_run_of_version_1_stands_in_its_command(
    rewrite: Callable[..., Path], command: str, changed: list[str]
) -> None:
    old = rewrite(drop=("version", "changed", "memory", "title"), command=command)
    assert read_result(old).changed == changed
    assert read_result(old).version == 3
    assert read_result(rewrite(command=command, changed=["lr=7"])).changed == ["lr=7"]  # version 2 has it as a field


def test_a_file_of_version_2_says_nothing_about_margins(rewrite: Callable[..., Path]) -> None:
    measured = [*Measures.__annotations__]
    trials = [{"trial": 1, "accuracy": [70.0, 60.0, 50.0], "harmonic_mean": None}]
    result = read_result(rewrite(drop=tuple(measured), version=2, trials=trials))
    assert [getattr(result, name) for name in measured if name != "curve"] == [None] * (len(measured) - 1)
    assert (result.curve, result.trials[0]["area"]) == ([], None)


def test_every_committed_result_can_be_read() -> None:
    texts = {path: path.read_text() for path in COMMITTED.rglob("*.json")}
    results = [read_result(path) for path, text in texts.items() if '"confusion"' in text]
    assert len(results) > 50
    as_the_paper = read_result(COMMITTED / "cifar100" / "decoupled-cosine-paper-seed81.json")
    assert as_the_paper.changed == ["recipe=paper"]


def test_reading_and_showing_results_needs_no_torch(tmp_path: Path, make_result: MakeResult) -> None:
    write_result(make_result(), tmp_path / "result.json")
    code = (
        "import sys; from pathlib import Path; import fscil.results, fscil.tables;"
        "fscil.tables.session_table([fscil.results.read_result(Path(sys.argv[1]))]);"
        "sys.exit('torch' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(fscil.__file__).parents[1])}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=environment, check=True)


def test_a_one_session_result_is_a_result(tmp_path: Path, make_result: MakeResult) -> None:
    result = make_result((3,))
    assert result.harmonic_mean is None
    write_result(result, tmp_path / "result.json")
    assert read_result(tmp_path) == result


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not valid JSON"),
        ('{"method": "lim', "not valid JSON"),
        ('{"last": NaN}', "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("\udcff", "not valid JSON"),
        ("[1, 2]", "does not hold a result"),
        ('{"method": "limit"}', "lacks preset, benchmark"),
    ],
)
def test_a_broken_file_is_one_clear_line(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "result.json").write_bytes(content.encode("utf-8", "surrogateescape"))
    with pytest.raises(UserError, match=message) as caught:
        read_result(tmp_path / "result.json")
    assert "\n" not in str(caught.value)
    assert "result.json" in str(caught.value)


def test_a_missing_file_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"cannot read .*name a run folder"):
        read_result(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("accuracy", [1.0]),
        ("accuracy", ["a", "b", "c"]),
        ("accuracy", None),
        ("last", "51"),
        ("last", True),
        ("last", 10**400),
        ("seed", 1.5),
        ("new", "none"),
        ("captured", 1),
        ("changed", "lr=0.1"),
        ("memory", None),
        ("confusion", [[1, 2], [3]]),
        ("confusion", [[-1] * 10] * 10),
        ("classes_per_session", [6, 2]),
        ("classes_per_session", 10),
        ("class_names", "ten"),
        ("per_class", {}),
        ("per_class", {"base": "50", "new": None, "harmonic_mean": None, "last": None}),
        ("parameters", {"inference": 1}),
        ("seconds", {"pretrain": 3.0}),
        ("trials", [{"trial": 1, "accuracy": [1.0]}]),
        ("trials", [{"trial": 1, "accuracy": [1.0, 2.0], "harmonic_mean": 3.0, "area": 3.0}]),
        ("trials", [{"trial": 1, "accuracy": [1.0, 2.0, 3.0], "harmonic_mean": "3", "area": 3.0}]),
        ("trials", [{"trial": 1, "accuracy": [1.0, 2.0, 3.0], "harmonic_mean": 3.0, "area": "3"}]),
        ("margin", "0.4"),
        ("area", [30.0]),
        ("best_last", True),
        ("new_to_base", "12"),
        ("curve", None),
        ("curve", [[0.0, 50.0]]),
        ("curve", [[0.0, 50.0, None]]),
        ("margin_zero", {}),
        ("margin_zero", {**ZERO, "accuracy": [1.0]}),
        ("margin_zero", {**ZERO, "last": None}),
        ("margin_zero", {**ZERO, "new": "1"}),
        ("versions", {"torch": 2}),
    ],
)
def test_a_malformed_field_is_named(tmp_path: Path, make_result: MakeResult, field: str, value: Any) -> None:
    write_result(replace(make_result(), **{field: value}), tmp_path / "result.json")
    with pytest.raises(UserError, match=f"malformed value for .*{field}"):
        read_result(tmp_path)


def test_config_hash_knows_the_trial_as_an_option_of_the_dataset() -> None:
    hashes = [config_hash({"seed": 1, "options": {"trial": t, "shot": s}}) for t, s in [(1, 5), (2, 5), (1, 1)]]
    settings = [h.partition("-")[0] for h in hashes]
    assert len(set(hashes)) == 3
    assert settings[0] == settings[1] != settings[2]


def test_paired_difference_over_the_seeds_that_both_have(make_result: MakeResult) -> None:
    ours = [make_result(seed=s, last=v) for s, v in [(1, 50.0), (2, 53.0), (3, 55.0), (9, 99.0)]]
    theirs = [make_result(seed=s, last=v) for s, v in [(3, 52.0), (1, 49.0), (2, 51.0), (8, 0.0)]]
    mean, error, n = paired_difference(ours, theirs, "last")
    assert (mean, n) == (2.0, 3)
    assert error == pytest.approx(1 / math.sqrt(3))
    assert paired_difference(ours, theirs, lambda result: -result.last)[0] == -2.0


def test_paired_difference_of_one_pair_has_no_error(make_result: MakeResult) -> None:
    mean, error, n = paired_difference([make_result(last=2.0)], [make_result(last=1.0)], "last")
    assert (mean, n) == (1.0, 1)
    assert math.isnan(error)


def test_paired_difference_needs_a_common_seed(make_result: MakeResult) -> None:
    with pytest.raises(UserError, match="same seeds"):
        paired_difference([make_result(seed=1)], [make_result(seed=2)], "last")
    with pytest.raises(UserError, match="same seeds"):
        paired_difference([make_result(trial=1)], [make_result(trial=2)], "last")


def test_a_large_confusion_matrix_is_written_without_its_zeros(tmp_path: Path, make_result: MakeResult) -> None:
    classes = MANY_CLASSES + 1
    confusion = [[3 if i == j else int(j == 0) for j in range(classes)] for i in range(classes)]
    result = replace(
        make_result((classes - 10, 10)), confusion=confusion, class_names=[f"class {i}" for i in range(classes)]
    )
    write_result(result, tmp_path / "result.json")
    assert read_result(tmp_path / "result.json").confusion == confusion
    text = (tmp_path / "result.json").read_text()
    assert len(text) < classes**2
    for wrong in ('{"0": 1, "201": 3}', '{"0": 1, "-1": 3}', '{"0": 1, "3": -3}', '{"0": 1, "3": 1.5}', '{"0": "1"}'):
        (tmp_path / "result.json").write_text(text.replace('{"0": 1, "3": 3}', wrong))
        with pytest.raises(UserError, match="malformed value for confusion"):
            read_result(tmp_path / "result.json")
