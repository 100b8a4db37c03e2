"""Arguments that cannot be: one line that says what to do, and nothing is made."""

from __future__ import annotations

from pathlib import Path

import pytest

from cli_call import Fscil
from cli_process import assert_one_clear_line

LONG = "x" * 300  # longer than a name in any file system
DEEP = "folder/" * 1000


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nope", "no such command 'nope'; see: fscil --help"),
        ("data nope", "no such command 'nope'; see: fscil data --help"),
        ("--nope", "no such option: --nope"),
        ("run limit digits --sede 3", "see: fscil run --help"),
        ("run limit digits --sede 3", "--seed"),
        ("run limit digits --seed three", "'--seed'"),
        ("run limit digits --seed -1", "'--seed'"),
        ("run limit digits --seed 9223372036854775808", "'--seed'"),
        ("run limit digits --seed " + "9" * 5000, "'--seed'"),
        ("run limit digits --seed", "'--seed' requires an argument"),
        ("run limit digits --checkpoint-every nan", "at least 0"),
        ("run limit digits --checkpoint-every -1", "at least 0"),
        ("run limit digits --checkpoint-every soon", "'--checkpoint-every'"),
        ("compare", "missing argument"),
        ("compare digits --seeds abc", "'--seeds'"),
        ("compare digits --seeds 0", "'--seeds'"),
        ("compare digits --seeds 10000000", "1000"),
        ("reproduce ablation --seeds 10000000", "1000"),
        ("compare digits --first-seed 9223372036854775807", "'--first-seed'"),
        ("compare digits --methods " + "limmit," * 5000 + "limit", "did you mean 'limit'"),
        ("compare digits --methods limit,,teen", "an empty name among the methods 'limit,,teen'; write"),
        ("compare digits --methods limit,", "an empty name among the methods 'limit,'"),
        ("compare digits --methods=", "an empty name among the methods ''"),
        ("predict model", "missing argument 'IMAGE'"),
        ("predict model image.png --top 0", "'--top'"),
        ("report", "missing argument 'RUN'"),
        ("report ~nosuchuser/run", "there is no user nosuchuser"),
        ("report run --out ~nosuchuser/report.html", "there is no user nosuchuser"),
        ("report run --out .", "name the HTML file"),
        ("run limit digits --out ~nosuchuser/run", "there is no user nosuchuser"),
        ("run --resume ~nosuchuser/run", "there is no user nosuchuser"),
        ("run limit cifar100 --root ~nosuchuser", "there is no user nosuchuser"),
        ("data verify cifar100 --root ~nosuchuser", "there is no user nosuchuser"),
        ("compare digits --out ~nosuchuser", "there is no user nosuchuser"),
        (f"report {LONG}", "too long"),
        (f"report run --out {LONG}", "too long"),
        (f"run limit digits --out {LONG}", "too long"),
        (f"run limit digits --out {DEEP}", "too long"),
        (f"run --resume {LONG}", "too long"),
        (f"run limit cifar100 --root {LONG}", "too long"),
        (f"data prepare cifar100 --root {LONG}", "too long"),
        (f"compare digits --out {LONG}", "too long"),
    ],
)
def test_usage_errors_are_one_line(fscil: Fscil, tmp_path: Path, arguments: str, message: str) -> None:
    found = fscil(*arguments.split())
    assert found.code == 2
    assert_one_clear_line(found.err)
    assert message in found.err
    assert found.out == ""
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("verb", ["", "data"])
def test_without_arguments_there_is_help(fscil: Fscil, verb: str) -> None:
    found = fscil(*verb.split())
    assert "Commands:" in found.out + found.err
    assert "error:" not in found.err


def test_a_home_folder_may_be_typed(fscil: Fscil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    found = fscil("report", "~/run")
    assert f"{tmp_path}/home/run" in found.err
