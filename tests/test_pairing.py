"""Methods in pairs: which, at which margins."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from fscil.config import Config, resolve
from fscil.pairing import different_embedding, paired_lines, same_embedding, unlike_encoders
from fscil.results import Result

MakeResult = Callable[..., Result]
SAME = ["power=0.5", "mirror=true", "shift=1", "whiten=1"]
PLAIN = ["power=1", "mirror=false", "shift=0", "whiten=0"]


def zero(last: float, base: float, new: float, harmonic_mean: float) -> dict[str, object]:
    return {
        "accuracy": [60.0, 50.0, last], "last": last, "pd": 60 - last, "average": 50.0, "base": base, "new": new,
        "harmonic_mean": harmonic_mean,
    }  # fmt: skip


def configs(limit: list[str], means: list[str]) -> dict[str, Config]:
    """Whatever presets set, limit starts from the embedding of SAME, and class means from the plain one."""
    pairs = {"limit": [*SAME, *limit], "decoupled-cosine": [*PLAIN, *means], "finetune": []}
    return {name: resolve(name, "glyphs", settings) for name, settings in pairs.items()}


@pytest.fixture
def groups(make_result: MakeResult) -> dict[str, list[Result]]:
    """Two seeds; LIMIT has a margin."""
    return {
        "limit": [
            make_result(
                seed=seed, margin=0.4, last=53.0, harmonic_mean=45.0 + seed, area=31.0 + seed,
                margin_zero=zero(52.0, 70.0, 26.0, 38.0),
                curve=[[-1.0, 80.0, 0.0], [0.0, 70.0, 30.0], [1.0, 0.0, 50.0]],
            )
            for seed in (1, 2)
        ],
        "decoupled-cosine": [
            make_result(
                seed=seed, method="decoupled-cosine", last=53.5, harmonic_mean=37.0, area=31.0,
                margin_zero=zero(53.5, 75.0, 10.0 + seed, 37.0),
            )
            for seed in (1, 2)
        ],
    }  # fmt: skip


def test_every_number_says_at_which_margin_it_was_taken(groups: dict[str, list[Result]]) -> None:
    assert paired_lines(groups, configs([], SAME), "limit", "decoupled-cosine") == [
        "limit - decoupled-cosine, from the same embedding (2 seeds, paired error and t-test)",
        "  margin 0: last session -1.50 ± 0.00, harmonic mean +1.00 ± 0.00",
        "  margins 0.4 and 0: last session -0.50 ± 0.00, harmonic mean +9.50 ± 0.50 (p = 0.033)",
        "  any margin: area +1.50 ± 0.50 (p = 0.205)",
        # on LIMIT's curve base accuracy 75 goes with 15 on new classes, halfway between two points
        "  base accuracy of decoupled-cosine at margin 0: new classes +3.50 ± 0.50 (p = 0.090)",
    ]


def test_class_means_are_the_yardstick_of_other_pairs_too(
    groups: dict[str, list[Result]], make_result: MakeResult
) -> None:
    """Both at the base accuracy of class means, 75; not where these have another embedding."""
    groups["other"] = [make_result(seed=s, curve=[[0.0, 80.0, 0.0], [1.0, 70.0, 20.0]]) for s in (1, 2)]
    both = configs([], SAME)
    both["other"] = both["limit"]
    line = "  base accuracy of decoupled-cosine at margin 0: new classes +5.00 ± 0.00"
    assert paired_lines(groups, both, "limit", "other")[-1] == line
    both["decoupled-cosine"] = configs([], [])["decoupled-cosine"]
    assert line not in paired_lines(groups, both, "limit", "other")


def test_methods_without_margins_are_compared_once(groups: dict[str, list[Result]], make_result: MakeResult) -> None:
    two = {"finetune": [make_result(last=30.5)], "limit": [make_result(last=20.0)]}
    lines = paired_lines(two, {name: resolve("finetune", "glyphs") for name in two}, "finetune", "limit")
    assert lines[0] == "finetune - limit, from the same embedding (one seed)"
    assert [line.partition(":")[0] for line in lines[1:]] == ["  margin 0", "  any margin"]


def test_a_stream_without_new_classes_has_a_last_session_only(make_result: MakeResult) -> None:
    two = {"a": [make_result((3,))], "b": [make_result((3,))]}
    lines = paired_lines(two, {name: resolve("finetune", "glyphs") for name in two}, "a", "b")
    assert lines[1:] == ["  margin 0: last session +0.00"]


def test_methods_on_different_embeddings_are_not_paired(groups: dict[str, list[Result]]) -> None:
    assert paired_lines(groups, configs([], []), "limit", "decoupled-cosine") == [
        "limit and decoupled-cosine are not paired, since their embeddings differ in power, mirror, shift, whiten; to "
        "pair them, set the same for both, for instance power=0.5 mirror=true shift=1 whiten=1.0"
    ]
    assert paired_lines(groups, configs([], []), "finetune", "limit") == [
        "finetune and limit are not paired, since their embeddings differ in power, mirror, shift, whiten"
    ]


@pytest.mark.parametrize(
    ("a", "b", "differing"),
    [
        (["base_margin=0", "meta_steps=7", "rows=trained", "calibrator=paired"], SAME, []),
        (["shift=2"], SAME, ["shift"]),
        (["lr=0.3"], SAME, ["lr"]),
        (["validation=classes"], SAME, ["validation"]),
        (["precision=float32"], SAME, ["precision"]),
        (["augmentation=basic"], [*SAME, "augmentation=autoaug"], ["augmentation"]),
        ([], [*SAME, "trial=3"], ["trial"]),
    ],
)
def test_what_decides_about_the_embedding(a: list[str], b: list[str], differing: list[str]) -> None:
    both = configs(a, b)
    assert different_embedding(both["limit"], both["decoupled-cosine"]) == differing


def test_finetune_starts_from_the_plain_embedding() -> None:
    both = configs([], [])
    assert different_embedding(both["finetune"], both["decoupled-cosine"]) == []


def test_methods_with_a_training_of_their_own_have_an_embedding_of_their_own() -> None:
    names = ("fact", "joint", "decoupled-cosine", "icarl", "icarl-original")
    found = {name: resolve(name, "glyphs") for name in names}
    assert different_embedding(found["fact"], found["decoupled-cosine"]) == ["training"]
    assert different_embedding(found["fact"], found["joint"]) == ["training"]
    assert different_embedding(found["icarl"], found["decoupled-cosine"]) == []
    assert different_embedding(found["icarl"], found["icarl-original"]) == ["training"]
    later = resolve("icarl-original", "glyphs", ["session_lr=0.1"])
    assert different_embedding(found["icarl-original"], later) == []
    (line,) = unlike_encoders({name: found[name] for name in ("icarl", "icarl-original", "decoupled-cosine")})
    assert "icarl-original: its own training" in line


def test_results_are_paired_by_what_their_presets_do_to_embeddings(make_result: MakeResult) -> None:
    def result(preset: str, *changed: str, **fields: object) -> Result:
        config = resolve(preset, "glyphs", changed)
        known = {"method": config.method, "benchmark": "glyphs", "config_hash": config.hash, "seed": 1}
        return make_result(**{"preset": preset, "changed": list(changed), **known, **fields})

    assert same_embedding(result("limit"), result("decoupled-cosine"))
    assert same_embedding(result("limit-plus"), result("decoupled-cosine-plus"))
    assert not same_embedding(result("limit-plus"), result("decoupled-cosine"))
    assert not same_embedding(result("limit"), result("decoupled-cosine", "epochs=5"))
    assert not same_embedding(result("limit"), result("decoupled-cosine", config_hash="of an older preset"))
    assert not same_embedding(result("limit"), replace(result("decoupled-cosine"), preset="not-installed"))
