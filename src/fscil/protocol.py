"""Drives a method through a benchmark's sessions, and continues where an interrupted run left off."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fscil import distributed
from fscil.answers import Answers
from fscil.benchmark import Benchmark
from fscil.calibrators import changed_by_order
from fscil.errors import UserError
from fscil.images import pixels, subset
from fscil.methods import Method
from fscil.model import Model, ModelSpec

OnSession = Callable[[int, Tensor], None]  # called after every session with its number and its predictions [images]
BASE, SESSIONS = "base", "sessions"  # checkpoints: after the base session, and after the last one learned
ANSWERS = "answers."
ASKED = 1000  # test images whose answers are compared over orders of the classes


def run_protocol(method: Method, benchmark: Benchmark, trials: int, on_session: OnSession) -> dict[int, Answers]:
    """Learn and test all sessions: for trials 1 .. trials with their draws of the shots, then, as 0, the standard draw.

    The base session must have been learned (learn_base). All draws start from the same base model. What an interrupted
    run has finished is not repeated.
    """
    engine = method.engine
    base = snapshot(method) if trials else None
    found, current, done = resume_sessions(method)
    engine.log.drop(lambda line: line.get("stage") == "session" and not _is_done(line, found, scope_of(current), done))
    embeddings = method.embed(benchmark.test_images) if method.fixed_encoder else None
    at_base = current is None
    for trial in [*range(1, trials + 1), 0]:
        if trial in found and trial != current:
            continue
        drawn = benchmark.redrawn(trial) if trial else benchmark
        if trial != current and not at_base and base:
            method.load_state(*base)
        engine.scope, at_base = scope_of(trial), False
        first, answers = (done, found[trial]) if trial == current else (0, None)

        def after_session(i: int, answers: Answers, trial: int = trial) -> None:
            on_session(i, answers.predictions[i])
            if engine.checkpoint_due():
                save_sessions(method, {**found, trial: answers}, trial, i + 1)

        found[trial] = run_sessions(method, drawn, after_session, embeddings, first, answers)
    engine.scope = ""
    if not method.model.calibrator.permutation_equivariant:
        method.notes.append(order_dependence(method, benchmark))
    return found


def order_dependence(method: Method, benchmark: Benchmark) -> str:
    """For readers of the result: what another order of the classes would have changed."""
    some = torch.linspace(0, len(benchmark.test_labels) - 1, min(ASKED, len(benchmark.test_labels))).long()
    queries, model = method.embed(pixels(benchmark.test_images, some)), method.model
    share = distributed.broadcast(lambda: changed_by_order(model.calibrator, model.rows, queries))
    return f"{model.calibrator_name} reads classes in their order: another one changes {100 * share:.1f} % of answers"


def run_sessions(
    method: Method,
    benchmark: Benchmark,
    after_session: Callable[[int, Answers], None],
    embeddings: Tensor | None = None,
    first: int = 0,
    answers: Answers | None = None,
) -> Answers:
    """Learn and test one session after another; the base session must have been learned.

    With a fixed encoder the embeddings of the test images serve all sessions. Sessions before `first` are already done.
    """
    if answers is None:
        answers = Answers.none_yet(len(benchmark.sessions), len(benchmark.test_labels))
    table: Table | None = None
    for i, session in enumerate(benchmark.sessions):
        if i < first:
            continue
        if i > 0:
            with session.lent() as lent:
                method.learn_session(lent)
            settle(method, benchmark.seen(i))
        seen = benchmark.test_labels < benchmark.seen(i)
        if embeddings is None:
            logits = method.logits(subset(benchmark.test_images, seen))
        elif method.model.calibrator.row_by_row:
            table = extended(table, method.model, embeddings)
            logits = table.logits[seen]
        else:
            logits = method.classify(embeddings[seen])
        answers.add(i, seen.cpu(), logits, benchmark.seen(0), method.model.base_margin)
        after_session(i, answers)
    return answers


@dataclasses.dataclass(frozen=True)
class Table:
    """Logits of all test images, where a class's depend on its own row alone: old classes are not scored again."""

    rows: Tensor  # [classes, d], those that they were computed from
    logits: Tensor  # [test images, classes]


