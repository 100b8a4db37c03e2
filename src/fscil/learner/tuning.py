"""Training for fit: the encoder on base classes (the paper's pre-training), and LIMIT's calibrator on fake tasks."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.benchmark import Session
from fscil.engine import Engine, seed_for
from fscil.images import Images, subset
from fscil.learner.heads import Learned, Photos
from fscil.learner.plan import BATCH, FAKE_QUERIES, FAKE_SHOT, SMALL, Plan, finetune_steps
from fscil.learner.sources import SCALE
from fscil.methods.fake_tasks import check_sampled, sampled_tasks
from fscil.methods.limit import Limit, LimitSettings
from fscil.methods.method import Context
from fscil.methods.pretrain import PretrainSettings, pretrain
from fscil.methods.prototypes import class_means
from fscil.model import Model

# features move slowly, the head fast; a small encoder was trained on small images, which differ more from photos
RATE, SMALL_RATE, HEAD_RATE = 2e-3, 1e-2, 4e-2
PHASES = 2


def session_of(
    images: Images, labels: Tensor, which: Tensor, classes: tuple[int, ...], device: torch.device
) -> Session:
    """Photos `which` (bool [n]) of these classes, numbered anew."""
    number = torch.full((int(labels.max()) + 1,), -1)
    number[list(classes)] = torch.arange(len(classes))
    rows = torch.nonzero(which & (number[labels] >= 0)).flatten()
    return Session(tuple(range(len(classes))), subset(images, rows), number[labels[rows]]).to(device)


def _image_settings(model: Model) -> dict[str, Any]:
    small = model.spec.input_size <= SMALL
    return {
        "encoder": model.spec.encoder, "augmentation": "basic", "crop": "pad" if small else "resized",
        "crop_scale": 0.3, "scale": SCALE, "batch": BATCH,
    }  # fmt: skip


def fine_tuned(model: Model, session: Session, photos: Photos, engine: Engine, scope: str) -> Model:
    """A copy whose encoder has learned the session's classes, and whose rows are its trained ones; photos: the
    session's, by which rows begin as class means."""
    tuned = copy.deepcopy(model)
    tuned.base_margin = 0.0
    tuned.remove_rows(range(len(tuned.rows)))
    tuned.rows.data = tuned.rows.data[:, : tuned.encoder.dim]
    means = class_means(photos.features, photos.labels, session.classes)
    tuned.add_rows(F.normalize(means, dim=1), base=True)
    tuned.set_calibrator("cosine", scale=SCALE)
    tuned.encoder.autocast = engine.bfloat16
    settings = PretrainSettings(
        **_image_settings(model), epochs=0, steps=finetune_steps(len(session.labels)), label_smoothing=0.1,
        lr=SMALL_RATE if model.spec.input_size <= SMALL else RATE, head_lr=HEAD_RATE,
    )  # fmt: skip
    engine.scope = scope
    try:
        pretrain(session, settings, _context(model, engine), name="fine-tune", start=tuned.requires_grad_(True))
    finally:
        engine.scope = ""
    return tuned.requires_grad_(False).eval()


def limit_settings(model: Model, plan: Plan, classes: int) -> LimitSettings:
    """limit-plus's meta-training for so many base classes: about a quarter of them play new ones in each fake task.

    Blends of two classes are better new classes, but a pool of them must be embedded, so large photos do without.
    """
    mixed = model.spec.input_size <= SMALL or model.rows.device.type == "cuda"
    way = max(1, min(5, classes // (8 if mixed else 4)))
    return LimitSettings(
        **_image_settings(model), power=model.power, mirror=model.mirror, rows="means", logits="cosine", dropout=0.0,
        encoder_lr=0.0, calibrator_lr=2e-2, meta_steps=plan.meta_steps, halve_every=plan.meta_steps // 2,
        fake_classes="mixed" if mixed else "base", fake_phases=PHASES if classes > PHASES * way else 1, fake_way=way,
        fake_shot=FAKE_SHOT, fake_queries=FAKE_QUERIES,
    )  # fmt: skip


def meta_trained(model: Model, learned: Learned, session: Session, plan: Plan, engine: Engine, scope: str) -> Learned:
    """The head with LIMIT's calibrator in place of its own, meta-trained on fake tasks; the encoder stays as it is.

    Raises CannotLearn if the session is too small for fake tasks.
    """
    settings = limit_settings(model, plan, len(session.classes))
    check_sampled(settings, session)
    trial = with_head(model, learned)
    torch.manual_seed(seed_for(engine.seed, "calibrator"))
    trial.set_calibrator("transformer", **settings.calibrator_options("transformer", trial.encoder.dim))
    trial.rows.data = trial.rows.data[:, : trial.encoder.dim].clone()
    method = Limit(settings, _context(model, engine))
    method.model = trial
    engine.scope = scope
    try:
        method.meta_train(session, sampled_tasks(method, session))
    finally:
        engine.scope = ""
    rows, calibrator = trial.rows.detach().cpu(), copy.deepcopy(trial.calibrator).cpu().eval()
    return Learned(learned.whitening, rows, trial.calibrator_name, calibrator)


def with_head(model: Model, learned: Learned, margin: float = 0.0) -> Model:
    """A copy of the model with a head's whitening, rows and calibrator."""
    made = copy.deepcopy(model)
    device = made.rows.device
    made.whitening = made.whitening @ learned.whitening.to(device)
    made.set_calibrator(learned.kind, **learned.calibrator.options)
    made.calibrator.load_state_dict(learned.calibrator.state_dict())
    made.rows = nn.Parameter(learned.rows.clone().to(device), requires_grad=False)
    made.base = torch.ones(len(learned.rows), dtype=torch.bool, device=device)
    made.base_margin = margin
    return made.requires_grad_(False).eval()


def _context(model: Model, engine: Engine) -> Context:
    mean, std = model.spec.mean, model.spec.std
    return Context(engine, (mean[0], mean[1], mean[2]), (std[0], std[1], std[2]))
