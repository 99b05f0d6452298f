"""How the policy and the judge are asked: whole texts, written out by hand."""

import pytest

from rla.envs.alfworld.environment import Alfworld
from rla.envs.protocols import Judged, JudgePrompt, JudgeView, PolicyPrompt
from rla.envs.registry import environment
from tests.unit.builders import configured

TASK = "put some mug in shelf."
FIRST = "-= Welcome to TextWorld, ALFRED! =-\n\nYou see a shelf 1.\n\nYour task is to: put some mug in shelf. "
COMMANDS = ("go to shelf 1", "take mug 1 from desk 1")


def text(*, repeat_task: bool = False) -> PolicyPrompt:
    return Alfworld().policy_prompt(configured(f"policy.repeat_task={repeat_task}"))


def index(*, repeat_task: bool = False) -> PolicyPrompt:
    return Alfworld().policy_prompt(configured(f"policy.repeat_task={repeat_task}", "policy.reply=index"))


def judge(prompt: str = "plain", *, repeat_task: bool = False) -> JudgePrompt:
    return Alfworld().judge_prompt(configured(f"judge.prompt={prompt}", f"policy.repeat_task={repeat_task}"))


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
    assert text().turn("You see a mug 1. ", COMMANDS, TASK) == "You see a mug 1. "
    repeated = text(repeat_task=True).turn("You see a mug 1. ", COMMANDS, TASK)
    assert repeated == "You see a mug 1. Your task is to: put some mug in shelf."


def test_a_task_that_is_repeated_comes_before_the_numbered_commands() -> None:
    asked = index(repeat_task=True).turn("You see a mug 1.", COMMANDS, TASK)
    assert asked == (
        "You see a mug 1. Your task is to: put some mug in shelf.\n\n"
        "Commands:\n0: go to shelf 1\n1: take mug 1 from desk 1"
    )


@pytest.mark.parametrize("prompt", [text(repeat_task=True), index(repeat_task=True)])
def test_the_first_observation_states_the_task_itself(prompt: PolicyPrompt) -> None:
    (opening,) = prompt.opening(FIRST, COMMANDS)
    (window,) = prompt.window((), FIRST, COMMANDS, TASK)
    assert opening["content"].count("Your task is to:") == window["content"].count("Your task is to:") == 1


def test_a_window_repeats_the_task_once_at_its_end() -> None:
    (asked,) = text(repeat_task=True).window(
        [(FIRST, "go to desk 1"), ("You see a mug 1.", "look")], "You are at desk 1.", COMMANDS, TASK
    )
    assert asked["content"] == (
        "You see a shelf 1.\n\nYour task is to: put some mug in shelf. \n> go to desk 1\n"
        "You see a mug 1.\n> look\nYou are at desk 1. Your task is to: put some mug in shelf."
    )


def test_the_judge_reads_the_dialogue_that_the_policy_had() -> None:
    asked = judge(repeat_task=True).messages(view(((FIRST, "go to desk 1"),), "You see a mug 1."))
    assert [message["content"] for message in asked] == [
        "You see a shelf 1.\n\nYour task is to: put some mug in shelf.",
        "go to desk 1",
        "You see a mug 1. Your task is to: put some mug in shelf.",
        "go to shelf 1",
        "You arrive at shelf 1. Your task is to: put some mug in shelf. judge:",
    ]
    assert [message["role"] for message in asked] == ["user", "assistant", "user", "assistant", "user"]


def test_without_repetition_the_judge_sees_each_text_as_it_was() -> None:
    asked = judge().messages(view((), FIRST))
    assert asked[-1]["content"] == "You arrive at shelf 1.  judge:"


def test_the_environment_hands_the_choice_to_policy_and_judge() -> None:
    config, alfworld = configured("policy.repeat_task=true"), environment("alfworld")
    assert alfworld.policy_prompt(config) == text(repeat_task=True)
    assert isinstance(alfworld, Judged) and alfworld.judge_prompt(config) == judge(repeat_task=True)


def test_the_published_prompts_are_these() -> None:
    """Written out, because a run that goes on must be asked as it was before."""
    (asked,) = index().opening("You see a mug 1.", COMMANDS)
    assert asked["content"] == (
        "You are playing a text game in a household. Finish the task in as few steps as you can. Think step by step "
        "about what to do next, then give the number of the command that you choose as \\boxed{number}.\n\n"
        "You see a mug 1.\n\nCommands:\n0: go to shelf 1\n1: take mug 1 from desk 1"
    )
    (asked,) = judge("published").messages(view((), FIRST))
    assert asked["content"].startswith(
        "You judge one step of an agent that plays a text game in a household. Answer 1 when"
    )
    assert "Commands offered:\n0: go to shelf 1\n1: take mug 1 from desk 1" in asked["content"]


@pytest.mark.parametrize(
    ("reply", "read"),
    [("so \\boxed{1}", "take mug 1 from desk 1"), ("\\boxed{2}", None), ("\\boxed{-1}", None), ("1", None)],
)
def test_an_index_that_names_no_command_is_no_action(reply: str, read: str | None) -> None:
    assert index().parse(reply, COMMANDS) == read


@pytest.mark.parametrize(("reply", "read"), [("fine \\boxed{+1}", 1), ("no \\boxed{-1}", -1), ("\\boxed{0}", None)])
def test_a_published_judgement_is_boxed(reply: str, read: int | None) -> None:
    assert judge("published").parse(reply) == read
