"""TOPIC: its neural gas against a loop in float64, its losses against sums, its nodes as they are kept."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from fscil.benchmark import Benchmark
from fscil.errors import UserError
from fscil.methods import Method, neural_gas
from fscil.methods.neural_gas import NeuralGas
from fscil.methods.topic import TopicSettings, anchor_weights

MakeMethod = Callable[..., Method]
Tiny = Callable[..., Benchmark]


def by_hand(start: list[list[float]], stream: Any, eta: float, alpha: float, T: int) -> Any:
    """TOPIC's Eq. (3) and (4) with lists and dictionaries: centroids, and the age of every edge."""
    m, ages = [list(node) for node in start], dict[frozenset[int], int]()
    for f in stream:
        distance = [sum((a - b) ** 2 for a, b in zip(node, f, strict=True)) for node in m]
        r = sorted(range(len(m)), key=lambda j: distance[j])
        for i, j in enumerate(r, start=1):
            m[j] = [a + eta * math.exp(-i / alpha) * (b - a) for a, b in zip(m[j], f, strict=True)]
        for edge in [edge for edge in ages if r[0] in edge]:
            ages[edge] += 1
        ages[frozenset(r[:2])] = 0
        ages = {edge: age for edge, age in ages.items() if age <= T}
    return m, ages


@pytest.mark.parametrize("lifetime", [0, 3, 20, 1000])
def test_the_gas_is_a_plain_loop(lifetime: int) -> None:
    generator = np.random.default_rng(2)
    features = generator.normal(size=(60, 5))
    gas = NeuralGas.at(features[:7])
    stream = [features[i] for i in generator.integers(60, size=200)]
    for f in stream:
        gas.adapt(f, step=0.1, alpha=2.0, lifetime=lifetime)
    m, ages = by_hand(features[:7].tolist(), [f.tolist() for f in stream], 0.1, 2.0, lifetime)
    np.testing.assert_allclose(gas.m, m, rtol=1e-10)
    assert {frozenset((i, j)) for i, j in np.argwhere(gas.e).tolist()} == set(ages)
    assert all(gas.a[i, j] == gas.a[j, i] == age for (i, j), age in ((tuple(edge), age) for edge, age in ages.items()))
    assert (gas.a[~gas.e] == 0).all()
    assert (gas.e == gas.e.T).all()
    assert 3 <= len(ages) < 21 or lifetime > 20


def test_a_gas_spreads_over_its_features() -> None:
    """From one of four clusters: ranks let far nodes move, too, so that in the end every cluster has some."""
    generator = np.random.default_rng(1)
    corners = np.array([[0.0, 0], [0, 9], [9, 0], [9, 9]])
    labels = np.arange(400) % 4
    features = corners[labels] + 0.1 * generator.normal(size=(400, 2))
    gas = NeuralGas.at(features[labels == 0][:12])
    for i in generator.integers(400, size=2000):
        gas.adapt(features[i], step=0.3, alpha=1.0, lifetime=50)
    nearest = neural_gas.nearest(gas.m, features)
    assert np.abs(gas.m[nearest] - features).max() < 0.6
    found = neural_gas.meaning(gas.m, features, labels)
    assert (found.labels[nearest] == labels).all()
    assert (labels[found.anchors] == found.labels).all()


def test_a_node_stands_for_the_class_that_most_of_its_features_have() -> None:
    m = np.array([[0.0, 0], [10, 0], [99, 99]])
    features = np.array([[1.0, 0], [2, 0], [0.1, 0], [9, 0], [12, 4]])
    found = neural_gas.meaning(m, features, np.array([1, 1, 0, 2, 2]))
    assert found.labels.tolist() == [1, 2, 2]
    assert found.anchors.tolist() == [0, 3, 4]  # of the first node, the third feature is nearer but of another class
    assert found.variances.tolist() == [
        [0.25, 0],
        [2.25, 4],
        [0, 0],
    ]  # the last is nearest to none; its feature is alone


@pytest.fixture
def learned(make_method: MakeMethod, tiny_benchmark: Tiny) -> Method:
    method = make_method("topic", tiny_benchmark(), memory="9+1/class", gas_steps=300, session_lr=0.01)
    method.learn_base(tiny_benchmark().sessions[0])
    return method


