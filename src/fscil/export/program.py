"""A graph as the bytes of an ONNX file."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fscil import __version__
from fscil.export.graphs import ClassifierGraph, EncoderGraph
from fscil.export.known import Known

KEY = "fscil"  # of the metadata
INPUTS = {
    "images": ("batch", "height", "width", None),  # names of dimensions that are free
    "rows": ("classes", None),
    "margins": ("classes",),
}
OUTPUTS = {"logits": ("batch", "classes"), "embeddings": ("batch", None)}
SHOWN = {"rows": "known_rows", "margins": "known_margins"}  # outputs for programs that cannot look into the file


def program_of(graph: EncoderGraph, known: Known) -> bytes:
    """For any number of photos and classes, and any size of photos."""
    # torch takes a number that is 0 or 1 in the example for a fixed one
    examples = [torch.zeros(2, 45, 61, 3, dtype=torch.uint8)]
    inputs, outputs = ["images"], ["embeddings"]
    if isinstance(graph, ClassifierGraph):
        examples += [torch.ones(5, known.model.row_size), torch.zeros(5)]
        inputs, outputs = list(INPUTS), list(OUTPUTS)
    free = {name: torch.export.Dim(name) for names in INPUTS.values() for name in names if name}
    shapes = [{i: free[dim] for i, dim in enumerate(INPUTS[name]) if dim} for name in inputs]
    with silence(), torch.no_grad():
        traced = torch.export.export(graph, tuple(examples), dynamic_shapes=tuple(shapes), strict=False)
        program = torch.onnx.export(traced, dynamo=True, input_names=inputs, output_names=outputs, verbose=False)
    assert program is not None
    model: Any = program.model_proto
    describe(model, graph, known)
    if isinstance(graph, ClassifierGraph) and len(known.rows):
        set_defaults(model.graph, {"rows": known.rows, "margins": known.margins})
    data: bytes = model.SerializeToString()
    return data


def describe(model: Any, graph: EncoderGraph, known: Known) -> None:
    """What the file says about itself; torch's notes, which name files of this machine, go."""
    model.producer_name, model.producer_version = "fscil", __version__
    model.doc_string = graph.__doc__ or ""
    import_module("onnx").helper.set_model_props(model, {KEY: json.dumps(known.facts)})
    for part in graphs_in(model.graph):
        del part.value_info[:], part.metadata_props[:]
        for node in part.node:
            del node.metadata_props[:]
            node.doc_string = ""
    for value in (*model.graph.input, *model.graph.output):
        names = {**INPUTS, **OUTPUTS}[value.name]
        for dim, name in zip(value.type.tensor_type.shape.dim, names, strict=True):
            if name:
                dim.dim_param = name


def set_defaults(graph: Any, values: Mapping[str, NDArray[np.float32]]) -> None:
    """An input that has a value may be left out; what it is can be read as an output."""
    onnx = import_module("onnx")
    inputs = {value.name: value for value in graph.input}
    for name, array in values.items():
        graph.initializer.append(onnx.numpy_helper.from_array(array, name))
        graph.node.append(onnx.helper.make_node("Identity", [name], [SHOWN[name]]))
        graph.output.append(onnx.helper.make_value_info(SHOWN[name], inputs[name].type))


def graphs_in(graph: Any) -> Iterator[Any]:
    """A graph and those of its branches."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from graphs_in(attribute.g)


@contextmanager
def silence() -> Iterator[None]:
    """torch has much to say about an export to its own developers."""
    before = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
