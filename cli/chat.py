"""`dgemma chat`: a conversation, typed at a terminal or fed from a pipe."""

from __future__ import annotations

from mlx_diffusiongemma.cli import chat_input, options, session, settings, terminal
from mlx_diffusiongemma.cli.chat_commands import Leave, parse_command, run_command
from mlx_diffusiongemma.cli.conversation import Conversation
from mlx_diffusiongemma.cli.options import Sampling
from mlx_diffusiongemma.cli.prompts import check_text

EXAMPLES = '''\
Typing:
  One line is one message; """ begins and ends a message of several lines.
  /help lists the commands. Ctrl-C stops the answer and keeps what is final,
  Ctrl-D leaves. Typed lines are kept in a file only you can read.

From a pipe:
  Each line is a message, blank lines are skipped, and the chat ends with the
  input. The answers alone go to standard output. A message that is refused
  (too long for the context, say) is told on standard error and the chat goes
  on; the exit code is that of the last message, as in a shell.

Seeds:
  With --seed N the first answer uses N, the next N+1, and so on: the same
  messages give the same conversation.

Examples:
  dgemma chat -m demo
  dgemma chat -m demo --system-prompt "Answer in one sentence." --thinking
  printf 'Hello!\\nWho are you?\\n' | dgemma chat -m demo --seed 1
'''


def chat(
    model: options.Model = None,
    revision: options.Revision = None,
    dtype: options.Dtype = None,
    system_prompt: options.System = None,
    thinking: options.Thinking = None,
    max_tokens: options.MaxTokens = None,
    temperature: options.Temperature = 1.0,
    seed: options.Seed = None,
    steps: options.Steps = None,
    sampler: options.Sampler = "entropy-bound",
    entropy_bound: options.EntropyBound = None,
    t_min: options.TMin = None,
    t_max: options.TMax = None,
    stability: options.Stability = None,
    confidence: options.Confidence = None,
    show_thinking: options.ShowThinking = False,
    stats: options.Stats = False,
    view: options.View = "auto",
    quiet: options.Quiet = False,
    debug: options.Debug = False,
) -> int:
    """Talk with a model.

    The whole conversation is sent with every message, without the model's old thoughts.
    """
    sampling = Sampling(
        max_tokens=max_tokens,
        temperature=temperature,
        seed=seed,
        steps=steps,
        sampler=sampler,
        entropy_bound=entropy_bound,
        t_min=t_min,
        t_max=t_max,
        stability=stability,
        confidence=confidence,
        thinking=thinking,
    )
    options.check_choices(view, dtype)
    if system_prompt is not None:
        check_text("--system-prompt", system_prompt)
    streams = terminal.detect()
    notes = terminal.standard_error(streams, quiet)
    name = settings.choose_model(model)
    opened = session.open_session(name, revision, dtype, streams, notes)
    conversation = Conversation(
        opened=opened,
        terminal=streams,
        out=terminal.standard_output(streams),
        notes=notes,
        sampling=sampling,
        system=system_prompt,
        view=view,
        show_thinking=show_thinking,
        show_stats=stats,
    )
    if streams.stdin_tty:
        notes.line(f"{name} · /help lists the commands, Ctrl-D leaves")
    converse(conversation)
    return conversation.code if not streams.stdin_tty else 0


def converse(chat: Conversation) -> None:
    """Answers messages until the input ends or /bye."""
    typed = chat.terminal.stdin_tty

    def interrupted() -> None:
        if not typed:
            raise KeyboardInterrupt
        chat.notes.line(chat_input.LEAVE_HINT)

    read_line = chat_input.line_source(chat.terminal, chat.notes)
    for text, fenced in chat_input.messages(read_line, chat.refuse, interrupted):
        command = None if fenced else parse_command(text)
        try:
            if command is None:
                chat.ask(text)
            else:
                run_command(*command, chat)
        except Leave:
            break
        except KeyboardInterrupt:  # not while an answer ran: that one is the conversation's
            interrupted()