def test_nodes_edges_and_anchors_are_kept_in_one_order(learned: Method, tiny_benchmark: Tiny) -> None:
    benchmark = tiny_benchmark()
    base, session, following = benchmark.sessions
    features = normalize(learned.embed(base.images), dim=1).double()
    m, memory = learned.tensors["m"], learned.memory
    assert m.shape == (9, 64)
    assert memory.labels.tolist() == sorted(memory.labels.tolist())
    winners = torch.cdist(features, m).argmin(1)
    for j in range(9):
        own = torch.nonzero((winners == j) & (base.labels == memory.labels[j])).flatten()
        if len(own):
            nearest = own[torch.cdist(features[own], m[j : j + 1]).argmin()]
            assert torch.equal(memory.images[j], base.images[nearest])
            assert torch.allclose(learned.tensors["variances"][j], features[own].var(0, correction=0))
    before = {name: tensor.clone() for name, tensor in learned.tensors.items()}
    for each in (session, following):
        learned.learn_session(each)
    assert memory.labels.tolist()[9:] == [4, 5, 6]  # a node of each new class
    assert torch.equal(learned.tensors["m"][:9], before["m"])
    edges, ages = learned.tensors["e"], learned.tensors["a"]
    assert edges.shape == ages.shape == (12, 12)
    assert torch.equal(edges, edges.T)
    assert edges[9:].any(1).all()  # its own shots join it to a neighbour
    learned.memory.check(7)


@pytest.mark.parametrize("form", ["released", "paper"])
def test_the_loss_of_a_step(make_method: MakeMethod, tiny_benchmark: Tiny, recording_engine: Any, form: str) -> None:
    """CE of the shots + anchor loss + min loss + max loss, where network and centroids have moved."""
    benchmark = tiny_benchmark()
    session = benchmark.sessions[1]
    method = make_method(
        "topic", benchmark, engine=recording_engine, memory="9+1/class", anchor_loss=form, anchor=35.0, min_weight=0.3,
        max_weight=0.2, max_margin=1.5,
    )  # fmt: skip
    method.learn_base(benchmark.sessions[0])
    old = {name: tensor.clone() for name, tensor in method.tensors.items()}
    anchors = method.memory.joined(session)
    method.learn_session(session)
    stage, model = recording_engine.stages[-1], method.model
    batch = {name: each[0] for name, each in stage.prepare(0).items()}
    centres = stage.groups[-1].parameters[0]
    with torch.no_grad():
        before = normalize(model.encoder(batch["images"]), dim=1).double()
        for parameter in model.encoder.parameters():
            parameter.mul_(1.05)
        centres += 0.03
        f = normalize(model.encoder(batch["images"]), dim=1).double()
        found = float(stage.loss(batch))
    rows, m = model.rows.detach().double(), torch.cat([old["m"], centres.detach().double()])
    classes = [*method.memory.labels[:9].tolist(), 4, 5]
    entropy, anchor, nearer, farther = [], [], [], 0.0
    weights = anchor_weights(old["variances"], method.settings).double()
    for i, item in enumerate(batch["labels"].tolist()):
        label = int(anchors.labels[item])
        if item < 9:
            wanted = before[i] if form == "released" else m[item]
            anchor.append(float((weights[item] * (f[i] - wanted) ** 2).sum() / 64))
        else:
            logits = rows @ f[i]
            entropy.append(float(torch.logsumexp(logits, 0) - logits[label]))
            nearer.append(float(((f[i] - m[9 + label - 4]) ** 2).sum()))
    edges = method.tensors["e"]
    for i in (9, 10):
        for j in range(11):
            if edges[i, j] and classes[i] != classes[j]:
                farther += max(0.0, 1.5 - float((m[i] - m[j]).norm()))
    assert farther > 0
    wanted = np.mean(entropy) + 35 * np.mean(anchor) + 0.3 * np.mean(nearer) + 0.2 * farther
    assert found == pytest.approx(float(wanted), rel=1e-3)


def test_variances_weight_the_anchor_loss() -> None:
    variances = torch.tensor([[4.0, 1.9, 2.1], [0.0, 0.0, 0.0]]).double()
    assert torch.equal(
        anchor_weights(variances, TopicSettings(loose=0.8)), torch.tensor([[0.8, 1, 0.8], [1, 1, 1]]).double()
    )
    inverse: Tensor = 1 / (variances + 8 / 6)  # the mean variance is added: a node may have a single image
    found = anchor_weights(variances, TopicSettings(anchor_loss="paper"))
    assert torch.allclose(found, inverse / inverse.mean())


@pytest.mark.parametrize("memory", ["none", "all", "20", "5/class", "20+0/class", "0+1/class", "20+5/class"])
def test_other_budgets_are_refused_before_training(make_method: MakeMethod, tiny_benchmark: Tiny, memory: str) -> None:
    with pytest.raises(UserError, match=r"does not fit topic, .*; give N\+1/class"):
        make_method("topic", tiny_benchmark(), memory=memory).check_sessions(tiny_benchmark().sessions)
