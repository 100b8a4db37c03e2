"""What iCaRL, EEIL and LUCIR compute, against loops in float64; frozen layers, exemplars, balanced fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fscil import encoders
from fscil.benchmark import Benchmark
from fscil.errors import UserError
from fscil.methods import Method
from fscil.methods.eeil import EEILSettings, eeil_loss, topic_loss
from fscil.methods.icarl import ICaRLSettings, icarl_loss
from fscil.methods.rebalancing import margin_ranking
from fscil.methods.replay import herding, last_block

MakeMethod = Callable[..., Method]
Tiny = Callable[..., Benchmark]
OLD, NEW = 5, 3  # classes
LABELS = [0, 5, 7, 3, 6, 6, 2]


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 3


@pytest.fixture
def step() -> tuple[Tensor, Tensor, dict[str, Tensor]]:
    """Logits of shots and exemplars, what the teacher answers, and labels."""
    return drawn(len(LABELS), OLD + NEW), drawn(len(LABELS), OLD, seed=1), {"labels": torch.tensor(LABELS)}


def log_softmax(values: list[float], temperature: float = 1.0) -> list[float]:
    scaled = [value / temperature for value in values]
    total = math.log(sum(math.exp(value) for value in scaled))
    return [value - total for value in scaled]


def ce(logits: Tensor, i: int) -> float:
    return -log_softmax(logits[i].tolist())[LABELS[i]]


def kd(logits: Tensor, taught: Tensor, i: int, classes: range, T: float) -> float:
    mine = log_softmax([float(logits[i, k]) for k in classes], T)
    theirs = log_softmax([float(taught[i, k]) for k in classes], T)
    return -sum(math.exp(wanted) * given for wanted, given in zip(theirs, mine, strict=True))


SHOTS = [i for i, label in enumerate(LABELS) if label >= OLD]
EXEMPLARS = [i for i, label in enumerate(LABELS) if label < OLD]
EVERY = range(len(LABELS))


def test_icarl_in_topics_form_learns_shots_and_distils_exemplars(step: Any) -> None:
    found = icarl_loss(*step, OLD, ICaRLSettings(distillation=0.7, temperature=2.0))
    wanted = np.mean([ce(step[0], i) for i in SHOTS])
    wanted += 0.7 * np.mean([kd(*step[:2], i, range(OLD), 2.0) for i in EXEMPLARS])
    assert float(found) == pytest.approx(wanted)


@pytest.mark.parametrize("balance", [0.0, 0.3, 1.0])
def test_icarl_has_equation_3_of_the_limit_paper(step: Any, balance: float) -> None:
    """L = (1 - lambda) L_CE + lambda L_KD, of all images"""
    found = icarl_loss(*step, OLD, ICaRLSettings(loss="limit", balance=balance, temperature=1.0))
    each = [(1 - balance) * ce(step[0], i) + balance * kd(*step[:2], i, range(OLD), 1.0) for i in EVERY]
    assert float(found) == pytest.approx(np.mean(each))


@pytest.mark.parametrize("bias", [0.0, -1.5])
def test_icarl_in_its_own_form_has_old_outputs_and_labels_as_targets_of_sigmoids(step: Any, bias: float) -> None:
    logits, taught, _ = step
    total = 0.0
    for i in EVERY:
        for k in range(OLD + NEW):
            g = 1 / (1 + math.exp(-float(logits[i, k]) - bias))
            q = 1 / (1 + math.exp(-float(taught[i, k]) - bias)) if k < OLD else float(LABELS[i] == k)
            total -= q * math.log(g) + (1 - q) * math.log(1 - g)
    found = icarl_loss(*step, OLD, ICaRLSettings(loss="sigmoid"), bias)
    assert float(found) == pytest.approx(total / len(LABELS))


def test_eeil_in_topics_form_adds_a_little_of_the_exemplars(step: Any) -> None:
    found = topic_loss(*step, EEILSettings(exemplar_weight=0.1, distillation=0.8))
    wanted = np.mean([ce(step[0], i) for i in SHOTS]) + 0.1 * np.mean([ce(step[0], i) for i in EXEMPLARS])
    wanted += 0.8 * np.mean([kd(*step[:2], i, range(OLD), 2.0) for i in EXEMPLARS])
    assert float(found) == pytest.approx(wanted)


def test_eeil_distils_every_old_task_by_itself(step: Any) -> None:
    found = eeil_loss(*step, [2, 2, 1], EEILSettings(distillation=0.8, temperature=2.0))
    tasks = [range(2), range(2, 4), range(4, 5)]
    each = [ce(step[0], i) + 0.8 * sum(kd(*step[:2], i, task, 2.0) for task in tasks) for i in EVERY]
    assert float(found) == pytest.approx(np.mean(each))


def test_a_step_without_shots_or_without_exemplars_has_a_loss(step: Any) -> None:
    """Small batches may lack either."""
    logits, taught, batch = step
    for these in (SHOTS, EXEMPLARS):
        part = {"labels": batch["labels"][these]}
        assert icarl_loss(logits[these], taught[these], part, OLD, ICaRLSettings()).isfinite()


@pytest.mark.parametrize(("K", "margin"), [(1, 0.5), (2, 0.5), (2, 0.1), (9, 0.5)])
def test_margin_ranking_compares_exemplars_with_the_nearest_new_rows(K: int, margin: float) -> None:
    cosines = torch.tanh(drawn(len(LABELS), OLD + NEW, seed=3))
    each = []
    for i in EXEMPLARS:
        rivals = sorted((float(cosines[i, k]) for k in range(OLD, OLD + NEW)), reverse=True)[:K]
        each.append(sum(max(margin - float(cosines[i, LABELS[i]]) + rival, 0) for rival in rivals))
    assert float(margin_ranking(cosines, torch.tensor(LABELS), OLD, K, margin)) == pytest.approx(np.mean(each))


def test_herding_is_icarls_algorithm_4() -> None:
    features = nn.functional.normalize(drawn(12, 4, seed=5), dim=1)
    mu, chosen = features.mean(0), list[int]()
    for k in range(1, 8):
        best, nearest = -1, math.inf
        for x in range(12):
            mean = sum(features[p] for p in [*chosen, x]) / k
            distance = float((mu - mean).norm())
            if x not in chosen and distance < nearest:
                best, nearest = x, distance
        chosen.append(best)
    assert herding(features, 7).tolist() == chosen
    assert sorted(herding(features, 12).tolist()) == list(range(12))


def test_lucir_weights_the_less_forget_loss_by_the_number_of_classes(
    make_method: MakeMethod, tiny_benchmark: Tiny, recording_engine: Any
) -> None:
    """CE + lambda sqrt(|old| / |new|) (1 - cos) + the ranking loss, of a real step whose teacher differs."""
    benchmark = tiny_benchmark()
    method = make_method(
        "rebalancing", benchmark, engine=recording_engine, loss="lucir", less_forget=5.0, memory="2/class",
        head="cosine", statistics="global", new_rows="imprinted", old_rows="trained",
    )  # fmt: skip
    method.learn_base(benchmark.sessions[0])
    method.learn_session(benchmark.sessions[1])
    model, stage = method.model, recording_engine.stages[-1]
    batch = {name: each[0] for name, each in stage.prepare(0).items()}
    with torch.no_grad():
        before = model.encoder(batch["images"]).double()
        for parameter in model.encoder.parameters():
            parameter.mul_(1.1)
        model.calibrator.eta.fill_(7.0)
        features = model.encoder(batch["images"]).double()
        rows, labels = model.rows.double(), batch["labels"].tolist()
        found = float(stage.loss(batch))
    cosine = nn.functional.cosine_similarity
    cosines = torch.stack([cosine(features, row[None], dim=1) for row in rows], 1)
    turned = (1 - cosine(features, before, dim=1)).mean()
    entropy = np.mean([-log_softmax((7.0 * cosines[i]).tolist())[label] for i, label in enumerate(labels)])
    ranked = np.mean(
        [
            sum(max(0.5 - float(cosines[i, label]) + float(cosines[i, k]), 0) for k in (4, 5))
            for i, label in enumerate(labels)
            if label < 4
        ]
    )
    assert turned > 1e-3
    assert found == pytest.approx(float(entropy + 5 * math.sqrt(4 / 2) * turned + ranked), rel=1e-4)


def test_imprinted_rows_are_class_means_as_long_as_old_rows(make_method: MakeMethod, tiny_benchmark: Tiny) -> None:
    benchmark = tiny_benchmark()
    method = make_method("rebalancing", benchmark, new_rows="imprinted", statistics="global", session_lr=0.0)
    base, session = benchmark.sessions[:2]
    method.learn_base(base)
    method.learn_session(session)
    rows, features = method.state()["rows"], nn.functional.normalize(method.embed(session.images), dim=1)
    for label in session.classes:
        mean = features[session.labels == label].mean(0)
        assert torch.allclose(rows[label], mean / mean.norm() * rows[:4].norm(dim=1).mean(), atol=1e-4)


# -- the nearest mean of exemplars -----------------------------------------------------------------------------------
def test_the_nearest_mean_of_exemplars_answers_while_trained_rows_go_on(
    make_method: MakeMethod, tiny_benchmark: Tiny
) -> None:
    benchmark = tiny_benchmark()
    method = make_method("icarl", benchmark, classifier="nme", memory="3/class", exemplars="herding", session_lr=0.01)
    method.learn_base(benchmark.sessions[0])
    trained = method.tensors["rows"].clone()
    for session in benchmark.sessions[1:]:
        method.learn_session(session)
    assert torch.allclose(method.tensors["rows"][:4], trained, atol=0.5)  # they went on from where they were
    features = nn.functional.normalize(method.embed(method.memory.images).double(), dim=1)
    queries = nn.functional.normalize(method.embed(benchmark.test_images).double(), dim=1)
    means = torch.stack([features[method.memory.labels == k].mean(0) for k in range(len(method.model.rows))])
    distances = torch.cdist(queries, nn.functional.normalize(means, dim=1))
    assert torch.equal(method.logits(benchmark.test_images).argmax(1), distances.argmin(1))


@pytest.mark.parametrize("memory", ["none", "0/class", "8+0/class"])
def test_the_nearest_mean_needs_exemplars(make_method: MakeMethod, tiny_benchmark: Tiny, memory: str) -> None:
    with pytest.raises(UserError, match="classifier=nme needs an exemplar of every class"):
        make_method("icarl", tiny_benchmark(), classifier="nme", memory=memory).check_sessions(
            tiny_benchmark().sessions
        )


# -- what is trained ---------------------------------------------------------------------------------------------------
def test_the_last_block_is_the_last_residual_block() -> None:
    for name, block in (("resnet20", "stages.8"), ("resnet18", "layer4.1"), ("resnet18-32", "layer4.1")):
        backbone = encoders.backbone(name)()
        assert last_block(backbone) is backbone.get_submodule(block)


@pytest.mark.parametrize(
    ("name", "more"),
    [("icarl", {}), ("eeil", {}), ("eeil", {"balanced_epochs": 1}), ("rebalancing", {}), ("topic", {})],
)
def test_all_but_the_last_block_and_new_rows_may_be_frozen(
    make_method: MakeMethod, tiny_benchmark: Tiny, name: str, more: dict[str, Any]
) -> None:
    benchmark = tiny_benchmark()
    method = make_method(name, benchmark, old_rows="fixed", statistics="global", session_lr=0.01, **more)
    method.learn_base(benchmark.sessions[0])
    before = {key: tensor.clone() for key, tensor in method.state().items()}
    method.learn_session(benchmark.sessions[1])
    after = method.model.state_dict()
    changed = {key for key in after if not torch.equal(after[key], before[key])}
    assert {key for key in changed if "stages.8." in key and key.endswith("weight")}
    assert all("stages.8." in key or key in ("rows", "base") for key in changed), changed
    assert not [key for key in changed if "running" in key]
    assert torch.equal(method.state()["rows"][:4], before["rows"])
    assert all(parameter.requires_grad for parameter in method.model.parameters())


@pytest.mark.parametrize("name", ["icarl", "eeil", "rebalancing"])
def test_every_layer_may_learn(make_method: MakeMethod, tiny_benchmark: Tiny, name: str) -> None:
    benchmark = tiny_benchmark()
    method = make_method(name, benchmark, trained="all", old_rows="trained", session_lr=0.01)
    method.learn_base(benchmark.sessions[0])
    before = {key: tensor.clone() for key, tensor in method.state().items()}
    method.learn_session(benchmark.sessions[1])
    after = method.state()
    assert all(
        not torch.equal(before[key], after[key]) for key in before if "encoder" in key and key.endswith("weight")
    )
    assert not torch.equal(after["rows"][:4], before["rows"])


def test_a_linear_head_starts_with_the_logits_of_pre_training(make_method: MakeMethod, tiny_benchmark: Tiny) -> None:
    benchmark = tiny_benchmark()
    found = []
    for head in ("linear", "cosine"):
        method = make_method("icarl", benchmark, head=head)
        method.learn_base(benchmark.sessions[0])
        found.append(method.logits(benchmark.test_images))
    assert torch.allclose(*found, atol=1e-4)


def test_shots_and_exemplars_are_one_batch_or_several(
    make_method: MakeMethod, tiny_benchmark: Tiny, recording_engine: Any
) -> None:
    benchmark = tiny_benchmark()
    for batch, steps, images in ((0, 2, 12), (5, 4, 5), (100, 2, 12)):
        method = make_method("icarl", benchmark, engine=recording_engine, memory="8+1/class", session_batch=batch)
        method.learn_base(benchmark.sessions[0])
        method.learn_session(benchmark.sessions[1])  # two classes of two shots
        assert recording_engine.stages[-1].prepare(0)["labels"].shape == (steps, images)


def test_balanced_fine_tuning_has_equally_many_images_of_every_class(
    make_method: MakeMethod, tiny_benchmark: Tiny, recording_engine: Any
) -> None:
    benchmark = tiny_benchmark()
    method = make_method(
        "eeil", benchmark, engine=recording_engine, memory="12+1/class", balanced_epochs=3, balanced_lr=0.007
    )
    for i, session in enumerate(benchmark.sessions):
        (method.learn_session if i else method.learn_base)(session)
        if i == 0:
            continue
        stage = recording_engine.stages[-1]
        assert stage.name == f"eeil-{session.classes[0]}-balanced"
        assert {group.lr for group in stage.groups} == {0.007}
        each = {1: 2, 2: 1}[i]  # two shots, then a single exemplar of those classes
        assert stage.prepare(0)["labels"].shape == (3, each * benchmark.seen(i))
        assert set(torch.bincount(stage.prepare(0)["labels"][0]).tolist()) == {each}
    assert method.tensors["tasks"].tolist() == [4, 2, 1]
