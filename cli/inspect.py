"""`dgemma inspect`: what a model folder holds, from its config and file headers."""

from __future__ import annotations

import json as json_module
from typing import Annotated, Any

import typer

from mlx_diffusiongemma.cli import options, settings, terminal
from mlx_diffusiongemma.cli.inspection import inspect_folder
from mlx_diffusiongemma.cli.sanitize import escape_json, one_line

EXAMPLES = """\
No weight is read: sizes and types come from the headers, checked against
config.json. The exit code is 3 when the files do not fit together. A model
named on Hugging Face is downloaded first.

Examples:
  dgemma inspect demo
  dgemma inspect ./my-model --json | jq .total
"""


def inspect(
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="A folder, a Hugging Face name, or demo."),
    ] = None,
    revision: options.Revision = None,
    json: Annotated[
        bool, typer.Option("--json", rich_help_panel="Output", help="Print one JSON object.")
    ] = False,
    debug: options.Debug = False,
) -> None:
    """Describe a model and check its files.

    Sizes, bits per weight, files, stop tokens and sampler defaults.
    """
    from mlx_diffusiongemma.checkpoint.hub import resolve

    streams = terminal.detect()
    name = settings.choose_model(model)
    report, problem = inspect_folder(resolve(name, revision), name)
    if json:
        text = escape_json(json_module.dumps(report, ensure_ascii=False)) + "\n"
    else:
        text = "\n".join(describe(report)) + "\n"
    terminal.standard_output(streams).write(text)
    if problem is not None:
        raise problem


def describe(report: dict[str, Any]) -> list[str]:
    """The report in lines for people."""
    lines = [
        f"model       {one_line(report['model'])}",
        f"folder      {one_line(report['folder'])}",
    ]
    lines += _network(report["config"])
    if "total" in report:
        lines += _weights(report)
    lines += _behaviour(report)
    check = report["check"]
    verdict = "ok, every tensor accounted for" if check["ok"] else one_line(check["problem"])
    return [*lines, f"check       {verdict}"]


def _network(config: dict[str, Any]) -> list[str]:
    return [
        f"type        {one_line(str(config['model_type']))}, stored as {config['dtype']}",
        f"canvas      {config['canvas_length']} tokens at a time",
        f"context     {config['context_length']} tokens",
        f"layers      {config['layers']}: {config['sliding_layers']} sliding"
        f" (window {config['sliding_window']}), {config['full_layers']} full",
        f"width       {config['hidden_size']}, vocabulary {config['vocabulary']}",
        f"experts     {config['experts']}, {config['experts_per_token']} per token",
    ]


def _weights(report: dict[str, Any]) -> list[str]:
    total = report["total"]
    lines = [
        f"parameters  {_big(total['parameters'])}, {_big(report['active_parameters'])} at work per"
        f" token, {total['bits']:.2f} bits each, {size(total['bytes'])}"
    ]
    for kind, part in report["parameters"].items():
        formats = "; ".join(_shares(part))
        count = _big(part["parameters"])
        name = kind.replace("_", "-")
        lines.append(f"  {name:<18}{count:>9}  {part['bits']:5.2f} bits  {formats}")
    vision = report["unread"]["vision"]
    if vision["tensors"]:
        held = f"{vision['tensors']} tensors, {size(vision['bytes'])}"
        lines.append(f"vision      present but not read: {held}")
    else:
        lines.append("vision      none")
    lines.append(f"files       {len(report['files'])}")
    for file in report["files"]:
        held = f"{size(file['bytes'])}, {file['tensors']} tensors"
        lines.append(f"  {one_line(file['name'])}  {held}")
    for name in report["extra_files"]:
        lines.append(f"  {one_line(name)}  not named by the index, not read")
    return lines


def _shares(part: dict[str, Any]) -> list[str]:
    formats: dict[str, int] = part["formats"]
    if len(formats) == 1:
        return list(formats)
    return [
        f"{how} ({100 * count / part['parameters']:.0f} %)"
        for how, count in sorted(formats.items(), key=lambda item: -item[1])
    ]


def _behaviour(report: dict[str, Any]) -> list[str]:
    sampler = report["sampler"]
    origin = {
        "file": "generation_config.json",
        "embedded": "config.json",
        "default": "assumed: the files say nothing",
    }
    stops = ", ".join(
        f"{stop['id']} {one_line(stop['token'] or '?')}" for stop in report["stop_tokens"]
    )
    template = "present" if report["chat_template"] else "none: only generate --raw works"
    return [
        f"stops at    {stops}",
        f"template    {template}",
        f"sampler     {sampler['steps']} steps, bound {sampler['entropy_bound']:g},"
        f" temperature {sampler['t_max']:g} to {sampler['t_min']:g}",
        f"            stops after {sampler['stability']} unchanged step(s) below"
        f" {sampler['confidence']:g} nats; {sampler['max_tokens']} tokens at most",
        f"            from {origin[sampler['source']]}",
    ]


def _big(number: int) -> str:
    for unit, scale in (("B", 10**9), ("M", 10**6), ("k", 10**3)):
        if number >= scale:
            return f"{number / scale:.2f} {unit}"
    return str(number)


def size(count: int) -> str:
    """Bytes in decimal units."""
    for unit, scale in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= scale:
            return f"{count / scale:.2f} {unit}"
    return f"{count} bytes"
