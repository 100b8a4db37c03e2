"""The report of a learner: a single HTML page for people who taught it."""

from __future__ import annotations

import io
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from PIL import Image

from fscil import __version__
from fscil.datasets.decode import decode, read_bytes
from fscil.errors import UserError
from fscil.files import write_atomically
from fscil.learner.embedding import Seen
from fscil.learner.evaluation import ClassScore, Evaluation, Mistake, evaluate
from fscil.learner.learner import Learner
from fscil.learner.taught import Taught
from fscil.naming import printable
from fscil.report.markup import Markup, details
from fscil.report.page import page
from fscil.report.taught import ClassLine, Confused, TaughtPage, Test, Thumbnail, taught_parts

MOST_PICTURES = 60  # of mistakes
SIDE = 144  # pixels of a thumbnail
STEPS = 200  # of the history


def write_page(
    folder: Path,
    out: Path,
    test: Mapping[str, Sequence[Path]] | None = None,
    *,
    title: str = "Test photos",
    device: str = "cpu",
    skip_unreadable: bool = False,
    progress: Seen | None = None,
) -> str:
    """Write the page of a model folder, with photos by class to test it on; returns the sentence that it opens with."""
    learner, taught = Learner.load(folder, device=device), Taught(folder)
    scores, mistakes = learner.left_out()
    tested = None
    if test is not None:
        found = evaluate(learner, test, skip_unreadable=skip_unreadable, progress=progress)
        tested = _test(found, title)
    lines = _class_lines(taught, scores)
    shown = TaughtPage(
        title=printable(_title(taught.folder)),
        headline=[headline(lines), *_measures(learner)],
        classes=lines,
        mistakes=_confused(mistakes),
        history=[(step.when, step.verb, printable(step.what)) for step in taught.history()[-STEPS:]],
        test=tested,
    )
    parts = [*taught_parts(shown), *_run(taught.folder)]
    write_atomically(out, page(shown.title, parts, __version__).encode("utf-8", "replace"))
    return shown.headline[0]


def _title(folder: Path) -> str:
    """The folder's name; of a run's model the run's, since all of those are called model."""
    whole = Path(os.path.abspath(folder))
    return whole.parent.name if whole.name == "model" and os.path.isfile(whole.parent / "result.json") else whole.name


def headline(lines: Sequence[ClassLine]) -> str:
    """The page in a sentence."""
    taught = [each for each in lines if each.kind == "taught"]
    tried, right = sum(each.tried for each in lines), sum(each.right for each in lines)
    photos = sum(each.photos for each in taught)
    said = f"It knows {len(lines):,} class{'es' * (len(lines) != 1)}"
    if taught:
        those = f"{len(taught):,} of them" if len(taught) < len(lines) else "all"
        said += f", {those} taught from {photos:,} photo{'s' * (photos != 1)}"
    if not tried:
        return f"{said}."
    share = f"{100 * right / tried:.0f}\u00a0%"
    return f"{said}; each left out in turn, {right:,} of {tried:,} photos are recognised ({share})."


def _class_lines(taught: Taught, scores: Sequence[ClassScore]) -> list[ClassLine]:
    by_name = {each.name: each for each in scores}
    lines = []
    for each in taught.classes():
        kind = ("base class, hidden" if each.hidden else "base class") if each.base else "taught"
        score = by_name.get(each.name)
        tried, right = (score.photos, score.right) if score else (0, 0)
        # those of a training are not counted here, and most of those that are kept of a base class only measure it
        lines.append(ClassLine(printable(each.name), kind, 0 if each.base else each.photos, tried, right))
    return lines


def _measures(learner: Learner) -> list[str]:
    unknown, confidence = learner.unknown, learner.confidence
    said = []
    if unknown.threshold is not None:
        said.append(
            f"Of photos of classes that it was not taught, {100 * (unknown.let_through or 0):.0f} % are taken for one "
            f"of its own; {100 * (unknown.kept or 0):.0f} % of photos of its own are not called unknown."
        )
    else:
        said.append(f"Nothing is called unknown: {unknown.reason}.")
    errors = {"base": confidence.error_base, "taught": confidence.error_taught}
    known = [f"{100 * error:.1f} % for {what} classes" for what, error in errors.items() if error is not None]
    if known:
        said.append(f"Probabilities are off by {' and '.join(known)} (expected calibration error).")
    return said


def _confused(mistakes: Iterable[Mistake]) -> list[Confused]:
    return [Confused(printable(each.name), printable(each.taken_for), each.photos) for each in mistakes]


def _test(found: Evaluation, title: str) -> Test:
    lines = [
        ClassLine(printable(each.name), "" if each.known else "not known", each.photos, each.photos, each.right)
        for each in found.classes
    ]
    pictures = []
    for each in found.wrong[:MOST_PICTURES]:
        jpeg = thumbnail(Path(each.photo)) if each.photo else None
        if jpeg is not None:
            file = printable(Path(each.photo).name)
            pictures.append(Thumbnail(jpeg, file, printable(each.name), printable(each.taken_for)))
    said = f"{found.right:,} of {found.photos:,} photos are right ({100 * found.accuracy:.1f}\u00a0%)."
    return Test(printable(title), said, lines, _confused(found.mistakes), pictures)


def thumbnail(path: Path) -> bytes | None:
    """A small JPEG of a photo, if it can still be read."""
    try:
        pixels = decode(read_bytes(path), SIDE, str(path))
    except UserError:
        return None
    written = io.BytesIO()
    Image.fromarray(pixels).save(written, "JPEG", quality=80)
    return written.getvalue()


def _run(folder: Path) -> list[Markup]:
    """The tables of the run that trained the model, folded away, if it is a run's."""
    path = folder.parent / "result.json"
    if folder.name != "model" or not os.path.isfile(path):
        return []
    from fscil.report.html import section  # matplotlib
    from fscil.report.summary import always
    from fscil.results import read_result

    result = read_result(path.parent)
    return [details("The run that trained it", section(result.title or result.benchmark, [result], always))]
