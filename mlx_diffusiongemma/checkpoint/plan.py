"""Which stored tensors make up which module, checked in full before anything is loaded.

Every expected module must be there once, with the right shapes and types, and every stored tensor
must have an explanation. Loading the arrays is left to `weights`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from mlx_diffusiongemma.checkpoint.header import TensorInfo
from mlx_diffusiongemma.checkpoint.index import Checkpoint
from mlx_diffusiongemma.checkpoint.modules import ModuleSpec, expected_modules
from mlx_diffusiongemma.checkpoint.names import PARTS, Meaning, foreign_format, meaning_of
from mlx_diffusiongemma.config import ModelConfig, QuantizationConfig, QuantizationSpec
from mlx_diffusiongemma.config.jsonfile import shown
from mlx_diffusiongemma.errors import ModelError

if TYPE_CHECKING:
    import mlx.core as mx

FLOATS = ("BF16", "F16", "F32")
_MISMATCH = "The weights and config.json do not belong together, or the download is incomplete."


@dataclass(frozen=True)
class Source:
    """The stored tensors behind one canonical tensor.

    `pieces` holds one entry, or two (gate, up) to be joined along the output axis; an entry is one
    stored name, or with `by_expert` the names of all experts, to be stacked.
    """

    pieces: tuple[tuple[str, ...], ...]
    by_expert: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """All stored names."""
        return tuple(name for piece in self.pieces for name in piece)


@dataclass(frozen=True)
class PlannedModule:
    """A module, how it is packed (None: plain floats), and its canonical tensors' sources."""

    spec: ModuleSpec
    quantization: QuantizationSpec | None
    tensors: Mapping[str, Source]


@dataclass(frozen=True)
class WeightPlan:
    """All modules by canonical path; stored names left unread because they are copies or unused
    (`ignored`) or belong to the vision tower (`vision`).
    """

    modules: Mapping[str, PlannedModule]
    ignored: tuple[str, ...]
    vision: tuple[str, ...]


def plan_weights(checkpoint: Checkpoint, config: ModelConfig) -> WeightPlan:
    """Explain every tensor of a checkpoint and check it against the config; reads no weights.

    Raises ModelError for formats of other tools, unknown, missing or doubled tensors, and for
    wrong shapes or types (packed ones included).
    """
    tensors = checkpoint.tensors
    for name in tensors:
        tool = foreign_format(name)
        if tool:
            raise ModelError(
                f"The weights are stored in the format of {tool} (tensor {shown(name)}), "
                "which is not supported.",
                "Use an MLX conversion of this model, or convert the original weights.",
            )
    modules = expected_modules(config)
    allowed = {name for spec in modules.values() for name in _allowed(spec)}
    meanings = {name: meaning_of(name) for name in tensors}
    parts: dict[str, list[tuple[Meaning, str]]] = {}
    for stored, meaning in meanings.items():
        if meaning.role == "text" and meaning.name in allowed:
            parts.setdefault(meaning.name, []).append((meaning, stored))
    unknown = [
        stored
        for stored, meaning in meanings.items()
        if meaning.role in ("text", "tied") and meaning.name not in allowed
    ]
    _refuse("not part of this model", unknown)
    _refuse("missing", [spec.tensor for spec in modules.values() if spec.tensor not in parts])
    sources = {name: _source(name, found, config.text.num_experts) for name, found in parts.items()}
    planned = {
        path: _planned(spec, sources, tensors, config.quantization)
        for path, spec in modules.items()
    }
    _check_copies(tensors, meanings, parts, modules)
    return WeightPlan(
        planned,
        tuple(name for name, meaning in meanings.items() if meaning.role in ("tied", "ignored")),
        tuple(name for name, meaning in meanings.items() if meaning.role == "vision"),
    )


def read_source(checkpoint: Checkpoint, source: Source) -> mx.array:
    """The canonical tensor as a lazy array, stacked over experts and joined where needed."""
    import mlx.core as mx

    pieces = []
    for names in source.pieces:
        arrays = [checkpoint.read(name) for name in names]
        pieces.append(mx.stack(arrays) if source.by_expert else arrays[0])
    return pieces[0] if len(pieces) == 1 else mx.concatenate(pieces, axis=-2)


def _allowed(spec: ModuleSpec) -> Iterable[str]:
    return [f"{spec.path}.{part}" for part in PARTS] if spec.quantizable else [spec.tensor]


def _refuse(problem: str, names: Sequence[str], count: int | None = None) -> None:
    """Raise the ModelError for these tensors, if any; `count` when there are more than named."""
    if not names:
        return
    count = len(names) if count is None else count
    listed = ", ".join(shown(name) for name in names[:3])
    if count == 1:
        raise ModelError(f"The tensor {listed} is {problem}.", _MISMATCH)
    among = "" if count <= 3 else ", among them"
    raise ModelError(f"{count} tensors are {problem}{among}: {listed}.", _MISMATCH)


