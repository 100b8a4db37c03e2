from __future__ import annotations

import json
import os
import signal
import tomllib
from pathlib import Path

import pytest

from cli_call import Fscil
from cli_process import assert_one_clear_line
from fscil import datasets, runs
from fscil.config import resolve
from fscil.errors import LostContact
from fscil.results import read_result


def test_run_prints_the_table_and_where_things_are(fscil: Fscil, tiny_dataset: str, tmp_path: Path) -> None:
    found = fscil("run", "limit", "tiny", "--seed", "2", "--out", "run")
    assert found.code == 0
    result = read_result(tmp_path / "run")
    assert result.seed == 2
    assert f"{result.last:.2f}" in found.out
    for line, path in (("model", "run/model"), ("curve", "run/curve.png"), ("report", "run/report.html")):
        assert f"{line:8}{path}" in found.out
        assert (tmp_path / path).exists()


def test_brackets_and_colons_in_names_are_no_markup(fscil: Fscil, tiny_dataset: str, tmp_path: Path) -> None:
    found = fscil("run", "decoupled-cosine", "tiny", "--out", "[red] :smile: [x]")
    assert found.code == 0
    assert "model   [red] :smile: [x]/model" in found.out


@pytest.mark.parametrize("benchmark", datasets.BUILT_IN)
def test_every_setting_has_a_reason(fscil: Fscil, benchmark: str) -> None:
    text = fscil("run", "limit", benchmark, "--show-config").out
    settings = text[text.index("[settings]") :].splitlines()
    assert not [line for line in settings if " = " in line and "  # " not in line]


def test_json_is_the_result(fscil: Fscil, tiny_dataset: str, tmp_path: Path) -> None:
    found = fscil("run", "decoupled-cosine", "tiny", "--out", "run", "--json")
    printed = json.loads(found.out)
    assert printed.pop("folder") == "run"
    assert printed == json.loads((tmp_path / "run" / "result.json").read_text())


def test_without_out_every_run_has_a_folder_of_its_own(fscil: Fscil, tiny_dataset: str, tmp_path: Path) -> None:
    assert fscil("run", "decoupled-cosine", "tiny").code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("decoupled-cosine-tiny-seed1-")


def test_show_config_explains_and_runs_nothing(fscil: Fscil, tiny_dataset: str, tmp_path: Path) -> None:
    found = fscil("run", "limit-paper", "cifar100", "epochs=7", "--seed", "4", "--show-config")
    assert found.code == 0
    shown = tomllib.loads(found.out)
    assert (shown["preset"], shown["method"], shown["seed"]) == ("limit-paper", "limit", 4)
    assert shown["settings"] == resolve("limit-paper", "cifar100", ["epochs=7"]).settings
    assert "epochs = 7  # typed; default 300, the paper's." in found.out
    assert not list(tmp_path.iterdir())


def test_an_existing_run_is_refused_and_a_finished_one_resumed_for_free(
    fscil: Fscil, tiny_dataset: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fscil("run", "limit", "tiny", "--out", "run", "--json")
    again = fscil("run", "limit", "tiny", "--out", "run")
    assert again.code == 2
    assert_one_clear_line(again.err)
    assert "--resume run" in again.err
    monkeypatch.setattr(runs, "execute", lambda *_: pytest.fail("it ran again"))
    resumed = fscil("run", "--resume", "run", "--json")
    assert resumed.code == 0
    assert json.loads(resumed.out) == json.loads(first.out)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("run", "limmit", "tiny"), "did you mean 'limit'"),
        (("run", "limit", "tinny"), "did you mean 'tiny'"),
        (("run", "limit", "tiny", "epoch=3"), "did you mean 'epochs'"),
        (("run", "limit", "tiny", "epochs=three"), "epochs=three is not an int"),
        (("run", "limit", "tiny", "epochs"), "write key=value"),
        (("run", "limit", "tiny", "--device", "tpu"), "it is cpu or cuda"),
        (("run", "limit"), "name a method and a benchmark"),
        (("run",), "name a method and a benchmark"),
        (("run", "--resume", "nowhere"), "name a run folder"),
        (("run", "limit", "tiny", "--resume", "nowhere"), "leave out method, benchmark, settings"),
        (("run", "--resume", "nowhere", "--seed", "9"), "--seed and --out"),
        (("run", "limit", "cifar100"), "cifar"),
        (("compare", "tiny", "--methods", "limit,none"), "unknown method 'none'"),
        (("compare", "tiny", "epoch=1"), "did you mean 'epochs'"),
        (("reproduce", "table9"), "unknown table or figure 'table9'"),
        (("report", "nowhere"), "cannot read"),
        (("data", "verify", "cifar10"), "did you mean 'cifar100'"),
    ],
)
def test_errors_of_the_users_making_are_one_line_and_exit_code_2(
    fscil: Fscil,
    tiny_dataset: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    message: str,
) -> None:
    monkeypatch.delenv("FSCIL_DATA", raising=False)
    found = fscil(*arguments)
    assert found.code == 2
    assert_one_clear_line(found.err)
    assert message in found.err
    assert found.out == ""
    assert not list(tmp_path.iterdir())


