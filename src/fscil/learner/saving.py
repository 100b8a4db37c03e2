"""A learner's model folder: config.json, model.safetensors, classes.safetensors and a card. It needs no network."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

from fscil import __version__
from fscil.engine.checkpoint import save_tensors
from fscil.errors import UserError
from fscil.files import read_regular, write_atomically
from fscil.learner import store_file
from fscil.learner.card import CARD, taught_section
from fscil.learner.knowledge import Knowledge
from fscil.model_facts import FORMAT, model_checksum
from fscil.naming import printable
from fscil.run_lock import HALF_WRITTEN, RunLock
from fscil.run_lock import NAME as LOCK

MOST_BYTES = 2**33
CONFIG, MODEL = "config.json", "model.safetensors"


def save(knowledge: Knowledge, folder: Path, source: Path | None) -> None:
    """source: the folder that the model comes from, whose files are copied. config.json is written last: before that
    there is no model folder, whatever happens."""
    check_free(folder)
    lock = RunLock(folder)
    lock.take()
    try:
        check_free(folder)  # another process may have been quicker
        _write(knowledge, folder, source)
    finally:
        lock.release()


def _write(knowledge: Knowledge, folder: Path, source: Path | None) -> None:
    if source is not None:
        for name in (MODEL, CARD):
            if os.path.exists(source / name):
                write_atomically(folder / name, _read(source / name))
        config = _read(source / CONFIG)
    else:
        own, state = len(knowledge.base), dict(knowledge.model.state_dict())
        state.update(rows=knowledge.rows.trained, base=state["base"][:own])
        save_tensors(folder / MODEL, state, {"format": FORMAT})
        facts = {
            "format": FORMAT,
            "model": dataclasses.asdict(knowledge.model.spec),
            "class_names": knowledge.base,
            "fscil": __version__,
        }
        config = (json.dumps(facts, indent=2, ensure_ascii=False) + "\n").encode()
        write_atomically(folder / CARD, card(knowledge).encode())
    store_file.write(folder, knowledge.store, model_checksum(folder / MODEL))
    write_atomically(folder / CONFIG, config)


def check_free(folder: Path) -> None:
    """Refuse a folder that is not free to be saved to."""
    if "\0" in str(folder):
        raise UserError("a folder's name cannot have a null character in it; choose another one")
    if not is_free(folder):
        raise UserError(f"{printable(str(folder))} exists already; choose a folder that does not")


def is_free(folder: Path) -> bool:
    """Whether there is no such folder, or nothing in it but what a killed `save` has left."""
    if not os.path.lexists(folder):
        return True
    ours = {MODEL, CARD, store_file.FILE, LOCK}
    return os.path.isdir(folder) and all(n in ours or HALF_WRITTEN.fullmatch(n) for n in os.listdir(folder))


def _read(path: Path) -> bytes:
    try:
        return read_regular(path, MOST_BYTES)
    except OSError as error:
        raise UserError(f"{path} cannot be read ({error.strerror}); check the file and its permissions") from error


def card(knowledge: Knowledge) -> str:
    spec = knowledge.model.spec
    return f"""---
library_name: fscil
tags: [few-shot-class-incremental-learning, image-classification]
---
# A classifier that was taught

```python
from fscil import Learner

learner = Learner.load("PATH OF THIS FOLDER")
learner.predict("photo.jpg")
```

Its encoder, {spec.encoder} with weights {spec.weights}, is fixed: classes are means of the embeddings of their photos.
`classes.safetensors` holds those embeddings, with file names and hashes, but no photos.

{taught_section(knowledge.store)}"""