def _source(name: str, found: list[tuple[Meaning, str]], num_experts: int) -> Source:
    """Put the stored parts of one canonical tensor in order: nothing missing, nothing twice."""
    slots: dict[tuple[str, int | None], str] = {}
    for meaning, stored in found:
        slot = (meaning.piece, meaning.expert)
        if slot in slots:
            raise ModelError(f"{shown(slots[slot])} and {shown(stored)} are the same tensor.")
        slots[slot] = stored
    if ("", None) in slots:
        if len(slots) > 1:
            other = next(stored for slot, stored in slots.items() if slot != ("", None))
            raise ModelError(f"{shown(slots['', None])} and {shown(other)} are the same tensor.")
        return Source(((slots["", None],),))
    by_expert = any(expert is not None for _, expert in slots)
    pieces = ("gate_proj", "up_proj") if ".gate_up_proj." in name else ("",)
    experts: Sequence[int | None] = range(num_experts) if by_expert else (None,)
    extra = [
        stored
        for (piece, expert), stored in slots.items()
        if piece not in pieces or expert not in experts
    ]
    _refuse("not part of this model", extra)
    # Lazily, for the number of experts is only a claim of config.json.
    absent = (
        _slot_name(name, piece, expert)
        for piece in pieces
        for expert in experts
        if (piece, expert) not in slots
    )
    _refuse("missing", list(islice(absent, 3)), len(pieces) * len(experts) - len(slots))
    return Source(
        tuple(tuple(slots[piece, expert] for expert in experts) for piece in pieces), by_expert
    )


def _slot_name(name: str, piece: str, expert: int | None) -> str:
    experts, _, rest = name.partition(".experts.")
    fused, _, part = rest.partition(".")
    number = "" if expert is None else f"{expert}."
    return f"{experts}.experts.{number}{piece or fused}.{part}"


def _planned(
    spec: ModuleSpec,
    sources: Mapping[str, Source],
    tensors: Mapping[str, TensorInfo],
    quantization: QuantizationConfig | None,
) -> PlannedModule:
    """One module with its packing decided by the presence of `.scales`, everything checked."""
    own = {name: sources[name] for name in _allowed(spec) if name in sources}
    scales, biases = f"{spec.path}.scales", f"{spec.path}.biases"
    if not spec.quantizable or scales not in own:
        if biases in own:
            _refuse("not part of this model", own[biases].names)
        if spec.quantizable and tensors[own[spec.tensor].names[0]].dtype == "U32":
            raise ModelError(f"{shown(spec.tensor)} is packed, but {shown(scales)} is missing.")
        _check(spec, own[spec.tensor], spec.shape, FLOATS, tensors)
        return PlannedModule(spec, None, own)
    if quantization is None:
        raise ModelError(
            f"The tensor {shown(own[scales].names[0])} is quantised, but config.json has no "
            "quantization block."
        )
    packing = _packing(spec, own[spec.tensor], quantization)
    affine = packing.mode == "affine"
    if affine and biases not in own:
        _refuse("missing", [biases])
    if not affine and biases in own:
        raise ModelError(
            f"The tensor {shown(own[biases].names[0])} does not fit the mode {packing.mode}."
        )
    width = spec.shape[-1]
    if width % packing.group_size or width * packing.bits % 32:
        raise ModelError(
            f"{shown(spec.path)} cannot be quantised with bits {packing.bits} and group_size "
            f"{packing.group_size}: its width is {width}."
        )
    rows = spec.shape[:-1]
    groups = (*rows, width // packing.group_size)
    _check(spec, own[spec.tensor], (*rows, width * packing.bits // 32), ("U32",), tensors)
    _check(spec, own[scales], groups, FLOATS if affine else ("U8",), tensors)
    if affine:
        _check(spec, own[biases], groups, FLOATS, tensors)
    return PlannedModule(spec, packing, own)


def _packing(
    spec: ModuleSpec, source: Source, quantization: QuantizationConfig
) -> QuantizationSpec:
    """The module's packing: named for the canonical path, or for the paths it is stored under."""
    override = quantization.override_of(spec.path)
    if override is not None:
        return override
    found = {quantization.for_module(name.removesuffix(".weight")) for name in source.names}
    if len(found) > 1:
        raise ModelError(f"The parts of {shown(spec.path)} are quantised in different ways.")
    return found.pop()


def _check(
    spec: ModuleSpec,
    source: Source,
    shape: tuple[int, ...],
    dtypes: tuple[str, ...],
    tensors: Mapping[str, TensorInfo],
) -> None:
    """Each stored part must have its share of the canonical shape, and all one allowed dtype."""
    expected = shape[1:] if source.by_expert else shape
    if len(source.pieces) > 1:
        expected = (*expected[:-2], expected[-2] // len(source.pieces), expected[-1])
    first = tensors[source.names[0]].dtype
    for name in source.names:
        info = tensors[name]
        scalar = spec.kind == "scalar" and info.shape == ()
        if info.shape != expected and not scalar:
            raise ModelError(
                f"The tensor {shown(name)} has the shape {list(info.shape)}, but config.json "
                f"calls for {list(expected)}.",
                _MISMATCH,
            )
        if info.dtype not in dtypes or info.dtype != first:
            wanted = f"{first} like the rest" if first in dtypes else " or ".join(dtypes)
            raise ModelError(f"The tensor {shown(name)} has the dtype {info.dtype}, not {wanted}.")


def _check_copies(
    tensors: Mapping[str, TensorInfo],
    meanings: Mapping[str, Meaning],
    parts: Mapping[str, list[tuple[Meaning, str]]],
    modules: Mapping[str, ModuleSpec],
) -> None:
    """A tied copy is never read, but it must look like the tensor it is a copy of."""
    plain = {spec.tensor: spec.shape for spec in modules.values()}
    for stored, meaning in meanings.items():
        if meaning.role != "tied":
            continue
        slot = (meaning.piece, meaning.expert)
        shapes = [
            tensors[twin].shape
            for other, twin in parts.get(meaning.name, [])
            if (other.piece, other.expert) == slot
        ]
        if slot == ("", None) and meaning.name in plain:
            shapes.append(plain[meaning.name])
        if shapes and tensors[stored].shape not in shapes:
            raise ModelError(
                f"The tensor {shown(stored)} should be a copy of {shown(meaning.name)}, but its "
                f"shape is {list(tensors[stored].shape)}.",
                _MISMATCH,
            )
