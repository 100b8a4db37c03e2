"""Index files of public datasets: text that names images and classes."""

from __future__ import annotations

from pathlib import Path

from fscil.errors import UserError
from fscil.files import is_unicode, read_regular

MOST_BYTES = 64 * 2**20


def read_lines(title: str, path: Path, how_to_get: str) -> list[tuple[str, str]]:
    """Every line that is not empty, after where it is: ("/data/x.txt, line 3", "3 001.Bird/x.jpg")."""
    try:
        text = read_regular(path, MOST_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise UserError(f"{title}: {path} cannot be read ({error.strerror}); {how_to_get}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{title}: {path} is not text in UTF-8; {how_to_get}") from error
    lines = enumerate(text.splitlines(), start=1)
    return [(f"{path}, line {number}", line.strip()) for number, line in lines if line.strip()]


def check_name(title: str, where: str, name: str) -> str:
    """A plain name: it cannot lead out of the dataset's folder, and it can be written into results."""
    if name in ("", ".", "..") or any(character in name for character in "/\\\0") or not is_unicode(name):
        raise UserError(f"{title}: {where}: {name!r} is not the name of a file or folder in the dataset; correct it")
    return name
