"""The policy's prompts that serve any environment, worked out by hand."""

from __future__ import annotations

import pytest

from rla.config import Config
from rla.config.sections import JudgeConfig, PolicyConfig
from rla.envs.chat_prompts import (
    ANSWER,
    ChatJudge,
    ChatPrompt,
    PlainJudge,
    boxed,
    judge_prompt,
    policy_prompt,
    tagged,
)
from rla.envs.protocols import Message

DOORS = ("open left", "open right")
LISTED = "0: open left\n1: open right"


def content(messages: list[Message]) -> str:
    (message,) = messages
    assert message["role"] == "user"
    return message["content"]


# What the policy is asked.


def test_the_opening_has_rules_observation_and_commands() -> None:
    prompt = ChatPrompt(reply="index", rules="Play.")
    assert content(prompt.opening(" Two doors.\n", DOORS)) == f"Play.\n\nTwo doors.\n\nCommands:\n{LISTED}"


@pytest.mark.parametrize("prompt", [ChatPrompt(listed=False), ChatPrompt()], ids=["not listed", "none offered"])
def test_the_opening_is_the_bare_observation_where_nothing_is_listed(prompt: ChatPrompt) -> None:
    assert content(prompt.opening("Two doors.\n", () if prompt.listed else DOORS)) == "Two doors."


def test_a_turn_is_the_observation() -> None:
    assert ChatPrompt(listed=False).turn("A wall.", DOORS, "find the cat.") == "A wall."


def test_a_turn_lists_what_is_offered_now() -> None:
    assert ChatPrompt().turn("A wall.", DOORS[1:], "find the cat.") == "A wall.\n\nCommands:\n0: open right"


def test_a_turn_ends_with_the_task_where_it_is_repeated() -> None:
    prompt = ChatPrompt(repeat_task=True)
    told = "A wall. Your task is to: find the cat."
    assert prompt.turn("A wall.\n", (), "find the cat.") == told
    assert prompt.turn("A wall.", DOORS, "find the cat.") == f"{told}\n\nCommands:\n{LISTED}"


def test_a_window_of_a_small_model_is_the_episode_as_a_dialogue() -> None:
    history = [("Two doors.", "open left"), ("A wall.", "go back")]
    shown = content(ChatPrompt(listed=False).window(history, "Two doors.", DOORS, "find the cat."))
    assert shown == "Two doors.\n> open left\nA wall.\n> go back\nTwo doors."


def test_a_window_of_a_chat_model_numbers_the_steps() -> None:
    shown = content(ChatPrompt(reply="index", rules="Play.").window([("Two doors.", "wait")], "Dark.", DOORS, "win."))
    before = "Observation 0: Two doors.\nAction 0: wait"
    assert shown == f"Play.\n\n{before}\n\nObservation 1: Dark.\n\nCommands:\n{LISTED}"


def test_the_first_window_does_not_repeat_the_task() -> None:
    prompt = ChatPrompt(repeat_task=True, listed=False)
    assert content(prompt.window([], "Two doors: find the cat.", (), "find the cat.")) == "Two doors: find the cat."
    later = content(prompt.window([("Two doors.", "wait")], "Dark.", (), "find the cat."))
    assert later == "Two doors.\n> wait\nDark. Your task is to: find the cat."


@pytest.mark.parametrize("reply", ["text", "index", "tagged"])
def test_a_heading_is_left_out(reply: str) -> None:
    prompt = ChatPrompt(reply=reply, heading="== Game ==", listed=False)  # type: ignore[arg-type]
    assert content(prompt.opening("== Game ==\n\nTwo doors.", ())) == "Two doors."
    assert "==" not in content(prompt.window([], "== Game ==\n\nTwo doors.", (), ""))
    assert "==" not in content(prompt.window([("== Game ==\n\nTwo doors.", "wait")], "Dark.", (), ""))


# How its reply is read.


