"""Where the command `fscil` starts: Ctrl-C works before the rest is imported."""

from signal import SIGINT, signal

from fscil.interrupts import leave


def main() -> None:
    signal(SIGINT, leave)
    from fscil import cli

    cli.main()


if __name__ == "__main__":
    main()