def test_a_missing_dataset_says_how_to_get_it(fscil: Fscil, tmp_path: Path) -> None:
    found = fscil("run", "limit", "cifar100", "--root", tmp_path / "data", "--out", "run")
    assert found.code == 2
    assert_one_clear_line(found.err)
    assert "fscil data prepare cifar100" in found.err
    assert not (tmp_path / "run").exists()


def test_what_cannot_be_parsed_is_usage(fscil: Fscil) -> None:
    found = fscil("run", "limit", "digits", "--sede", "3")
    assert found.code == 2
    assert "Traceback" not in found.err
    assert "--sede" in found.err


def test_an_unwritable_folder_is_one_line(fscil: Fscil, tiny_dataset: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    found = fscil("run", "limit", "tiny", "--out", "file/run")
    assert found.code == 2
    assert_one_clear_line(found.err)
    assert "choose a folder you may write to" in found.err


def test_ctrl_c_exits_with_130_and_says_how_to_go_on(
    fscil: Fscil, tiny_dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "execute", lambda *_: os.kill(os.getpid(), signal.SIGINT))
    found = fscil("run", "limit", "tiny", "--out", "my run")
    assert found.code == 130
    assert found.err == "interrupted; continue with: fscil run --resume 'my run'\n"


def test_a_lost_process_exits_with_1_and_says_how_to_go_on(
    fscil: Fscil, tiny_dataset: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(*_: object) -> None:
        raise LostContact("process 0 lost contact with the others")

    monkeypatch.setattr(runs, "execute", execute)
    found = fscil("run", "limit", "tiny", "--out", "run")
    assert found.code == 1
    assert_one_clear_line(found.err)
    assert found.err.endswith("continue with: fscil run --resume run\n")


def test_a_message_is_one_line_whatever_names_it_holds(fscil: Fscil, tmp_path: Path) -> None:
    found = fscil("report", "two\nlines \x1b[31m")
    assert found.code == 2
    assert_one_clear_line(found.err)
    assert "two\\nlines \\x1b[31m" in found.err


def test_compare_prints_the_paired_difference(fscil: Fscil, tiny_dataset: str, tmp_path: Path) -> None:
    same = ("power=1", "mirror=false", "whiten=0")
    arguments = (
        "compare",
        "tiny",
        "meta_steps=2",
        *same,
        "--methods",
        "limit,decoupled-cosine",
        "--seeds",
        "2",
        "--out",
        "c",
    )
    found = fscil(*arguments)
    assert found.code == 0
    said = "limit - decoupled-cosine, from the same embedding (2 seeds, paired error and t-test)\n  margin 0: last"
    assert said in found.out
    assert "encoders differ" not in found.out
    assert (tmp_path / "c" / "curve.png").is_file()
    unlike = fscil(
        "compare", *arguments[1:6], "--methods", "limit,decoupled-cosine:batch=7", "--seeds", "1", "--out", "c"
    )
    assert unlike.out.startswith(
        "encoders differ: limit: recipe=none batch=16; decoupled-cosine batch=7: recipe=none batch=7\n"
    )
    printed = json.loads(fscil(*arguments, "--json").out)
    assert [(result["preset"], result["seed"]) for result in printed] == [
        ("limit", 1), ("limit", 2), ("decoupled-cosine", 1), ("decoupled-cosine", 2),
    ]  # fmt: skip
    reported = fscil("report", "c/tiny-limit-seed1", "c/tiny-limit-seed2", "--out", "both.html")
    assert reported.code == 0
    assert "both.html" in reported.out
    assert "<html" in (tmp_path / "both.html").read_text()


def test_compare_takes_other_seeds(fscil: Fscil, tiny_dataset: str) -> None:
    found = fscil("compare", "tiny", "--methods", "decoupled-cosine", "--seeds", "2", "--first-seed", "6", "--json")
    assert [result["seed"] for result in json.loads(found.out)] == [6, 7]


def test_reproduce_lists_what_there_is(fscil: Fscil) -> None:
    found = fscil("reproduce")
    assert found.code == 0
    listed = [line.split()[0] for line in found.out.splitlines()]
    assert listed == ["ablation", "task-sampling", "augmentation", "set-functions", "released-code"]


@pytest.mark.parametrize(
    "verb",
    ["run", "compare", "reproduce", "report", "predict", "methods", "encoders", "data list", "data prepare",
     "data verify"],
)  # fmt: skip
def test_every_verb_has_examples_in_its_help(fscil: Fscil, verb: str) -> None:
    found = fscil(*verb.split(), "--help")
    assert found.code == 0
    assert f"fscil {verb}" in found.out
