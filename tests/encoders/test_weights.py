"""Weights that were trained elsewhere, and files that must not be taken for them."""

from __future__ import annotations

import hashlib
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import URLError

import pytest
import safetensors.torch
import torch
from torch import Tensor

from fscil import encoders
from fscil.encoders import Encoder
from fscil.encoders import weights as weight_files
from fscil.encoders.resnet18 import ResNet18
from fscil.encoders.resnet20 import ResNet20
from fscil.errors import UserError

State = dict[str, Any]


def build(weights: str | Path = "none", name: str = "resnet20") -> Encoder:
    torch.manual_seed(1)
    return encoders.build(name, (0.5, 0.5, 0.5), (0.25, 0.25, 0.25), weights=str(weights)).eval()


@pytest.fixture
def state() -> State:
    """State of a ResNet20 that no seed gives."""
    torch.manual_seed(7)
    filled = {
        name: torch.rand(tensor.shape) * 0.2 if tensor.is_floating_point() else tensor + 5
        for name, tensor in ResNet20().state_dict().items()
    }
    return dict(filled)


def save(path: Path, state: Any) -> Path:
    if path.suffix == ".safetensors":
        safetensors.torch.save_file(state, path)
    else:
        torch.save(state, path)
    return path


def recorded(path: Path) -> str:
    return f"{path.name} sha256:{hashlib.sha256(path.read_bytes()).hexdigest()[:16]}"


def assert_holds(encoder: Encoder, state: dict[str, Tensor]) -> None:
    found = encoder.backbone.state_dict()
    assert found.keys() == state.keys()
    assert all(torch.equal(found[name], state[name]) and found[name].dtype == state[name].dtype for name in state)


def prefixed(prefix: str, state: State) -> State:
    return {prefix + name: tensor for name, tensor in state.items()}


@pytest.mark.parametrize("file", ["w.safetensors", "w.pth", "w.pt", "W.PTH"])
def test_a_file_gives_its_tensors_and_is_recorded_by_name_and_checksum(tmp_path: Path, state: State, file: str) -> None:
    path = save(tmp_path / file, state)
    encoder = build(path)
    assert_holds(encoder, state)
    assert encoder.weights == recorded(path)


def test_no_weights_are_none() -> None:
    assert build().weights == "none"


def test_the_checksum_follows_the_content_not_the_name(tmp_path: Path, state: State) -> None:
    path = save(tmp_path / "w.safetensors", state)
    first = build(path).weights.split()[1]
    assert build(path.rename(tmp_path / "v.safetensors")).weights == f"v.safetensors {first}"
    save(path, {**state, "stem.0.weight": state["stem.0.weight"] + 1})
    assert build(path).weights.split()[1] != first


WRAPPED: dict[str, Callable[[State], State]] = {
    "state_dict": lambda state: {"epoch": 3, "state_dict": state},
    "model": lambda state: {"model": state, "optimizer": {"lr": 0.1}},
    "data parallel": lambda state: {"state_dict": prefixed("module.", state)},
    "backbone": lambda state: {**prefixed("backbone.", state), "rows": torch.zeros(2, 2)},
    "backbone in parallel": lambda state: prefixed("module.backbone.", state),
    "classifier": lambda state: {**state, "fc.weight": torch.zeros(10, 64), "head.0.bias": torch.full((9,), torch.nan)},
    "without counters": lambda state: {
        name: t for name, t in state.items() if not name.endswith("num_batches_tracked")
    },
}


@pytest.mark.parametrize("wrapped", WRAPPED)
def test_what_training_scripts_wrap_around_weights_is_taken_off(tmp_path: Path, state: State, wrapped: str) -> None:
    encoder = build(save(tmp_path / "w.pth", WRAPPED[wrapped](state)))
    if wrapped == "without counters":
        counters = {name: tensor for name, tensor in state.items() if name.endswith("num_batches_tracked")}
        state |= {name: torch.zeros_like(tensor) for name, tensor in counters.items()}
    assert_holds(encoder, state)


def test_resnet18_takes_torchvisions_names_in_half_precision(tmp_path: Path) -> None:
    torch.manual_seed(7)
    halves = {name: t.half() if t.dim() > 1 else t for name, t in ResNet18().state_dict().items()}
    path = save(
        tmp_path / "w.safetensors", {**halves, "fc.weight": torch.zeros(1000, 512), "fc.bias": torch.zeros(1000)}
    )
    wanted = {name: t.float() if t.dtype == torch.float16 else t for name, t in halves.items()}
    assert_holds(build(path, "resnet18"), wanted)


