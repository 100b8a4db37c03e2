"""TOPIC: a neural gas holds the topology of the base features, and training must keep it (Tao et al., 2020).

A node v_j = (m_j, Lambda_j, z_j, c_j) has a centroid, variances, an anchor image and a class. The anchor loss keeps the
features of anchors, the min loss pulls features of new classes to their nodes, and the max loss pushes joined nodes of
different classes apart. Defaults are those of the released code as far as it is known; it lacks the file of the losses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fscil.benchmark import Session
from fscil.engine import seed_for
from fscil.engine.stage import Batch, ParameterGroup
from fscil.errors import CannotLearn, UserError
from fscil.methods import neural_gas
from fscil.methods.neural_gas import Floats, NeuralGas
from fscil.methods.pretrain import HIGHEST_RATE
from fscil.methods.replay import WEIGHT, ReplayMethod, ReplaySettings, both, cross_entropy, mean_over
from fscil.settings import setting


@dataclass(frozen=True)
class TopicSettings(ReplaySettings):
    session_lr: float = setting(
        0.03,
        "learning rate in few-shot sessions; chosen on base classes of CIFAR100, where TOPIC's 0.1, whose best epoch "
        "it finds on test data, forgets everything by the last epoch",
        least=0,
        most=HIGHEST_RATE,
    )
    memory: str = setting(
        "400+1/class",
        "N+1/class: an anchor image for each of N nodes of base classes and one node of each new class",
        origin="TOPIC's",
    )
    exemplars: str = setting("anchors", "always the nodes' anchors", choices=("anchors",))
    old_rows: str = setting(
        "fixed", "rows of old classes in few-shot sessions", origin="TOPIC's", choices=("trained", "fixed")
    )
    statistics: str = setting(
        "global",
        "what normalises activations in few-shot sessions: each batch, or the averages of pre-training",
        origin="TOPIC's",
        choices=("batch", "global"),
    )
    gas_steps: int = setting(40_000, "features that the neural gas learns, one by one", least=0, most=10_000_000)
    gas_lr: float = setting(0.05, "eta: how far nodes move towards a feature; TOPIC does not say", least=0, most=1)
    gas_alpha: float = setting(10.0, "alpha: how many of the nearest nodes do", origin="TOPIC's", least=0.01, most=1e6)
    gas_lifetime: int = setting(200, "T: the age at which an edge goes", origin="TOPIC's", least=0, most=1_000_000)
    anchor: float = setting(350.0, "weight of the anchor loss", origin="TOPIC's for CIFAR100", **WEIGHT)
    anchor_loss: str = setting(
        "released",
        "released: squared distance to the features before the session, in dimensions of high variance a little less; "
        "paper: to the centroid, divided by the variances",
        choices=("released", "paper"),
    )
    loose: float = setting(
        0.9,
        "in anchor_loss=released, weight of dimensions whose variance is above half of the node's largest",
        origin="TOPIC's for CIFAR100",
        least=0,
        most=1,
    )
    min_weight: float = setting(0.3, "of the min loss", origin="TOPIC's for CIFAR100", **WEIGHT)
    max_weight: float = setting(1e-4, "of the max loss", origin="TOPIC's for CIFAR100", **WEIGHT)
    max_margin: float = setting(
        0.5, "xi: distance at which nodes are far enough apart", origin="TOPIC's", least=0, most=2
    )
    centre_lr: float = setting(
        0.1, "learning rate of new nodes' centroids", origin="TOPIC's for CIFAR100", least=0, most=HIGHEST_RATE
    )


class Topic(ReplayMethod):
    """Training keeps the topology of a neural gas of features

    Nodes are in the order of their anchors in memory. self.tensors holds their centroids "m" and variances "variances"
    [N, d], edges "e" and ages "a" [N, N].
    """

    Settings: ClassVar[type] = TopicSettings
    settings: TopicSettings

    def check_sessions(self, sessions: Sequence[Session]) -> None:
        super().check_sessions(sessions)
        if self.memory.of_class != 1 or not self.memory.in_all:
            raise UserError(
                f"memory={self.memory.budget} does not fit topic, which keeps an image of every node; give N+1/class, "
                "such as 400+1/class"
            )

    def remember(self, session: Session) -> None:
        """Exemplars are anchors, which are chosen together with the nodes."""

    def learn_base(self, session: Session) -> None:
        super().learn_base(session)
        settings, features, labels = self.settings, self.features(session), session.labels.cpu().numpy()
        if not np.isfinite(features).all():
            raise CannotLearn("embeddings of base images are not finite numbers; lower lr or weight_decay")
        nodes = min(self.memory.in_all or 1, len(features))
        seed = seed_for(self.engine.seed, "neural gas")
        gas = neural_gas.fit(
            features, nodes, settings.gas_steps, settings.gas_lr, settings.gas_alpha, settings.gas_lifetime, seed
        )
        found = neural_gas.meaning(gas.m, features, labels)
        order = np.argsort(found.labels, kind="stable")  # as memory has its exemplars
        self.keep_gas(NeuralGas(gas.m[order], gas.e[order][:, order], gas.a[order][:, order]), found.variances[order])
        self.memory.choose(session, torch.from_numpy(found.anchors[order]), torch.empty(0, dtype=torch.int64))

    def learn_session(self, session: Session) -> None:
        settings, name, joined = self.settings, f"topic-{session.classes[0]}", self.memory.joined(session)
        gas, variances = self.gas()
        nodes, classes = len(gas.m), self.memory.labels.tolist() + list(session.classes)
        of_nodes = [np.flatnonzero(session.labels.cpu().numpy() == label) for label in session.classes]
        features = self.features(session)
        gas.add(np.stack([features[own].mean(0) for own in of_nodes]))  # a node for every new class ...
        for f in features:  # ... joined to its neighbours, while old nodes stay where they are
            gas.connect(gas.ranks(f), settings.gas_lifetime)

        teacher = self.begin(session, name)
        model, device, old = self.model, self.engine.device, len(teacher.rows)
        m = torch.from_numpy(gas.m).float().to(device)
        centres = nn.Parameter(m[nodes:].clone())
        weights = anchor_weights(torch.from_numpy(variances), settings).float().to(device)
        of_class = torch.tensor(classes)
        apart = torch.from_numpy(gas.e[nodes:]) & (of_class[nodes:, None] != of_class)  # joined nodes of other classes
        apart = apart.to(device)

        def loss(outputs: tuple[Tensor, Tensor], batch: Batch) -> Tensor:
            items = batch["labels"]  # positions in `joined`: anchors, in the order of their nodes, then shots
            labels, is_anchor = joined.labels[items], items < nodes
            f, before = F.normalize(outputs[0], dim=1), F.normalize(outputs[1], dim=1)
            ce = cross_entropy(model.calibrator(self.head(teacher), outputs[0]), {"labels": labels}, ~is_anchor)
            node = items.clamp(max=nodes - 1)
            wanted = before if settings.anchor_loss == "released" else m[node]
            anchor = mean_over((weights[node] * (f - wanted).square()).mean(1), is_anchor)
            own = centres[(labels - old).clamp(min=0)]
            nearer = mean_over((f - own).square().sum(1), ~is_anchor)
            farther = max_loss(centres, torch.cat([m[:nodes], centres]), apart, settings.max_margin)
            return ce + settings.anchor * anchor + settings.min_weight * nearer + settings.max_weight * farther

        self.train_session(
            name,
            replace(joined, labels=torch.arange(len(joined.labels), device=device)),
            both(model, teacher),
            loss,
            batch=settings.session_batch,
            module=nn.ModuleDict({"model": model, "nodes": nn.ParameterList([centres])}),
            groups=[ParameterGroup([centres], settings.centre_lr)],
        )
        self.end(session, teacher)
        gas.m[nodes:] = centres.detach().double().cpu().numpy()
        features = self.features(session)
        anchors = [own[neural_gas.nearest(features[own], gas.m[[nodes + j]])[0]] for j, own in enumerate(of_nodes)]
        self.memory.choose(session, torch.tensor(anchors), torch.arange(nodes))
        self.keep_gas(gas, np.concatenate([variances, [features[own].var(0) for own in of_nodes]]))

    def features(self, session: Session) -> Floats:
        """f(x): normalised embeddings [n, d]"""
        found: Floats = F.normalize(self.embed(session.images), dim=1).double().cpu().numpy()
        return found

    def keep_gas(self, gas: NeuralGas, variances: Floats) -> None:
        kept = {"m": gas.m, "variances": variances, "e": gas.e, "a": gas.a}
        self.tensors |= {name: torch.from_numpy(array).to(self.engine.device) for name, array in kept.items()}

    def gas(self) -> tuple[NeuralGas, Floats]:
        m, variances, e, a = (self.tensors[name].cpu().numpy() for name in ("m", "variances", "e", "a"))
        return NeuralGas(m, e, a), variances


def anchor_weights(variances: Tensor, settings: TopicSettings) -> Tensor:
    """What a squared difference in each dimension of each node counts, [N, d]"""
    if settings.anchor_loss == "released":
        return torch.where(variances > 0.5 * variances.amax(1, keepdim=True), settings.loose, 1.0)
    # Lambda^-1 of Eq. (6), with the mean variance added since some nodes have a single image; 1 on average
    inverse = 1 / (variances + variances.mean().clamp(min=1e-12))
    return inverse / inverse.mean()


def max_loss(centres: Tensor, m: Tensor, apart: Tensor, margin: float) -> Tensor:
    """Joined nodes of different classes that are nearer than the margin: [new, d], [N, d], bool [new, N] -> a scalar"""
    squared = (centres[:, None] - m).square().sum(2)
    distances = squared.clamp(min=1e-12).sqrt()  # the slope of a root is infinite at 0
    return ((margin - distances).clamp(min=0) * apart).sum()
