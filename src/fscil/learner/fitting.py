"""fit: the whole of LIMIT on a folder of photos. Held-out photos and classes choose, then all photos are learned."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from rich.console import Console
from torch import Tensor

from fscil import code_version, run_lock
from fscil.datasets.decode import read_files
from fscil.device import choose_device
from fscil.engine import Engine
from fscil.errors import UserError
from fscil.files import write_atomically
from fscil.images import Images
from fscil.learner.changes import Sample
from fscil.learner.choosing import Chosen, choose
from fscil.learner.fitted import Fitted, card, told
from fscil.learner.folder_check import Check, Material, look_at
from fscil.learner.heads import Photos, learn, photos_of
from fscil.learner.photo_check import Seen
from fscil.learner.photo_folder import BAD, STOP
from fscil.learner.plan import Plan
from fscil.learner.saving import check_free
from fscil.learner.store import WITNESS
from fscil.learner.tuning import fine_tuned, meta_trained, session_of, with_head
from fscil.learner.witnesses import as_unseen
from fscil.methods.encoder_cache import cache_folder
from fscil.model import Model

if TYPE_CHECKING:
    from fscil.learner.learner import Learner

CODE = (*code_version.RUN, "learner")
FORGOTTEN = 30 * 24 * 3600.0  # seconds after which nobody goes on with an interrupted fit


def fit_folder(
    learner: Learner,
    folder: str | os.PathLike[str],
    *,
    skip_bad: bool = False,
    finetune: bool | None = None,
    seed: int = 1,
    console: Console | None = None,
) -> Fitted:
    """Train on a folder with a folder of photos for each class, which become the learner's base classes.

    skip_bad: go on without photos that cannot be used. finetune: whether fine-tuning the encoder is tried; None leaves
    it to the folder's size and to the time that it would take. Nothing has changed if anything fails.
    """
    started, console = time.perf_counter(), console or Console(stderr=True, quiet=True)
    material = look_at(folder, learner.encoder, learner.device, finetune, console)
    plan, model = refuse(material.checked, skip_bad), material.model
    assert model is not None
    names = list(material.checked.classes)
    number = {name: label for label, name in enumerate(names)}
    labels = torch.tensor([number[each.photo.name] for each in material.train])
    held = torch.tensor(material.held)
    images = read(material.train, model)
    with work_folder(material, plan, seed) as work:
        engine = engine_in(work, model, seed, console)
        photos = photos_of(model, images, labels, console)
        chosen = choose(plan, model, images, photos, held, engine, console)
        final, witnesses = learn_all(plan, model, images, photos, held, chosen, engine, console)
    learner._kept = None
    learner._begin(final, names)
    where = torch.nonzero(chosen.witnesses).flatten().tolist()
    if where:
        samples = [
            Sample(vector.numpy(), material.train[i].digest, material.train[i].photo.path.name)
            for i, vector in zip(where, witnesses, strict=True)
        ]
        learner._add("witness", [material.train[i].photo.name for i in where], samples, WITNESS)
        # part of the training, which is no step that a user took or could take back
        learner._change(lambda store: (replace(store, history=()), None))
    bad = tuple(problem.sentence for problem in material.checked.problems if problem.level == BAD)
    asked = [each for each in material.test if each.photo.name in names]
    test = test_accuracy(final, asked, names)
    seconds = time.perf_counter() - started
    said = told(plan, chosen, test, len(asked), bad, seconds)
    return Fitted(
        learner, plan, chosen.choices, chosen.accuracy, chosen.verdict.taught if chosen.verdict else None, test, bad,
        round(seconds, 1), said,
    )  # fmt: skip


def fit(
    folder: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    encoder: str | os.PathLike[str] = "auto",
    device: str = "cpu",
    skip_bad: bool = False,
    finetune: bool | None = None,
    seed: int = 1,
    console: Console | None = None,
) -> Fitted:
    """A new learner that knows the folder's classes; saved to the model folder `out`, which must not exist."""
    from fscil.learner.learner import Learner

    if out is not None:
        check_free(Path(out))  # before the long training
    learner = Learner(encoder, device=device)
    fitted = fit_folder(learner, folder, skip_bad=skip_bad, finetune=finetune, seed=seed, console=console)
    if out is not None:
        learner.save(out)
        write_atomically(Path(out) / "README.md", card(fitted, folder).encode())
    return fitted


