"""Leave-one-out: what the learner would say of kept photos if it had not been taught them, or their whole class.

Both are exact, but that a metric forgets the photo alone and not its whole class. Where a class's logits depend on its
own row alone, only that column changes; a calibrator that looks at all rows is asked anew for every photo, so fewer of
them are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fscil.learner.metric import Metric, cosines_without
from fscil.learner.rows import Rows, rows_without
from fscil.learner.store import TAUGHT, WITNESS, Store
from fscil.model import Model

MOST_PHOTOS = 1000  # that are tried where there are more; with many classes fewer, so that it takes no second
MOST_LOGITS, LEAST_PHOTOS = 2_000_000, 200
MOST_BY_SET, ROWS_BY_SET, LEAST_BY_SET = 200, 20_000, 30  # the same where every photo asks for all rows anew


@dataclass(frozen=True)
class Held:
    """Photos that were held out, and the model's logits for them."""

    places: NDArray[np.intp]  # [n], in the store
    own: NDArray[np.intp]  # [n], the columns of their own classes
    base: NDArray[np.bool_]  # [n], whether those are base classes
    logits: NDArray[np.float64]  # [n, classes], without the photo; own is -inf where it is its class's only photo
    strangers: NDArray[np.float64]  # [n, classes], as if their class had never been taught: own is -inf
    columns: NDArray[np.bool_]  # [classes], which of them may be answered

    @property
    def known(self) -> NDArray[np.bool_]:
        """Photos of classes that stay when the photo goes: [n]"""
        return np.isfinite(self.logits[np.arange(len(self.own)), self.own])


def in_turn(photos: int, classes: int) -> str:
    many = "photo" if photos == 1 else "photos", "class" if classes == 1 else "classes"
    return f"{photos} {many[0]} of {classes} {many[1]} can be left out in turn"


def chosen(store: Store, model: Model) -> NDArray[np.intp]:
    """Taught photos and witnesses; where there are many, some of them, the same in whatever order they came."""
    places = np.flatnonzero((store.roles == TAUGHT) | (store.roles == WITNESS))
    quick = model.calibrator.independent and not model.calibrator.row_by_row
    most, size, least = (MOST_PHOTOS, MOST_LOGITS, LEAST_PHOTOS) if quick else (MOST_BY_SET, ROWS_BY_SET, LEAST_BY_SET)
    count = min(len(places), max(least, min(most, size // max(1, len(model.rows)))))
    order = places[np.lexsort(store.hashes[places, :8].T[::-1])]
    return order[np.arange(count) * len(order) // max(1, count)]


@torch.no_grad()
def held_out(store: Store, rows: Rows, places: NDArray[np.intp], columns: NDArray[np.bool_]) -> Held:
    """columns: bool [classes], which classes may be answered."""
    model = rows.model
    own, replaced = _own_rows(store, rows, places)
    queries = torch.from_numpy(store.vectors(places).astype(np.float32)).to(model.rows.device)
    if rows.metric is not None:
        logits, stranger_logits = _by_metric(rows, rows.metric, places, own, replaced, queries)
    elif model.calibrator.independent:
        logits = model.classify(queries).cpu().double().numpy()
        stranger_logits = logits.copy()
        for i, row in enumerate(replaced):
            if row is not None:
                logits[i, own[i]] = float(_logits(model, row[None], model.base[own[i]][None], queries[i : i + 1])[0, 0])
    else:
        pairs = [_by_set(model, own[i], row, queries[i : i + 1]) for i, row in enumerate(replaced)]
        logits = np.stack([pair[0] for pair in pairs]) if pairs else np.empty((0, len(model.rows)))
        stranger_logits = np.stack([pair[1] for pair in pairs]) if pairs else logits.copy()
    here = np.arange(len(own))
    is_base = own < rows.base
    alone = np.array([row is None for row in replaced], bool) & ~is_base
    logits[here[alone], own[alone]] = -np.inf
    stranger_logits[here, own] = -np.inf
    logits[:, ~columns] = -np.inf
    stranger_logits[:, ~columns] = -np.inf
    return Held(places, own, is_base, logits, stranger_logits, columns)


def _own_rows(store: Store, rows: Rows, places: NDArray[np.intp]) -> tuple[NDArray[np.intp], Sequence[Tensor | None]]:
    """The column of every photo's class, and that class's row without the photo; None: it has none, or needs none."""
    column_of = rows.columns(store)
    own, without, found = [], dict[str, dict[int, Tensor]](), list[Tensor | None]()
    for place in places.tolist():
        if store.roles[place] == WITNESS:
            own.append(int(store.labels[place]))
            found.append(None)
            continue
        name = store.name_of(place)
        own.append(column_of[name])
        if name not in without:
            members = np.flatnonzero((store.roles == TAUGHT) & (store.labels == store.labels[place]))
            without[name] = {}
            if len(members) > 1 or name in store.base:
                others = rows_without(store, members, rows)
                without[name].update(zip(members.tolist(), others, strict=True))
        found.append(without[name].get(place))
    return np.array(own, np.intp), found


def _by_metric(
    rows: Rows, metric: Metric, places: NDArray[np.intp], own: NDArray[np.intp], replaced: Sequence[Tensor | None],
    queries: Tensor,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:  # fmt: skip
    """Logits [n, classes] with the own rows replaced, if there are others, and as they are. The metric forgets the
    photo in both: it was made by it, and would find it more like its class than another photo. That other photos of a
    class that is left out stay in the metric makes no difference that could be measured."""
    model, deviations = rows.model, metric.of(places).to(queries)
    matrix, scale = metric.matrix.to(queries), model.calibrator.options["scale"]
    strangers = scale * cosines_without(model.rows, queries, deviations, matrix)
    logits = strangers.clone()
    several = [i for i, row in enumerate(replaced) if row is not None]
    if several:
        others = torch.stack([row for row in replaced if row is not None]).to(queries)
        found = cosines_without(others[:, None], queries[several], deviations[several], matrix)
        logits[several, own[several].tolist()] = scale * found[:, 0]
    return logits.cpu().double().numpy(), strangers.cpu().double().numpy()


def _by_set(model: Model, own: int, row: Tensor | None, query: Tensor) -> tuple[NDArray[np.float64], ...]:
    """Logits [classes] with the own row replaced, if there is another, and without it."""
    stay = torch.arange(len(model.rows), device=model.rows.device) != own
    rest, base = model.rows[stay], model.base[stay]
    without = np.full(len(model.rows), -np.inf)
    if len(rest):
        without[stay.cpu().numpy()] = _logits(model, rest, base, query)[0].cpu().double().numpy()
    if row is None:
        return model.classify(query)[0].cpu().double().numpy(), without
    replaced = np.empty(len(model.rows))  # the new row comes last, where terms that a calibrator keeps expect it
    rows, of_base = torch.cat([rest, row.to(rest)[None]]), torch.cat([base, model.base[own][None]])
    found = _logits(model, rows, of_base, query)[0].cpu().double().numpy()
    replaced[stay.cpu().numpy()], replaced[own] = found[:-1], found[-1]
    return replaced, without


def _logits(model: Model, rows: Tensor, base: Tensor, queries: Tensor) -> Tensor:
    """model.classify with other rows"""
    logits: Tensor = model.calibrator.predict(rows.to(model.rows), queries)
    return logits - model.base_margin * base if model.base_margin else logits
