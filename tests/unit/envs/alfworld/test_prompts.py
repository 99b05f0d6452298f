"""How the policy and the judge are asked: whole texts, written out by hand."""

import pytest

from rla.config import Config
from rla.config.sections import PolicyConfig
from rla.envs.alfworld.prompts import IndexPolicyPrompt, PlainJudgePrompt, PublishedJudgePrompt, TextPolicyPrompt
from rla.envs.registry import setting
from rla.envs.views import JudgeView

TASK = "put some mug in shelf."
FIRST = "-= Welcome to TextWorld, ALFRED! =-\n\nYou see a shelf 1.\n\nYour task is to: put some mug in shelf. "
COMMANDS = ("go to shelf 1", "take mug 1 from desk 1")


def view(history: tuple[tuple[str, str], ...], observation: str) -> JudgeView:
    return JudgeView(
        instruction=TASK,
        history=history,
        observation=observation,
        commands=COMMANDS,
        reply="go to shelf 1",
        action="go to shelf 1",
        valid=True,
        next_observation="You arrive at shelf 1. ",
    )


def test_an_observation_stands_alone_or_ends_with_the_task() -> None:
    assert TextPolicyPrompt().turn("You see a mug 1. ", COMMANDS, TASK) == "You see a mug 1. "
    repeated = TextPolicyPrompt(repeat_task=True).turn("You see a mug 1. ", COMMANDS, TASK)
    assert repeated == "You see a mug 1. Your task is to: put some mug in shelf."


def test_a_task_that_is_repeated_comes_before_the_numbered_commands() -> None:
    asked = IndexPolicyPrompt(repeat_task=True).turn("You see a mug 1.", COMMANDS, TASK)
    assert asked == (
        "You see a mug 1. Your task is to: put some mug in shelf.\n\n"
        "Commands:\n0: go to shelf 1\n1: take mug 1 from desk 1"
    )


@pytest.mark.parametrize("prompt", [TextPolicyPrompt(repeat_task=True), IndexPolicyPrompt(repeat_task=True)])
def test_the_first_observation_states_the_task_itself(prompt: TextPolicyPrompt | IndexPolicyPrompt) -> None:
    (opening,) = prompt.opening(FIRST, COMMANDS)
    (window,) = prompt.window((), FIRST, COMMANDS, TASK)
    assert opening["content"].count("Your task is to:") == window["content"].count("Your task is to:") == 1


def test_a_window_repeats_the_task_once_at_its_end() -> None:
    (asked,) = TextPolicyPrompt(repeat_task=True).window(
        [(FIRST, "go to desk 1"), ("You see a mug 1.", "look")], "You are at desk 1.", COMMANDS, TASK
    )
    assert asked["content"] == (
        "You see a shelf 1.\n\nYour task is to: put some mug in shelf. \n> go to desk 1\n"
        "You see a mug 1.\n> look\nYou are at desk 1. Your task is to: put some mug in shelf."
    )


def test_the_judge_reads_the_dialogue_that_the_policy_had() -> None:
    asked = PlainJudgePrompt(repeat_task=True).messages(view(((FIRST, "go to desk 1"),), "You see a mug 1."))
    assert [message["content"] for message in asked] == [
        "You see a shelf 1.\n\nYour task is to: put some mug in shelf.",
        "go to desk 1",
        "You see a mug 1. Your task is to: put some mug in shelf.",
        "go to shelf 1",
        "You arrive at shelf 1. Your task is to: put some mug in shelf. judge:",
    ]
    assert [message["role"] for message in asked] == ["user", "assistant", "user", "assistant", "user"]


def test_without_repetition_the_judge_sees_each_text_as_it_was() -> None:
    asked = PlainJudgePrompt().messages(view((), FIRST))
    assert asked[-1]["content"] == "You arrive at shelf 1.  judge:"


def test_the_setting_hands_the_choice_to_policy_and_judge() -> None:
    config = Config(policy=PolicyConfig(repeat_task=True))
    alfworld = setting("alfworld")
    assert alfworld.policy_prompt(config) == TextPolicyPrompt(repeat_task=True)
    assert alfworld.judge_prompt(config) == PlainJudgePrompt(repeat_task=True)


@pytest.mark.parametrize(
    ("reply", "read"),
    [("so \\boxed{1}", "take mug 1 from desk 1"), ("\\boxed{2}", None), ("\\boxed{-1}", None), ("1", None)],
)
def test_an_index_that_names_no_command_is_no_action(reply: str, read: str | None) -> None:
    assert IndexPolicyPrompt().parse(reply, COMMANDS) == read


@pytest.mark.parametrize(("reply", "read"), [("fine \\boxed{+1}", 1), ("no \\boxed{-1}", -1), ("\\boxed{0}", None)])
def test_a_published_judgement_is_boxed(reply: str, read: int | None) -> None:
    assert PublishedJudgePrompt().parse(reply) == read
