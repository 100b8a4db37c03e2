"""Choosing: what fit makes of a folder, by photos and classes that were held out; every choice says its numbers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from rich.console import Console
from torch import Tensor

from fscil.engine import Engine
from fscil.errors import CannotLearn
from fscil.images import Images
from fscil.learner.heads import Head, Learned, Photos, learn, linear_probe, photos_of
from fscil.learner.judging import (
    LEAST_PHOTOS,
    Division,
    Verdict,
    best_of,
    divisions,
    evenly,
    judge,
    judge_heads,
    tried,
)
from fscil.learner.plan import Plan
from fscil.learner.tuning import fine_tuned, meta_trained, session_of
from fscil.model import Model

WHITEN = (0.0, 1.0, 3.0, 10.0, 0.3)  # the usual ones first, which win ties
TRUST = (0.0, 0.1, 0.3, 1.0)
SURE = 2.0  # standard errors by which what is costly must be better
AS_IT_IS, MEANS, LIMIT = "encoder as it is", "class means", "LIMIT"
MOST_WITNESSES = 1000  # photos; where there are more, some of them measure as well


@dataclass(frozen=True)
class Choice:
    """scores: percent of held-out photos, the mean of known classes alone and with a third of them taught."""

    question: str  # head, encoder, calibrator or margin
    scores: dict[str, float]
    chosen: str
    sentence: str


@dataclass(frozen=True)
class Chosen:
    head: Head
    finetune: bool
    limit: bool
    margin: float
    verdict: Verdict | None  # of what was chosen; None: too few photos could be held out
    accuracy: float | None  # percent of held-out photos among all classes
    choices: tuple[Choice, ...]
    unseen: Learned | None  # a model of all classes that has not learned the witnesses, ...
    unseen_photos: Photos  # ... as whose encoder sees them
    witnesses: Tensor  # bool [n], among all photos


def heads_for(plan: Plan) -> list[Head]:
    return [
        Head(whiten, trust)
        for trust in (TRUST if plan.trained_rows else TRUST[:1])
        for whiten in (WHITEN if plan.whiten else WHITEN[:1])
    ]


def choose(
    plan: Plan, model: Model, images: Images, photos: Photos, held: Tensor, engine: Engine, console: Console
) -> Chosen:
    """photos: all of them, as the encoder sees them untrained."""
    kept, asked = photos.where(~held), photos.where(held)
    if len(asked) < LEAST_PHOTOS:
        return _by_size(plan, photos, held)
    asked = evenly(asked)
    verdicts = judge_heads(heads_for(plan), kept, asked, plan.classes)
    head = best_of(verdicts)
    choices = [_head_choice(verdicts, head, kept, asked, plan)]
    verdict, margin = verdicts[head], verdicts[head].margin
    division = next(iter(divisions(plan.classes)), None)
    tune, use_limit, tuned = False, False, None
    if plan.finetune and division is not None:
        try:
            tuned = try_tuning(plan, model, images, photos, held, division, engine, console)
            frozen = _on(division, head, kept, asked, plan.classes)
            tune, choice = _compared("encoder", AS_IT_IS, frozen, "fine-tuned", tuned.verdict)
            if tune:
                head, verdict, margin = tuned.head, tuned.verdict, tuned.verdict.margin
        except CannotLearn as error:
            choice = Choice("encoder", {}, AS_IT_IS, f"{AS_IT_IS}, since it could not be fine-tuned: {error}")
        choices.append(choice)
    if plan.limit and division is not None:
        usable = tuned if tune and tuned is not None else None
        choice, limit_verdict = try_limit(plan, model, images, photos, held, head, usable, division, engine)
        choices.append(choice)
        if choice.chosen == LIMIT and limit_verdict is not None:
            use_limit, verdict, margin = True, limit_verdict, limit_verdict.margin
    if margin:
        preferred = "classes that are taught later" if margin > 0 else "the folder's own classes"
        sentence = f"margin {margin:g}, by which {preferred} are preferred"
        choices.append(Choice("margin", {}, f"{margin:g}", sentence))
    witnesses, seen = held, photos
    if tune and tuned is not None:  # photos of classes that the trial's encoder was trained on, as they will all be
        witnesses, seen = held & torch.isin(photos.labels, torch.tensor(tuned.division.base)), tuned.photos
    unseen = tuned.unseen if tune and tuned is not None else learn([head], kept, plan.classes)[0]
    witnesses = _some(witnesses)
    asked = seen.where(witnesses)
    accuracy = None if use_limit else _accuracy(unseen.logits(asked), asked.labels)
    return Chosen(head, tune, use_limit, margin, verdict, accuracy, tuple(choices), unseen, asked, witnesses)


def _some(which: Tensor) -> Tensor:
    """bool [n] with at most MOST_WITNESSES of those that are set"""
    places = torch.nonzero(which).flatten()
    count = min(len(places), MOST_WITNESSES)
    chosen = torch.zeros_like(which)
    chosen[places[torch.arange(count) * len(places) // max(1, count)]] = True
    return chosen


def _by_size(plan: Plan, photos: Photos, held: Tensor) -> Chosen:
    """Too few photos to choose by: class means, which need nothing to be chosen."""
    kept = photos.where(~held)
    sentence = (
        f"class means, since {int(held.sum())} held-out photos are too few to choose by ({LEAST_PHOTOS} are needed)"
    )
    choice = Choice("head", {}, MEANS, sentence)
    unseen = learn([Head()], kept, plan.classes)[0] if held.any() else None
    asked = photos.where(held)
    accuracy = _accuracy(unseen.logits(asked), asked.labels) if unseen is not None else None
    return Chosen(Head(), False, False, 0.0, None, accuracy, (choice,), unseen, asked, held)


def _accuracy(logits: Tensor, labels: Tensor) -> float:
    return 100 * float((logits.argmax(1) == labels).float().mean())


def _on(division: Division, head: Head, kept: Photos, held: Photos, classes: int) -> Verdict:
    """A head on a single division, to compare with what is too costly for several."""
    learned = learn([head], kept.of(division.base), len(division.base))[0]
    return judge(tried(learned, kept, held, division), classes)


def _head_choice(verdicts: dict[Head, Verdict], head: Head, kept: Photos, held: Photos, plan: Plan) -> Choice:
    """Names the best of every kind, and the linear probe for comparison."""
    shown = [Head()]
    shown += [max(found, key=lambda each: verdicts[each].score) for found in (
        [each for each in verdicts if each.whiten and not each.trust],
        [each for each in verdicts if each.trust],
    ) if found]  # fmt: skip
    scores = {str(each): round(verdicts[each].score, 2) for each in shown}
    numbers = ", ".join(f"{name} {score:.1f}" for name, score in scores.items())
    probe = ""
    if plan.trained_rows:
        found = _accuracy(held.features @ linear_probe(kept, plan.classes).T, held.labels)
        own = _accuracy(learn([head], kept, plan.classes)[0].logits(held), held.labels)
        probe = f" (among all {plan.classes} classes it recognises {own:.1f} %, a linear probe {found:.1f} %)"
    return Choice("head", scores, str(head), f"on {len(held)} held-out photos: {numbers}: {head}{probe}")


def _compared(question: str, name: str, plain: Verdict, other_name: str, other: Verdict) -> tuple[bool, Choice]:
    """Whether the other is better by more than chance, and a sentence that says so."""
    gain, error = other.gain_over(plain)
    better = gain > SURE * error
    scores = {name: round(plain.score, 2), other_name: round(other.score, 2)}
    chosen = other_name if better else name
    sentence = (
        f"on held-out photos: {name} {plain.score:.1f}, {other_name} {other.score:.1f} "
        f"({gain:+.1f} ± {error:.1f}): {chosen}"
    )
    return better, Choice(question, scores, chosen, sentence)


@dataclass(frozen=True)
class Tuned:
    """A trial of fine-tuning, on the base classes of a division and without held-out photos."""

    model: Model
    division: Division
    head: Head
    verdict: Verdict
    photos: Photos  # all of them, as its encoder sees them
    trained: Tensor  # rows of the division's base classes
    unseen: Learned  # all classes by their means, with trained rows where there are any


def try_tuning(
    plan: Plan, model: Model, images: Images, photos: Photos, held: Tensor, division: Division, engine: Engine,
    console: Console,
) -> Tuned:  # fmt: skip
    session = session_of(images, photos.labels, ~held, division.base, engine.device)
    tuned = fine_tuned(model, session, photos.where(~held).of(division.base), engine, "trial-")
    seen = photos_of(tuned, images, photos.labels, console, "embed photos, fine-tuned")
    trained = tuned.rows.detach().cpu()
    kept, asked, heads = seen.where(~held), evenly(seen.where(held)), heads_for(plan)
    found = learn(heads, kept.of(division.base), len(division.base), trained)
    verdicts = {
        head: judge(tried(each, kept, asked, division), plan.classes) for head, each in zip(heads, found, strict=True)
    }
    head = best_of(verdicts)
    everywhere = torch.zeros(plan.classes, trained.shape[1])
    everywhere[list(division.base)] = trained
    unseen = learn([head], kept, plan.classes, everywhere)[0]
    return Tuned(tuned, division, head, verdicts[head], seen, trained, unseen)


def try_limit(
    plan: Plan, model: Model, images: Images, photos: Photos, held: Tensor, head: Head, tuned: Tuned | None,
    division: Division, engine: Engine,
) -> tuple[Choice, Verdict | None]:  # fmt: skip
    """LIMIT's calibrator beside the head, on the encoder that was chosen."""
    seen = tuned.photos if tuned is not None else photos
    kept, asked, base = seen.where(~held), evenly(seen.where(held)), len(division.base)
    trained = tuned.trained if tuned is not None else None
    learned = learn([head], kept.of(division.base), base, trained)[0]
    plain = judge(tried(learned, kept, asked, division), plan.classes)
    name = "class means" if not head.trust else "class means and trained rows"
    start = learn([Head(head.whiten)], kept.of(division.base), base)[0]
    try:
        session = session_of(images, photos.labels, ~held, division.base, engine.device)
        limit = meta_trained(tuned.model if tuned is not None else model, start, session, plan, engine, "trial-")
    except CannotLearn as error:
        return Choice("calibrator", {}, name, f"{name}, since LIMIT could not be tried: {error}"), None
    verdict = judge(tried(limit, kept, asked, division), plan.classes)
    better, choice = _compared("calibrator", name, plain, LIMIT, verdict)
    return choice, verdict if better else None
