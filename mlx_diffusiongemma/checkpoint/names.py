"""What a stored tensor name means: canonical text weight, one expert's part, vision, or a copy.

Purely about names. Shapes, types and completeness are left to `plan`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from mlx_diffusiongemma.checkpoint.modules import DECODER, ENCODER, ENCODER_TEXT, TOWER

Role = Literal["text", "tied", "ignored", "vision"]
PARTS = ("weight", "scales", "biases")
_FUSED = re.compile(r"\.experts\.(gate_up_proj|down_proj)$")
_EXPERT = re.compile(
    r"^(?P<experts>model\.decoder\.layers\.\d+\.experts)\."
    r"(?:(?P<number>\d{1,6})\.)?(?P<proj>gate_proj|up_proj|down_proj)\.(?P<part>weight|scales|biases)$"
)
_CLIP = re.compile(r"\.(input|output)_(min|max)$")
_PART = r"(\.(weight|scales|biases))"
_VISION = re.compile(
    rf"^{re.escape(TOWER)}\.("
    rf"patch_embedder\.(input_proj{_PART}|position_embedding_table)|std_bias|std_scale|"
    rf"encoder\.layers\.\d+\.("
    rf"(input|post_attention|pre_feedforward|post_feedforward)_layernorm\.weight|"
    rf"self_attn\.([qkvo]_proj(\.linear)?{_PART}|[qk]_norm\.weight)|"
    rf"mlp\.(gate|up|down)_proj(\.linear)?{_PART}))$"
    rf"|^{re.escape(ENCODER)}\.embed_vision\.embedding_projection{_PART}$"
)
_SCALAR = re.compile(rf"^{re.escape(ENCODER_TEXT)}\.layers\.\d+\.layer_scalar$")
_FOREIGN = (
    ((".weight_scale_inv",), "FP8 blocks"),
    ((".weight_scale_2", ".weight_scale", ".input_scale", ".k_scale", ".v_scale"), "ModelOpt"),
    (
        (".weight_packed", ".weight_shape", ".weight_zero_point", ".weight_g_idx"),
        "compressed-tensors",
    ),
    ((".qweight", ".qzeros", ".g_idx"), "AWQ or GPTQ"),
    ((".absmax", ".quant_map", ".SCB", ".nested_absmax"), "bitsandbytes"),
    ((".lora_A.weight", ".lora_B.weight", ".lora_a", ".lora_b"), "a LoRA adapter"),
)


@dataclass(frozen=True)
class Meaning:
    """The role of a stored tensor; for `text` and `tied` its canonical (decoder) name.

    `expert` is the number in one-tensor-an-expert files, else None. `piece` is gate_proj or
    up_proj when the tensor is half of the canonical gate_up_proj.
    """

    role: Role
    name: str
    expert: int | None = None
    piece: str = ""


def canonical_name(stored: str) -> str:
    """The stored name with the `model.` prefix and the `.weight` of fused experts put in.

    Files saved from the inner model lack the prefix; the original's fused experts lack `.weight`.
    """
    name = f"model.{stored}" if stored.startswith(("decoder.", "encoder.")) else stored
    return f"{name}.weight" if _FUSED.search(name) else name


def meaning_of(stored: str) -> Meaning:
    """Classify one stored name; whether a `text` name is really expected is not decided here."""
    name = canonical_name(stored)
    if "rotary_emb." in name or _CLIP.search(name):
        return Meaning("ignored", name)
    if name.startswith(f"{ENCODER}.embed_vision.embedding."):
        return Meaning("ignored", name)  # vestigial: nothing reads it
    if _VISION.match(name):
        return Meaning("vision", name)
    if name.startswith("lm_head."):
        return Meaning("tied", f"{DECODER}.embed_tokens.{name.removeprefix('lm_head.')}")
    if name.startswith(f"{ENCODER_TEXT}.") and not _SCALAR.match(name):
        twin = _text_meaning(DECODER + name.removeprefix(ENCODER_TEXT))
        return Meaning("tied", twin.name, twin.expert, twin.piece)
    return _text_meaning(name)


def _text_meaning(name: str) -> Meaning:
    match = _EXPERT.match(name)
    if match is None:
        return Meaning("text", name)
    number, proj = match["number"], match["proj"]
    if number is None and proj == "down_proj":
        return Meaning("text", name)
    fused = "down_proj" if proj == "down_proj" else "gate_up_proj"
    return Meaning(
        "text",
        f"{match['experts']}.{fused}.{match['part']}",
        None if number is None else int(number),
        "" if proj == "down_proj" else proj,
    )


def foreign_format(stored: str) -> str | None:
    """The tool whose format a tensor name gives away, or None."""
    for endings, tool in _FOREIGN:
        if stored.endswith(endings):
            return tool
    return None
