"""`chat`: from a pipe byte for byte, and on a terminal by its screens."""

from __future__ import annotations

import stat
from collections.abc import Callable
from typing import Any

import pytest

from mlx_diffusiongemma.cli import settings
from mlx_diffusiongemma.errors import ModelError, UsageError
from tests.cli.conftest import Ran
from tests.cli.fake_runtime import Answer, FakeRuntime
from tests.cli.screens import Screen

THOUGHT = "<|channel>thought\nhm\n<channel|>"


def roles(messages: Any) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in messages]


# ---- from a pipe ----


def test_each_line_is_a_turn_and_the_answers_are_all_there_is(
    cli: Callable[..., Ran], runtime: FakeRuntime
) -> None:
    runtime.answers = [Answer(["Hello!"]), Answer(["one\ntwo\n"]), Answer([THOUGHT + "Bye."])]
    ran = cli("chat", "-m", "x", stdin="hi\n\n   \nagain\r\n\ufeffbye")
    assert ran == Ran(0, "Hello!\none\ntwo\nBye.\n", "")
    assert [roles(prompt) for prompt, _ in runtime.calls] == [
        [("user", "hi")],
        [("user", "hi"), ("assistant", "Hello!"), ("user", "again")],
        [
            ("user", "hi"),
            ("assistant", "Hello!"),
            ("user", "again"),
            ("assistant", "one\ntwo\n"),
            ("user", "bye"),
        ],
    ]


