"""Where a learner that starts from nothing has its encoder from: a model that knows no class yet."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import torch

from fscil import encoders
from fscil import model as models
from fscil.encoders import weights as weight_files
from fscil.encoders.timm_models import PREFIX as TIMM
from fscil.errors import UserError
from fscil.files import expand_user
from fscil.model import Model, ModelSpec
from fscil.model_folder import load_model

EMBEDDED = Path(__file__).parent / "embedded" / "resnet20-cifar100.safetensors"
CHOICES = "give auto, embedded, timm:NAME, or the path of a model folder or of a file of weights"
OTHER = "name a file of weights (--encoder PATH, in Python encoder=PATH), or take the encoder embedded for small images"
# the same weights as torchvision's, on Hugging Face's hub, for networks that reach only a mirror of that
ON_HUB = weight_files.HUB + "timm/resnet18.tv_in1k/resolve/main/model.safetensors"

SCALE = 16.0  # of cosine logits, as in pre-training
POWER = 0.5  # evens out features that come from a ReLU
NOISE = 4  # images that show whether they do


def model_from_nothing(encoder: str | os.PathLike[str]) -> Model:
    """A model without classes, frozen: its embeddings are evened out and averaged over mirror images."""
    try:
        named = os.fspath(encoder)
    except TypeError as error:
        raise UserError(f"encoder is a {type(encoder).__name__}; {CHOICES}") from error
    with torch.random.fork_rng(devices=[]):  # building draws initial weights; leave the caller's generator alone
        if named == "auto":
            return _evened(_imagenet())
        if named == "embedded":
            return _evened(_weights_for("resnet20", str(EMBEDDED)))
        if named.startswith(TIMM):
            return _evened(_published(named))
        return _of_path(expand_user(named))


def _imagenet() -> Model:
    """torchvision's ResNet18, downloaded once and then read from a cache; from the hub where a mirror of that is named,
    and from the hub's cache alone if that is to be used offline."""
    offline = os.environ.get("HF_HUB_OFFLINE", "").upper() in {"1", "ON", "YES", "TRUE"}
    url = encoders.backbone("resnet18").imagenet  # type: ignore[attr-defined]
    cached = Path(torch.hub.get_dir(), "checkpoints", url.rpartition("/")[2])
    try:
        if os.path.isfile(cached) or not (offline or os.environ.get("HF_ENDPOINT")):
            return _weights_for("resnet18", "imagenet")
        if find_spec("huggingface_hub") is None:
            raise UserError("huggingface_hub is not installed, which HF_ENDPOINT and HF_HUB_OFFLINE are for")
        file = weight_files.read("imagenet", "resnet18", ON_HUB)
        model = _weights_for("resnet18", str(file.path))
        model._spec = replace(model.spec, weights=f"imagenet {file.checksum}")
        return model
    except UserError as error:
        raise UserError(
            f"the encoder auto needs the ImageNet weights of ResNet18, which are not here ({_first(error)}); download "
            f"{url} elsewhere and {OTHER}"
        ) from error


def _published(encoder: str) -> Model:
    """timm's own choice of weights, from the hub or its cache."""
    try:
        return _weights_for(encoder, "imagenet")
    except UserError as error:
        if "cannot be downloaded" not in str(error):
            raise
        raise UserError(
            f"the weights of {encoder} are not here and cannot be downloaded; copy the hub's cache from a machine that "
            f"has them, or {OTHER}"
        ) from error


def _first(error: UserError) -> str:
    return str(error).partition(";")[0].partition(" (")[0]


def _weights_for(encoder: str, weights: str) -> Model:
    """The named encoder with these weights, for images of the size that suits it."""
    stored = 32 if encoder in ("resnet20", "resnet18-32") else _stored_size(encoder)
    mean, std = encoders.normalisation(encoder, weights)
    spec = ModelSpec(
        encoder=encoder,
        stored_size=stored,
        input_size=encoders.choose_input_size(encoder, stored),
        mean=mean,
        std=std,
        calibrator_options={"scale": SCALE},
    )
    return models.build(spec, 0, weights)


def _stored_size(encoder: str) -> int:
    """Photos are stored somewhat larger than the encoder sees them."""
    seen = getattr(encoders.backbone(encoder), "input_size", None) or 224
    return {224: 256, 84: 92}.get(seen, seen)


def _of_path(path: Path) -> Model:
    if os.path.isdir(path):
        model, _ = load_model(path)
        if model.calibrator.cells:
            raise UserError(f"the model in {path} compares maps of features, not embeddings; {CHOICES}")
        model.remove_rows(range(len(model.rows)))
        model.rows.data = model.rows.data[:, : model.encoder.dim]
        model.set_calibrator("cosine", scale=SCALE)
        model.base_margin = 0.0
        whitened = not torch.equal(model.whitening, torch.eye(model.encoder.dim))
        return model if whitened else _evened(model)  # whitening was made for embeddings as that model has them
    if not os.path.isfile(path):
        raise UserError(f"the encoder {path}: there is no such file or folder; {CHOICES}")
    if path.suffix.lower() not in weight_files.SUFFIXES:
        raise UserError(f"the encoder {path} is no file of weights ({', '.join(weight_files.SUFFIXES)}); {CHOICES}")
    refusals = []
    for name in encoders.BACKBONES:
        try:
            return _evened(_weights_for(name, str(path)))
        except UserError as error:
            refusals.append(error)
    if any("does not fit" not in str(error) for error in refusals):
        raise refusals[0]
    raise UserError(f"the encoder {path}: its weights fit none of {', '.join(encoders.BACKBONES)}; save a model folder")


def _evened(model: Model) -> Model:
    """Raise features to a power only if they are never negative, as after a ReLU."""
    model.requires_grad_(False).eval()
    size = model.spec.input_size
    noise = torch.randint(0, 256, (NOISE, 3, size, size), generator=torch.Generator().manual_seed(0))
    features = model.encoder.embed_here(noise.to(torch.uint8))
    model.power, model.mirror = (POWER if (features >= 0).all() else 1.0), True
    return model
