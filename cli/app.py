"""Entry point of the console scripts. It loads nothing before it can answer to Ctrl-C.

What the program is made of is in `program`.
"""

from __future__ import annotations

import os
import sys

INTERRUPTED = 130


def main() -> None:
    """Runs the command line and exits with its code."""
    try:
        _occupy_closed_descriptors()
        from mlx_diffusiongemma.cli import program

        code = program.run()
    except KeyboardInterrupt:  # before or after the commands, which answer to it themselves
        code = INTERRUPTED
    sys.exit(code)


def _occupy_closed_descriptors() -> None:
    """Keeps 0, 1 and 2 from going to a file opened later, which would then get stray messages.

    Python has noted by now which of them were closed: sys.stdin and the others are None and stay
    so. (MLX also takes descriptor 0 for a failure to open.)
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest free number: this one


if __name__ == "__main__":
    main()
