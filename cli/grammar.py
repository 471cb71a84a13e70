"""How commands are parsed, ended and described: the Typer classes below every command of ours."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from mlx_diffusiongemma.cli import terminal
from mlx_diffusiongemma.cli.errors import run_guarded


def _write_examples(epilog: str | None, formatter: Any) -> None:
    if epilog:
        formatter.write(f"\n{epilog.rstrip()}\n")


def print_help(text: str) -> None:
    """Help on standard output, which may be closed or full like any other."""
    terminal.standard_output(terminal.detect()).write(f"{text}\n")


def _own_help_option(option: Any) -> Any:
    """Makes the parser's --help print through `print_help`."""

    def show(context: typer.Context, parameter: Any, value: bool) -> None:
        if value and not context.resilient_parsing:
            print_help(context.get_help())
            context.exit()

    if option is not None:
        option.callback = show
    return option


class Command(TyperCommand):
    """A command whose help shows its options in named groups and its examples as typed."""

    def get_help_option(self, ctx: Any) -> Any:
        """--help, printed our way."""
        return _own_help_option(super().get_help_option(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Options by the panel each names, in the order of first appearance."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            panel = getattr(parameter, "rich_help_panel", None)
            if panel is None:
                panel = "Arguments" if parameter.param_type_name == "argument" else "Options"
            sections.setdefault(panel, []).append(record)
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples, line by line, unwrapped."""
        _write_examples(self.epilog, formatter)


class Group(TyperGroup):
    """The top command. Whatever happens below ends as one sentence and an exit code."""

    def get_help_option(self, ctx: Any) -> Any:
        """--help, printed our way."""
        return _own_help_option(super().get_help_option(ctx))

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples, line by line, unwrapped."""
        _write_examples(self.epilog, formatter)

    def run(self, args: Sequence[str] | None = None, prog_name: str | None = None) -> int:
        """Parses and runs; returns the exit code."""
        state: dict[str, Any] = {}

        def call() -> int | None:
            given = list(sys.argv[1:] if args is None else args)
            with self.make_context(prog_name or "dgemma", given, obj=state) as context:
                result = self.invoke(context)
            return result if isinstance(result, int) else 0

        return run_guarded(call, debug=lambda: bool(state.get("debug")))

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """As `run`, and ends the program, which is what Typer's test runner expects."""
        sys.exit(self.run(args, prog_name))


def remember_debug(context: typer.Context, value: bool) -> bool:
    """Callback of --debug: a traceback is wanted, whatever goes wrong from here on."""
    if value and isinstance(context.obj, dict):
        context.obj["debug"] = True
    return value