def test_old_thoughts_are_never_sent_back(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    runtime.answers = [Answer([THOUGHT + "It is 4."])]
    ran = cli("chat", "-m", "x", "--show-thinking", "--thinking", stdin="a\nb\n")
    assert ran.out == "It is 4.\nIt is 4.\n"
    assert ran.err == "[thinking]\nhm\n[/thinking]\n" * 2
    assert "hm" not in str(runtime.calls[1][0])
    assert runtime.calls[1][1]["thinking"] is True


def test_no_input_is_no_conversation(cli: Callable[..., Ran]) -> None:
    assert cli("chat", "-m", "x", stdin="") == Ran(0, "", "")


def test_one_system_message_first_every_time(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    cli("chat", "-m", "x", "--system-prompt", "Be brief.", stdin="a\nb\n/system New.\nc\n")
    systems = [
        [content for role, content in roles(prompt) if role == "system"]
        for prompt, _ in runtime.calls
    ]
    assert systems == [["Be brief."], ["Be brief."], ["New."]]
    assert all(roles(prompt)[0][0] == "system" for prompt, _ in runtime.calls)


def test_seeds_move_on_with_each_answer(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    cli("chat", "-m", "x", "--seed", "5", stdin="a\nb\n/retry\n/set seed 9\nc\nd\n")
    assert [keywords["seed"] for _, keywords in runtime.calls] == [5, 6, 7, 9, 10]
    runtime.calls.clear()
    cli("chat", "-m", "x", "--seed", str(2**64 - 1), stdin="a\nb\n")
    assert [keywords["seed"] for _, keywords in runtime.calls] == [2**64 - 1, 0]
    runtime.calls.clear()
    cli("chat", "-m", "x", stdin="a\n")
    assert "seed" not in runtime.calls[0][1]


def test_a_refused_message_leaves_no_trace(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    refusal = UsageError("The prompt has 70 tokens; that is too many.", "Shorten it.")
    runtime.answers = [Answer(["One."]), Answer(refusal=refusal), Answer(["Three."])]
    ran = cli("chat", "-m", "x", stdin="a\nlong\nc\n")
    assert (ran.code, ran.out) == (0, "One.\nThree.\n")
    assert ran.err == "error: The prompt has 70 tokens; that is too many.\nhint: Shorten it.\n"
    assert roles(runtime.calls[2][0]) == [("user", "a"), ("assistant", "One."), ("user", "c")]


@pytest.mark.parametrize(("error", "code"), [(UsageError("x."), 2), (ModelError("x."), 3)])
def test_the_exit_code_is_that_of_the_last_message(
    cli: Callable[..., Ran], runtime: FakeRuntime, error: Any, code: int
) -> None:
    runtime.answers = [Answer(), Answer(refusal=error)]
    assert cli("chat", "-m", "x", stdin="a\nb\n").code == code


def test_an_unexpected_error_ends_the_chat(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    def fail(canvas: int, step: int) -> None:
        raise KeyError("oops")

    runtime.answers = [Answer(["a"], before_step=fail)]
    ran = cli("chat", "-m", "x", stdin="a\nb\n")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: Internal error: KeyError")
    assert len(runtime.calls) == 1


@pytest.mark.parametrize("canvas", ["", THOUGHT, "<|channel>thought\nhm"])
def test_an_empty_answer_is_said_and_not_kept(
    cli: Callable[..., Ran], runtime: FakeRuntime, canvas: str
) -> None:
    runtime.answers = [Answer([canvas], "length" if canvas.endswith("hm") else "stop"), Answer()]
    ran = cli("chat", "-m", "x", stdin="a\nb\n")
    assert ran.out == "The answer.\n"
    assert ran.err.startswith("note: ")
    assert roles(runtime.calls[1][0]) == [("user", "b")]


def test_a_cut_answer_is_said_and_kept(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    runtime.answers = [Answer(["Once upon"], "length")]
    ran = cli("chat", "-m", "x", stdin="a\nb\n")
    assert "note: the answer was cut after 2 tokens; raise /set max-tokens for more." in ran.err
    assert ("assistant", "Once upon") in roles(runtime.calls[1][0])


def test_bytes_that_are_not_utf8_are_refused_alone(
    cli: Callable[..., Ran], runtime: FakeRuntime
) -> None:
    ran = cli("chat", "-m", "x", stdin=b"a\nb\xff\nc\n")
    assert (ran.code, ran.out) == (0, "The answer.\n" * 2)
    assert "byte 1 (0xff)" in ran.err


@pytest.mark.parametrize(
    ("typed", "sent"),
    [
        ('"""\none\n  two\n"""\n', "one\n  two"),
        ('"""one"""\n', "one"),
        ('"""one\ntwo"""\n', "one\ntwo"),
        ('"""\n/help\n"""\n', "/help"),
        ("/etc/passwd is what?\n", "/etc/passwd is what?"),
        (r"a\nb" + "\n", r"a\nb"),
    ],
)
def test_what_is_a_message(
    cli: Callable[..., Ran], runtime: FakeRuntime, typed: str, sent: str
) -> None:
    assert cli("chat", "-m", "x", stdin=typed).code == 0
    assert roles(runtime.calls[0][0]) == [("user", sent)]


def test_an_unclosed_fence_is_dropped(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    cli("chat", "-m", "x", stdin='"""\none\n')
    assert not runtime.calls


# ---- commands ----


def test_commands_write_nothing_to_standard_output(cli: Callable[..., Ran]) -> None:
    typed = (
        "/help\n/show\n/stats\n/set\n/system\n/undo\n/retry\n/clear\n/nonsense\n/hlep\n/bye\nhi\n"
    )
    ran = cli("chat", "-m", "x", stdin=typed)
    assert ran.out == ""
    for said in (
        "/retry ",
        "model: x",
        "There is no answer yet.",
        "max-tokens: default",
        "system prompt: none",
        "There is nothing to undo.",
        "There is no question to ask again.",
        "The conversation is forgotten.",
        "There is no command /nonsense; /help lists them.",
        "There is no command /hlep; did you mean /help?",
    ):
        assert said in ran.err


def test_bye_ends_before_the_input_does(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    assert cli("chat", "-m", "x", stdin="/bye\nhi\n").code == 0
    assert not runtime.calls


def test_an_unknown_command_last_is_a_usage_error(cli: Callable[..., Ran]) -> None:
    assert cli("chat", "-m", "x", stdin="/nonsense\n").code == 2


def test_clear_undo_and_retry(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    runtime.answers = [Answer([f"{number}."]) for number in range(1, 7)]
    cli("chat", "-m", "x", stdin="a\nb\n/undo\nc\n/retry\n/clear\nd\n")
    assert [roles(prompt) for prompt, _ in runtime.calls] == [
        [("user", "a")],
        [("user", "a"), ("assistant", "1."), ("user", "b")],
        [("user", "a"), ("assistant", "1."), ("user", "c")],
        [("user", "a"), ("assistant", "1."), ("user", "c")],
        [("user", "d")],
    ]


def test_a_failed_retry_keeps_the_old_answer(cli: Callable[..., Ran], runtime: FakeRuntime) -> None:
    runtime.answers = [Answer(["1."]), Answer(refusal=UsageError("No.")), Answer(["3."])]
    cli("chat", "-m", "x", stdin="a\n/retry\nb\n")
    assert roles(runtime.calls[2][0]) == [("user", "a"), ("assistant", "1."), ("user", "b")]


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("max-tokens 5", "max_tokens", 5),
        ("--steps 4", "steps", 4),
        ("temp 0", "temperature", 0.0),
        ("thinking off", "thinking", False),
        ("sampler confidence", "sampler", "confidence"),
        ("confidence 0.1", "confidence_threshold", 0.1),
    ],
)
def test_set(
    cli: Callable[..., Ran], runtime: FakeRuntime, setting: str, name: str, value: Any
) -> None:
    ran = cli("chat", "-m", "x", stdin=f"/set {setting}\na\n/set {setting.split()[0]} default\nb\n")
    assert (ran.code, ran.err) == (0, "")
    assert runtime.calls[0][1][name] == value
    assert runtime.calls[1][1].get(name) != value


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("steps 0", "steps must be at least 1, not 0."),
        ("steps many", "'many' is not a value for steps."),
        ("steps", "/set steps needs a value, or default."),
        ("stepps 4", "There is no setting stepps; did you mean steps?"),
        ("thinking maybe", "'maybe' is not a value for thinking."),
        ("view 3d", "view must be one of auto, live, plain, off, not '3d'."),
        ("temp nan", "temp must be a finite number, not nan."),
    ],
)
def test_set_refuses_in_one_line(
    cli: Callable[..., Ran], runtime: FakeRuntime, setting: str, said: str
) -> None:
    ran = cli("chat", "-m", "x", stdin=f"/set {setting}\nhi\n")
    assert ran == Ran(0, "The answer.\n", said + "\n")
    defaults = {"temperature": 1.0, "sampler": "entropy-bound"}
    assert runtime.calls[0][1] == defaults


def test_statistics(cli: Callable[..., Ran]) -> None:
    assert "steps/canvas" in cli("chat", "-m", "x", stdin="hi\n/stats\n").err
    assert "steps/canvas" in cli("chat", "-m", "x", "--stats", stdin="hi\n").err


# ---- on a terminal ----


def test_a_conversation_on_a_terminal() -> None:
    answers = [Answer(["Hello!"]), Answer(["one\ntwo"])]
    with Screen(answers, "chat", "-m", "x") as screen:
        screen.until("x · /help lists the commands, Ctrl-D leaves\n>>>")
        screen.send("hi\r")
        screen.until("Hello!\n>>>")
        screen.send("again\r")
        screen.until("two\n>>>")
        screen.send("\x04")
        assert screen.finish() == 0
        expected = ">>> hi\nHello!\n>>> again\none\ntwo\n>>>"
        assert screen.text() == f"x · /help lists the commands, Ctrl-D leaves\n{expected}"
        assert screen.shows_cursor() and screen.cooked_at_end
    path = settings.state_folder() / "chat_history"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "+hi" in path.read_text(encoding="utf-8")


def test_the_history_file_is_made_private_again() -> None:
    path = settings.state_folder() / "chat_history"
    path.parent.mkdir(parents=True)
    path.write_text("", encoding="utf-8")
    path.chmod(0o644)
    with Screen([Answer()], "chat", "-m", "x") as screen:
        screen.until(">>>")
        screen.send("/bye\r")
        assert screen.finish() == 0
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_no_place_for_the_history_is_said() -> None:
    settings.state_folder().parent.mkdir(parents=True)
    settings.state_folder().write_text("in the way", encoding="utf-8")
    with Screen([Answer()], "chat", "-m", "x") as screen:
        screen.until(">>>")
        screen.send("\x04")
        assert screen.finish() == 0
        assert "note: typed lines are not kept: " in screen.text()


def test_ctrl_c_stops_the_answer_and_keeps_what_is_final() -> None:
    slow = Answer(["one\ntwo", " never"], delay=0.3)
    answers = [slow, Answer(["next"])]
    with Screen(answers, "chat", "-m", "x") as screen:
        screen.until(">>>")
        screen.send("hi\r")
        screen.until("canvas 2 · step 1")
        screen.send("\x03")
        screen.until("one\ntwo\n[stopped: kept as far as it got]\n>>>")
        screen.send("/show\r")
        screen.until("conversation: 1 question(s) answered")
        screen.send("on\r")
        screen.until("next\n>>>")
        screen.send("/bye\r")
        assert screen.finish() == 0
        assert "never" not in screen.text()


@pytest.mark.parametrize("when", ["reading the prompt", "canvas 1 · step 1"])
def test_ctrl_c_before_anything_is_final_drops_the_message(when: str) -> None:
    with Screen([Answer(["never"], delay=0.4)], "chat", "-m", "x") as screen:
        screen.until(">>>")
        screen.send("hi\r")
        screen.until(when)
        screen.send("\x03")
        screen.until("[stopped: nothing was final, the message is dropped]\n>>>")
        screen.send("/show\r")
        screen.until("conversation: 0 question(s) answered")
        screen.until_prompt()
        screen.send("\x04")
        assert screen.finish() == 0


def test_ctrl_c_at_the_prompt_leaves_nobody_stranded() -> None:
    with Screen([Answer()], "chat", "-m", "x") as screen:
        screen.until(">>>")
        screen.send("half a line\x03")
        screen.until("Ctrl-D or /bye leaves.\n>>>")
        screen.send("\x04")
        assert screen.finish() == 0


def test_sigterm_at_the_prompt_restores_the_terminal() -> None:
    import signal

    with Screen([Answer()], "chat", "-m", "x") as screen:
        screen.until(">>>")
        screen.kill(signal.SIGTERM)
        assert screen.finish() == 143
        assert screen.shows_cursor() and screen.cooked_at_end
        assert "Traceback" not in screen.text()


def test_several_pasted_lines_are_one_message() -> None:
    with Screen([Answer()], "chat", "-m", "x", "--view", "off") as screen:
        screen.until(">>>")
        screen.send("\x1b[200~one\ntwo\x1b[201~")
        screen.until("two")
        screen.send("\r")
        screen.until("The answer.")
        screen.send("/undo\r")
        screen.until("forgotten")
        screen.send("/show\r")
        screen.until("conversation: 0 question(s) answered")
        screen.until_prompt()
        screen.send("\x04")
        assert screen.finish() == 0


def test_a_dumb_terminal_gets_plain_lines() -> None:
    with Screen([Answer(["Hello!"])], "chat", "-m", "x", env={"TERM": "dumb"}) as screen:
        screen.until(">>>")
        screen.send("hi\n")
        screen.until("Hello!\n>>>")
        screen.send("\x04")
        assert screen.finish() == 0
        assert b"\x1b" not in screen.raw


def test_a_typed_colour_sequence_is_no_mouse() -> None:
    """The editor's own reading of ESC [ 3 1 m as a mouse report fails."""
    with Screen([Answer(["Hello!"])], "chat", "-m", "x") as screen:
        screen.until(">>>")
        screen.send("a\x1b[31mb\r")
        screen.until("Hello!")
        screen.until_prompt()
        screen.send("\x04")
        assert screen.finish() == 0
        assert "Unhandled" not in screen.everything()
