"""How a reward model judges a round with the tool: whether the call was useful, and whether its result was used.

`plain`: for small models, with the reasons that the labels teach (`labels`). `published`: a rubric for chat models,
which see the question, the rounds so far, and the result of the call or the end. Replies and results are quoted as
data, and tags of calls are broken in both (`rla.envs.chat_prompts`).
"""

from __future__ import annotations

from rla.config import Config
from rla.envs.chat_prompts import QUOTED, ChatJudge, PlainJudge
from rla.envs.protocols import JudgePrompt
from rla_programs.tool.labels import ROUND_REASONS

RUBRIC = (
    "You judge one round of an agent that answers a question and may run Python programs on the way. A round is a "
    "reply with a call, whose result is the next observation, or the final answer. Judge a call: does its program "
    "compute something that the question needs, with the numbers and texts of the question copied exactly; did it "
    "run; was the same not known before? Judge a final answer: does it answer the question, and does it follow from "
    "the results? Answer 1 for a useful call, also where its result shows that an idea fails, and for an answer that "
    "the rounds support. Answer -1 for a call that failed, cannot be read, repeats an earlier one or computes "
    "something else, and for an answer that ignores a result, contradicts it or rests on a wrong one. "
    f"{QUOTED} "
    "Think first, then give the score as \\boxed{1} or \\boxed{-1}."
)


def round_judge(config: Config) -> JudgePrompt:
    """By `judge.prompt`."""
    if config.judge.prompt == "published":
        return ChatJudge(rubric=RUBRIC)
    return PlainJudge(repeat_task=config.policy.repeat_task, reasons=ROUND_REASONS)
