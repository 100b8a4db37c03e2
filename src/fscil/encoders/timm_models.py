"""Encoders of timm by name, timm:NAME. timm is imported only when one of them is asked for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from typing import Any

import torch
from torch import nn

from fscil.encoders.weights import HUB
from fscil.errors import UserError
from fscil.naming import choose

PREFIX = "timm:"
EXAMPLE = "timm:NAME"
DESCRIPTION = 'any model of timm, such as timm:resnet50; needs "fscil[timm]"'
ANOTHER = "choose another encoder"


def check(name: str) -> None:
    """Refuse what timm has not registered; its loaders of folders and of other people's repositories stay shut."""
    choose(name, _known(_timm(name)), "encoder", see="timm.list_models() lists timm's")


def backbone(name: str) -> Callable[[], nn.Module]:
    """A function that builds the network, with all that encoders may have as its attributes.

    A name may end with the tag of its weights, as in timm:vit_small_patch16_224.dino; without one they are timm's
    first choice.
    """
    check(name)
    timm = _timm(name)
    published = timm.get_pretrained_cfg(name.removeprefix(PREFIX))

    def make() -> nn.Module:
        return _build(name, timm, published.input_size)

    heads = published.classifier or ()
    vars(make).update(
        input_size=published.input_size[-1] if published.fixed_input_size else None,
        imagenet=_address(published),
        mean=tuple(published.mean),
        std=tuple(published.std),
        heads=(heads,) if isinstance(heads, str) else tuple(heads),
        version=f"timm {timm.__version__}",
    )
    return make


def _build(name: str, timm: Any, image: Sequence[int]) -> nn.Module:
    """num_features is not always what comes out (MobileNetV3 widens it), so an image shows the size of embeddings."""
    try:
        network: nn.Module = timm.create_model(name.removeprefix(PREFIX), pretrained=False, num_classes=0)
        with torch.no_grad():
            embeddings = network.eval()(torch.zeros(1, *image))
    except Exception as error:  # of a thousand models, some need other packages or other input
        raise UserError(f"encoder {name} cannot be built ({_in_a_line(error)}); {ANOTHER}") from error
    if not isinstance(embeddings, torch.Tensor) or embeddings.dim() != 2:
        raise UserError(f"encoder {name} does not give one embedding per image; {ANOTHER}")
    network.dim = embeddings.shape[1]  # type: ignore[assignment]
    return network.train()


def check_size(name: str, network: nn.Module, pixels: int) -> None:
    """Refuse images that are too small, or otherwise unfit, for a network that claims to take any."""
    try:
        with torch.no_grad():
            network.eval()(torch.zeros(1, 3, pixels, pixels))
    except Exception as error:  # each of timm's networks says it in its own way
        reason = _in_a_line(error)
        raise UserError(
            f"encoder {name} cannot take images of {pixels} pixels a side ({reason}); change input_size, or {ANOTHER}"
        ) from error
    network.train()


def _address(published: Any) -> str | None:
    """Where the weights of that name are: on Hugging Face's hub, else elsewhere, or nowhere."""
    if published.hf_hub_id:
        return f"{HUB}{published.hf_hub_id}/resolve/main/{published.hf_hub_filename or 'model.safetensors'}"
    return published.url or None


def _timm(name: str) -> Any:
    try:
        return import_module("timm")
    except ImportError as error:
        raise UserError(f'encoder {name} needs timm ({_in_a_line(error)}); pip install "fscil[timm]"') from error


@cache
def _known(timm: Any) -> frozenset[str]:
    return frozenset(PREFIX + name for name in [*timm.list_models(), *timm.list_pretrained()])


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
