"""Pictures of characters, drawn from the typefaces that come with matplotlib; the images of `glyphs`.

A character is drawn once in every face and stroke; all the rest (affine map, colours, noise) is batched arithmetic.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample, interpolate

from fscil.errors import UserError

# How hard the pictures are.
ROTATION = 25.0  # degrees, either way
SHEAR = 0.3
SCALE = (0.7, 1.2)  # of a character that fills two thirds of the picture
STRETCH = 0.25  # of width against height, either way
SHIFT = 0.15  # of the picture's width, either way
WARP = 0.2  # of half the canvas: how far each of 4 x 4 points is moved; in between it is smooth
STROKES = (0, 1, 2)  # added to the outline of a character of FONT_SIZE
CONTRAST = (0.4, 0.9)  # between the luminance of character and ground
TINT = 0.1  # of either colour, each channel, either way
NOISE = (0.02, 0.1)  # standard deviation, one per picture

SIZE = 32  # of a picture
CANVAS, GLYPH = 48, 32  # of a drawn character: the square, and the character's longer side in it
FONT_SIZE = 64

WIDE_FACES = tuple(  # cover every script that is used here
    f"DejaVu{family}{style}"
    for family, styles in (
        ("Sans", ("", "-Bold", "-Oblique", "-BoldOblique")),
        ("SansMono", ("", "-Bold", "-Oblique", "-BoldOblique")),
        ("Serif", ("", "-Bold", "-Italic", "-BoldItalic")),
    )
    for style in styles
)
NARROW_FACES = ("STIXGeneral", "STIXGeneralBol", "STIXGeneralItalic", "STIXGeneralBolIta")
NARROW_SCRIPTS = ("Latin", "Greek", "Cyrillic")

# A picture's random numbers, all uniform in [0, 1), in this order.
COLUMNS: tuple[str, ...] = (
    *("face", "stroke", "rotation", "shear", "scale", "stretch", "x", "y"),
    *("dark", "contrast", "level", "noise"),
    *("ground red", "ground green", "ground blue", "ink red", "ink green", "ink blue"),
)


def faces_of(script: str) -> tuple[str, ...]:
    return WIDE_FACES + NARROW_FACES if script in NARROW_SCRIPTS else WIDE_FACES


@lru_cache(maxsize=32)
def font(face: str) -> ImageFont.FreeTypeFont:
    from matplotlib import get_data_path

    path = Path(get_data_path()) / "fonts" / "ttf" / f"{face}.ttf"
    try:
        return ImageFont.truetype(str(path), FONT_SIZE)
    except OSError as error:
        raise UserError(f"glyphs: the typeface {path} cannot be read; reinstall matplotlib from PyPI") from error


def draw(character: str, face: str, stroke: int = 0) -> Tensor:
    """The character, as large as GLYPH allows, in the middle of its canvas: float [CANVAS, CANVAS] in [0, 1]."""
    picture = Image.new("L", (3 * FONT_SIZE, 3 * FONT_SIZE))
    ink = ImageDraw.Draw(picture)
    ink.text((FONT_SIZE, FONT_SIZE), character, fill=255, font=font(face), stroke_width=stroke, stroke_fill=255)
    picture = picture.crop(picture.getbbox())
    ratio = GLYPH / max(picture.size)
    width, height = (max(1, round(side * ratio)) for side in picture.size)
    canvas = Image.new("L", (CANVAS, CANVAS))
    resized = picture.resize((width, height), Image.Resampling.BILINEAR)
    canvas.paste(resized, ((CANVAS - width) // 2, (CANVAS - height) // 2))
    return torch.from_numpy(np.array(canvas)).float() / 255


def draw_all(character: str, script: str) -> Tensor:
    """The character in every face and stroke: [faces, strokes, CANVAS, CANVAS]."""
    rows = [torch.stack([draw(character, face, stroke) for stroke in STROKES]) for face in faces_of(script)]
    return torch.stack(rows)


def pictures(drawn: Tensor, n: int, seed: int) -> Tensor:
    """n pictures of one character: uint8 [n, 3, SIZE, SIZE]. The first pictures stay the same when n grows."""
    table = np.random.RandomState(seed).random_sample((n, len(COLUMNS)))
    u = {name: torch.from_numpy(table[:, i]).float() for i, name in enumerate(COLUMNS)}
    face = (u["face"] * len(drawn)).long()
    stroke = (u["stroke"] * len(STROKES)).long()
    grid = affine_grid(_affine_maps(u), [n, 1, SIZE, SIZE], align_corners=False)
    bends = np.random.RandomState(seed + 1).uniform(-WARP, WARP, (n, 2, 4, 4)).astype(np.float32)
    bend = interpolate(torch.from_numpy(bends), size=(SIZE, SIZE), mode="bicubic", align_corners=True)
    grid += bend.permute(0, 2, 3, 1)
    ink = grid_sample(drawn[face, stroke][:, None], grid, align_corners=False)  # [n, 1, SIZE, SIZE]

    ground_colour, ink_colour = _colours(u)
    picture = ground_colour + ink * (ink_colour - ground_colour)
    noise = np.random.RandomState(seed + 2).standard_normal((n, 3, SIZE, SIZE)).astype(np.float32)
    picture += torch.from_numpy(noise) * _between(NOISE, u["noise"])[:, None, None, None]
    return (picture * 255).round().clamp(0, 255).to(torch.uint8)


def _affine_maps(u: dict[str, Tensor]) -> Tensor:
    """Maps [n, 2, 3] from picture to canvas coordinates, as affine_grid wants them: the inverse of what is seen."""
    angle = torch.deg2rad(ROTATION * _either_way(u["rotation"]))
    scale = _between(SCALE, u["scale"])
    width, height = scale * (1 + STRETCH * _either_way(u["stretch"])), scale
    shear = SHEAR * _either_way(u["shear"])
    cos, sin = angle.cos(), angle.sin()
    linear = torch.stack(
        [
            torch.stack([cos / width - shear * sin / height, sin / width + shear * cos / height], dim=1),
            torch.stack([-sin / height, cos / height], dim=1),
        ],
        dim=1,
    )
    shift = 2 * SHIFT * torch.stack([_either_way(u["x"]), _either_way(u["y"])], dim=1)[:, :, None]
    return torch.cat([linear, -linear @ shift], dim=2)


def _colours(u: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """Colours of ground and ink, [n, 3, 1, 1] each: a random contrast, with either of the two darker."""
    contrast = _between(CONTRAST, u["contrast"])
    darker = u["level"] * (1 - contrast)
    ground_is_dark = u["dark"] < 0.5
    ground = torch.where(ground_is_dark, darker, darker + contrast)
    ink = torch.where(ground_is_dark, darker + contrast, darker)
    tints = [
        TINT * _either_way(torch.stack([u[f"{part} {c}"] for c in ("red", "green", "blue")], dim=1))
        for part in ("ground", "ink")
    ]
    return (ground[:, None] + tints[0])[:, :, None, None], (ink[:, None] + tints[1])[:, :, None, None]


def _either_way(u: Tensor) -> Tensor:
    return 2 * u - 1


def _between(bounds: tuple[float, float], u: Tensor) -> Tensor:
    return bounds[0] + (bounds[1] - bounds[0]) * u
