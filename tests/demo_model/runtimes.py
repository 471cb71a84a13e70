"""The runtimes that evaluate.py can ask: the transformers reference and this project's own.

Heavy imports stay inside: the own runtime is judged without torch or transformers.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tokenizers import Tokenizer

from .dialogue import Example
from .encoding import encode_example
from .sizes import STOP_IDS

MAX_TOKENS = 96


@dataclass(frozen=True)
class Answer:
    """Token ids up to and with the end token, and the denoising steps of every canvas."""

    token_ids: list[int]
    steps: list[int]


class AnyRuntime(Protocol):
    def answer(self, example: Example, seed: int) -> Answer: ...


def upto_end(ids: list[int]) -> list[int]:
    """Cuts after the first end token."""
    for index, token in enumerate(ids):
        if token in STOP_IDS:
            return ids[: index + 1]
    return ids


class _StepCounter:
    """A transformers streamer that counts drafts: one per step, one `put` per canvas."""

    def __init__(self) -> None:
        self.steps: list[int] = []
        self._drafts = 0
        self._seen_prompt = False

    def put(self, value: Any) -> None:
        if self._seen_prompt:
            self.steps.append(self._drafts)
        self._drafts, self._seen_prompt = 0, True

    def put_draft(self, value: Any) -> None:
        self._drafts += 1

    def end(self) -> None:
        return


class ReferenceRuntime:
    """transformers in float32 with the checkpoint's own sampler settings, on one thread."""

    def __init__(self, folder: Path) -> None:
        import torch
        from transformers import DiffusionGemmaForBlockDiffusion

        torch.set_num_threads(1)
        loaded = DiffusionGemmaForBlockDiffusion.from_pretrained(folder, dtype=torch.float32)
        self.model = loaded.eval()
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def answer(self, example: Example, seed: int) -> Answer:
        import torch

        torch.manual_seed(seed)
        prompt = self.tokenizer.encode(example.prompt, add_special_tokens=False).ids
        counter = _StepCounter()
        output = self.model.generate(
            torch.tensor([prompt]), max_new_tokens=MAX_TOKENS, streamer=counter
        )
        return Answer(upto_end(output.sequences[0, len(prompt) :].tolist()), counter.steps)


class HoleReference(ReferenceRuntime):
    """Infilling with the reference model: given tokens are put back after every step."""

    def answer(self, example: Example, seed: int) -> Answer:
        import torch

        encoded = encode_example(self.tokenizer, example)
        size = self.model.config.canvas_length
        fill = [STOP_IDS[0]] * (size - len(encoded.response))
        truth = torch.tensor([encoded.response + fill])
        given = ~torch.tensor([encoded.hidden + [False] * len(fill)])
        with torch.no_grad():
            ids, steps = self._denoise(torch.tensor([encoded.prompt]), truth, given, seed)
        return Answer(upto_end(ids), [steps])

    def _denoise(self, prompt: Any, truth: Any, given: Any, seed: int) -> tuple[list[int], int]:
        """The released sampler for one canvas, with `truth` held where `given`."""
        import torch

        settings = self.model.generation_config
        draws = torch.Generator().manual_seed(seed)
        vocabulary = self.model.config.text_config.vocab_size
        canvas = torch.randint(0, vocabulary, truth.shape, generator=draws)
        soft = previous = None
        for left in range(settings.max_denoising_steps, 0, -1):
            canvas = torch.where(given, truth, canvas)
            share = left / settings.max_denoising_steps
            temperature = settings.t_min + (settings.t_max - settings.t_min) * share
            logits = self.model(
                input_ids=prompt, decoder_input_ids=canvas, self_conditioning_logits=soft
            ).logits
            soft = logits / temperature
            chances = soft.softmax(-1)
            entropy = torch.special.entr(chances).sum(-1).masked_fill(given, 0.0)
            best = torch.where(given, truth, soft.argmax(-1))
            calm = float(entropy.mean()) < settings.confidence_threshold
            if previous is not None and bool((previous == best).all()) and calm:
                break
            previous = best
            order = entropy.argsort(-1)
            ranked = entropy.gather(-1, order)
            within = ranked.cumsum(-1) - ranked <= settings.sampler_config.entropy_bound
            accepted = torch.zeros_like(given).scatter(-1, order, within)
            drawn = torch.multinomial(chances[0], 1, generator=draws).T
            fresh = torch.randint(0, vocabulary, truth.shape, generator=draws)
            canvas = torch.where(accepted, drawn, fresh)
        return best[0].tolist(), settings.max_denoising_steps - left + 1


class OwnRuntime:
    """This project's runtime on a checkpoint folder, original or converted."""

    def __init__(self, folder: Path) -> None:
        from mlx_diffusiongemma import load

        self.runtime = load(str(folder))

    def answer(self, example: Example, seed: int) -> Answer:
        options: dict[str, Any] = {}
        if example.tools:
            options["tools"] = list(example.tools)
        if example.thinking:
            options["thinking"] = True
        result = self.runtime.generate(
            list(example.messages), max_tokens=MAX_TOKENS, seed=seed, **options
        )
        return Answer(list(result.token_ids), list(result.stats.steps))
