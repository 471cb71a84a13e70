"""From exceptions to one sentence, a hint and an exit code. The only place that ends the program.

Exit codes: 0 ok, 1 failure, 2 usage, 3 model or files invalid, 4 memory, 5 network or offline,
6 output, 129 hung up, 130 interrupted, 143 terminated. A reader that closes its pipe early ends us
with 0: it has what it wanted.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import typer

from mlx_diffusiongemma.cli.sanitize import one_line
from mlx_diffusiongemma.errors import DiffusionGemmaError, MemoryLimitError, OutputError

INTERRUPTED = 130

_NO_SUCH_SAMPLER = "DiffusionGemma's own sampler has no {}, so --{} cannot be honoured."
_TEXT_ONLY = "This runtime reads text only, so --{} cannot be honoured."
_FREE_TEXT = "Structured output is not offered, so --{} cannot be honoured."
_FIXED_CODE = "Code inside a model folder is never run, so there is no --{}."
REFUSED = {
    "top-k": _NO_SUCH_SAMPLER.format("top-k cut", "top-k"),
    "top-p": _NO_SUCH_SAMPLER.format("nucleus cut", "top-p"),
    "min-p": _NO_SUCH_SAMPLER.format("probability floor", "min-p"),
    "num-beams": "Canvases are denoised, not searched, so --num-beams cannot be honoured.",
    "repetition-penalty": _NO_SUCH_SAMPLER.format("penalties", "repetition-penalty"),
    "presence-penalty": _NO_SUCH_SAMPLER.format("penalties", "presence-penalty"),
    "frequency-penalty": _NO_SUCH_SAMPLER.format("penalties", "frequency-penalty"),
    "logit-bias": _NO_SUCH_SAMPLER.format("logit bias", "logit-bias"),
    "image": _TEXT_ONLY.format("image"),
    "video": _TEXT_ONLY.format("video"),
    "audio": _TEXT_ONLY.format("audio"),
    "json-schema": _FREE_TEXT.format("json-schema"),
    "schema": _FREE_TEXT.format("schema"),
    "grammar": _FREE_TEXT.format("grammar"),
    "batch-size": "One prompt is answered at a time, so --batch-size cannot be honoured.",
    "draft-model": "A canvas needs no draft model, so --draft-model cannot be honoured.",
    "trust-remote-code": _FIXED_CODE.format("trust-remote-code"),
}
_SAME_AS = {
    "system": "--system-prompt",
    "max-new-tokens": "--max-tokens",
    "verbose": "--stats",
    "max-denoising-steps": "--steps",
    "live": "--view live",
    "no-live": "--view off",
    "output": "-o",
}


class Terminated(BaseException):
    """SIGTERM or SIGHUP arrived; a BaseException, so that only clean-up code sees it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


def run_guarded(call: Callable[[], int | None], debug: Callable[[], bool]) -> int:
    """Runs `call`; every way it can end becomes an exit code, told on stderr where it must be."""
    try:
        return call() or 0
    except typer.Exit as error:
        return error.exit_code
    except typer.TyperException as error:
        return _report(*_usage(error), code=error.exit_code)
    except DiffusionGemmaError as error:
        if debug():
            traceback.print_exc()
        return _report(error.message, error.hint, error.exit_code)
    except (KeyboardInterrupt, typer.Abort):
        if sys.stderr is not None and sys.stderr.isatty():
            _say("\rstopped\n")  # over the ^C that the terminal has just shown
        return INTERRUPTED
    except Terminated as error:
        return error.exit_code
    except BrokenPipeError:
        return 0
    except MemoryError:
        if debug():
            traceback.print_exc()
        return _report("Memory ran out.", "Close other programs.", MemoryLimitError.exit_code)
    except Exception as error:
        if debug():
            traceback.print_exc()
        what = one_line(f"{type(error).__name__}: {error}")[:300].rstrip(".")
        return _report(
            f"Internal error: {what}.",
            None if debug() else "Run it again with --debug to see where.",
            1,
        )


def _report(message: str, hint: str | None, code: int) -> int:
    text = f"error: {one_line(message)}\n"
    if hint:
        text += f"hint: {one_line(hint)}\n"
    _say(text)
    return code


def _say(text: str) -> None:
    if sys.stderr is None:
        return
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        return  # nobody can be told; the exit code still says it


def _usage(error: typer.TyperException) -> tuple[str, str | None]:
    """Sentence and hint for what the argument parser found wrong."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "dgemma"
    hint = f"{command} --help shows what there is."
    option = getattr(error, "option_name", None)
    if option is not None and hasattr(error, "possibilities"):
        name = option.lstrip("-")
        if name in REFUSED:
            return REFUSED[name], None
        if name in _SAME_AS and _has_option(context, _SAME_AS[name]):
            hint = f"Did you mean {_SAME_AS[name]}?"
        elif error.possibilities:
            hint = f"Did you mean {error.possibilities[0]}?"  # the closest comes first
        return f"There is no option {option}.", hint
    message = error.format_message().strip()
    if message.startswith("Got unexpected extra argument") and command.endswith(" generate"):
        hint = "The prompt goes after -p, in quotes."
    main, _, guess = message.partition(" Did you mean ")
    if guess:
        hint = f"Did you mean {guess}"
    return main if main.endswith((".", "?", "!")) else main + ".", hint


def _has_option(context: Any, wanted: str) -> bool:
    """Whether the command has the option that `wanted` begins with."""
    known = [name for parameter in context.command.params for name in parameter.opts]
    return wanted.split()[0] in known


@contextmanager
def terminate_gently() -> Iterator[None]:
    """While inside, SIGTERM and SIGHUP (a closed terminal) unwind the stack like Ctrl-C does.

    So the terminal is put right and no half-written folder stays. Only the first counts: the
    clean-up it sets off must not be stopped by the next. What was ignored (nohup) stays so.
    """
    arrived = False

    def handler(number: int, frame: FrameType | None) -> None:
        nonlocal arrived
        if not arrived:
            arrived = True
            raise Terminated(number)

    known = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    changed = [number for number, action in known.items() if action is not signal.SIG_IGN]
    for number in changed:
        signal.signal(number, handler)
    try:
        yield
    finally:
        for number in changed:
            signal.signal(number, known[number])


def restore_cursor() -> None:
    """Shows the cursor again should a live view have been stopped while it was being set up."""
    live = sys.modules.get("mlx_diffusiongemma.cli.live")
    if live is not None:
        live.restore_cursor()


def flush_quietly(code: int) -> int:
    """Flushes both streams before the interpreter does, where a closed pipe would be noisy."""
    for stream in (sys.stdout, sys.stderr):
        if stream is None or stream.closed:
            continue
        try:
            stream.flush()
        except BrokenPipeError:
            _discard(stream.fileno())
        except OSError as error:
            _discard(stream.fileno())
            if code == 0 and stream is sys.stdout:
                reason = error.strerror or str(error)
                code = _report(
                    f"Writing to standard output failed: {reason}.", None, OutputError.exit_code
                )
    return code


def _discard(descriptor: int) -> None:
    """Points a dead descriptor at nothing, so that what is still buffered goes nowhere."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, descriptor)
    os.close(nothing)
