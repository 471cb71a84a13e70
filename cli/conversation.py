"""A conversation: its messages, its settings, and asking for the next answer."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from mlx_diffusiongemma.cli.options import Sampling
from mlx_diffusiongemma.cli.render import AnswerSink, run_answer
from mlx_diffusiongemma.cli.report import notices, statistics
from mlx_diffusiongemma.cli.session import Opened
from mlx_diffusiongemma.cli.terminal import AnswerOut, Notes, Terminal
from mlx_diffusiongemma.cli.views import choose_view
from mlx_diffusiongemma.errors import DiffusionGemmaError, OutputError

if TYPE_CHECKING:
    from mlx_diffusiongemma.results import Result

Message = dict[str, Any]


@dataclass
class Conversation:
    """The state of a chat.

    messages: user and assistant in turn, answers without thoughts; the runtime renders them anew
    for each answer. drawn: answers asked for since the seed was set; each gets the next seed.
    code: exit code of the latest message, 0 unless it was refused.
    """

    opened: Opened
    terminal: Terminal
    out: AnswerOut
    notes: Notes
    sampling: Sampling
    system: str | None = None
    view: str = "auto"
    show_thinking: bool = False
    show_stats: bool = False
    messages: list[Message] = field(default_factory=list)
    drawn: int = 0
    code: int = 0
    last: Result | None = None

    def ask(self, text: str) -> None:
        """Answers `text` and keeps both, unless the answer is refused or empty."""
        question: Message = {"role": "user", "content": text}
        system = [{"role": "system", "content": self.system}] if self.system else []
        keywords = self.sampling.later(self.drawn).keywords()
        self.drawn += 1
        self.code = 0
        sink: AnswerSink | None = None
        try:
            view = choose_view(self.view, self.terminal, self.notes, self.opened.runtime)
            sink = AnswerSink(self.out, view, thoughts=self.notes if self.show_thinking else None)
            prompt = [*system, *self.messages, question]
            result = run_answer(self.opened.runtime, prompt, sink, view, keywords)
        except KeyboardInterrupt:
            if not self.terminal.stdin_tty:
                raise
            self._stopped(question, "" if sink is None else sink.text)
        except OutputError:
            raise
        except DiffusionGemmaError as error:
            self.refuse(error)
        else:
            self._answered(question, result)

    def refuse(self, error: DiffusionGemmaError) -> None:
        """Says why a message was not answered. It is not part of the conversation."""
        self.code = error.exit_code
        self.notes.write(f"error: {error.message}\n")
        if error.hint:
            self.notes.write(f"hint: {error.hint}\n")

    def _answered(self, question: Message, result: Result) -> None:
        self.last = result
        if result.text.strip():
            self.messages += [question, {"role": "assistant", "content": result.text}]
        for sentence in notices(result):
            self.notes.note(sentence.replace("--max-tokens", "/set max-tokens"))
        if self.show_stats:
            self.notes.line(statistics(result))

    def _stopped(self, question: Message, text: str) -> None:
        if text.strip():
            self.messages += [question, {"role": "assistant", "content": text}]
            self.notes.draw("\r[stopped: kept as far as it got]\n")
        else:
            self.notes.draw("\r[stopped: nothing was final, the message is dropped]\n")

    def undo(self) -> str | None:
        """Forgets the latest exchange; returns its question, None when there is none."""
        if not self.messages:
            return None
        question = self.messages[-2]["content"]
        del self.messages[-2:]
        assert isinstance(question, str)
        return question

    def retry(self) -> bool:
        """Asks the latest question again, with the next seed; False when there is none.

        The old answer is forgotten only once a new one is there.
        """
        before = list(self.messages)
        question = self.undo()
        if question is None:
            return False
        kept = len(self.messages)
        self.ask(question)
        if len(self.messages) == kept:
            self.messages = before
        return True

    def change(self, **values: Any) -> None:
        """Changes sampling settings. UsageError and no change when a value is impossible."""
        self.sampling = replace(self.sampling, **values)
        if "seed" in values:
            self.drawn = 0
