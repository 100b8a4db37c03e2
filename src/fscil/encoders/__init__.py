"""Encoders: uint8 images to embeddings (the paper's phi). A registry maps names to backbones.

A backbone is a class or function without arguments that returns an nn.Module: float images [n, 3, h, w] to embeddings
[n, dim], with the attribute `dim`. The first line of its docstring is its description. It may also have
- `input_size`: the only image size in pixels that it accepts; without it, it accepts any,
- `imagenet`: the URL of ImageNet weights: on Hugging Face's hub, or a file named after the first digits of its SHA-256
  as torchvision's are,
- `mean` and `std`: of the pixels that its published weights were trained on; without them, ImageNet's,
- `heads`: names of parts that weights files have and the backbone lacks, beside parts that it has,
- `version`: of the package that it comes from; the encoder cache keeps versions apart,
- `spatial`: a method that returns the features before pooling, [n, dim, h', w'],
- `first` and `second`: methods that cut it in two at a middle layer: its embeddings are second(first(images)).
Other packages add theirs as entry points of the group `fscil.encoders`; `timm:NAME` is any model of timm.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import EntryPoint

from torch import nn

from fscil import distributed
from fscil.encoders import timm_models
from fscil.encoders import weights as weight_files
from fscil.encoders.encoder import EMBED_AT_ONCE, Encoder
from fscil.encoders.resnet18 import ResNet18, ResNet18For32
from fscil.encoders.resnet20 import ResNet20
from fscil.encoders.shared_norm import share_statistics
from fscil.errors import UserError
from fscil.images import Colour
from fscil.naming import choose, entry_points

__all__ = [
    "EMBED_AT_ONCE", "Encoder", "backbone", "build", "check", "choose_input_size", "descriptions", "names",
    "normalisation",
]  # fmt: skip

GROUP = "fscil.encoders"
Backbone = Callable[[], nn.Module]
BACKBONES: dict[str, Backbone] = {"resnet20": ResNet20, "resnet18-32": ResNet18For32, "resnet18": ResNet18}

# the field stores photos somewhat larger than the encoder sees them, which leaves room for random crops in training
CONVENTIONAL_INPUT = {256: 224, 92: 84}  # by stored size


def names() -> list[str]:
    """The built-in encoders, then those of other packages by name; a built-in name cannot be overridden.

    timm's, more than a thousand, are not among them.
    """
    return [*BACKBONES, *sorted(_of_other_packages())]


def check(name: str) -> None:
    """Refuse a name that no encoder has."""
    if name.startswith(timm_models.PREFIX):
        timm_models.check(name)
    else:
        choose(name, [*names(), timm_models.EXAMPLE], "encoder")


def descriptions() -> dict[str, str]:
    """One line for every encoder. If a package cannot be imported, its line says so and the others still work."""
    lines = {}
    for name in names():
        try:
            lines[name] = ((backbone(name).__doc__ or "").strip() or "no description").splitlines()[0]
        except UserError as error:
            lines[name] = str(error)
    return {**lines, timm_models.EXAMPLE: timm_models.DESCRIPTION}


def build(
    name: str, mean: tuple[float, ...], std: tuple[float, ...], *, input_size: int | None = None, weights: str = "none"
) -> Encoder:
    """The encoder of that name for images with that mean and standard deviation of pixels in [0, 1].

    input_size: crop larger images to this many pixels per side; None: take them as they are.
    weights: none (initialised from torch's global generator, which is used in any case), imagenet, or the path of
    a .safetensors, .pth or .pt file or of a model folder. With several processes, rank 0 reads it for all.
    """
    make = backbone(name)
    if input_size is None:
        input_size = _demanded(make)
    else:
        _check_demand(name, make, input_size)
    network = make()
    if name.startswith(timm_models.PREFIX) and input_size is not None and _demanded(make) is None:
        timm_models.check_size(name, network, input_size)
    if not isinstance(getattr(network, "dim", None), int):
        raise UserError(f"encoder {name!r} does not give the size of its embeddings as `dim`; ask its authors")
    source = "none"
    if weights != "none":
        state, url = network.state_dict(), _published_at(make)
        # buffers that the network computes itself may stand in older files
        spare = {buffer for buffer, _ in network.named_buffers()} - state.keys()
        spare.update(getattr(make, "heads", ()))
        source, tensors = distributed.broadcast(lambda: weight_files.load(weights, name, url, state, spare))
        network.load_state_dict(state | tensors)
    if distributed.world_size() > 1:
        share_statistics(network)
    return Encoder(network, mean, std, input_size, source)


def normalisation(name: str, weights: str) -> tuple[Colour, Colour]:
    """Mean and deviation of the pixels that these weights of the encoder expect."""
    make = backbone(name)
    published = getattr(make, "mean", weight_files.IMAGENET_MEAN), getattr(make, "std", weight_files.IMAGENET_STD)
    return weight_files.normalisation(weights, published)


def choose_input_size(name: str, stored: int, asked: int = 0) -> int:
    """Pixels per side that the encoder should see of images stored with `stored` pixels per side.

    `asked` decides; 0 leaves it to the encoder, then to the field's convention (256 stored: 224, 92: 84), and otherwise
    takes whole images. The encoder is not built for this.
    """
    make = backbone(name)
    if asked < 0:
        raise UserError(f"input_size={asked} must be positive, or 0 for the encoder's own")
    if asked > 0:
        _check_demand(name, make, asked)
    wanted = asked or _demanded(make) or CONVENTIONAL_INPUT.get(stored, stored)
    if wanted > stored:
        larger = {seen: size for size, seen in CONVENTIONAL_INPUT.items()}.get(wanted, wanted)
        lower = "lower input_size" if asked and not _demanded(make) else "choose another encoder"
        raise UserError(
            f"encoder {name} would see {wanted} pixels a side, but the images are stored with {stored}; store them "
            f"larger where the dataset lets you (size={larger}), or {lower}"
        )
    return wanted


def _demanded(make: Backbone) -> int | None:
    size: int | None = getattr(make, "input_size", None)
    return size


def _check_demand(name: str, make: Backbone, input_size: int) -> None:
    if _demanded(make) not in (None, input_size):
        raise UserError(
            f"encoder {name} takes images of {_demanded(make)} pixels a side only, not {input_size}; set input_size=0"
        )


def _published_at(make: Backbone) -> str | None:
    url: str | None = getattr(make, "imagenet", None)
    return url


def _of_other_packages() -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=GROUP) if point.name not in BACKBONES}


def backbone(name: str) -> Backbone:
    """The function or class that builds the encoder's network."""
    if name.startswith(timm_models.PREFIX):
        return timm_models.backbone(name)
    check(name)
    if name in BACKBONES:
        return BACKBONES[name]
    point = _of_other_packages()[name]
    try:
        make = point.load()
    except (Exception, SystemExit) as error:  # another package's import may raise anything; name the package
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"encoder {name!r} of {point.value} cannot be imported ({reason}); reinstall that package"
        ) from error
    if not callable(make):
        raise UserError(f"encoder {name!r}: {point.value} is neither a class nor a function; ask its authors")
    found: Backbone = make
    return found
