"""`dgemma convert`: a checkpoint in, a smaller MLX model folder out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mlx_diffusiongemma.cli import options, session, settings, terminal
from mlx_diffusiongemma.cli.inspect import size
from mlx_diffusiongemma.cli.progress import conversion_progress
from mlx_diffusiongemma.cli.sanitize import one_line

if TYPE_CHECKING:
    from mlx_diffusiongemma.convert.report import ConvertReport

EXAMPLES = """\
Experts, self-conditioning and the vision projection are packed to 4 bits, the
parts the canvas is sensitive to (embedding, attention, dense MLP, router) to 8;
norms, scalars and the vision tower stay. The output appears under its name only when
it is complete; an existing folder is left alone unless --force is given.

Examples:
  dgemma convert ./original -o my-model --default
  dgemma convert OWNER/NAME --revision main -o ./converted --force
"""


def convert(
    source: Annotated[
        str, typer.Argument(metavar="SRC", help="A folder, a Hugging Face name, or demo.")
    ],
    output: Annotated[str, typer.Option("--output", "-o", metavar="DIR", help="Folder to create.")],
    revision: options.Revision = None,
    force: Annotated[bool, typer.Option("--force", help="Replace DIR if it exists.")] = False,
    default: Annotated[
        bool,
        typer.Option("--default", help="Make DIR the model that commands use without --model."),
    ] = False,
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> None:
    """Convert a checkpoint into a smaller MLX model."""
    from mlx_diffusiongemma.convert import convert_checkpoint

    streams = terminal.detect()
    notes = terminal.standard_error(streams, quiet)
    if quiet or streams.dumb:
        session.hide_download_progress()
    with conversion_progress(streams, notes) as progress:
        report = convert_checkpoint(
            source, output, revision=revision, force=force, progress=progress
        )
    for notice in report.notices:
        notes.note(notice)
    if not quiet:
        terminal.standard_output(streams).write(f"{summary(report)}\n")
    if default:
        path = settings.write_default_model(report.output)
        notes.line(f"{one_line(str(report.output))} is now the default model (in {path}).")


def summary(report: ConvertReport) -> str:
    """One line: where, how small, how long."""
    return (
        f"{one_line(str(report.output))}: {size(report.bytes_in)} became"
        f" {size(report.bytes_out)}, {report.bits_per_weight:.2f} bits a weight,"
        f" in {report.seconds:.1f} s"
    )
