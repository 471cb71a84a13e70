"""The reference side of the live comparison: transformers on the CPU, one case at a time.

torch and transformers are imported where they are used, so that collecting these tests works
without them and running them fails.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from mlx_diffusiongemma.diffusion.settings import DiffusionSettings
from tests.parity.cases import Case, config_json, make_weights
from tests.parity.facts import CanvasFacts, Facts, trial
from tests.parity.recording import Recording

PER_LAYER, PUBLISHED = "per layer", "published"


def build_reference(case: Case) -> Any:
    """The transformers model with the case's weights in float32, with either attention."""
    import torch
    from transformers import DiffusionGemmaConfig, DiffusionGemmaForBlockDiffusion

    torch.set_num_threads(1)
    config = DiffusionGemmaConfig.from_dict(config_json(case))
    config._attn_implementation = "sdpa" if case.seed % 2 else "eager"
    config._experts_implementation = "eager"
    model = DiffusionGemmaForBlockDiffusion(config).eval()
    state = {
        name.removesuffix(".weight") if ".experts." in name else name: torch.from_numpy(array)
        for name, array in make_weights(case).items()
    }
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    untied = [n for n in missing if "vision" not in n and not _is_tied(model, n)]
    assert not untied, untied
    return model


def _is_tied(model: Any, name: str) -> bool:
    """Whether a parameter that was not loaded shares the storage of one that was."""
    other = name.replace("encoder.language_model", "decoder")
    if name == "lm_head.weight":
        other = "model.decoder.embed_tokens.weight"
    mine, its = model.get_parameter(name), model.get_parameter(other)
    return other != name and mine.data_ptr() == its.data_ptr()


def save_reference(model: Any, case: Case, folder: Path, form: str) -> None:
    """Writes the model with save_pretrained, the config as it comes or in the published form."""
    model.save_pretrained(folder)
    path = folder / "config.json"
    written = json.loads(path.read_text())
    assert "per_layer_config" in written["text_config"]
    if form == PUBLISHED:
        path.write_text(json.dumps(config_json(case)))


def reference_facts(model: Any, case: Case) -> Facts:
    """What transformers computes for the case's trial."""
    import torch

    with torch.no_grad():
        plan = trial(case)
        encoded = model.model.encoder(input_ids=torch.tensor([plan.prompt]))
        cache = encoded.cache
        ar_logits = _head(model, encoded.last_hidden_state)
        keys = [_numpy(layer.keys) for layer in cache.layers]
        values = [_numpy(layer.values) for layer in cache.layers]
        canvases = []
        for number, ids in enumerate(plan.canvases):
            if number:
                model.model.encoder(
                    input_ids=torch.tensor([plan.canvases[number - 1]]), cache=cache
                )
            canvas = torch.tensor([ids])
            first = model(decoder_input_ids=canvas, cache=cache).logits
            second = model(
                decoder_input_ids=torch.tensor([plan.second[number]]),
                cache=cache,
                self_conditioning_logits=first / plan.temperature,
            ).logits
            canvases.append(CanvasFacts(_numpy(first), _numpy(second)))
        return Facts(_numpy(ar_logits), keys, values, canvases)


def record_generation(
    model: Any, prompt: list[int], settings: DiffusionSettings, max_tokens: int, eos: list[int]
) -> Recording:
    """Runs transformers' generate and keeps every draw it made and everything it did with them."""
    import torch
    from transformers.models.diffusion_gemma.generation_diffusion_gemma import (
        EntropyBoundSamplerConfig,
    )

    watcher = _Watcher()
    with _recorded("randint") as uniform, _recorded("multinomial") as categorical:
        result = model.generate(
            torch.tensor([prompt]),
            streamer=watcher,
            max_new_tokens=max_tokens,
            max_denoising_steps=settings.max_steps,
            sampler_config=EntropyBoundSamplerConfig(settings.entropy_bound),
            t_min=settings.t_min,
            t_max=settings.t_max,
            stability_threshold=settings.stability_threshold,
            confidence_threshold=settings.confidence_threshold,
            eos_token_id=eos,
            pad_token_id=0,
        )
    return Recording(
        tokens=result.sequences[0, len(prompt) :].tolist(),
        steps=watcher.steps,
        cache_length=int(result.cache.get_seq_length()),
        uniform=np.array(uniform, dtype=np.int32),
        categorical=np.array(categorical, dtype=np.int32),
        logits=np.array(watcher.logits, dtype=np.float32),
    )


class _Watcher:
    """A streamer that counts the steps of each canvas and keeps their processed logits."""

    _takes_logits = True

    def __init__(self) -> None:
        self.steps: list[int] = []
        self.logits: list[Any] = []
        self._count = 0

    def put_draft(self, logits: Any) -> None:
        self._count += 1
        self.logits.append(logits[0].numpy().copy())

    def put(self, ids: Any) -> None:
        if self._count:  # the first call brings the prompt
            self.steps.append(self._count)
        self._count = 0

    def end(self) -> None:
        pass


@contextmanager
def _recorded(name: str) -> Iterator[list[list[int]]]:
    """Keeps what torch's random function `name` returns, flattened."""
    import torch

    real, kept = getattr(torch, name), []

    def recording(*args: Any, **kwargs: Any) -> Any:
        drawn = real(*args, **kwargs)
        kept.append(drawn.flatten().tolist())
        return drawn

    setattr(torch, name, recording)
    try:
        yield kept
    finally:
        setattr(torch, name, real)


def _head(model: Any, hidden: Any) -> Any:
    """Autoregressive logits: transformers has no path to them, so its parts are joined here."""
    cap = model.final_logit_softcapping
    return cap * (model.lm_head(hidden) / cap).tanh()


def _numpy(tensor: Any) -> Any:
    array = tensor.detach().numpy()
    return np.array(array[0])


@contextmanager
def double_precision() -> Iterator[None]:
    """Widens every float32 upcast inside transformers to float64, for a float64 model."""
    import torch

    saved = torch.float32, torch.float, torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = lambda self: self.double()
    try:
        yield
    finally:
        torch.float32, torch.float, torch.Tensor.float = saved
