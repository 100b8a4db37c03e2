from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console
from scipy.stats import ttest_rel

from fscil import methods, paper, runs
from fscil.comparison import Comparison, compare, every_method, notes, pairs, rows_of
from fscil.config import Config, resolve
from fscil.errors import UserError
from fscil.pairing import difference_with_p, different_embedding, unlike_encoders
from fscil.results import Result

pytestmark = pytest.mark.usefixtures("undrawn")

Compare = Callable[..., Comparison]


@pytest.fixture
def run_comparison(tiny_dataset: str, tmp_path: Path) -> Compare:
    environment = runs.RunEnvironment(torch.device("cpu"), tmp_path / "out")

    def go(*presets: str, seeds: int = 2, overrides: tuple[str, ...] = ()) -> Comparison:
        return compare(tiny_dataset, presets, range(1, seeds + 1), overrides, environment, Console(quiet=True))

    return go


def test_a_method_named_twice_is_one_row(run_comparison: Compare) -> None:
    found = run_comparison("decoupled-cosine", "decoupled-cosine ", seeds=1)
    assert [r.preset for r in found.results] == ["decoupled-cosine"]


def test_methods_are_paired_over_seeds(run_comparison: Compare, tmp_path: Path) -> None:
    found = run_comparison("limit", " decoupled-cosine", overrides=("power=0.5", "mirror=true", "whiten=1"))
    assert [(r.preset, r.seed) for r in found.results] == [
        ("limit", 1), ("limit", 2), ("decoupled-cosine", 1), ("decoupled-cosine", 2),
    ]  # fmt: skip
    mine, others = found.results[:2], found.results[2:]
    gaps = [a.last - b.last for a, b in zip(mine, others, strict=True)]
    error = statistics.stdev(gaps) / math.sqrt(2)
    numbers = f"{statistics.fmean(gaps):+.2f} ± {error:.2f}"
    assert found.lines[0] == "limit - decoupled-cosine, from the same embedding (2 seeds, paired error and t-test)"
    assert any(line.startswith("  margin") and f": last session {numbers} (p = " in line for line in found.lines)
    for file in ("curve.png", "report.html", "tiny-limit-seed1/result.json", "tiny-decoupled-cosine-seed2/config.toml"):
        assert (tmp_path / "out" / file).is_file()
    assert f"report  {tmp_path / 'out' / 'report.html'}" in found.lines
    model = next(line.split()[-1] for line in found.lines if line.startswith("model"))
    assert (Path(model) / "model.safetensors").is_file()


