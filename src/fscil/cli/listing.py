"""fscil methods, fscil encoders: list what is available."""

from __future__ import annotations

import json
import sys

from fscil.cli.common import Json, print_descriptions
from fscil.errors import UserError


def methods(as_json: Json = False) -> None:
    """List the methods and presets.

    \b
    fscil methods
    fscil methods --json
    """
    from fscil.config_layers import presets, read_preset

    known = {}
    for name in presets():
        try:
            method, preset = read_preset(name)
            known[name] = {"method": method, "description": preset.get("description") or first_line(method)}
        except UserError as error:  # another package that cannot be imported; the other methods still work
            known[name] = {"method": name, "description": str(error)}
    if as_json:
        print(json.dumps(known))
        return
    presets_of = {name: f" (preset of {one['method']})" for name, one in known.items() if one["method"] != name}
    print_descriptions({name: one["description"] + presets_of.get(name, "") for name, one in known.items()})


def first_line(method: str) -> str:
    """The first line of its class's docstring, or of its module's, without the method's own name before a colon."""
    from fscil.methods import get

    found = get(method)
    text = found.__doc__ or sys.modules[found.__module__].__doc__ or ""
    line = next(iter(text.strip().splitlines()), "").rstrip(".")
    name, colon, rest = line.partition(": ")
    return rest if colon and name.casefold() == method.casefold() else line


def encoders(as_json: Json = False) -> None:
    """List the encoders.

    \b
    fscil encoders
    fscil run limit cifar100 encoder=resnet18
    """
    from fscil.encoders import descriptions

    if as_json:
        print(json.dumps(descriptions()))
    else:
        print_descriptions(descriptions())
