"""The released checkpoint's config and tensor table against the modules we expect."""

from __future__ import annotations

from mlx_diffusiongemma.checkpoint.modules import expected_modules, vision_modules
from mlx_diffusiongemma.checkpoint.names import canonical_name, meaning_of
from mlx_diffusiongemma.checkpoint.plan import plan_weights
from mlx_diffusiongemma.config import ModelConfig, QuantizationSpec, parse_config
from tests.unit.checkpoint.tables import load, real_four_bit, real_original, real_shapes


def config(**extra: object) -> ModelConfig:
    files = load("real_config.json"), load("real_generation_config.json")
    return parse_config({**files[0], **extra}, files[1])


def test_every_name_and_shape_is_accounted_for() -> None:
    expected = {**expected_modules(config()), **vision_modules(config())}
    ours = {spec.tensor: spec.shape for spec in expected.values()}
    theirs = {canonical_name(name): shape for name, shape in real_shapes().items()}
    assert len(theirs) == 1047 and ours == theirs


def test_the_parameter_count() -> None:
    total = 0
    for spec in (*expected_modules(config()).values(), *vision_modules(config()).values()):
        size = 1
        for length in spec.shape:
            size *= length
        total += size
    assert total == 25_823_778_864 + 60 + 2 * 1152


def test_the_original_plans() -> None:
    plan = plan_weights(real_original(), config())
    assert len(plan.modules) + len(plan.vision) == 1047 and plan.ignored == ()
    assert len(plan.vision) == 2 + 2 + 27 * 13 + 1
    assert all(module.quantization is None for module in plan.modules.values())


def test_the_four_bit_conversion_plans() -> None:
    checkpoint, block = real_four_bit()
    assert len(block) - 3 == 236
    # The four published files hold 16,542,844,632 bytes, headers included.
    assert 0 <= 16_542_844_632 - checkpoint.total_bytes < 600_000
    plan = plan_weights(checkpoint, config(quantization=block))
    found = {path: module.quantization for path, module in plan.modules.items()}
    experts = "model.decoder.layers.7.experts.gate_up_proj"
    assert found[experts] == QuantizationSpec(4, 64)
    assert checkpoint.tensors[f"{experts}.weight"].shape == (128, 1408, 352)
    assert checkpoint.tensors[f"{experts}.scales"].shape == (128, 1408, 44)
    down = experts.replace("gate_up", "down")
    assert checkpoint.tensors[f"{down}.weight"].shape == (128, 2816, 88)
    assert found["model.decoder.embed_tokens"] == QuantizationSpec(8, 64)
    assert found["model.decoder.self_conditioning.gate_proj"] == QuantizationSpec(4, 64)
    assert found["model.decoder.norm"] is None
    projection = "model.encoder.embed_vision.embedding_projection"
    assert {f"{projection}.{part}" for part in ("weight", "scales", "biases")} <= set(plan.vision)


def test_the_roles_of_real_names() -> None:
    roles = [meaning_of(name).role for name in real_shapes()]
    assert set(roles) == {"text", "vision"}
