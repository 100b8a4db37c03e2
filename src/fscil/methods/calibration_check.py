"""Does calibration help on this data? Asked of an inner benchmark of the base classes, before a run relies on it."""

from __future__ import annotations

import copy
import dataclasses
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fscil import margins
from fscil.benchmark import Benchmark, Session, inner_benchmark
from fscil.errors import CannotLearn
from fscil.methods.pretrain import pretrain

if TYPE_CHECKING:
    from fscil.methods.limit import Limit

DRAWS = 20  # of the shots: a single one says little


def choose_calibrator(method: Limit, session: Session, later: Sequence[Session]) -> tuple[str | None, str]:
    """The best of the method's calibrators, or None if none beats class means; and a sentence that says so.

    A calibrator must gain more area than twice the standard error of the gain over the draws of the shots. That error
    says nothing about other encoders, so it is rather too small.
    """
    try:
        if not later:
            raise CannotLearn("there is no few-shot session to imitate")
        inner = inner_benchmark(session, later[0], "the base classes alone", [str(label) for label in session.classes])
        areas, refused = areas_of(method, session, inner.to(method.engine.device))
    except CannotLearn as refusal:
        return None, f"calibration is off, since it cannot be checked: {refusal}"
    base, new = len(inner.sessions[0].classes), len(inner.class_names) - len(inner.sessions[0].classes)
    plain = areas.pop(None)
    gains = {name: gain(found, plain) for name, found in areas.items()}
    told = [f"{each} {mean:+.2f} ± {error:.2f}" for each, (mean, error) in gains.items()]
    told += [f"{each} could not be tried ({why})" for each, why in refused.items()]
    where = f"area against class means on {base} + {new} base classes: {', '.join(told)}"
    helpful = {each: mean for each, (mean, error) in gains.items() if mean > 2 * error}
    if helpful:
        name = max(helpful, key=lambda each: helpful[each])
        return name, f"calibration by {name}, checked: {where}"
    return None, f"calibration is off, checked: {where}"


def areas_of(method: Limit, session: Session, inner: Benchmark) -> tuple[dict[str | None, list[float]], dict[str, str]]:
    """By calibrator, None for class means: the area of every draw. And why a calibrator could not be tried."""
    engine, names = method.engine, method.settings.calibrators
    found: dict[str | None, list[float]] = {}
    refused: dict[str, str] = {}
    trial = type(method)(
        dataclasses.replace(method.settings, check=False),
        dataclasses.replace(method.context, mean=inner.mean, std=inner.std),
    )
    scope, engine.scope = engine.scope, f"{engine.scope}check-"
    try:
        pretrained = pretrain(inner.sessions[0], trial.settings, trial.context)
        for name in (None, *names):
            trial.settings = dataclasses.replace(trial.settings, calibrator=name or names[0])
            trial.model = copy.deepcopy(pretrained)
            engine.scope = f"{scope}check-{name}-"
            try:
                if name:
                    trial.refuse_impossible(session)
                    trial.refuse_impossible(inner.sessions[0])
                trial.calibrate(inner.sessions[0], name)
            except CannotLearn as error:
                if name is None:
                    raise
                refused[name] = str(error)
                continue
            found[name] = area_of_draws(trial, inner)
    finally:
        engine.scope = scope
    return found, refused


def area_of_draws(trial: Limit, inner: Benchmark) -> list[float]:
    """After the last session, for every draw of the shots."""
    base, model = len(inner.sessions[0].classes), trial.model.eval()
    embeddings, areas = trial.embed(inner.test_images), []
    for draw in range(1, DRAWS + 1):
        for session in inner.redrawn(draw).sessions[1:]:
            trial.learn_session(session)
        areas.append(margins.area_of(model.classify(embeddings).cpu(), inner.test_labels.cpu(), base))
        model.remove_rows(range(base, len(model.rows)))
    return areas


def gain(areas: Sequence[float], plain: Sequence[float]) -> tuple[float, float]:
    """The mean difference, and its standard error over the draws."""
    differences = [one - other for one, other in zip(areas, plain, strict=True)]
    return statistics.fmean(differences), statistics.stdev(differences) / math.sqrt(len(differences))
