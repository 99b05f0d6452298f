"""How the ALFWorld policy and judge are asked and read.

`plain`: bare observations and commands, for small models trained on them. `published`: instructions for chat models;
the policy answers with the boxed index of a command, the judge with a boxed 1 or -1.
"""

from __future__ import annotations

from rla.config import Config
from rla.envs.alfworld.labels import REASONS
from rla.envs.chat_prompts import ANSWER, QUOTED, ChatJudge, ChatPrompt, PlainJudge
from rla.envs.prompts import JudgePrompt

WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
RULES = "You are playing a text game in a household. Finish the task in as few steps as you can."
RUBRIC = (
    "You judge one step of an agent that plays a text game in a household. Answer 1 when the step is sensible: "
    "it explores, makes progress or finishes, its reasoning is present, relevant and true to the "
    "observations, and its action is one of the commands offered. Answer -1 otherwise: no reasoning, an action "
    "that is not offered, an irrelevant or contradictory one, or one that undoes progress. "
    f"{QUOTED} "
    "Think first, then give the score as \\boxed{1} or \\boxed{-1}."
)


def household_policy(config: Config) -> ChatPrompt:
    """`reply: text`: the user turn is the observation, the reply is the command itself. Otherwise the commands are
    numbered, and the reply reasons first.
    """
    repeat_task = config.policy.repeat_task
    if config.policy.reply == "text":
        return ChatPrompt(repeat_task=repeat_task, listed=False, heading=WELCOME)
    reply = config.policy.reply
    return ChatPrompt(reply=reply, rules=f"{RULES} {ANSWER[reply]}", repeat_task=repeat_task)


def household_judge(config: Config) -> JudgePrompt:
    """By `judge.prompt`: for small models, or the published rubric."""
    if config.judge.prompt == "published":
        return ChatJudge(rubric=RUBRIC)
    return PlainJudge(repeat_task=config.policy.repeat_task, reasons=REASONS, heading=WELCOME)
