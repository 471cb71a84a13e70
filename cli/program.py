"""The program: its commands. What each of them does is in its own file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from typer.main import get_command

from mlx_diffusiongemma.cli.chat import EXAMPLES as CHAT_EXAMPLES
from mlx_diffusiongemma.cli.chat import chat
from mlx_diffusiongemma.cli.convert import EXAMPLES as CONVERT_EXAMPLES
from mlx_diffusiongemma.cli.convert import convert
from mlx_diffusiongemma.cli.demo import EXAMPLES as DEMO_EXAMPLES
from mlx_diffusiongemma.cli.demo import demo
from mlx_diffusiongemma.cli.errors import flush_quietly, restore_cursor, terminate_gently
from mlx_diffusiongemma.cli.generate import EXAMPLES as GENERATE_EXAMPLES
from mlx_diffusiongemma.cli.generate import generate
from mlx_diffusiongemma.cli.grammar import Command, Group, print_help
from mlx_diffusiongemma.cli.inspect import EXAMPLES as INSPECT_EXAMPLES
from mlx_diffusiongemma.cli.inspect import inspect

EXAMPLES = """\
Start here:
  dgemma demo
  dgemma convert ./original -o my-model --default
  dgemma generate -m demo -p "What is the capital of Italy?"
"""

app = typer.Typer(
    name="dgemma",
    cls=Group,
    epilog=EXAMPLES,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
app.command(cls=Command, epilog=GENERATE_EXAMPLES)(generate)
app.command(cls=Command, epilog=CHAT_EXAMPLES)(chat)
app.command(cls=Command, epilog=CONVERT_EXAMPLES)(convert)
app.command(cls=Command, epilog=INSPECT_EXAMPLES)(inspect)
app.command(cls=Command, epilog=DEMO_EXAMPLES)(demo)


def _show_version(wanted: bool) -> None:
    if not wanted:
        return
    from importlib.metadata import version

    from mlx_diffusiongemma import __version__

    print_help(f"mlx-diffusiongemma {__version__} (mlx {version('mlx')})")
    raise typer.Exit


@app.callback(invoke_without_command=True)
def top(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_show_version,
            is_eager=True,
            help="Show our version and MLX's, and exit.",
        ),
    ] = False,
) -> None:
    """Run DiffusionGemma, Google's text diffusion model, on your own machine with MLX."""
    if context.invoked_subcommand is None:
        print_help(context.get_help())


def run() -> int:
    """Runs the command line; returns the exit code."""
    command = get_command(app)
    assert isinstance(command, Group)
    with terminate_gently():
        try:
            program = Path(sys.argv[0])
            code = command.run(sys.argv[1:], "dgemma" if program.suffix else program.name)
        finally:
            restore_cursor()
        return flush_quietly(code)
