"""The learner on real photos: CUB200 as plain folders, with a fixed encoder from ImageNet weights.

python results/learner.py DATA WEIGHTS OUT.json --cache FOLDER

DATA is CUB_200_2011, WEIGHTS a file of ResNet18's ImageNet weights. In each of five draws of the species, fit learns 20
of them from all their training photos and is then taught 10 more from 5 photos each; another learner is taught all 30
from 5 photos each, from nothing. Both are asked about the official test photos, beside scikit-learn's logistic
regression and nearest centroid on the same encoder and the same photos, and about 20 further species, which they should
not know. Every photo goes through the encoder once and its features are kept in FOLDER, so what is measured is what fit
does with a fixed encoder and without LIMIT's calibrator; `fscil fit` tries both where there is time for it.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import json
import statistics
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from rich.console import Console
from scipy.spatial.distance import cdist
from sklearn.linear_model import LogisticRegression, LogisticRegressionCV
from sklearn.neighbors import NearestCentroid
from sklearn.preprocessing import normalize

from fscil import margins
from fscil.datasets.decode import stream_files
from fscil.engine import Engine
from fscil.files import write_atomically
from fscil.learner import Learner, changes
from fscil.learner.choosing import choose
from fscil.learner.confidence import calibration_error, softmax
from fscil.learner.fitting import learn_all
from fscil.learner.folder_check import hold_out
from fscil.learner.heads import Photos, photos_of
from fscil.learner.photo_check import Seen, counted
from fscil.learner.photo_folder import Photo
from fscil.learner.plan import Speed, plan_for
from fscil.learner.sources import model_from_nothing
from fscil.learner.store import TAUGHT, WITNESS
from fscil.model import Model

BASE, NEW, STRANGE, SHOTS, DRAWS = 20, 10, 20, 5, 5
KEPT = 0.95


class Birds:
    """All photos of CUB200 with their features, by species."""

    def __init__(self, data: Path, model: Model, cache: Path, console: Console) -> None:
        lines = [line.split()[1] for line in (data / "images.txt").read_text().splitlines()]
        self.is_train = np.array([line.split()[1] == "1" for line in (data / "train_test_split.txt").open()])
        self.species = np.array([int(line.partition(".")[0]) - 1 for line in lines])
        self.names = [line.split()[1] for line in (data / "classes.txt").read_text().splitlines()]
        self.paths = [data / "images" / line for line in lines]
        self.keys = lines
        self.model, self.cache, self.console = model, cache, console

    def photos(self, species: int) -> Photos:
        """Embedded once and kept; rounding aside, what learners embed photo by photo."""
        path = self.cache / f"features-{species:03d}.npz"
        rows = np.flatnonzero(self.species == species)
        if not path.exists():
            paths, keys = [self.paths[i] for i in rows], [self.keys[i] for i in rows]
            images = stream_files(paths, keys, self.model.spec.stored_size)
            found = photos_of(self.model, images, torch.zeros(len(rows)), self.console, self.names[species])
            np.savez(path, embeddings=found.embeddings.numpy(), features=found.features.numpy())
        kept = np.load(path)
        labels = torch.full((len(rows),), species)
        return Photos(torch.from_numpy(kept["embeddings"]), torch.from_numpy(kept["features"]), labels)

    def part(self, species: list[int], train: bool, shots: int = 0, seed: int = 0) -> tuple[Photos, list[int]]:
        """Photos of these species, numbered in this order, and their rows; shots: only so many, drawn with the seed."""
        found, rows, generator = [], [], np.random.RandomState(seed)
        for label, one in enumerate(species):
            own = np.flatnonzero(self.species == one)
            which = np.flatnonzero(self.is_train[own] == train)
            if shots:
                which = generator.permutation(which)[:shots]
            here = self.photos(one).where(torch.from_numpy(which))
            found.append(replace(here, labels=torch.full((len(which),), label)))
            rows += own[which].tolist()
        joined = [torch.cat([getattr(each, name) for each in found]) for name in ("embeddings", "features", "labels")]
        return Photos(*joined), rows


def queries(learner: Learner, photos: Photos, before: torch.Tensor) -> torch.Tensor:
    """Photos as the learner's model embeds them; before: the whitening that is in the embeddings already."""
    model = learner._knowledge.model
    embeddings = photos.embeddings @ torch.linalg.solve(before, model.whitening)
    return torch.cat([embeddings, photos.features], 1) if model.calibrator.two_inputs else embeddings


def sample(vector: torch.Tensor, key: str) -> changes.Sample:
    return changes.Sample(vector.numpy(), hashlib.sha256(key.encode()).digest(), Path(key).name)