def test_finished_runs_are_not_repeated(run_comparison: Compare, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_comparison("decoupled-cosine", "limit", seeds=1)
    monkeypatch.setattr(runs, "execute", lambda *_: pytest.fail("it ran again"))
    assert run_comparison("decoupled-cosine", "limit", seeds=1) == first


def test_settings_reach_the_methods_that_have_them(run_comparison: Compare) -> None:
    found = run_comparison("decoupled-cosine", "limit", seeds=1, overrides=("meta_steps=2", "epochs=2"))
    assert len(found.results) == 2


@pytest.mark.parametrize(
    ("presets", "overrides", "message"),
    [
        (("limit", "limmit"), (), "did you mean 'limit'"),
        (("limit",), ("meta_step=2",), "did you mean 'meta_steps'"),
        (("limit", "finetune"), ("batch=0",), "too small"),
    ],
)
def test_what_is_wrong_is_said_before_anything_runs(
    run_comparison: Compare, tmp_path: Path, presets: tuple[str, ...], overrides: tuple[str, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        run_comparison(*presets, overrides=overrides)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["curve.png", "report.html"])
def test_a_file_that_is_not_ours_is_kept(run_comparison: Compare, tmp_path: Path, name: str) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text("my own")
    with pytest.raises(UserError, match="was not written by fscil and would be overwritten"):
        run_comparison("decoupled-cosine", seeds=1)
    assert [path.name for path in (tmp_path / "out").iterdir()] == [name]
    (tmp_path / "out" / name).unlink()
    for _ in range(2):  # the second time, ours is replaced
        run_comparison("decoupled-cosine", seeds=1)


def test_notes_are_said_once(make_result: Callable[..., Result]) -> None:
    results = [make_result(note="simplified"), make_result(seed=2, note="simplified"), make_result(note="")]
    assert notes(results) == ["note: simplified"]


def test_warnings_of_runs_are_said_wherever_they_were_computed(make_result: Callable[..., Result]) -> None:
    results = [make_result(warnings=["other shots"]), make_result(seed=2, warnings=["other shots"], note="simplified")]
    assert notes(results) == ["warning: other shots", "note: simplified"]


def test_every_method_of_the_papers_table_in_its_order_and_with_its_augmentations() -> None:
    found = every_method("cifar100", [])
    named = [entry.partition(":")[0] for entry in found]
    assert set(named) == set(methods.names())
    published = [name for name in dict.fromkeys(named) if paper.find("cifar100", name, "basic")]
    assert published == sorted(published, key=list(paper.load()["cifar100"]["basic"]).index)
    assert found[found.index("limit") + 1] == "limit:augmentation=basic"
    assert every_method("cub200", [])[named.index("limit") + 1] == "limit:augmentation=autoaug"  # ours is basic there
    assert not any(":" in entry for entry in every_method("cifar100", ["augmentation=none"]))
    assert not any(":" in entry for entry in every_method("digits", []))


def test_rows_have_settings_of_their_own_and_can_be_left_out() -> None:
    rows = rows_of("digits", ["limit", " limit:fake_way=1:epochs=2", "all", "-finetune"], ["epochs=3", "meta_steps=9"])
    assert [row.name for row in rows[:2]] == ["limit", "limit fake_way=1 epochs=2"]
    assert rows[1].settings == ("epochs=3", "meta_steps=9", "fake_way=1", "epochs=2")
    assert {row.preset for row in rows} == set(methods.names()) - {"finetune"}
    several = ["limit", "limit:epochs=2", "teen"]
    assert [row.name for row in rows_of("digits", [*several, "-limit:epochs=2"], [])] == ["limit", "teen"]
    assert [row.name for row in rows_of("digits", [*several, "-limit"], [])] == ["teen"]
    with pytest.raises(UserError, match="unknown method to leave out 'limmit': did you mean 'limit'"):
        rows_of("digits", ["limit", "-limmit"], [])
    with pytest.raises(UserError, match=r"to leave out 'limit:epochs=3': known are limit$"):
        rows_of("digits", ["limit", "-limit:epochs=3"], [])
    with pytest.raises(UserError, match="no method is left"):
        rows_of("digits", ["limit", "-limit"], [])
    with pytest.raises(UserError, match="no method is left"):
        rows_of("digits", ["-limit"], [])


def configs_of(benchmark: str, entries: str, *overrides: str) -> dict[str, Config]:
    rows = rows_of(benchmark, entries.split(","), overrides)
    return {row.name: resolve(row.preset, benchmark, row.settings) for row in rows}


@pytest.mark.parametrize(
    ("benchmark", "overrides"),
    [("cifar100", ()), ("cifar100", ("epochs=3",)), ("cifar100", ("recipe=cec",)), ("cub200", ()), ("glyphs", ())],
)
def test_all_methods_start_from_the_encoder_of_limit(benchmark: str, overrides: tuple[str, ...]) -> None:
    configs = configs_of(benchmark, "all", *overrides)
    own = {name for name in configs if configs[name].own_training}
    assert own >= {"fact", "joint"}
    for name in configs.keys() - own:
        like = configs["limit"] if "=" not in name else configs[f"limit {name.partition(' ')[2]}"]
        assert not different_embedding(configs[name], like)
    assert {config.settings["recipe"] for config in configs.values()} == {configs["limit"].settings["recipe"]}


def test_a_line_says_which_methods_have_which_encoder() -> None:
    def line(entries: str, *overrides: str) -> list[str]:
        return unlike_encoders(configs_of("cifar100", entries, *overrides))

    assert line("limit,finetune") == [
        "encoders differ: limit: recipe=paper batch=128 lr=0.1; finetune: recipe=large-batch batch=256 lr=0.2"
    ]
    assert line("limit,finetune,cec,fact") == [
        "encoders differ: finetune: recipe=large-batch batch=256 lr=0.2; fact: its own training; "
        "the others: recipe=paper batch=128 lr=0.1"
    ]
    assert line("all") == [
        "encoders differ: cec augmentation=basic, limit augmentation=basic: recipe=paper augmentation=basic; "
        "fact, joint: its own training; the others: recipe=paper augmentation=autoaug"
    ]
    assert line("limit,finetune", "recipe=paper") == []
    assert line("all,-fact,-joint", "augmentation=basic") == []


def test_of_many_methods_limit_is_paired_with_each() -> None:
    few, many = configs_of("digits", "teen,cec,limit"), configs_of("digits", "teen,cec,limit,icarl,eeil")
    assert pairs(few) == [("teen", "cec"), ("teen", "limit"), ("cec", "limit")]
    assert pairs(many) == [("limit", "teen"), ("limit", "cec"), ("limit", "icarl"), ("limit", "eeil")]
    del many["limit"]
    many |= configs_of("digits", "fact")
    assert pairs(many) == [("teen", "cec"), ("teen", "icarl"), ("teen", "eeil"), ("teen", "fact")]


def test_of_many_rows_each_is_paired_with_the_limit_of_its_augmentation() -> None:
    configs = configs_of("cifar100", "all")
    found = {b: a for a, b in pairs(configs)}
    assert found.keys() == configs.keys() - {"limit"}
    assert found["cec augmentation=basic"] == "limit augmentation=basic"
    assert {found[name] for name in found if name != "cec augmentation=basic"} == {"limit"}


def test_the_files_behind_the_numbers_are_named_and_a_deleted_one_is_made_again(
    run_comparison: Compare, tmp_path: Path
) -> None:
    found = run_comparison("decoupled-cosine", "decoupled-cosine:batch=7")
    named = [line.removeprefix("numbers ") for line in found.lines if line.startswith("numbers ")]
    out = tmp_path / "out"
    assert named == [
        f"{out}/tiny-decoupled-cosine-seed{{1,2}}/result.json",
        f"{out}/tiny-decoupled-cosine_batch-7-seed{{1,2}}/result.json",
    ]
    file = out / "tiny-decoupled-cosine-seed2" / "result.json"
    file.unlink()
    again = run_comparison("decoupled-cosine", "decoupled-cosine:batch=7")
    assert file.is_file()
    assert [r.accuracy for r in again.results] == [r.accuracy for r in found.results]


def test_the_paired_test_is_scipys(make_result: Callable[..., Result]) -> None:
    a, b = ([make_result(seed=s, last=value) for s, value in enumerate(values)] for values in ((5, 7, 6.5), (4, 5, 6)))
    p = ttest_rel([5, 7, 6.5], [4, 5, 6]).pvalue
    assert difference_with_p(a, b, "last") == f"+1.17 ± 0.44 (p = {p:.3f})"
    assert difference_with_p(a, a, "last") == "+0.00 ± 0.00"
    assert difference_with_p(a[:1], b[:1], "last") == "+1.00"
