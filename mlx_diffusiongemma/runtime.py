"""The runtime: loads a checkpoint and joins the rooms, words -> ids -> canvas -> ids -> words."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import index
from pathlib import Path
from typing import Any, TypedDict, Unpack

import mlx.core as mx

from mlx_diffusiongemma.checkpoint.hub import resolve
from mlx_diffusiongemma.checkpoint.index import open_checkpoint
from mlx_diffusiongemma.checkpoint.weights import load_weights
from mlx_diffusiongemma.config import ModelConfig, read_config
from mlx_diffusiongemma.diffusion.denoise import generate as generate_canvases
from mlx_diffusiongemma.diffusion.draws import KeyDraws
from mlx_diffusiongemma.diffusion.events import CanvasDone, Event, Finished, Step
from mlx_diffusiongemma.diffusion.settings import DiffusionSettings, SamplerName, checked_whole
from mlx_diffusiongemma.errors import DiffusionGemmaError, UsageError
from mlx_diffusiongemma.model.cache import Prefix
from mlx_diffusiongemma.model.transformer import DiffusionGemma
from mlx_diffusiongemma.prompt import Prompt, build_prompt
from mlx_diffusiongemma.reader import AnswerReader
from mlx_diffusiongemma.results import Result, Stats
from mlx_diffusiongemma.session import PromptReuse, Session
from mlx_diffusiongemma.text.chat import ChatTemplate, load_template
from mlx_diffusiongemma.text.tokenizer import Tokenizer, load_tokenizer, require_ids_below

Message = Mapping[str, Any]
DTYPES = {"float32": mx.float32, "bfloat16": mx.bfloat16, "float16": mx.float16}


class SamplingOptions(TypedDict, total=False):
    """Overrides of the checkpoint's sampler defaults; see `DiffusionSettings` for meanings.

    steps is `max_steps`, temperature is `proposal_temperature`.
    """

    steps: int
    temperature: float
    sampler: SamplerName
    entropy_bound: float
    reveal_threshold: float
    t_min: float
    t_max: float
    stability_threshold: int
    confidence_threshold: float


_FIELDS = {"steps": "max_steps", "temperature": "proposal_temperature"}


def load_model(folder: Path, dtype: mx.Dtype | str | None = None) -> DiffusionGemma:
    """The network of a local checkpoint folder, every weight read and on the device.

    dtype is that of activations and unquantised weights: by default the checkpoint's on a GPU and
    float32 on a CPU, where half precision is emulated. Raises ModelError.
    """
    config = read_config(folder)
    chosen = _dtype(dtype, config)
    loaded = load_weights(open_checkpoint(folder), config, dtype=chosen)
    model = DiffusionGemma(config, loaded.weights, chosen, loaded.quantization)
    # Streams belong to threads: only evaluated arrays can be used from another one.
    mx.eval(*model.arrays())
    return model


def load(
    path_or_repo: str | Path,
    *,
    revision: str | None = None,
    dtype: mx.Dtype | str | None = None,
) -> Runtime:
    """Loads a checkpoint: a local folder, a hub repository, or "demo" for the bundled tiny model.

    revision is a branch, tag or commit of a hub repository. dtype as in `load_model`. Raises
    ModelError (files missing, damaged or not DiffusionGemma) or NetworkError.
    """
    named: object = path_or_repo
    if not isinstance(named, str | Path):
        raise UsageError(f"A model is chosen by a path or a name, not by {type(named).__name__}.")
    folder = resolve(str(named), revision)
    # Small files first: a damaged one is told before gigabytes of weights are read.
    tokenizer, template = load_tokenizer(folder), load_template(folder)
    return Runtime(load_model(folder, dtype), tokenizer, template, folder)


class Stream(Iterator[Event]):
    """The events of one answer. After the last one, `result` is the whole of it."""

    def __init__(
        self, events: Generator[Event, None, None], finish: Callable[[], Result | None]
    ) -> None:
        self._events = events
        self._finish = finish

    def __next__(self) -> Event:
        return next(self._events)

    def close(self) -> None:
        """Gives the answer up; the runtime is free for the next one."""
        self._events.close()

    @property
    def result(self) -> Result:
        """The answer. Raises DiffusionGemmaError while events are still to come."""
        result = self._finish()
        if result is None:
            raise DiffusionGemmaError("The answer is not complete yet.")
        return result


class Runtime:
    """A loaded model ready to answer. One answer at a time; use from any thread."""

    def __init__(
        self,
        model: DiffusionGemma,
        tokenizer: Tokenizer,
        template: ChatTemplate | None,
        source: Path,
    ) -> None:
        self.model = model
        self.config = model.config
        self.tokenizer = tokenizer
        self.template = template
        self.source = source
        self.notices: tuple[str, ...] = model.config.generation.notices
        self.stop_ids = frozenset(model.config.stop_token_ids) | frozenset(tokenizer.eos_token_ids)
        self._reuse = PromptReuse()
        self._busy = threading.Lock()

    # ---- answers ----

    def generate(
        self,
        prompt: str | Sequence[Message],
        *,
        max_tokens: int | None = None,
        seed: int | None = None,
        system: str | None = None,
        thinking: bool | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        raw: bool = False,
        on_prefill: Callable[[int, int], None] | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> Result:
        """Answers a prompt (text or chat messages) and returns the whole answer.

        max_tokens: at most this many ids (default: the checkpoint's). seed: repeats a run; None
        draws one, told in the result. system: a system message before the prompt. thinking: passed
        to the chat template; None leaves its default. tools: function declarations for the
        template. raw: the prompt text goes in as it is, markers and all, without the template.
        on_prefill(done, total): told while a long prompt is encoded. Unknown keywords raise
        TypeError, impossible values UsageError.
        """
        stream = self.stream(
            prompt,
            max_tokens=max_tokens,
            seed=seed,
            system=system,
            thinking=thinking,
            tools=tools,
            raw=raw,
            on_prefill=on_prefill,
            **sampling,
        )
        for _ in stream:
            pass
        return stream.result

    def stream(
        self,
        prompt: str | Sequence[Message],
        *,
        max_tokens: int | None = None,
        seed: int | None = None,
        system: str | None = None,
        thinking: bool | None = None,
        tools: Sequence[Mapping[str, Any]] | None = None,
        raw: bool = False,
        on_prefill: Callable[[int, int], None] | None = None,
        **sampling: Unpack[SamplingOptions],
    ) -> Stream:
        """As `generate`, but yields events while the text resolves. Checks arguments at once."""
        settings = self.settings(**sampling)
        limit = self._limit(max_tokens)
        chosen = _seed(seed)
        built = build_prompt(
            self.tokenizer,
            self.template,
            prompt,
            system=system,
            thinking=thinking,
            tools=tools,
            raw=raw,
        )
        require_ids_below(built.ids, self.config.text.vocab_size, self.tokenizer)
        self._check_room(len(built.ids))
        results: list[Result] = []
        events = self._answer(built, settings, limit, chosen, on_prefill, results)
        return Stream(events, lambda: results[0] if results else None)

    def settings(self, **sampling: Unpack[SamplingOptions]) -> DiffusionSettings:
        """The checkpoint's sampler settings with the given overrides; None means no override."""
        given: Mapping[str, Any] = sampling
        unknown = sorted(set(given) - SamplingOptions.__annotations__.keys())
        if unknown:
            raise TypeError(f"unexpected keyword argument {unknown[0]!r}")
        defaults = self.config.generation
        base = {
            "max_steps": defaults.max_denoising_steps,
            "t_min": defaults.t_min,
            "t_max": defaults.t_max,
            "entropy_bound": defaults.entropy_bound,
            "stability_threshold": defaults.stability_threshold,
            "confidence_threshold": defaults.confidence_threshold,
        }
        chosen = {_FIELDS.get(k, k): v for k, v in given.items() if v is not None}
        return DiffusionSettings(**{**base, **chosen})

    def draft_text(self, step: Step) -> str:
        """A step's draft as text, cut at its first end token, markers left in."""
        ids: list[int] = step.draft.tolist()
        end = next((i for i, token in enumerate(ids) if token in self.stop_ids), len(ids))
        return self.tokenizer.decode(ids[:end])

    # ---- the network, for research and outside checks ----

    def prefill(self, token_ids: Sequence[int] | mx.array, prefix: Prefix | None = None) -> Prefix:
        """Encodes token_ids after `prefix` (or nothing) and returns the longer prefix."""
        return self.model.prefill(self._checked_ids(token_ids), prefix)

    def canvas_logits(
        self,
        prefix: Prefix,
        canvas_ids: Sequence[int] | mx.array,
        *,
        self_conditioning: mx.array | None = None,
    ) -> mx.array:
        """Soft-capped float32 logits (L, V) of a canvas of any length L >= 1 after `prefix`.

        self_conditioning (L, V): the previous step's logits after temperature, None at step 1. The
        prefix is not changed.
        """
        ids = self._checked_ids(canvas_ids)
        if not ids:
            raise UsageError("A canvas needs at least one token.")
        expected = (len(ids), self.config.text.vocab_size)
        if self_conditioning is not None and tuple(self_conditioning.shape) != expected:
            shape = tuple(self_conditioning.shape)
            raise UsageError(f"self_conditioning must have shape {expected}, not {shape}.")
        canvas = mx.array(ids, dtype=mx.int32)
        return self.model.canvas_logits(prefix, canvas, self_conditioning)

    def commit(self, prefix: Prefix, canvas_ids: Sequence[int] | mx.array) -> Prefix:
        """Encodes a finished canvas causally and returns the longer prefix."""
        return self.prefill(canvas_ids, prefix)

    def next_token_logits(self, prefix: Prefix) -> mx.array:
        """The autoregressive reading of the weights: logits (V,) of the token after `prefix`."""
        if prefix.last_hidden is None:
            raise UsageError("Next-token logits need a prefix whose last token was just encoded.")
        return self.model.next_token_logits(prefix)

    # ---- inside ----

    def _answer(
        self,
        prompt: Prompt,
        settings: DiffusionSettings,
        max_tokens: int,
        seed: int,
        on_prefill: Callable[[int, int], None] | None,
        results: list[Result],
    ) -> Generator[Event, None, None]:
        if not self._busy.acquire(blocking=False):
            raise DiffusionGemmaError(
                "This runtime is already answering.", "Finish or close that stream first."
            )
        try:
            start = time.perf_counter()
            prefix, reused = self._reuse.prefill(self.model, prompt.ids, on_prefill)
            prefilled = time.perf_counter()
            reader = AnswerReader(self.tokenizer, prompt.state)
            for event in generate_canvases(
                Session(self.model, prefix),
                settings,
                KeyDraws(seed),
                max_tokens=max_tokens,
                stop_ids=self.stop_ids,
            ):
                if isinstance(event, CanvasDone):
                    text, thinking = reader.feed(self._said(event.token_ids))
                    event = replace(event, text=text, thinking=thinking)
                elif isinstance(event, Finished):
                    text, thinking = reader.finish()
                    stats = Stats(
                        prompt_tokens=len(prompt.ids),
                        reused_tokens=reused,
                        tokens=len(event.token_ids),
                        steps=event.steps,
                        prefill_seconds=prefilled - start,
                        denoise_seconds=time.perf_counter() - prefilled,
                    )
                    results.append(reader.result(event, seed, stats))
                    event = replace(event, text=text, thinking=thinking)
                yield event
        finally:
            self._busy.release()

    def _said(self, ids: tuple[int, ...]) -> tuple[int, ...]:
        """The ids that are read as text: an end token is none, even if it is an ordinary word."""
        return ids[:-1] if ids and ids[-1] in self.stop_ids else ids

    def _limit(self, max_tokens: int | None) -> int:
        if max_tokens is None:
            return self.config.generation.max_new_tokens
        return checked_whole("max_tokens", max_tokens, minimum=1)

    def _check_room(self, prompt_tokens: int) -> None:
        context = self.config.text.max_position_embeddings
        canvas = self.config.canvas_length
        if prompt_tokens + canvas > context:
            raise UsageError(
                f"The prompt has {prompt_tokens} tokens; with a canvas of {canvas} it exceeds the "
                f"model's context of {context}.",
                f"Shorten it to at most {context - canvas} tokens.",
            )

    def _checked_ids(self, ids: Sequence[int] | mx.array) -> list[int]:
        raw: Any = ids.tolist() if isinstance(ids, mx.array) else ids
        try:
            listed = [index(token) for token in raw]
        except TypeError:
            raise UsageError(
                "Token ids must be a one-dimensional sequence of whole numbers."
            ) from None
        vocabulary = self.config.text.vocab_size
        for token in listed:
            if not 0 <= token < vocabulary:
                raise UsageError(f"Token id {token} is outside the vocabulary of {vocabulary}.")
        return listed


def _dtype(dtype: mx.Dtype | str | None, config: ModelConfig) -> mx.Dtype:
    on_cpu = mx.default_device() == mx.Device(mx.cpu)
    if dtype is None:
        return mx.float32 if on_cpu else DTYPES[config.dtype]
    if isinstance(dtype, str):
        if dtype not in DTYPES:
            raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype!r}.")
        dtype = DTYPES[dtype]
    if dtype not in DTYPES.values():
        raise UsageError(f"dtype must be one of {', '.join(DTYPES)}, not {dtype}.")
    return dtype


def _seed(seed: int | None) -> int:
    if seed is None:
        return secrets.randbits(32)
    return checked_whole("seed", seed, minimum=0, maximum=2**64 - 1)
