"""Learning from many photos. What this needs is imported when it is needed: most learners never train."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

    from fscil.learner.fitted import Fitted
    from fscil.learner.folder_check import Check
    from fscil.learner.learner import Learner


def check(folder: str | PathLike[str], **options: Any) -> Check:
    """All problems of a folder of photos at once, what `fit` would do, and how long that takes; see folder_check.py."""
    from fscil.learner import folder_check

    return folder_check.check(folder, **options)


def fit(folder: str | PathLike[str], out: str | PathLike[str] | None = None, **options: Any) -> Fitted:
    """A new learner that knows a folder's classes, saved to the model folder `out`; see fitting.py."""
    from fscil.learner import fitting

    return fitting.fit(folder, out, **options)


def fit_folder(
    learner: Learner,
    folder: str | PathLike[str],
    *,
    skip_bad: bool = False,
    finetune: bool | None = None,
    seed: int = 1,
    console: Console | None = None,
) -> Fitted:
    """Train on a folder with a folder of photos for each class, and make the learner know them as its base classes.

    Photos that were held out become witnesses, by which confidence and unknown are measured.
    """
    from fscil.learner import fitting

    return fitting.fit_folder(learner, folder, skip_bad=skip_bad, finetune=finetune, seed=seed, console=console)