def refuse(checked: Check, skip_bad: bool) -> Plan:
    stops = [problem for problem in checked.problems if problem.level == STOP]
    if stops:
        raise UserError(stops[0].sentence if stops[0].kind == "encoder" else f"{checked.folder}: {stops[0].sentence}")
    bad = [problem for problem in checked.problems if problem.level == BAD]
    if bad and not skip_bad:
        more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
        raise UserError(
            f"{checked.folder}: {bad[0].sentence}{more}; check lists all problems; put them right, or go on without "
            "what is bad (--skip-bad, in Python skip_bad=True)"
        )
    assert checked.plan is not None
    return checked.plan


def read(photos: list[Seen], model: Model) -> Images:
    return read_files([p.photo.path for p in photos], [p.photo.key for p in photos], model.spec.stored_size)


def learn_all(
    plan: Plan,
    model: Model,
    images: Images,
    photos: Photos,
    held: Tensor,
    chosen: Chosen,
    engine: Engine,
    console: Console,
) -> tuple[Model, Tensor]:
    """The model that has learned all photos as was chosen, and what its witnesses are embedded as."""
    everything, trained = torch.ones_like(held), None
    classes = tuple(range(plan.classes))
    if chosen.finetune or chosen.limit:
        session = session_of(images, photos.labels, everything, classes, engine.device)
    final_photos = photos
    if chosen.finetune:
        model = fine_tuned(model, session, photos, engine, "final-")
        trained = model.rows.detach().cpu()
        final_photos = photos_of(model, images, photos.labels, console, "embed photos again")
        model.remove_rows(range(len(model.rows)))
    learned = learn([chosen.head], final_photos, plan.classes, trained)[0]
    if chosen.limit:
        learned = meta_trained(model, learned, session, plan, engine, "final-")
    final = with_head(model, learned, chosen.margin)
    if chosen.unseen is None or not chosen.witnesses.any():
        return final, torch.empty(0, final.row_size)
    asked = as_unseen(learned, final_photos.where(chosen.witnesses), chosen.unseen, chosen.unseen_photos)
    return final, asked


@torch.no_grad()
def test_accuracy(model: Model, test: list[Seen], names: list[str]) -> float | None:
    if not test:
        return None
    labels = torch.tensor([names.index(each.photo.name) for each in test])
    answers = model.classify(model.embed_here(read(test, model))).argmax(1).cpu()
    return 100 * float((answers == labels).float().mean())


@contextmanager
def work_folder(material: Material, plan: Plan, seed: int) -> Iterator[Path | None]:
    """Where an interrupted training leaves its checkpoints, so that the same fit goes on from there. Removed when it
    is done; None where nothing long is trained, or where there is no cache."""
    cache = cache_folder()
    if cache is None or not (plan.finetune or plan.limit):
        yield None
        return
    spec = material.model.spec if material.model is not None else None
    facts = [str(spec), code_version.digest_of_parts(CODE), str(seed), torch.__version__]
    facts += [f"{plan.finetune} {plan.limit} {plan.device}"]
    facts += [
        f"{each.digest.hex()} {each.photo.name!a} {h}" for each, h in zip(material.train, material.held, strict=True)
    ]
    folder = cache / "fit" / hashlib.sha256("\n".join(facts).encode()).hexdigest()[:24]
    sweep(folder.parent)
    with run_lock.held(folder):
        yield folder
        shutil.rmtree(folder, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Remove what was interrupted long ago and never taken up again."""
    with suppress(OSError):
        for path in folder.iterdir():
            if time.time() - path.stat().st_mtime > FORGOTTEN:
                shutil.rmtree(path, ignore_errors=True)


def engine_in(folder: Path | None, model: Model, seed: int, console: Console) -> Engine:
    device = choose_device(model.rows.device.type)
    name = folder.name if folder else ""
    half = device.type == "cuda"
    return Engine(device, seed, folder, bfloat16=half, console=console, identity=name, code=name)