def extended(table: Table | None, model: Model, embeddings: Tensor) -> Table:
    """The table with the model's new classes; all of it is computed if it does not belong to the model's rows."""
    rows = model.rows.detach().clone()
    if table is None or not torch.equal(table.rows, rows[: len(table.rows)]):
        return Table(rows, model.classify(embeddings))
    return Table(rows, torch.cat([table.logits, model.classify(embeddings, first=len(table.rows))], 1))


# -- checkpoints -----------------------------------------------------------------------------------------------------
def learn_base(method: Method, benchmark: Benchmark, base_margin: float) -> None:
    """Learn the base session, or load its checkpoint, which replaces the checkpoints of its stages.

    From here on the model subtracts the margin from its base classes' logits, whatever the method.
    """
    held = method.engine.load_checkpoint(BASE)
    if held is not None:
        take_up(method, BASE, *held)
        return
    with benchmark.sessions[0].lent() as lent:
        method.learn_base(lent)
    method.model.base_margin = base_margin
    settle(method, benchmark.seen(0))
    method.engine.save_checkpoint(BASE, method.state(), facts(method))
    method.engine.drop_checkpoints(BASE)


def save_sessions(method: Method, found: dict[int, Answers], trial: int, done: int) -> None:
    """Save the state after `done` sessions of a trial; it replaces the checkpoints of the stages before it."""
    kept = {f"{ANSWERS}{each}.{name}": rows for each, its in found.items() for name, rows in its.tensors().items()}
    about = {**facts(method), "trial": trial, "sessions_done": done}
    method.engine.save_checkpoint(SESSIONS, {**method.state(), **kept}, about)
    method.engine.drop_checkpoints(BASE, SESSIONS)


def resume_sessions(method: Method) -> tuple[dict[int, Answers], int | None, int]:
    """Answers by trial, the trial in progress (None: still in the base session), and its finished sessions."""
    held = method.engine.load_checkpoint(SESSIONS)
    if held is None:
        return {}, None, 0
    tensors, about = held
    try:
        by_trial: dict[int, dict[str, Tensor]] = {}
        for name in [name for name in tensors if name.startswith(ANSWERS)]:
            trial, _, field = name.removeprefix(ANSWERS).partition(".")
            by_trial.setdefault(int(trial), {})[field] = tensors.pop(name)
        found = {trial: Answers.from_tensors(by_trial[trial]) for trial in sorted(by_trial)}
        current, done = int(about["trial"]), int(about["sessions_done"])
    except (KeyError, TypeError, ValueError) as error:
        raise not_ours(SESSIONS) from error
    take_up(method, SESSIONS, tensors, about)
    return found, current, done


def settle(method: Method, classes: int) -> None:
    """Bring a method into the same state after a session whether it continues or is reloaded: nothing is frozen."""
    if len(method.model.rows) != classes:
        raise UserError(
            f"the method's model has {len(method.model.rows)} rows after {classes} classes have arrived; learn_session "
            "must add one for every new class"
        )
    method.model.requires_grad_(True).eval()
    method.memory.check(classes)


def snapshot(method: Method) -> tuple[ModelSpec, dict[str, Tensor]]:
    return method.model.spec, {name: tensor.detach().clone() for name, tensor in method.state().items()}


def facts(method: Method) -> dict[str, Any]:
    engine = method.engine
    return {
        "model": dataclasses.asdict(method.model.spec),
        "seconds": engine.seconds,
        "captured": engine.captured,
        "notes": method.notes,
    }


def take_up(method: Method, name: str, tensors: dict[str, Tensor], about: dict[str, Any]) -> None:
    try:
        method.load_state(ModelSpec.from_json(about["model"]), tensors)
        method.engine.seconds.update(about["seconds"])
        method.engine.captured[:] = about["captured"]
        method.notes[:] = about["notes"]
    except (KeyError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        raise not_ours(name) from error


def not_ours(name: str) -> UserError:
    return UserError(f"checkpoint/{name}.safetensors does not fit this run; delete that folder to start again")


def scope_of(trial: int | None) -> str:
    """The prefix of a trial's stage names."""
    return f"trial-{trial}-" if trial else ""


def _is_done(line: dict[str, Any], found: dict[int, Answers], current: str, done: int) -> bool:
    """Whether a session's line in the metrics belongs to work that will not be repeated."""
    if line.get("scope") == current:
        return line.get("segment", 0) < done
    return line.get("scope") in {scope_of(trial) for trial in found}
