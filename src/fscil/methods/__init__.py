"""Methods: one file each; the registry maps names to them."""

from __future__ import annotations

from fscil.errors import UserError
from fscil.methods.cec import Cec
from fscil.methods.decoupled_cosine import DecoupledCosine
from fscil.methods.decoupled_deepemd import DecoupledDeepEMD
from fscil.methods.eeil import EEIL
from fscil.methods.fact import Fact
from fscil.methods.finetune import Finetune
from fscil.methods.icarl import ICaRL
from fscil.methods.joint import Joint
from fscil.methods.limit import Limit
from fscil.methods.memory import Memory
from fscil.methods.method import Context, Method
from fscil.methods.rebalancing import Rebalancing
from fscil.methods.teen import Teen
from fscil.methods.topic import Topic
from fscil.naming import choose, entry_points

METHODS: dict[str, type[Method]] = {
    "limit": Limit,
    "cec": Cec,
    "decoupled-cosine": DecoupledCosine,
    "decoupled-deepemd": DecoupledDeepEMD,
    "eeil": EEIL,
    "fact": Fact,
    "finetune": Finetune,
    "icarl": ICaRL,
    "joint": Joint,
    "rebalancing": Rebalancing,
    "teen": Teen,
    "topic": Topic,
}


def names() -> list[str]:
    return sorted({*METHODS, *(point.name for point in entry_points(group="fscil.methods"))})


def get(name: str) -> type[Method]:
    """The method of that name, built in or registered by another package under the entry point fscil.methods."""
    if name in METHODS:
        return METHODS[name]
    choose(name, names(), "method")
    (point,) = (each for each in entry_points(group="fscil.methods") if each.name == name)
    try:
        found: type[Method] = point.load()
    except Exception as error:  # another package's import may raise anything; name the package
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(
            f"method {name!r} of {point.value} cannot be imported ({reason}); reinstall that package"
        ) from error
    return found


__all__ = ["METHODS", "Context", "Memory", "Method", "get", "names"]
