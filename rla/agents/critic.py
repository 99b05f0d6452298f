"""The critic's side of a critique: prompts that condense episodes, and the reading of what a language model wrote.

Map: one failed episode with what the reward model wrote against its steps, to a few sentences. Reduce: those sentences
and what was counted, to a few sentences on the task. All that models or environments wrote stands between lines of
dashes, and `ChatFormat` encodes it so that control tokens in it cannot act.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rla.envs.chat_prompts import QUOTED, quoted, user
from rla.envs.views import Message
from rla.llm.base import Completion
from rla.llm.chat import ChatFormat, reply_text
from rla.text import after_thinking, one_line

MAX_CRITIQUE = 1200  # characters
EXCERPT = 240  # characters of an observation or a judgement that are shown
EPISODE = (
    "An agent failed at a task, and a judge wrote what was wrong with some of its steps. Say in at most three "
    "sentences at which point the episode went wrong and why. " + QUOTED
)
TOO_HARD = (
    "An agent mostly fails at the task below. From what was counted and from the notes on its failed episodes, say in "
    "at most four sentences what makes the task too hard for it: where the episodes fail, and what it does instead. "
    + QUOTED
)
TOO_EASY = (
    "An agent nearly always succeeds at the task below. From what was counted and from the actions of its episodes, "
    "say in at most four sentences where its effort goes and which part costs it none. " + QUOTED
)


def episode_messages(episode: Mapping[str, Any], against: Mapping[int, Sequence[str]], *, steps: int) -> list[Message]:
    """The prompt on one failed episode: the first `steps` steps that were judged -1, in full, between the others'
    actions. Of an episode with pictures no answers are shown: in words they all say the same.
    """
    in_words = episode.get("screens") is None
    texts = [*(step["observation"] for step in episode["steps"][1:]), episode["final_observation"]]
    shown = set(sorted(against)[:steps])
    lines = []
    for number, (step, following) in enumerate(zip(episode["steps"], texts, strict=True)):
        lines.append(f"step {number}: {excerpt(step['action'])}")
        if number in shown:
            lines += [f"  seen: {excerpt(following)}"] * in_words
            lines += [f"  judged: {excerpt(after_thinking(text))}" for text in against[number]]
    parts = {"Task": episode["instruction"], "Episode": "\n".join(lines)}
    return [user(f"{EPISODE}\n\n{quoted(parts)}")]


def task_messages(instruction: str, *, counted: str, notes: Sequence[str], failed: bool) -> list[Message]:
    """The prompt on the task: `notes` are those on failed episodes, or the actions of won ones."""
    told = "\n".join(f"- {note}" for note in notes) or "(none)"
    parts = {"Task": instruction, "Counted": counted or "(nothing)", "Notes": told}
    return [user(f"{TOO_HARD if failed else TOO_EASY}\n\n{quoted(parts)}")]


def read_critique(completion: Completion, chat: ChatFormat) -> str:
    """What was written, as one printable line of bounded length; what a model thought before is left out.

    Empty where the reply was cut before its thoughts ended.
    """
    return one_line(after_thinking(reply_text(completion, chat)), MAX_CRITIQUE)


def excerpt(text: str) -> str:
    return one_line(text, EXCERPT)
