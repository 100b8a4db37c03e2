"""Image files of any kind to small uint8 tensors."""

from __future__ import annotations

import functools
import io
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from fscil.errors import UserError
from fscil.files import check_status, read_regular
from fscil.images import Images, Source, StreamedImages
from fscil.reading import Reading

RESIDENT_BYTES = 4 * 2**30  # of decoded images; beyond that they are streamed
MOST_BYTES = 256 * 2**20  # of an image file

# What Pillow decodes by itself, and HEIF with pillow-heif. It would read EPS, too, but by starting an outside program.
FORMATS = (
    "AVIF", "BMP", "DIB", "GIF", "HEIF", "JPEG", "JPEG2000", "PCX", "PNG", "PPM", "PSD", "QOI", "SGI", "TGA", "TIFF",
    "WEBP",
)  # fmt: skip
HEIC = b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1"  # the kinds that bytes 8 to 12 may name
NO_HEIC = 'is a HEIC photo, which needs pip install "fscil[heic]"; install that, or save the photo as JPEG'
LONGEST = 2  # times the short side: of a longer photo the middle is kept, or a narrow strip could take all memory
STREAM = "read images during training: always, never, or auto, when they would take more than 4 GiB"


@dataclass(frozen=True)
class Resize:
    """How a file becomes a stored image."""

    size: int  # of its short side
    squash: bool = False  # where a square is needed, all of it is squashed into one; otherwise its middle is taken
    invert: bool = False  # black on white becomes white on black, as padding expects it


def read_files(paths: Sequence[Path], names: Sequence[str], size: int, stream: str = "auto") -> Images:
    """Images uint8 [n, 3, size, size], streamed if there are too many."""
    if stream == "always" or (stream == "auto" and len(paths) * 3 * size * size > RESIDENT_BYTES):
        return stream_files(paths, names, size)
    return decode_files(paths, size)


def stream_files(paths: Sequence[Path], names: Sequence[str], size: int) -> StreamedImages:
    """Files are identified by name, size and modification time; their bytes are read when needed."""
    facts = file_facts(paths, names)
    copied = [fact.rpartition(" ")[0] for fact in facts]
    recipe = f"{size} pixels a side, Pillow {PIL.__version__}"
    source = Source(lambda row: decode(read_bytes(paths[row]), size, str(paths[row])), size, recipe, facts, copied)
    return StreamedImages(source)


def file_facts(paths: Sequence[Path], names: Sequence[str]) -> list[str]:
    """Name, size and modification time of every file."""
    facts = []
    for path, name in zip(paths, names, strict=True):
        try:
            status = os.stat(path)
            check_status(status, path, MOST_BYTES)
        except (OSError, ValueError) as error:
            raise unreadable(path, error) from error
        facts.append(f"{name} {status.st_size} {status.st_mtime_ns}")
    return facts


def decode_files(paths: Sequence[Path], size: int) -> Tensor:
    """Images uint8 [n, 3, size, size]."""
    reading = Reading(lambda row: decode(read_bytes(paths[row]), size, str(paths[row])), range(len(paths)), size)
    return torch.from_numpy(reading.result())


def read_bytes(path: Path) -> bytes:
    try:
        return read_regular(path, MOST_BYTES)
    except OSError as error:
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError | ValueError) -> UserError:
    """ValueError: a null character in the name."""
    reason = error.strerror if isinstance(error, OSError) else error
    return UserError(f"{path} cannot be read ({reason}); check the file and its permissions")


def decode(data: bytes, size: int, name: str) -> NDArray[np.uint8]:
    """The middle square of an image file, uint8 [size, size, 3]. The format is read from the bytes, not the name."""
    return _open(data, size, name, lambda image: _middle_square(image, size))


def decode_resized(data: bytes, resize: Resize, name: str) -> NDArray[np.uint8]:
    """The whole image, uint8 [height, width, 3], with a short side of resize.size."""
    return _open(data, resize.size, name, lambda image: _resized(image, resize))


def _open(data: bytes, size: int, name: str, use: Callable[[Image.Image], NDArray[np.uint8]]) -> NDArray[np.uint8]:
    try:
        with Image.open(io.BytesIO(data), formats=known_formats()) as image:
            _refuse_bomb(image)
            image.draft(None, (2 * size, 2 * size))  # lets JPEG skip detail that would be lost anyway
            return use(image)
    except UnidentifiedImageError as error:
        if is_heic(data) and "HEIF" not in known_formats():
            raise UserError(f"{name} {NO_HEIC}") from error
        raise _refused(name, error) from error
    except Exception as error:
        raise _refused(name, error) from error


@functools.cache
def known_formats() -> list[str]:
    """Those that this Pillow knows; it was perhaps built without some."""
    Image.init()
    with suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()  # turns photos as they say, and tells Pillow that they are upright
    return [name for name in FORMATS if name in Image.OPEN]


def is_heic(data: bytes) -> bool:
    """Whether these are the first bytes of a photo as iPhones save it."""
    return data[4:8] == b"ftyp" and data[8:12] in HEIC


def decode_image(image: Image.Image, size: int, name: str) -> NDArray[np.uint8]:
    """The same for a caller's Pillow image, which is left unchanged."""
    try:
        _refuse_bomb(image)
        return _middle_square(image, size)
    except Exception as error:
        raise _refused(name, error) from error


def _middle_square(image: Image.Image, size: int) -> NDArray[np.uint8]:
    """Short side to size, then centre crop, in one step, so that a very long image is never enlarged."""
    upright = _as_rgb(ImageOps.exif_transpose(image))
    width, height = upright.size
    side = min(width, height)
    left, top = (width - side) / 2, (height - side) / 2
    box = (left, top, left + side, top + side)
    return np.array(upright.resize((size, size), Image.Resampling.BILINEAR, box=box))


def _resized(image: Image.Image, resize: Resize) -> NDArray[np.uint8]:
    upright = _as_rgb(ImageOps.exif_transpose(image))
    width, height = upright.size
    kept_width, kept_height = min(width, LONGEST * height), min(height, LONGEST * width)
    left, top = (width - kept_width) / 2, (height - kept_height) / 2
    box = (left, top, left + kept_width, top + kept_height)
    side = min(kept_width, kept_height)
    new = [round(length * resize.size / side) for length in (kept_width, kept_height)]
    pixels = np.array(upright.resize((new[0], new[1]), Image.Resampling.BILINEAR, box=box))
    return 255 - pixels if resize.invert else pixels


def _refused(name: str, error: Exception) -> UserError:
    """Pillow's decoders raise nearly anything on damaged files."""
    if isinstance(error, UserError):
        return UserError(f"{name} {error}")
    if isinstance(error, Image.DecompressionBombError):
        return UserError(f"{name} has too many pixels to be decoded safely; make it smaller or remove it")
    return UserError(f"{name} cannot be read as an image; replace or remove it")


def _refuse_bomb(image: Image.Image) -> None:
    """Pillow only warns between one and two times its limit; for a folder of unknown images the limit is enforced."""
    limit = Image.MAX_IMAGE_PIXELS
    if limit is not None and image.width * image.height > limit:
        raise UserError(f"has {image.width} x {image.height} pixels, more than can be decoded safely; make it smaller")


def _as_rgb(image: Image.Image) -> Image.Image:
    """Transparent parts become white; 16-bit greys keep their range."""
    if image.mode == "F":
        raise UserError("has fractions as pixels, and nothing says what is white; save it with 8 or 16 bits a colour")
    if image.mode.startswith("I"):
        grey = np.asarray(image).astype(np.float32) / 257
        image = Image.fromarray(grey.round().clip(0, 255).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")
