"""Trains the demo model: `python -m tests.demo_model.train` from the repository root.

One thread, a fixed number of steps, everything drawn from the seed. Every `--every` steps a
snapshot (for `--resume`) and a usable checkpoint folder are written under `--out`.
"""

import argparse
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch

from .batches import BatchSource
from .export import export
from .model import DemoModel
from .objective import batch_loss
from .optimiser import Optimiser, rate_factor
from .parity import check_parity
from .sizes import Sizes
from .tokenizer import build_tokenizer
from .weights import Weights, initial_weights


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/demo_model"))
    parser.add_argument("--steps", type=int, default=5500)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--every", type=int, default=500, help="steps between snapshots")
    parser.add_argument("--resume", action="store_true", help="go on from the last snapshot")
    parser.add_argument("--stop-after", type=int, help="stop at this step, schedule unchanged")
    return parser.parse_args()


class Journal:
    """Means of the losses since the last line, per term and per task."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.clear()

    def clear(self) -> None:
        self.terms: list[tuple[float, float, float]] = []
        self.by_task: dict[str, list[float]] = defaultdict(list)

    def line(self, step: int, factor: float) -> str:
        means = [sum(column) / len(column) for column in zip(*self.terms, strict=True)]
        tasks = " ".join(f"{k}:{sum(v) / len(v):.2f}" for k, v in sorted(self.by_task.items()))
        seconds = time.monotonic() - self.started
        self.clear()
        return (
            f"step {step} {seconds:.0f}s denoise {means[0]:.3f} next {means[1]:.3f} "
            f"balance {means[2]:.3f} rate {factor:.2f} | {tasks}"
        )


def save_snapshot(path: Path, step: int, weights: Weights, optimiser: Optimiser) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    state: dict[str, Any] = {"step": step, "weights": weights, "optimiser": optimiser.state()}
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    os.replace(partial, path)


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    sizes, tokenizer = Sizes(), build_tokenizer()
    weights = initial_weights(sizes, torch.Generator().manual_seed(arguments.seed))
    snapshot = arguments.out / "ckpt" / "snapshot.pt"
    resumed = torch.load(snapshot) if arguments.resume and snapshot.exists() else None
    if resumed is not None:
        weights = resumed["weights"]
    weights = {name: value.detach().requires_grad_() for name, value in weights.items()}
    model, optimiser = DemoModel(sizes, weights), Optimiser(weights)
    first_step = 0
    if resumed is not None:
        optimiser.restore(resumed["optimiser"])
        first_step = resumed["step"]
    print(f"{sum(value.numel() for value in weights.values())} weights, from step {first_step}")
    print(f"transformers agrees to {check_parity(model, tokenizer):.1e}", flush=True)

    source = BatchSource(tokenizer, arguments.seed, arguments.batch, sizes.canvas)
    draws, journal = torch.Generator(), Journal()
    last_step = min(arguments.steps, arguments.stop_after or arguments.steps)
    for step in range(first_step, last_step):
        batch, factor = source[step], rate_factor(step, arguments.steps)
        draws.manual_seed(arguments.seed * 1_000_003 + step)
        loss = batch_loss(model, batch, draws)
        loss.total.backward()
        optimiser.step(factor)
        journal.terms.append((loss.denoising, loss.next_token, loss.balance))
        for task, value in zip(batch.tasks, loss.by_row, strict=True):
            journal.by_task[task].append(value)
        if (step + 1) % 100 == 0 or step + 1 in (10, 30):
            print(journal.line(step + 1, factor), flush=True)
        if (step + 1) % arguments.every == 0 or step + 1 == last_step:
            save_snapshot(snapshot, step + 1, weights, optimiser)
            export(weights, sizes, tokenizer, arguments.out / "export")
    print(f"transformers agrees to {check_parity(model, tokenizer):.1e}")
    for name in ("encoder_scalars", "decoder_scalars"):
        print(name, [round(value, 4) for value in weights[name].tolist()])


if __name__ == "__main__":
    main()
