"""Pre-training on the base session, and what finetuning does with the later ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from fscil import encoders
from fscil import model as models
from fscil.benchmark import Benchmark, Session
from fscil.engine import Stage
from fscil.engine.schedule import cosine
from fscil.methods import Method
from fscil.methods.pretrain import new_model, pretrain
from fscil.methods.training import augmented, items_of, steps_of_epoch
from fscil.model import ModelSpec

MakeMethod = Callable[..., Method]
Learned = Callable[..., list[Stage]]


@pytest.fixture
def learned(
    make_method: MakeMethod,
    recording_engine: Any,
    tiny_benchmark: Callable[..., Benchmark],
    monkeypatch: pytest.MonkeyPatch,
) -> Learned:
    """learned(name, sessions, **settings): the stages that a method asks for in its first sessions."""
    monkeypatch.setenv("FSCIL_CACHE", "off")

    def learn(name: str, sessions: int = 1, **settings: Any) -> list[Stage]:
        benchmark = tiny_benchmark()
        method = make_method(name, benchmark, engine=recording_engine, **settings)
        method.learn_base(benchmark.sessions[0])
        for session in benchmark.sessions[1:sessions]:
            method.learn_session(session)
        return recording_engine.stages

    return learn


def unchanged(images: Tensor, keys: Tensor) -> Tensor:
    return images


def numbered(n: int) -> Session:
    """Images whose pixels say which they are."""
    number = torch.arange(n)
    return Session((0, 1), number.to(torch.uint8)[:, None, None, None].expand(-1, 3, 4, 4), number % 2)


@pytest.mark.parametrize(
    ("n", "batch", "expected"), [(10, 4, (2, 4)), (8, 4, (2, 4)), (3, 128, (1, 3)), (5, 5, (1, 5))]
)
def test_an_epoch_shows_every_image_at_most_once(n: int, batch: int, expected: tuple[int, int]) -> None:
    session = numbered(n)
    found = augmented(session, items_of(session, batch, lambda _: 1, 0, steps_of_epoch(session, batch)), unchanged)
    assert found["labels"].shape == expected
    assert found["images"].shape == (*expected, 3, 4, 4)
    shown = found["images"][:, :, 0, 0, 0].flatten().tolist()
    assert len(set(shown)) == len(shown)
    assert found["labels"].flatten().tolist() == [number % 2 for number in shown]


def test_epochs_are_shuffled_anew(learned: Learned) -> None:
    (stage,) = learned("decoupled-cosine", augmentation="none", epochs=2)
    first, again, second = (stage.prepare(epoch)["labels"].tolist() for epoch in (0, 0, 1))
    assert first == again
    assert first != second


def test_an_image_is_augmented_anew_in_every_epoch() -> None:
    session = numbered(32)
    orders, keys = items_of(session, 8, lambda epoch: 100 + epoch, 0, 3 * steps_of_epoch(session, 8))
    of_image = [{int(k) for k in keys[orders == image]} for image in range(32)]
    assert [len(own) for own in of_image] == [3] * 32  # one for each epoch
    assert len(set.union(*of_image)) == 3 * 32  # and no other image has it


def test_settings_reach_the_optimiser(learned: Learned) -> None:
    (stage,) = learned(
        "decoupled-cosine", epochs=7, batch=16, lr=0.3, momentum=0.7, weight_decay=0.02, nesterov=False, warmup=2
    )
    assert (stage.name, stage.segments, stage.steps) == ("pretrain", 7, 2)  # 32 images in batches of 16
    assert (stage.momentum, stage.weight_decay, stage.nesterov) == (0.7, 0.02, False)
    assert {group.lr for group in stage.groups} == {0.3}
    trained = {id(parameter) for group in stage.groups for parameter in group.parameters}
    assert trained == {id(parameter) for parameter in stage.module.parameters()}
    expected = cosine(14, warmup=4)
    assert [stage.schedule(step) for step in range(14)] == [expected(step) for step in range(14)]


def test_the_rate_falls_to_a_tenth_at_milestones(learned: Learned) -> None:
    (stage,) = learned("decoupled-cosine", epochs=4, batch=8, warmup=1, milestones="2, 3")
    steps = stage.segments * stage.steps // 4
    assert stage.schedule(0) == pytest.approx(1 / steps)
    assert [stage.schedule(epoch * steps) for epoch in (1, 2, 3)] == pytest.approx([1, 0.1, 0.01])
    assert stage.schedule(2 * steps - 1) == 1


def test_the_smallest_crop_reaches_the_images(learned: Learned, tiny_benchmark: Callable[..., Benchmark]) -> None:
    (*_, whole), (*_, parts) = (
        learned("decoupled-cosine", crop="resized", crop_scale=scale, flip=False) for scale in (1.0, 0.1)
    )
    stored = {image.numpy().tobytes() for image in tiny_benchmark().sessions[0].images}
    for stage, unchanged in ((whole, True), (parts, False)):
        shown = {image.numpy().tobytes() for image in stage.prepare(0)["images"].flatten(0, 1)}
        assert (shown <= stored) == unchanged


def test_loss_is_cross_entropy_over_scaled_cosines(learned: Learned) -> None:
    (stage,) = learned("decoupled-cosine", scale=8.0, rows="trained")
    model: Any = stage.module.eval()
    batch = {name: tensor[0] for name, tensor in stage.prepare(0).items()}
    with torch.no_grad():
        embeddings = model.encoder(batch["images"])
        logits = [[8 * F.cosine_similarity(e, w, dim=0) for w in model.rows] for e in embeddings]
        by_hand = F.cross_entropy(torch.tensor(logits), batch["labels"])
        assert float(stage.loss(batch)) == pytest.approx(float(by_hand), rel=1e-5)


def test_icarls_base_training_in_its_own_form_has_a_sigmoid_for_every_class(learned: Learned) -> None:
    (stage,) = learned("icarl", loss="sigmoid", scale=8.0)
    model: Any = stage.module.eval()
    batch = {name: tensor[0] for name, tensor in stage.prepare(0).items()}
    with torch.no_grad():
        model.set_calibrator("cosine", scale=8.0)  # the recording engine trains nothing, and the head is linear by now
        cosines = F.normalize(model.encoder(batch["images"]), dim=1) @ F.normalize(model.rows, dim=1).T
        p = (8 * cosines.double() - math.log(3)).sigmoid()  # a cosine of 0 is one of four base classes
        by_hand = 0.0
        for i, label in enumerate(batch["labels"].tolist()):
            by_hand -= sum(float(p[i, k].log() if k == label else (1 - p[i, k]).log()) for k in range(p.shape[1]))
        assert float(stage.loss(batch)) == pytest.approx(by_hand / len(p), rel=1e-5)


@pytest.mark.parametrize(("head_lr", "label_smoothing"), [(0.0, 0.0), (0.3, 0.0), (0.0, 0.3), (0.3, 0.3), (0.001, 0.9)])
def test_pretraining_is_a_plain_loop_with_a_rate_for_the_head_and_smoothed_labels(
    learned: Learned,
    make_method: MakeMethod,
    tiny_benchmark: Callable[..., Benchmark],
    head_lr: float,
    label_smoothing: float,
) -> None:
    chosen = {"lr": 0.01, "head_lr": head_lr, "label_smoothing": label_smoothing}
    chosen |= {"epochs": 3, "warmup": 1, "weight_decay": 0.01}
    session = tiny_benchmark().sessions[0]
    method = make_method("decoupled-cosine", tiny_benchmark(), **chosen)
    trained = pretrain(session, method.settings, method.context)

    (stage,) = learned("decoupled-cosine", **chosen)  # for its batches alone
    method = make_method("decoupled-cosine", tiny_benchmark(), **chosen)
    model = new_model(session, method.settings, method.context).train()
    rates = [0.01, head_lr or 0.01]
    groups = [{"params": list(model.encoder.parameters())}, {"params": [model.rows]}]
    optimiser = torch.optim.SGD(groups, 0.1, momentum=0.9, weight_decay=0.01, nesterov=True)
    step = 0
    for epoch in range(3):
        batches = stage.prepare(epoch)
        for images, labels in zip(batches["images"], batches["labels"], strict=True):
            factor = (step + 1) / 2 if step < 2 else 0.5 + 0.5 * math.cos(math.pi * (step - 2) / 4)
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * factor
            logits = 16 * F.normalize(model.encoder(images)) @ F.normalize(model.rows).T
            wanted = F.one_hot(labels, 4) * (1 - label_smoothing) + label_smoothing / 4
            optimiser.zero_grad()
            (-(wanted * logits.log_softmax(1)).sum(1).mean()).backward()
            optimiser.step()
            step += 1
    assert step == 6
    assert torch.allclose(trained.rows, model.rows, atol=1e-4)
    for ours, by_hand in zip(trained.encoder.parameters(), model.encoder.parameters(), strict=True):
        assert torch.allclose(ours, by_hand, atol=1e-4)


def test_without_a_rate_of_its_own_the_head_learns_with_the_rest(learned: Learned) -> None:
    (stage,) = learned("decoupled-cosine", lr=0.3)
    assert len(stage.groups) == 1  # as before there was such a rate, to the bit


def test_finetuning_takes_all_shots_as_one_batch_and_its_own_settings(learned: Learned) -> None:
    _, stage = learned(
        "finetune", sessions=2, session_epochs=5, session_lr=0.2, session_decay_epoch=3, momentum=0.6, nesterov=False,
        weight_decay=0.1,
    )  # fmt: skip
    assert (stage.name, stage.segments, stage.steps) == ("finetune-4", 1, 5)
    assert stage.prepare(0)["labels"].shape == (5, 4)  # two classes of two shots
    assert sorted(stage.prepare(0)["labels"][0].tolist()) == [4, 4, 5, 5]
    assert [stage.schedule(step) for step in range(5)] == pytest.approx([1, 1, 1, 0.1, 0.1])
    assert {group.lr for group in stage.groups} == {0.2}
    assert (stage.momentum, stage.nesterov, stage.weight_decay) == (0.6, False, 0.1)


def test_weights_keep_the_normalisation_that_they_were_trained_with(
    make_method: MakeMethod, tiny_benchmark: Callable[..., Benchmark], tmp_path: Path
) -> None:
    benchmark = tiny_benchmark()
    backbone = encoders.build("resnet20", benchmark.mean, benchmark.std).backbone
    save_file(
        {name: each.contiguous() for name, each in backbone.state_dict().items()}, tmp_path / "foreign.safetensors"
    )
    own = models.build(ModelSpec("resnet20", 32, 32, (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)), 2)
    save_file({name: each.contiguous() for name, each in own.state_dict().items()}, tmp_path / "own.safetensors")
    for weights, mean, std in (
        ("none", benchmark.mean, benchmark.std),
        (str(tmp_path / "foreign.safetensors"), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
        (str(tmp_path / "own.safetensors"), (0.1, 0.2, 0.3), (0.4, 0.5, 0.6)),
    ):
        method = make_method("decoupled-cosine", benchmark, weights=weights)
        spec = new_model(benchmark.sessions[0], method.settings, method.context).spec
        assert spec.mean == pytest.approx(mean, abs=1e-6)
        assert spec.std == pytest.approx(std, abs=1e-6)
