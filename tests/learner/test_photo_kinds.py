"""Photos as cameras, phones and scanners write them: seen upright and in their colours, or refused by name."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from cli_call import Fscil
from cli_process import fscil_process
from fscil import UserError
from fscil.datasets import decode as decoding
from fscil.datasets.decode import decode, known_formats

SIZE = 32
TO_BE_TURNED = 6  # EXIF: clockwise


def scene() -> NDArray[np.uint8]:
    """Red above blue, on the left half lighter."""
    pixels = np.full((SIZE, SIZE, 3), 30, np.uint8)
    pixels[: SIZE // 2, :, 0] = pixels[SIZE // 2 :, :, 2] = 220
    pixels[:, : SIZE // 2] += 30
    return pixels


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    written = io.BytesIO()
    image.save(written, kind, **options)
    return written.getvalue()


def turned(kind: str, **options: object) -> bytes:
    """Stored lying on its left side, as phones do, with a note that it is to be turned."""
    exif = Image.Exif()
    exif[0x0112] = TO_BE_TURNED
    return saved(Image.fromarray(scene()).rotate(90), kind, exif=exif.tobytes(), **options)


def sixteen_bits() -> bytes:
    """A PNG of 16 bits a colour, which Pillow reads but cannot write."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = b"".join(b"\0" + (row.astype(">u2") * 257).tobytes() for row in scene())
    head = struct.pack(">IIBBBBB", SIZE, SIZE, 16, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


KINDS: dict[str, Callable[[], bytes]] = {
    "AVIF": lambda: saved(Image.fromarray(scene()), "AVIF", quality=95),
    "turned AVIF": lambda: turned("AVIF", quality=95),
    "turned JPEG": lambda: turned("JPEG", quality=95),
    "turned WebP": lambda: turned("WEBP", quality=95),
    "large JPEG": lambda: saved(Image.fromarray(scene()).resize((3000, 3000)), "JPEG", quality=90),
    "CMYK": lambda: saved(Image.fromarray(scene()).convert("CMYK"), "JPEG", quality=95),
    "alpha": lambda: saved(Image.fromarray(scene()).convert("RGBA"), "PNG"),
    "16 bits": sixteen_bits,
    "HEIC": lambda: saved(Image.fromarray(scene()), "HEIF", quality=95),
    "turned HEIC": lambda: turned("HEIF", quality=95),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_photo_is_seen_upright_and_in_its_colours(kind: str) -> None:
    if "HEIC" in kind:
        pytest.importorskip("pillow_heif", reason='pip install "fscil[heic]"')
        known_formats()  # registers it with Pillow, which then writes such files, too
    found = decode(KINDS[kind](), SIZE, kind)
    assert np.abs(found.astype(int) - scene()).mean() < 10


def test_pixels_whose_range_is_unknown_are_refused_by_name(fscil: Fscil, tmp_path: Path) -> None:
    """They may go from 0 to 1, from 0 to 255 or anywhere; read as 8 bits, most would be black."""
    image = Image.fromarray(scene().mean(2).astype(np.float32) / 255)
    image.save(tmp_path / "float.tiff")
    said = "has fractions as pixels, and nothing says what is white; save it with 8 or 16 bits a colour"
    found = fscil("teach", tmp_path / "model", tmp_path / "float.tiff", "--name", "tulip", "--encoder", "embedded")
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert f"float.tiff {said}" in found.err
    assert not (tmp_path / "model").exists()
    with pytest.raises(UserError, match=said):
        decoding.decode_image(image, SIZE, "an image")


def test_damaged_notes_of_a_camera_are_no_users_business(tmp_path: Path) -> None:
    (tmp_path / "tulip").mkdir()
    notes = b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01"  # cut off
    Image.fromarray(scene()).save(tmp_path / "tulip" / "1.jpg", exif=notes)
    code, out, err = fscil_process("teach", "model", "tulip", "--encoder", "embedded", cwd=tmp_path)
    assert (code, err) == (0, "")
    assert out.startswith("made model and taught tulip (1 new photo)")


def test_a_heic_photo_without_the_extra_says_what_to_install(
    fscil: Fscil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without = [name for name in known_formats() if name != "HEIF"]
    monkeypatch.setattr(decoding, "known_formats", lambda: without)
    monkeypatch.setattr("fscil.learner.photo_check.known_formats", lambda: without)
    photos = tmp_path / "photos"
    for i, name in enumerate(("tulip", "rose")):
        (photos / name).mkdir(parents=True)
        Image.new("RGB", (40, 40), (i, 0, 0)).save(photos / name / "1.png")
    (photos / "tulip" / "phone.jpg").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(40))
    with pytest.raises(UserError, match=r'phone\.jpg is a HEIC photo.*pip install "fscil\[heic\]"; .* JPEG'):
        decode((photos / "tulip" / "phone.jpg").read_bytes(), SIZE, "phone.jpg")
    found = fscil("check", photos, "--encoder", "embedded")
    assert found.code == 1
    assert 'bad: tulip/phone.jpg is a HEIC photo, which needs pip install "fscil[heic]"' in found.out
    found = fscil("teach", "model", photos / "tulip", "--encoder", "embedded")
    assert (found.code, found.err.count("\n")) == (2, 1)
    assert 'pip install "fscil[heic]"' in found.err
