"""`convert_checkpoint`: original weights in, a quantised MLX model folder out.

Joins the other files of this room: what there is (source), how it is packed (recipes, quantize),
where it goes (writer, output) and what stands beside it (settings).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx

from mlx_diffusiongemma.checkpoint.hub import resolve
from mlx_diffusiongemma.checkpoint.index import INDEX_FILE, open_checkpoint
from mlx_diffusiongemma.checkpoint.plan import plan_weights
from mlx_diffusiongemma.config import QuantizationSpec, read_config
from mlx_diffusiongemma.config.model import CONFIG_FILE, GENERATION_FILE
from mlx_diffusiongemma.convert.output import (
    as_output_errors,
    check_apart,
    check_existing,
    check_space,
    partial_folder,
)
from mlx_diffusiongemma.convert.quantize import planned_tensors, quantized
from mlx_diffusiongemma.convert.recipes import (
    DEFAULT_RECIPE,
    Recipe,
    part_of,
    quantization_block,
    recipe_named,
)
from mlx_diffusiongemma.convert.report import ConvertReport
from mlx_diffusiongemma.convert.settings import output_config, read_side_files
from mlx_diffusiongemma.convert.source import Item, SourceModel, open_source
from mlx_diffusiongemma.convert.writer import (
    OutputTensor,
    ShardWriter,
    index_content,
    json_bytes,
    plan_shards,
    shard_names,
    write_file,
)
from mlx_diffusiongemma.errors import UsageError

MAX_SHARD_BYTES = 5_000_000_000
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class _Task:
    """One module to convert, its packing (None: as it is) and the tensors it becomes."""

    item: Item
    packing: QuantizationSpec | None
    tensors: tuple[OutputTensor, ...]


def convert_checkpoint(
    source: str | Path,
    output: str | Path,
    *,
    revision: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
    recipe: str = DEFAULT_RECIPE,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> ConvertReport:
    """Quantise a model into a new folder that loads here and in mlx-vlm.

    source is a folder, a hub repository (at `revision`) or "demo"; its weights must be bf16, fp16
    or fp32. `progress(done, total, name)` is called after every module with the bytes of source
    data dealt with. Modules are read, packed and written one at a time. `output` appears complete
    or not at all, also on Ctrl-C; with `force` it replaces an older model at the very end.

    Raises ModelError (source), NetworkError (hub), OutputError (target, disk), UsageError (recipe).
    """
    started = time.monotonic()
    chosen = recipe_named(recipe)
    target = _checked_target(source, output, force)  # before a download of many gigabytes
    folder = resolve(str(source), revision)
    model = open_source(folder)
    with as_output_errors(target):
        check_apart(target, folder, model.checkpoint.files)
    tasks = _tasks(model, chosen)
    side_files = read_side_files(folder)
    packed = {task.item.module.path: task.packing for task in tasks if task.packing}
    config, notices = output_config(
        model.config,
        model.generation,
        quantization_block(chosen, packed),
        vision=bool(model.vision),
    )
    embedded = config.get("generation_config")
    if GENERATION_FILE not in side_files and embedded is not None:
        side_files[GENERATION_FILE] = json_bytes(embedded)
    needed = sum(tensor.nbytes for task in tasks for tensor in task.tensors)
    check_space(target, needed + sum(map(len, side_files.values())))
    with partial_folder(target) as partial:
        check_existing(target, force)  # another conversion may have made it meanwhile
        _write_weights(partial, model, tasks, max_shard_bytes, progress)
        for name, data in side_files.items():
            write_file(partial / name, data)
        write_file(partial / CONFIG_FILE, json_bytes(config))
        plan_weights(open_checkpoint(partial), read_config(partial))
        files = sorted(path.name for path in partial.iterdir() if not path.name.startswith("."))
    return ConvertReport(
        source=folder,
        output=target,
        recipe=chosen.name,
        parameters=_parameters(tasks),
        bytes_in=sum(task.item.nbytes for task in tasks),
        bytes_out=needed,
        seconds=time.monotonic() - started,
        modules_by_bits=Counter(spec.bits for spec in packed.values()),
        unquantized=tuple(_unpacked(tasks)),
        vision=model.vision,
        dropped=model.dropped,
        files=tuple(files),
        notices=(*notices, *_vision_notices(model)),
    )


def _checked_target(source: str | Path, output: str | Path, force: bool) -> Path:
    """The output's real path, when something may be written there."""
    for name, value in (("source", source), ("output", output)):
        if not os.fspath(value).strip():
            raise UsageError(f"The {name} is empty.", "Give the path of a folder.")
    with as_output_errors(Path(output)):
        target = Path(os.path.realpath(output))
        if Path(source).is_dir():
            check_apart(target, Path(source))
        check_existing(target, force)
    return target


def _tasks(model: SourceModel, recipe: Recipe) -> list[_Task]:
    tasks = []
    for item in model.items:
        packing = recipe.spec_for(item.module)
        tasks.append(_Task(item, packing, planned_tensors(item.module, item.dtype, packing)))
    return tasks


def _write_weights(
    folder: Path,
    model: SourceModel,
    tasks: Sequence[_Task],
    limit: int,
    progress: Progress | None,
) -> None:
    """All weight files and, when there are several, their index."""
    by_group = {task.tensors: task for task in tasks}
    shards = plan_shards(by_group, limit)
    files: dict[str, list[OutputTensor]] = {}
    done, total = 0, sum(task.item.nbytes for task in tasks)
    for name, groups in zip(shard_names(len(shards)), shards, strict=True):
        files[name] = [tensor for group in groups for tensor in group]
        with ShardWriter(folder / name, files[name]) as writer:
            for task in (by_group[tuple(group)] for group in groups):
                _convert(model, task, writer)
                done += task.item.nbytes
                if progress is not None:
                    progress(done, total, task.item.module.path)
    if len(files) > 1:
        write_file(folder / INDEX_FILE, json_bytes(index_content(files)))


def _convert(model: SourceModel, task: _Task, writer: ShardWriter) -> None:
    weight = model.read(task.item)
    for name, array in quantized(task.item.module, weight, task.packing).items():
        writer.write(name, array)
    del weight
    mx.clear_cache()  # on a GPU freed buffers would pile up in MLX's cache


def _parameters(tasks: Sequence[_Task]) -> Mapping[str, int]:
    counts: Counter[str] = Counter()
    for task in tasks:
        size = 1
        for length in task.item.module.shape:
            size *= length
        counts[part_of(task.item.module)] += size
    return dict(counts)


def _unpacked(tasks: Sequence[_Task]) -> list[str]:
    """The matrices that a recipe would pack and whose width does not allow it."""
    return [
        task.item.module.path
        for task in tasks
        if task.packing is None
        and task.item.module.quantizable
        and part_of(task.item.module) != "vision_tower"
    ]


def _vision_notices(model: SourceModel) -> tuple[str, ...]:
    missing = model.missing_vision
    if not missing:
        return ()
    return (
        f"The source's vision tower is incomplete: {len(missing)} tensors are missing, among them "
        f"{missing[0]}.",
    )