def fitted(
    birds: Birds, species: list[int], console: Console, shots: int = 0, seed: int = 0
) -> tuple[Learner, dict[str, Any]]:
    """What fit does with a fixed encoder."""
    photos, rows = birds.part(species, True, shots, seed)
    seen = [Seen(Photo(birds.paths[i], birds.keys[i], birds.names[birds.species[i]], "train"), b"", 500) for i in rows]
    held = torch.tensor(hold_out(seen))
    counts = counted(each.photo for each in seen)
    plan = plan_for(counts, int(held.sum()), birds.model, Speed(0, 0), "cpu", False)
    plan = replace(plan, limit=False)
    engine = Engine(console=console)
    images = torch.empty(len(rows), 3, 1, 1, dtype=torch.uint8)  # nothing looks at them
    chosen = choose(plan, birds.model, images, photos, held, engine, console)
    model, witnesses = learn_all(plan, birds.model, images, photos, held, chosen, engine, console)
    learner = Learner("auto")
    learner._begin(model, [birds.names[one] for one in species])
    where = torch.nonzero(chosen.witnesses).flatten().tolist()
    samples = [sample(vector, birds.keys[rows[i]]) for i, vector in zip(where, witnesses, strict=True)]
    learner._add("witness", [birds.names[birds.species[rows[i]]] for i in where], samples, WITNESS)
    said = {"choices": [each.sentence for each in chosen.choices], "held_out_accuracy": chosen.accuracy}
    return learner, said


def teach(learner: Learner, birds: Birds, photos: Photos, rows: list[int]) -> None:
    vectors = queries(learner, photos, birds.model.whitening)
    samples = [sample(vector, birds.keys[i]) for vector, i in zip(vectors, rows, strict=True)]
    learner._add("teach", [birds.names[birds.species[i]] for i in rows], samples, TAUGHT)


def measured(learner: Learner, birds: Birds, species: list[int], base: int, strangers: Photos) -> dict[str, Any]:
    """In percent, over the test photos of these species."""
    photos, _ = birds.part(species, train=False)
    logits, columns = learner._knowledge.logits(queries(learner, photos, birds.model.whitening))
    own = np.array([columns.answers.index(birds.names[one]) for one in species])[photos.labels.numpy()]
    right, is_base = logits.argmax(1) == own, photos.labels.numpy() < base
    confidence, unknown = learner.confidence, learner.unknown
    probabilities = softmax(logits / (confidence.temperature or 1))
    strange, _ = learner._knowledge.logits(queries(learner, strangers, birds.model.whitening))
    scores, of_strangers = unknown.scores(logits), unknown.scores(strange)
    found: dict[str, Any] = {"all": 100 * right.mean(), "temperature": confidence.temperature}
    for name, which in {"base": is_base, "new": ~is_base}.items():
        if which.any():
            found[name] = 100 * right[which].mean()
            found[f"calibration_error_{name}"] = 100 * calibration_error(probabilities[which], own[which])
    if is_base.any() and not is_base.all():
        number = [columns.answers.index(birds.names[one]) for one in species]  # base species first
        of_base = np.arange(len(species)) < base
        plain = logits[:, number] + learner._knowledge.model.base_margin * of_base
        found["area"] = margins.area_of(plain, photos.labels.numpy(), base)
        without = plain.argmax(1) == photos.labels.numpy()
        found["margin_0"] = 100 * without.mean()
        found["margin_0_base"], found["margin_0_new"] = 100 * without[is_base].mean(), 100 * without[~is_base].mean()
    found["calibration_error"] = 100 * calibration_error(probabilities, own)
    found["let_through_at_95"] = 100 * (of_strangers >= np.quantile(scores, 1 - KEPT)).mean()
    by_best = np.quantile(logits.max(1), 1 - KEPT)
    found["let_through_at_95_by_best_logit"] = 100 * (strange.max(1) >= by_best).mean()
    if unknown.threshold is not None:
        found["share"] = unknown.share
        found["kept"] = 100 * (scores >= unknown.threshold).mean()
        found["let_through"] = 100 * (of_strangers >= unknown.threshold).mean()
        found["kept_as_told"] = 100 * (unknown.kept or 0)
        found["let_through_as_told"] = 100 * (unknown.let_through or 0)
    return found


def rivals(train: Photos, test: Photos, base: int) -> dict[str, dict[str, float]]:
    """scikit-learn on the same encoder: on its features, and on evened-out embeddings of length 1 with C chosen by
    three folds. balanced: classes count alike, however few their photos."""
    x, q = train.features.numpy(), test.features.numpy()
    e, f = normalize(train.embeddings.numpy()), normalize(test.embeddings.numpy())
    y, own = train.labels.numpy(), test.labels.numpy()
    cv = {
        "Cs": [1, 10, 100, 1000],
        "cv": 3,
        "max_iter": 2000,
        "scoring": "accuracy",
        "use_legacy_attributes": False,
        "l1_ratios": (0,),
    }
    models: dict[str, tuple[Any, NDArray[np.float32], NDArray[np.float32]]] = {
        # as with C = 1 on features as they are, whose length is about 30
        "logistic regression": (LogisticRegression(C=1000, max_iter=2000), x, q),
        "logistic regression, evened": (LogisticRegressionCV(**cv), e, f),
        "logistic regression, evened, balanced": (LogisticRegressionCV(**cv, class_weight="balanced"), e, f),
        "nearest class mean": (NearestCentroid(), x, q),
        "nearest class mean, evened": (NearestCentroid(), e, f),
    }
    found = {}
    for name, (model, known, asked) in models.items():
        right = model.fit(known, y).predict(asked) == own
        found[name] = {"all": 100 * right.mean(), "base": 100 * right[own < base].mean() if base else None}
        found[name]["new"] = 100 * right[own >= base].mean() if (own >= base).any() else None
        if base and (own >= base).any():
            centroids = getattr(model, "centroids_", None)
            logits = model.decision_function(asked) if centroids is None else -cdist(asked, centroids)
            found[name]["area"] = margins.area_of(logits, own, base)
    return found


