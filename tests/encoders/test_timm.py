"""timm:NAME, with timm's own small test models; nothing here needs a network."""

from __future__ import annotations

import hashlib
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import Tensor

import fscil
from cli_call import Fscil
from cli_process import SOURCE
from fscil import encoders
from fscil.benchmark import Benchmark
from fscil.encoders import Encoder, timm_models
from fscil.errors import UserError
from run_helpers import Start

MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)


def some_images(n: int, size: int) -> Tensor:
    return torch.randint(0, 256, (n, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(n))


def build(name: str, weights: str | Path = "none") -> Encoder:
    torch.manual_seed(1)
    return encoders.build(name, MEAN, STD, weights=str(weights)).eval()


def classifier(name: str) -> Any:
    """timm's whole model, with its head for 1000 classes, and statistics as after a training."""
    torch.manual_seed(5)
    network = timm.create_model(name, pretrained=False)
    for module in network.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.uniform_(-0.2, 0.2)
            module.running_var.uniform_(0.5, 2)
    return network.eval()


def saved(network: torch.nn.Module, path: Path) -> Path:
    save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, path)
    return path


def checksum(path: Path) -> str:
    return f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


# -- the network -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "dim", "size"),
    [
        ("test_resnet", 96, 32),
        ("test_vit", 64, 160),
        ("test_convnext.r160_in1k", 64, 64),
        ("mobilenetv3_small_050", 1024, 40),  # its num_features are 288
    ],
)
def test_embeddings_are_what_timms_model_gives_before_its_head(name: str, dim: int, size: int, tmp_path: Path) -> None:
    whole = classifier(name)
    encoder = build(f"timm:{name}", saved(whole, tmp_path / "w.safetensors"))
    assert encoder.dim == dim
    images = some_images(2, size)
    x = (images / 255 - 0.5) / 0.25
    with torch.no_grad():
        expected = whole.forward_head(whole.forward_features(x), pre_logits=True)
        assert torch.allclose(encoder(images), expected, atol=1e-4)
        assert encoder(images).shape == (2, dim)


def test_it_starts_in_training_mode_and_as_its_seed_says() -> None:
    def first_weights(seed: int) -> Tensor:
        torch.manual_seed(seed)
        encoder = encoders.build("timm:test_resnet", MEAN, STD)
        assert all(module.training for module in encoder.modules())
        return next(encoder.parameters()).detach().clone()

    assert torch.equal(first_weights(1), first_weights(1))
    assert not torch.equal(first_weights(1), first_weights(2))


def test_a_transformer_demands_its_size_and_a_convolutional_network_takes_any() -> None:
    assert encoders.choose_input_size("timm:test_vit", 256) == 160
    assert encoders.choose_input_size("timm:test_resnet", 256) == 224
    assert encoders.choose_input_size("timm:test_resnet", 32) == 32
    for function, message in (
        (lambda: encoders.choose_input_size("timm:test_vit", 32), "would see 160 pixels a side.*stored with 32"),
        (lambda: encoders.choose_input_size("timm:test_vit", 256, 224), "takes images of 160 pixels a side only, not"),
        (lambda: encoders.build("timm:test_vit", MEAN, STD, input_size=96), "takes images of 160 pixels a side only"),
    ):
        with pytest.raises(UserError, match=message):
            function()


def test_images_that_a_convolutional_network_cannot_take_are_refused_in_a_line() -> None:
    with pytest.raises(UserError, match=r"timm:inception_v3 cannot take images of 32 pixels a side \(.*change input_s"):
        encoders.build("timm:inception_v3", MEAN, STD, input_size=32)
    encoder = encoders.build("timm:test_resnet", MEAN, STD, input_size=32)
    assert all(module.training for module in encoder.modules())


