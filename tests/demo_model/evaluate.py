"""Measures the demo model: `python -m tests.demo_model.evaluate --model FOLDER`.

Prints accuracy and mean denoising steps per canvas for every task over held-out prompts.
Exact match of the whole response; stories are judged by their grammar and consistency.
"""

import argparse
import json
import random
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from tokenizers import Tokenizer

from .dialogue import TEST_TASKS, Example, held_out_example
from .runtimes import AnyRuntime, HoleReference, OwnRuntime, ReferenceRuntime
from .tasks import story_is_right

RUNTIMES: dict[str, Callable[[Path], AnyRuntime]] = {
    "reference": ReferenceRuntime,
    "ours": OwnRuntime,
    "converted": OwnRuntime,
}
HOLE = "hole"  # infilling; only the reference is driven here, and it is not part of the mean


@dataclass(frozen=True)
class Row:
    """What one task scored."""

    task: str
    prompts: int
    right: int
    accuracy: float
    steps: float
    seconds: float


def is_right(example: Example, text: str) -> bool:
    if example.task == "story":
        return story_is_right(example.question, text.removesuffix("<turn|>"))
    return text == example.response


def measure(
    runtime: AnyRuntime, tokenizer: Tokenizer, task: str, prompts: int, seed: int, show: int
) -> Row:
    rng = random.Random(f"{seed}/{task}")
    right, shown = 0, 0
    steps: list[int] = []
    started = time.monotonic()
    for index in range(prompts):
        example = held_out_example(rng, task)
        answer = runtime.answer(example, seed + index)
        steps += answer.steps
        text = tokenizer.decode(answer.token_ids, skip_special_tokens=False)
        good = is_right(example, text)
        right += good
        if not good and shown < show:
            shown += 1
            print(f"  {example.question!r} -> {text!r}, not {example.response!r}")
    seconds = (time.monotonic() - started) / prompts
    return Row(task, prompts, right, right / prompts, sum(steps) / len(steps), seconds)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=Path("build/demo_model/export"))
    parser.add_argument("--runtime", choices=RUNTIMES, default="reference")
    parser.add_argument("--converted", type=Path, help="folder for --runtime converted")
    parser.add_argument("--prompts", type=int, default=200, help="prompts per task")
    parser.add_argument("--tasks", nargs="+", choices=(*TEST_TASKS, HOLE), help="default: all")
    parser.add_argument("--seed", type=int, default=2024)
    parser.add_argument("--show", type=int, default=0, help="wrong answers to print per task")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    arguments = parser.parse_args()
    if arguments.runtime == "converted" and arguments.converted is None:
        parser.error("--runtime converted needs --converted FOLDER")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    folder = arguments.converted if arguments.runtime == "converted" else arguments.model
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    runtime = RUNTIMES[arguments.runtime](folder)
    infill = (HOLE,) if arguments.runtime == "reference" else ()
    rows: list[Row] = []
    print("| task | right | accuracy | steps/canvas | s/prompt |\n|---|---|---|---|---|")
    for task in arguments.tasks or (*TEST_TASKS, *infill):
        used = HoleReference(folder) if task == HOLE else runtime
        row = measure(used, tokenizer, task, arguments.prompts, arguments.seed, arguments.show)
        rows.append(row)
        print(
            f"| {task} | {row.right}/{row.prompts} | {row.accuracy:.3f} "
            f"| {row.steps:.2f} | {row.seconds:.2f} |",
            flush=True,
        )
    counted = [row for row in rows if row.task != HOLE] or rows
    accuracy = sum(row.accuracy for row in counted) / len(counted)
    steps = sum(row.steps for row in counted) / len(counted)
    print(f"| mean | | {accuracy:.3f} | {steps:.2f} | |")
    if arguments.json:
        report = {
            "runtime": arguments.runtime,
            "seed": arguments.seed,
            "mean": {"accuracy": accuracy, "steps": steps},
            "tasks": [asdict(row) for row in rows],
        }
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