def one_draw(birds: Birds, draw: int, console: Console) -> dict[str, Any]:
    order = np.random.RandomState(draw).permutation(len(birds.names)).tolist()
    species, strange = order[: BASE + NEW], order[BASE + NEW : BASE + NEW + STRANGE]
    strangers, _ = birds.part(strange, train=False)
    known, test = birds.part(species[:BASE], train=True)[0], birds.part(species, train=False)[0]
    shots, shot_rows = birds.part(species[BASE:], train=True, shots=SHOTS, seed=draw)
    few, few_rows = birds.part(species, train=True, shots=SHOTS, seed=draw)
    learner, said = fitted(birds, species[:BASE], console)
    only_base = measured(learner, birds, species[:BASE], BASE, strangers)
    teach(learner, birds, shots, shot_rows)
    after = measured(learner, birds, species, BASE, strangers)
    from_nothing = Learner("auto")
    from_nothing._begin(model_copy(birds.model), ())
    teach(from_nothing, birds, few, few_rows)
    joined = Photos(*(torch.cat(pair) for pair in zip(
        (known.embeddings, known.features, known.labels), (shots.embeddings, shots.features, shots.labels + BASE),
        strict=True,
    )))  # fmt: skip
    small, said_of_small = fitted(birds, species, console, SHOTS, draw)
    test_base = test.where(test.labels < BASE)
    return {
        "draw": draw,
        **said,
        "fit, 20 species": {"fit": only_base, **rivals(known, test_base, BASE)},
        "fit, then 10 species taught": {"fit": after, **rivals(joined, test, BASE)},
        "30 species taught from nothing": {
            "learner": measured(from_nothing, birds, species, 0, strangers),
            **(beside := rivals(few, test, 0)),
        },
        "fit, 30 species of 5 photos": {"fit": measured(small, birds, species, 0, strangers), **beside},
        "choices_of_5_photos": said_of_small["choices"],
    }


def model_copy(model: Model) -> Model:
    return copy.deepcopy(model)


def summary(draws: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean and standard error over the draws of everything that is a number."""
    found: dict[str, Any] = {}
    for setting in (key for key, value in draws[0].items() if isinstance(value, dict)):
        for who in draws[0][setting]:
            for what in draws[0][setting][who]:
                values = [draw[setting][who].get(what) for draw in draws]
                if all(isinstance(value, float) for value in values):
                    pair = [statistics.fmean(values), statistics.stdev(values) / len(values) ** 0.5]
                    found.setdefault(setting, {}).setdefault(who, {})[what] = [round(number, 2) for number in pair]
    return found


def ahead(draws: list[dict[str, Any]]) -> dict[str, list[float | str]]:
    """Of all photos, the learner's accuracy less that of its best rival (by the mean): mean and standard error."""
    found: dict[str, list[float | str]] = {}
    for setting in (key for key, value in draws[0].items() if isinstance(value, dict)):
        own, *others = draws[0][setting]
        accuracy = {who: np.array([draw[setting][who]["all"] for draw in draws]) for who in (own, *others)}
        best = max(others, key=lambda who: float(accuracy[who].mean()))
        gain = accuracy[own] - accuracy[best]
        found[setting] = [best, round(float(gain.mean()), 2), round(float(gain.std(ddof=1)) / len(gain) ** 0.5, 2)]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("weights", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--cache", type=Path, required=True)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=UserWarning, module="sklearn")
    console = Console(stderr=True)
    arguments.cache.mkdir(parents=True, exist_ok=True)
    birds = Birds(arguments.data, model_from_nothing(arguments.weights), arguments.cache, console)
    draws = []
    for draw in range(1, DRAWS + 1):
        draws.append(one_draw(birds, draw, console))
        console.print(f"draw {draw}: {draws[-1]['fit, then 10 species taught']['fit']}", highlight=False)
    facts = {
        "data": "CUB200, official training and test photos",
        "encoder": "resnet18",
        "weights": birds.model.spec.weights,
        "sizes": {"base": BASE, "new": NEW, "shots": SHOTS, "strangers": STRANGE},
        "mean and standard error": summary(draws),
        "ahead of the best rival": ahead(draws),
        "draws": draws,
    }
    text = json.dumps(facts, indent=1, default=lambda value: round(float(value), 3))
    write_atomically(arguments.out, (text + "\n").encode())
    console.print_json(json.dumps(facts["mean and standard error"]))


if __name__ == "__main__":
    main()
