"""Weights that were trained elsewhere: ImageNet's, or a file's. Only tensors are ever read, never pickled code."""

from __future__ import annotations

import hashlib
import io
import logging
import os
import re
import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor

from fscil.errors import UserError
from fscil.files import expand_user, is_unicode, read_regular
from fscil.images import Colour

SUFFIXES = (".safetensors", ".pth", ".pt")
CHOICES = "give none, imagenet, or the path of a .safetensors, .pth or .pt file or of a model folder"
MOST_BYTES = 8 * 2**30  # of a weights file

HUB = "https://huggingface.co/"

# of the pixels that published weights were trained on
IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

# keys that training scripts wrap around a state dict, and prefixes that they add to the names of its tensors
WRAPPERS = ("state_dict", "model")
PREFIXES = ("", "module.", "backbone.", "module.backbone.", "encoder.backbone.", "module.encoder.backbone.")
COUNTER = "num_batches_tracked"  # of batch normalisation; files from before torch 0.4.1 have none

State = dict[str, Tensor]


@dataclass(frozen=True)
class WeightsFile:
    path: Path
    data: bytes

    @property
    def checksum(self) -> str:
        return f"sha256:{hashlib.sha256(self.data).hexdigest()[:16]}"


def load(
    weights: str, encoder: str, url: str | None, wanted: Mapping[str, Tensor], spare: Collection[str] = ()
) -> tuple[str, State]:
    """What result.json calls these weights, "NAME sha256:16HEX", and a tensor for each name in wanted.

    spare: tensors and parts that the file may have, and that nobody needs.
    """
    file = read(weights, encoder, url)
    name = "imagenet" if weights == "imagenet" else file.path.name
    if weights == "imagenet" and (url or "").startswith(HUB):  # timm's need not be ImageNet's: their own name says it
        name = (url or "").removeprefix(HUB).partition("/resolve/")[0]
    return f"{name} {file.checksum}", fit(parse(file), wanted, file.path, encoder, spare)


def normalisation(
    weights: str, published: tuple[Colour, Colour] = (IMAGENET_MEAN, IMAGENET_STD)
) -> tuple[Colour, Colour]:
    """Mean and deviation of the pixels that weights expect: those of a model of ours, otherwise the published."""
    if weights != "imagenet":
        found = parse(read(weights, "", None))
        if {"encoder.scale", "encoder.shift"} <= found.keys():
            tensors = [found[f"encoder.{name}"] for name in ("scale", "shift")]
            if all(_is_alike(tensor, torch.empty(1, 3, 1, 1)) for tensor in tensors):
                scale, shift = (tensor.double().flatten() for tensor in tensors)
                mean, deviation = -shift / (255 * scale), 1 / (255 * scale)
                if (mean.isfinite() & deviation.isfinite() & (deviation > 0)).all():
                    return to_colour(mean), to_colour(deviation)
            raise UserError(f"weights={weights}: its normalisation is damaged; copy the whole model folder again")
    return published


def to_colour(values: Tensor) -> Colour:
    red, green, blue = (round(value, 6) for value in values.tolist())
    return red, green, blue


def read(weights: str, encoder: str, url: str | None) -> WeightsFile:
    """The file behind weights: the one published at the url for "imagenet", else the path of a file or model folder."""
    if weights == "imagenet":
        return _read_published(encoder, url)
    if not is_unicode(weights):
        raise UserError(f"weights={weights!r} is not UTF-8; rename that file or folder")
    path = expand_user(weights)
    if os.path.isdir(path):
        path = path / "model.safetensors"
    if not os.path.exists(path):
        raise UserError(f"weights={weights}: there is no file {path}; {CHOICES}")
    if not os.path.isfile(path) or path.suffix.lower() not in SUFFIXES:
        raise UserError(f"weights={weights}: {path} is not a weights file; {CHOICES}")
    return WeightsFile(path, _read_bytes(path))


def _read_published(encoder: str, url: str | None) -> WeightsFile:
    if url is None:
        raise UserError(f"there are no ImageNet weights for encoder {encoder}; give weights=none or the path of a file")
    digits = re.search(r"-([0-9a-f]{8,64})\.", url.rpartition("/")[2])
    expected = digits[1] if digits and not url.startswith(HUB) else ""
    try:
        path = _fetched_from_hub(url) if url.startswith(HUB) else _fetched(url, expected)
    except Exception as error:  # the hub's library raises nearly anything
        reason = " ".join(str(error).split())[:300]
        raise UserError(
            f"the ImageNet weights of {encoder} cannot be downloaded ({reason}); fetch {url} on another machine "
            "and give the file's path as weights=PATH"
        ) from error
    file = WeightsFile(path, _read_bytes(path))
    if not hashlib.sha256(file.data).hexdigest().startswith(expected):
        raise UserError(f"{path} is damaged: its SHA-256 is not the published one; delete it to download it again")
    return file