@pytest.mark.parametrize(
    ("reply", "text", "action"),
    [
        ("text", " open  LEFT\n", "open left"),
        ("text", "open the left door", None),
        ("text", "", None),
        ("index", "First 0, no: \\boxed{0}, rather \\boxed{ 1 }.", "open right"),
        ("index", "\\boxed{2}", None),
        ("index", "\\boxed{-1}", None),
        ("index", "\\boxed{1.0}", None),
        ("index", "\\boxed{\u0661}", None),  # a digit one, but not of ASCII
        ("index", "\\boxed{99999999999999999999}", None),
        ("index", "1", None),
        ("tagged", "<action>open left</action> or <action>Open right </action>", "open right"),
        ("tagged", "<action>open left", None),
        ("tagged", "open left</action>", None),
        ("tagged", "<action></action>", None),
    ],
)
def test_a_reply_is_read_as_a_command_or_as_none(reply: str, text: str, action: str | None) -> None:
    assert ChatPrompt(reply=reply).parse(text, DOORS) == action  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reply", "text", "action"),
    [
        ("text", "print(1)\n", "print(1)"),
        ("text", " \n", None),
        ("index", "\\boxed{42}", "42"),
        ("tagged", "so <action>\nlook\n</action>.", "look"),
    ],
)
def test_a_reply_of_free_text_is_the_action(reply: str, text: str, action: str | None) -> None:
    assert ChatPrompt(reply=reply).parse(text, ()) == action  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("reply", "rendered"),
    [("text", "open right"), ("index", "\\boxed{1}"), ("tagged", "<action>open right</action>")],
)
def test_what_is_rendered_is_read_back(reply: str, rendered: str) -> None:
    prompt = ChatPrompt(reply=reply)  # type: ignore[arg-type]
    assert prompt.render("open right", DOORS) == rendered
    assert prompt.parse(rendered, DOORS) == "open right"
    assert prompt.parse(prompt.render("look", ()), ()) == "look"


@pytest.mark.parametrize("reply", ["text", "tagged"])
def test_commands_that_differ_in_case_alone_are_told_apart(reply: str) -> None:
    prompt = ChatPrompt(reply=reply)  # type: ignore[arg-type]
    for command in ("A", "a", "b c", "b  c"):
        assert prompt.parse(prompt.render(command, ()), ("A", "a", "b c", "b  c")) == command


def test_the_last_box_and_the_last_tags_count() -> None:
    assert boxed("\\boxed{a} \\boxed {b}") == "b"
    assert boxed("\\boxed{a{b}}") is None
    assert tagged("<action>a</action><action>b</action></action>") == "b</action>"


# By the config.


def asked(**policy: object) -> Config:
    return Config(policy=PolicyConfig(**policy))  # type: ignore[arg-type]


def test_a_small_model_is_not_told_the_rules() -> None:
    assert policy_prompt(asked(decoding="admissible"), rules="Play.") == ChatPrompt(listed=False)


@pytest.mark.parametrize("reply", ["index", "tagged"])
def test_a_chat_model_is_told_the_rules_and_how_to_answer(reply: str) -> None:
    prompt = policy_prompt(asked(reply=reply, repeat_task=True), rules="Play.")
    assert prompt.rules == f"Play. {ANSWER[reply]}"
    assert prompt.repeat_task and prompt.listed


def test_the_judge_is_chosen_by_the_config() -> None:
    small = judge_prompt(Config(policy=PolicyConfig(repeat_task=True)))
    assert small == PlainJudge(repeat_task=True)
    large = judge_prompt(Config(judge=JudgeConfig(prompt="published")), rules="an agent that seeks a cat")
    assert isinstance(large, ChatJudge)
    assert large.rubric.startswith("You judge one step of an agent that seeks a cat. Answer 1 when")
    assert large.rubric.endswith("give the score as \\boxed{1} or \\boxed{-1}.")
