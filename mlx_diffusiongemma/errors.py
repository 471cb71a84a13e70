"""One tree of errors: a sentence for people, a hint, and the exit code the command line uses."""

from __future__ import annotations


class DiffusionGemmaError(Exception):
    """Base of every error this package raises on purpose.

    `message` is one sentence that names what is wrong, `hint` says what to do about it (or is
    None), `exit_code` is what the command line returns.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(DiffusionGemmaError):
    """The caller asked for something that cannot be done as asked (exit code 2)."""

    exit_code = 2


class ModelError(DiffusionGemmaError):
    """The model folder or one of its files is missing, damaged or not ours (exit code 3)."""

    exit_code = 3


class MemoryLimitError(DiffusionGemmaError):
    """The work does not fit this machine's memory (exit code 4)."""

    exit_code = 4


class NetworkError(DiffusionGemmaError):
    """The hub cannot be reached, or offline mode forbids it (exit code 5)."""

    exit_code = 5


class OutputError(DiffusionGemmaError):
    """Writing the output failed: disk full, no permission, target in the way (exit code 6)."""

    exit_code = 6
