"""Methods: one file each, and the file's name is the method's: icarl.py has icarl, fake_tasks.py none."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from fscil.errors import UserError
from fscil.methods.memory import Memory
from fscil.methods.method import Context, Method
from fscil.naming import choose, entry_points


def built_in() -> dict[str, type[Method]]:
    """The methods in this folder: subclasses of Method that have settings of their own."""
    found: dict[str, type[Method]] = {}
    for file in iter_modules(__path__):
        module = import_module(f"{__name__}.{file.name}")
        for each in vars(module).values():
            own = isinstance(each, type) and issubclass(each, Method) and each.__module__ == module.__name__
            if own and "Settings" in vars(each):
                found[file.name.replace("_", "-")] = each
    return found


METHODS = built_in()


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
