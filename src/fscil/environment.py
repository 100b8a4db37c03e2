"""Numbers in environment variables."""

from __future__ import annotations

import os

from fscil.errors import UserError

MOST = 2**31 - 1


def whole_number(name: str, default: int | None = None, least: int = 0, most: int = MOST) -> int:
    """The value of an environment variable; without a default it must be set."""
    value = os.environ.get(name, "" if default is None else str(default))
    try:
        number = int(value)
    except ValueError:
        number = least - 1
    if not least <= number <= most:
        raise UserError(f"{name}={value} is not a whole number from {least} to {most}; correct it or unset it")
    return number
