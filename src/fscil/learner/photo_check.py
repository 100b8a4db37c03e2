"""Every photo of a folder is decoded once: which can be used, and what is wrong with the others."""

from __future__ import annotations

import hashlib
import io
import statistics
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from PIL import Image, UnidentifiedImageError
from rich.console import Console

from fscil.datasets.decode import decode, known_formats, read_bytes
from fscil.errors import UserError
from fscil.learner.photo_folder import BAD, NOTE, STOP, Photo, PhotoFolder, Problem
from fscil.naming import printable
from fscil.progress import stage_progress
from fscil.reading import thread_count

AT_ONCE = 64  # photos between two looks at the progress bar
IMBALANCE = 5  # times as many photos as the median class, or as few
SHARE = 4  # a photo's short side below this part of what the encoder sees has too little detail
PICTURES = {
    ".jpg", ".jpeg", ".png", ".gif", ".bmp", ".webp", ".avif", ".tif", ".tiff", ".jp2", ".heic", ".heif", ".ppm",
    ".tga", ".psd",
}  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """A photo that can be used."""

    photo: Photo
    digest: bytes  # SHA-256 of the file
    short_side: int


def examine(folder: PhotoFolder, stored: int, seen_size: int, console: Console) -> tuple[list[Seen], list[Problem]]:
    """Photos that can be used, each once, and all problems of the folder. stored: pixels a side that photos are resized
    to; seen_size: those that the encoder sees."""
    usable, problems = list[Seen](), list(folder.problems)
    with (
        ThreadPoolExecutor(thread_count()) as threads,
        stage_progress(console, "look at photos", len(folder.photos)) as progress,
    ):
        for start in range(0, len(folder.photos), AT_ONCE):
            part = folder.photos[start : start + AT_ONCE]
            for each in threads.map(lambda photo: _look(photo, stored), part):
                if isinstance(each, Problem):
                    problems.append(each)
                else:
                    usable.append(each)
            progress.update(start + len(part))
    usable, more = _once(usable)
    problems += more
    tiny = [each for each in usable if each.short_side < max(8, seen_size // SHARE)]
    if tiny:
        sizes = f"fewer than {max(8, seen_size // SHARE)} pixels a side, where the encoder sees {seen_size}"
        problems.append(_about("tiny", NOTE, f"{_photos(tiny)}: {sizes}", tiny))
    return usable, problems + _about_classes(folder, usable)


def _look(photo: Photo, size: int) -> Seen | Problem:
    try:
        data = read_bytes(photo.path)
        try:
            with Image.open(io.BytesIO(data), formats=known_formats()) as image:
                short = min(image.size)
        except Exception:  # decode says what is wrong with it
            short = 0
        decode(data, size, photo.key)
        return Seen(photo, hashlib.sha256(data).digest(), short)
    except UserError as error:
        return _refused(photo, error)


def _refused(photo: Photo, error: UserError) -> Problem:
    name, cause = printable(photo.key), error.__cause__
    what = str(error).removeprefix(photo.key).strip().partition(";")[0]
    if isinstance(cause, UnidentifiedImageError) and "HEIC" not in what:
        if photo.path.suffix.lower() in PICTURES:
            return Problem("unreadable", BAD, f"{name} is not an image, or a damaged one", (name,))
        return Problem("not-an-image", NOTE, f"{name} is not an image and was left out", (name,))
    if isinstance(cause, OSError) and not isinstance(cause, UnidentifiedImageError) and cause.strerror:
        return Problem("unreadable", BAD, f"{name} cannot be read ({cause.strerror})", (name,))
    if cause is not None and any(word in str(cause).lower() for word in ("truncated", "broken", "incomplete")):
        return Problem("truncated", BAD, f"{name} is cut off: the end of the file is missing", (name,))
    return Problem("unreadable", BAD, f"{name} {printable(what)}", (name,))


def _once(usable: Sequence[Seen]) -> tuple[list[Seen], list[Problem]]:
    """Copies of a file count once; a file under two names counts nowhere, since one of them is wrong."""
    copies: dict[bytes, list[Seen]] = {}
    for each in usable:
        copies.setdefault(each.digest, []).append(each)
    kept, problems = list[Seen](), list[Problem]()
    for same in copies.values():
        names = dict.fromkeys(each.photo.name for each in same)
        if len(names) > 1:
            shown = " and ".join(printable(each.photo.key) for each in same[:3])
            problems.append(_about("two-names", BAD, f"the same photo in several classes: {shown}", same))
            continue
        kept.append(min(same, key=lambda each: ("train", "held", "test").index(each.photo.part)))
        if len(same) > 1:
            shown = ", ".join(printable(each.photo.key) for each in same[:3])
            problems.append(_about("duplicate", NOTE, f"copies of one photo, which counts once: {shown}", same))
    return sorted(kept, key=lambda each: each.photo.key), problems


def _about_classes(folder: PhotoFolder, usable: Sequence[Seen]) -> list[Problem]:
    problems = []
    counts = counted(each.photo for each in usable if each.photo.part != "test")
    named = dict.fromkeys(photo.name for photo in folder.photos)
    if none := [name for name in named if name not in counts]:
        where = " to train on" if any(photo.part == "test" for photo in folder.photos) else ""
        problems.append(Problem("no-photos", NOTE, f"no usable photo{where} of {_names(none)}", tuple(none)))
    if single := [name for name, n in counts.items() if n == 1]:
        sentence = f"one photo of {_names(single)}: learned, but nothing can be measured by it"
        problems.append(Problem("one-photo", NOTE, sentence, tuple(single)))
    if len(counts) < 2:
        what = f"only the class {printable(next(iter(counts)))} has" if counts else "no class has"
        problems.append(Problem("classes", STOP, f"{what} photos that can be used; two classes are needed"))
        return problems
    median = statistics.median(counts.values())
    for words, which in (
        ("many more photos", [name for name, n in counts.items() if n >= IMBALANCE * median]),
        ("far fewer photos", [name for name, n in counts.items() if n > 1 and n * IMBALANCE <= median]),
    ):
        if which:
            sentence = f"{words} of {_names(which)} than of a usual class, which has {median:g}"
            problems.append(Problem("imbalance", NOTE, sentence, tuple(which)))
    return problems


def counted(photos: Iterable[Photo]) -> dict[str, int]:
    """Photos of every class, in order of the names."""
    counts: dict[str, int] = {}
    for photo in photos:
        counts[photo.name] = counts.get(photo.name, 0) + 1
    return dict(sorted(counts.items()))


def _about(kind: str, level: str, sentence: str, seen: Sequence[Seen]) -> Problem:
    return Problem(kind, level, sentence, tuple(printable(each.photo.key) for each in seen))


def _photos(seen: Sequence[Seen], most: int = 3) -> str:
    named = ", ".join(printable(each.photo.key) for each in seen[:most])
    return f"{named} and {len(seen) - most} more" if len(seen) > most else named


def _names(names: Sequence[str], most: int = 5) -> str:
    named = ", ".join(map(printable, names[:most]))
    return f"{named} and {len(names) - most} more" if len(names) > most else named


def merged(problems: Sequence[Problem], most: int = 5) -> list[Problem]:
    """For people: many problems of a kind become one sentence."""
    groups: dict[tuple[str, str], list[Problem]] = {}
    for problem in problems:
        groups.setdefault((problem.kind, problem.level), []).append(problem)
    found = []
    for group in groups.values():
        found += group[:most]
        if len(group) > most:
            files = tuple(file for problem in group[most:] for file in problem.files)
            found.append(replace(group[0], sentence=f"and {len(group) - most} more of that kind", files=files))
    return found
