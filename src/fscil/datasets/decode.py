"""Image files of any kind to small uint8 tensors."""

from __future__ import annotations

import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import PIL
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from fscil.errors import UserError
from fscil.images import Images, Source, StreamedImages
from fscil.reading import thread_count

RESIDENT_BYTES = 4 * 2**30  # of decoded images; beyond that they are streamed
STREAM = "read images during training: always, never, or auto, when they would take more than 4 GiB"


def read_files(paths: Sequence[Path], names: Sequence[str], size: int, stream: str = "auto") -> Images:
    """Images uint8 [n, 3, size, size], streamed if there are too many."""
    if stream == "always" or (stream == "auto" and len(paths) * 3 * size * size > RESIDENT_BYTES):
        return stream_files(paths, names, size)
    return decode_files(paths, size)


def stream_files(paths: Sequence[Path], names: Sequence[str], size: int) -> StreamedImages:
    """Files are identified by name, size and modification time; their bytes are read when needed."""
    facts, copied = [], []
    for path, name in zip(paths, names, strict=True):
        try:
            status = path.stat()
        except OSError as error:
            raise unreadable(path, error) from error
        copied.append(f"{name} {status.st_size}")
        facts.append(f"{copied[-1]} {status.st_mtime_ns}")
    recipe = f"{size} pixels a side, Pillow {PIL.__version__}"
    source = Source(lambda row: decode(read_bytes(paths[row]), size, str(paths[row])), size, recipe, facts, copied)
    return StreamedImages(source)


def decode_files(paths: Sequence[Path], size: int) -> Tensor:
    """Images uint8 [n, 3, size, size]. Pillow decodes outside the interpreter's lock, so threads share the work."""
    images = torch.empty(len(paths), 3, size, size, dtype=torch.uint8)

    def decode_file(path: Path) -> NDArray[np.uint8]:
        return decode(read_bytes(path), size, str(path))

    with ThreadPoolExecutor(thread_count()) as pool:
        for i, pixels in enumerate(pool.map(decode_file, paths)):
            images[i] = torch.from_numpy(pixels).permute(2, 0, 1)
    return images


def read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise unreadable(path, error) from error


def unreadable(path: Path, error: OSError | ValueError) -> UserError:
    reason = error.strerror if isinstance(error, OSError) else error
    return UserError(f"{path} cannot be read ({reason}); check the file and its permissions")


def decode(data: bytes, size: int, name: str) -> NDArray[np.uint8]:
    """The middle square of an image file, uint8 [size, size, 3]. The format is read from the bytes, not the name."""
    try:
        with Image.open(io.BytesIO(data)) as image:
            _refuse_bomb(image)
            image.draft(None, (2 * size, 2 * size))  # lets JPEG skip detail that would be lost anyway
            return _middle_square(image, size)
    except Exception as error:
        raise _refused(name, error) from error


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
    if image.mode.startswith("I"):
        grey = np.asarray(image).astype(np.float32) / 257
        image = Image.fromarray(grey.round().clip(0, 255).astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")