class WithTable(ResNet20):
    """Has a table that it computes itself and does not save."""

    def __init__(self) -> None:
        super().__init__()
        self.stages[0].register_buffer("table", torch.arange(4), persistent=False)


def test_files_that_hold_what_the_network_computes_itself_are_taken(
    tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "w.pth", {**state, "stages.0.table": torch.zeros(4)})
    refusal(path, r"unknown: stages\.0\.table")
    monkeypatch.setitem(encoders.BACKBONES, "with-table", WithTable)
    assert_holds(build(path, "with-table"), state)


def test_our_own_model_folder_and_its_file_are_weights(tmp_path: Path, state: State) -> None:
    other = build()
    other.backbone.load_state_dict(state)
    whole = {**prefixed("encoder.", other.state_dict()), "rows": torch.zeros(5, 64), "whitening": torch.eye(64)}
    folder = tmp_path / "model"
    folder.mkdir()
    path = save(folder / "model.safetensors", {name: tensor.contiguous() for name, tensor in whole.items()})
    for weights in (folder, path):
        encoder = build(weights)
        assert_holds(encoder, state)
        assert encoder.weights == recorded(path)
        images = torch.arange(2 * 3 * 64, dtype=torch.uint8).view(2, 3, 8, 8)
        assert torch.equal(encoder(images), other(images))


def test_random_numbers_drawn_after_do_not_depend_on_the_weights(tmp_path: Path, state: State) -> None:
    path = save(tmp_path / "w.safetensors", state)
    build()
    expected = torch.rand(3)
    build(path)
    assert torch.equal(torch.rand(3), expected)


# -- refusals --------------------------------------------------------------------------------------------------------
def without(state: State, *names: str) -> State:
    return {name: tensor for name, tensor in state.items() if name not in names}


def spoiled(state: State, value: float) -> State:
    state["stages.4.conv1.weight"].view(-1)[7] = value
    return state


UNFIT: dict[str, tuple[Callable[[State], Any], str]] = {
    "missing": (
        lambda s: without(s, "stem.0.weight"),
        r"does not fit encoder resnet20, missing: stem\.0\.weight; choose",
    ),
    "another network": (
        lambda s: {"conv1.weight": torch.zeros(3)},
        r"missing: stem\.0\.weight, stem\.1.* and \d+ more",
    ),
    "more blocks": (lambda s: {**s, "stages.9.conv1.weight": torch.zeros(3)}, r"unknown: stages\.9\.conv1\.weight"),
    "shape": (
        lambda s: {**s, "stem.0.weight": torch.zeros(16, 1, 3, 3)},
        r"with a different shape or type: stem\.0\.weight",
    ),
    "transposed": (
        lambda s: {**s, "stem.0.weight": torch.zeros(3, 16, 3, 3)},
        r"with a different shape or type: stem\.0\.weight",
    ),
    "integers": (lambda s: {**s, "stem.1.bias": torch.zeros(16, dtype=torch.int8)}, r"or type: stem\.1\.bias"),
    "sparse": (lambda s: {**s, "stem.1.bias": torch.zeros(16).to_sparse()}, r"or type: stem\.1\.bias"),
    "meta": (lambda s: {**s, "stem.1.bias": torch.zeros(16, device="meta")}, r"or type: stem\.1\.bias"),
    "not tensors": (lambda s: {**s, "stem.1.bias": [0.0] * 16}, r"missing: stem\.1\.bias"),
    "NaN": (lambda s: spoiled(s, torch.nan), r"NaN or infinite values, first in stages\.4\.conv1\.weight"),
    "infinite": (lambda s: spoiled(s, -torch.inf), r"NaN or infinite values"),
    "too large": (
        lambda s: {**s, "stem.1.bias": torch.full((16,), 1e300, dtype=torch.double)},
        r"NaN or infinite values",
    ),
    "no dict": (lambda s: list(s.values()), r"holds a list, not a state dict"),
    "empty": (lambda s: {}, r"missing: stem"),
}