def _fetched(url: str, expected: str) -> Path:
    """Downloaded once into torch's own cache; the digits in the file's name are those of its SHA-256."""
    path = Path(torch.hub.get_dir(), "checkpoints", url.rpartition("/")[2])
    if not os.path.isfile(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.hub.download_url_to_file(url, str(path), expected, progress=False)
    return path


def _fetched_from_hub(url: str) -> Path:
    """Downloaded once into the hub's own cache, as HF_HOME, HF_ENDPOINT and HF_HUB_OFFLINE say."""
    repository, _, name = url.removeprefix(HUB).partition("/resolve/main/")
    hub, log = import_module("huggingface_hub"), logging.getLogger("huggingface_hub")
    level = log.level
    log.setLevel(logging.ERROR)  # it would tell of every attempt; that none succeeded is told once, in our words
    try:
        return Path(hub.hf_hub_download(repository, name))
    finally:
        log.setLevel(level)


def _read_bytes(path: Path) -> bytes:
    try:
        return read_regular(path, MOST_BYTES)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); check the file and its permissions") from error


def parse(file: WeightsFile) -> State:
    """All tensors in the file, by name."""
    try:
        if file.path.suffix.lower() == ".safetensors":
            found: object = safetensors.torch.load(file.data)
        else:
            with warnings.catch_warnings():  # about pickles that it refuses right away
                warnings.simplefilter("ignore")
                found = torch.load(io.BytesIO(file.data), map_location="cpu", weights_only=True)
    except Exception as error:  # damaged files raise nearly anything
        raise UserError(
            f"{file.path} cannot be read as weights: it is damaged or holds more than tensors; save the network's "
            "state_dict alone, best as .safetensors"
        ) from error
    for key in WRAPPERS:
        if isinstance(found, Mapping) and isinstance(found.get(key), Mapping):
            found = found[key]
    if not isinstance(found, Mapping):
        raise UserError(f"{file.path} holds a {type(found).__name__}, not a state dict; save the network's state_dict")
    return {name: value for name, value in found.items() if isinstance(name, str) and isinstance(value, Tensor)}


def fit(found: State, wanted: Mapping[str, Tensor], path: Path, encoder: str, spare: Collection[str] = ()) -> State:
    """A tensor for each name in wanted, of its shape and type, or a refusal. Heads and other parts are left out."""
    prefix = max(PREFIXES, key=lambda prefix: sum(prefix + name in found for name in wanted))
    given = {name.removeprefix(prefix): tensor for name, tensor in found.items() if name.startswith(prefix)}

    def refuse_if(names: Sequence[str], problem: str) -> None:
        if names:
            more = f" and {len(names) - 3} more" if len(names) > 3 else ""
            raise UserError(
                f"{path} does not fit encoder {encoder}, {problem}: {', '.join(names[:3])}{more}; "
                "choose the encoder it was saved from"
            )

    refuse_if([name for name in wanted if name not in given and not name.endswith(COUNTER)], "missing")
    # More blocks than the backbone has mean another network, even though all wanted names are there.
    parts = {name.partition(".")[0] for name in wanted}
    others = [name for name in given if name not in wanted and not name.endswith(COUNTER) and not _is_of(name, spare)]
    refuse_if([name for name in others if name.partition(".")[0] in parts], "unknown")
    here = {name: tensor for name, tensor in wanted.items() if name in given}
    refuse_if([name for name in here if not _is_alike(given[name], here[name])], "with a different shape or type")
    fitted = {name: given[name].to(tensor.dtype) for name, tensor in here.items()}
    infinite = [name for name, tensor in fitted.items() if not tensor.isfinite().all()]
    if infinite:
        raise UserError(f"{path} holds NaN or infinite values, first in {infinite[0]}; that training went wrong")
    return fitted


def _is_of(name: str, parts: Collection[str]) -> bool:
    return any(name == part or name.startswith(f"{part}.") for part in parts)


def _is_alike(given: Tensor, wanted: Tensor) -> bool:
    """Dense tensors of the same shape, both floats (of any precision) or both not."""
    is_plain = given.layout == torch.strided and given.device.type == "cpu" and not given.is_quantized
    return is_plain and given.shape == wanted.shape and given.is_floating_point() == wanted.is_floating_point()