# -- weights ---------------------------------------------------------------------------------------------------------
def test_weights_of_another_model_are_refused_in_a_line(tmp_path: Path) -> None:
    path = saved(classifier("test_resnet"), tmp_path / "w.safetensors")
    with pytest.raises(UserError, match=r"w\.safetensors does not fit encoder timm:test_convnext, missing: stem"):
        build("timm:test_convnext", path)
    deeper = classifier("test_convnext")
    deeper.stages.append(torch.nn.Conv2d(1, 1, 1))
    with pytest.raises(UserError, match=r"does not fit encoder timm:test_convnext, unknown: stages\.4"):
        build("timm:test_convnext", saved(deeper, path))


@pytest.mark.parametrize(
    ("name", "mean", "std"),
    [
        ("test_resnet", [0.5, 0.5, 0.5], [0.5, 0.5, 0.5]),
        ("test_efficientnet", [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
    ],
)
def test_weights_see_pixels_as_timm_says(
    start: Start, tmp_path: Path, name: str, mean: list[float], std: list[float]
) -> None:
    path = saved(classifier(name), tmp_path / "w.safetensors")
    result = start("decoupled-cosine", f"encoder=timm:{name}", f"weights={path}", "epochs=1")
    spec = json.loads((tmp_path / "run" / "model" / "config.json").read_text())["model"]
    assert (spec["encoder"], spec["mean"], spec["std"]) == (f"timm:{name}", mean, std)
    assert result.weights == f"w.safetensors {checksum(path)}"
    assert encoders.normalisation(f"timm:{name}", "imagenet") == (tuple(mean), tuple(std))


def hub_with(path: Path, repository: str, cache: Path) -> None:
    """Lay the file out as Hugging Face's library does after a download."""
    folder = cache / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0" * 40)
    (folder / "blobs").mkdir()
    (folder / "blobs" / "1").write_bytes(path.read_bytes())
    (snapshot / "model.safetensors").symlink_to(folder / "blobs" / "1")


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Hugging Face's library without a network, and an empty cache of its own."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_imagenet_means_timms_own_weights_from_the_hub(offline: Path, tmp_path: Path) -> None:
    whole = classifier("test_resnet")
    path = saved(whole, tmp_path / "w.safetensors")
    hub_with(path, "timm/test_resnet.r160_in1k", offline)
    for name in ("timm:test_resnet", "timm:test_resnet.r160_in1k"):
        encoder = build(name, "imagenet")
        assert encoder.weights == f"timm/test_resnet.r160_in1k {checksum(path)}"
        assert torch.equal(encoder.backbone.conv1[0].weight, whole.conv1[0].weight)


def test_without_a_network_the_user_is_told_to_give_a_path(offline: Path) -> None:
    with pytest.raises(UserError) as caught:
        build("timm:test_resnet", "imagenet")
    said = str(caught.value)
    assert said.startswith("the ImageNet weights of timm:test_resnet cannot be downloaded (")
    assert said.endswith(
        "; fetch https://huggingface.co/timm/test_resnet.r160_in1k/resolve/main/model.safetensors on another machine "
        "and give the file's path as weights=PATH"
    )
    assert "\n" not in said


def test_the_hubs_own_words_about_every_attempt_stay_unsaid(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = logging.getLogger("huggingface_hub.utils._http")

    def retried(*arguments: object) -> str:
        log.warning("Retrying in 1s [Retry 1/5].")
        raise ConnectionError("refused")

    monkeypatch.setattr("huggingface_hub.hf_hub_download", retried)
    with pytest.raises(UserError, match="cannot be downloaded"):
        build("timm:test_resnet", "imagenet")
    assert caplog.records == []
    log.warning("afterwards they are heard again")
    assert len(caplog.records) == 1


def test_weights_that_are_not_on_the_hub_have_another_address(monkeypatch: pytest.MonkeyPatch) -> None:
    assert encoders.backbone("timm:legacy_seresnet18").imagenet.startswith("https://github.com/")
    assert encoders.backbone("timm:regnetz_005").imagenet is None
    with pytest.raises(UserError, match="there are no ImageNet weights for encoder timm:regnetz_005; give"):
        build("timm:regnetz_005", "imagenet")


# -- names -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("timm:test_resnt", "did you mean 'timm:test_resnet'"),
        ("timm:resnet50.a1_in1kk", "did you mean 'timm:resnet50.a1_in1k'"),
        ("timm:zzzzzzzzzzzzzzzzzzzz", "timm.list_models() lists timm's"),
        ("timm:", ""),
        ("timm:hf-hub:someone/something", ""),  # timm would download and build what others wrote there
        ("timm:local-dir:.", ""),
    ],
)
def test_what_timm_does_not_register_is_refused_in_a_line(fscil: Fscil, name: str, hint: str) -> None:
    said = fscil("run", "limit", "digits", f"encoder={name}")
    assert said.code == 2
    assert said.err.startswith(f"error: unknown encoder '{name}': ")
    assert hint in said.err
    assert said.err.count("\n") == 1


def test_an_unknown_encoder_is_told_about_timm() -> None:
    with pytest.raises(UserError, match=r"known are resnet18, resnet18-32, resnet20, (.*, )?timm:NAME"):
        encoders.check("convnext")


def test_without_timm_the_user_is_told_what_to_install(fscil: Fscil, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    said = fscil("run", "limit", "digits", "encoder=timm:resnet50")
    assert (said.code, said.err.count("\n")) == (2, 1)
    assert said.err.startswith("error: encoder timm:resnet50 needs timm (")
    assert said.err.endswith('; pip install "fscil[timm]"\n')
    assert fscil("encoders").out.splitlines()[-1].startswith("timm:NAME")


def test_models_that_give_no_embedding_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm, "create_model", lambda *_, **__: torch.nn.Identity())
    with pytest.raises(UserError, match="timm:test_resnet does not give one embedding per image; choose another"):
        build("timm:test_resnet")

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("needs\nanother package")

    monkeypatch.setattr(timm, "create_model", fail)
    with pytest.raises(UserError, match=r"timm:test_resnet cannot be built \(needs another package\); choose another"):
        build("timm:test_resnet")


def test_timm_is_not_imported_for_other_encoders() -> None:
    code = (
        "import sys, fscil, fscil.cli, fscil.runs; from fscil import encoders, config\n"
        "config.resolve('limit', 'digits', ['encoder=resnet18-32']); encoders.descriptions()\n"
        "encoders.build('resnet20', (0.5,) * 3, (0.2,) * 3)\n"
        "print({'timm', 'huggingface_hub'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env={"PYTHONPATH": str(SOURCE)}, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"


# -- runs ------------------------------------------------------------------------------------------------------------
def test_a_saved_model_predicts_again(
    start: Start, tmp_path: Path, tiny_benchmark: Callable[..., Benchmark], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = start("decoupled-cosine", "encoder=timm:test_efficientnet", "epochs=1", "batch=16", "lr=0.01")
    assert result.versions["timm"] == timm.__version__
    images = tiny_benchmark().test_images.permute(0, 2, 3, 1).numpy()
    predictions = torch.tensor(fscil.load(tmp_path / "run").predict_proba(list(images)))
    assert torch.equal(predictions, torch.tensor(fscil.load(tmp_path / "run" / "model").predict_proba(list(images))))
    assert predictions.shape == (len(images), 7)
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(UserError, match=r'needs timm \(.*\); pip install "fscil\[timm\]"'):
        fscil.load(tmp_path / "run")


def test_the_encoder_cache_knows_timms_version(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSCIL_CACHE", str(tmp_path / "cache"))

    def was_cached(folder: str) -> bool:
        found = start("decoupled-cosine", "encoder=timm:test_efficientnet", "epochs=1", "batch=16", folder=folder)
        return found.seconds["pretrain"]["cached"]

    assert [was_cached("first"), was_cached("second")] == [False, True]
    monkeypatch.setattr(timm, "__version__", "99.0")
    assert [was_cached("third"), was_cached("fourth")] == [False, True]


def test_the_list_names_timm() -> None:
    assert encoders.descriptions()["timm:NAME"] == timm_models.DESCRIPTION