def refusal(weights: str | Path, message: str, name: str = "resnet20") -> None:
    with pytest.raises(UserError, match=message) as caught:
        build(weights, name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("case", UNFIT)
def test_weights_that_do_not_fit_are_one_clear_line(tmp_path: Path, state: State, case: str) -> None:
    change, message = UNFIT[case]
    refusal(save(tmp_path / "w.pth", change(state)), message)


class Payload:
    """What a hostile file asks pickle to do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


def test_no_code_is_ever_run(tmp_path: Path, state: State) -> None:
    ran = tmp_path / "ran"
    (tmp_path / "plain.pth").write_bytes(pickle.dumps({"state_dict": Payload(ran)}))
    save(tmp_path / "torch.pt", {**state, "more": Payload(ran)})
    torch.save({**state, "more": Payload(ran)}, tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    for name in ("plain.pth", "torch.pt", "old.pth"):
        refusal(tmp_path / name, rf"{name} cannot be read as weights: it is damaged or holds more than tensors")
    assert not ran.exists()


def test_damaged_files_are_refused(tmp_path: Path, state: State) -> None:
    for name in ("w.safetensors", "w.pth"):
        path = save(tmp_path / name, state)
        for data in (path.read_bytes()[:-5000], b"", b"\0" * 100):
            path.write_bytes(data)
            refusal(path, f"{name} cannot be read as weights")


def test_what_is_no_file_of_weights_is_refused(tmp_path: Path, state: State) -> None:
    refusal(tmp_path / "none.pth", r"there is no file .*none\.pth; give none, imagenet, or the path")
    refusal("imagnet", "there is no file imagnet; give none, imagenet")
    refusal("", "there is no file model.safetensors")
    refusal("a\0b", "there is no file")
    (tmp_path / "folder").mkdir()
    refusal(tmp_path / "folder", r"there is no file .*folder.model\.safetensors")
    torch.save(state, tmp_path / "weights.bin")
    refusal(tmp_path / "weights.bin", r"weights\.bin is not a weights file; give")
    (tmp_path / "folder" / "model.safetensors").mkdir()
    refusal(tmp_path / "folder", r"model\.safetensors is not a weights file")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no named pipes here")
def test_a_pipe_is_refused_rather_than_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.pth")
    refusal(tmp_path / "pipe.pth", r"pipe\.pth is not a weights file")


# -- ImageNet --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "scale",
    [
        torch.zeros(1, 3, 1, 1),
        torch.full((1, 3, 1, 1), torch.nan),
        -torch.ones(1, 3, 1, 1),
        torch.ones(3, dtype=torch.int8),
        torch.zeros(1).expand(10**7, 10**7),  # a few bytes in the file
    ],
    ids=["zero", "nan", "negative", "int8", "huge"],
)
def test_a_damaged_normalisation_is_refused(tmp_path: Path, scale: Tensor) -> None:
    path = tmp_path / "w.pth"
    torch.save({"encoder.scale": scale, "encoder.shift": torch.zeros(1, 3, 1, 1)}, path)
    with pytest.raises(UserError, match="its normalisation is damaged"):
        weight_files.normalisation(str(path))


@pytest.fixture
def published(tmp_path: Path, state: State, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file on a server, which resnet20 takes for ImageNet's; downloads go to a hub folder of this test."""
    path = save(tmp_path / "server.pth", state)
    digits = hashlib.sha256(path.read_bytes()).hexdigest()[:8]
    monkeypatch.setattr(ResNet20, "imagenet", f"https://weights.invalid/models/resnet20-{digits}.pth", raising=False)
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    return path


def test_imagenet_weights_are_downloaded_once_and_checked(
    published: Path, state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    downloads = []

    def download(url: str, path: str, hash_prefix: str, progress: bool) -> None:
        assert f"-{hash_prefix}.pth" in url
        downloads.append(path)
        Path(path).write_bytes(published.read_bytes())

    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    for _ in range(2):
        encoder = build("imagenet")
        assert_holds(encoder, state)
        assert encoder.weights == f"imagenet {recorded(published).split()[1]}"
    assert len(downloads) == 1
    with open(downloads[0], "ab") as file:
        file.write(b"more")
    refusal("imagenet", "is damaged: its SHA-256 is not the published one; delete it")


def test_without_a_network_the_user_is_told_to_give_a_path(published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def download(*_: Any, **__: Any) -> None:
        raise URLError("Name or service\nnot known")

    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    refusal("imagenet", r"of resnet20 cannot be downloaded \(.*\); fetch https://weights.invalid/.* as weights=PATH")


def test_encoders_without_imagenet_weights_say_so() -> None:
    refusal("imagenet", "there are no ImageNet weights for encoder resnet20; give weights=none or the path of a file")
    with pytest.raises(UserError, match="there are no ImageNet weights for encoder resnet18-32; give weights=none or"):
        build("imagenet", "resnet18-32")
    assert ResNet18.imagenet.endswith("/resnet18-f37072fd.pth")


def test_resnet18_for_32_pixels_refuses_the_weights_of_the_other(tmp_path: Path) -> None:
    path = save(tmp_path / "w.pth", ResNet18().state_dict())
    with pytest.raises(UserError, match=r"does not fit encoder resnet18-32, with a different shape.*conv1\.weight"):
        build(path, "resnet18-32")
