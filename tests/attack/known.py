"""What hostile texts are read by, and what may come of them: the names of a scene, offered actions, votes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rla.store.records import Task

Reading = Callable[[str, Sequence[int]], str | None]
COMMANDS = ("take mug 1 from desk 1", "go to desk 1", "look")


def known_names() -> tuple[Task, Callable[[Task], None]]:
    """A task, and the assertion that a child of it holds known names alone."""
    from tests.unit.envs.alfworld.test_hostile_edits import TASK, assert_only_known_names

    return TASK, assert_only_known_names


def policy_reading(prompt: Any) -> Reading:
    def read(reply: str, _: Sequence[int]) -> str | None:
        action = prompt.parse(reply, COMMANDS)
        return None if action is None or isinstance(action, str) else f"no action: {action!r:.80}"

    return read


def readers(chat: Any) -> dict[str, Reading]:
    """Everything that reads a reply, by name; each gives what is wrong with what it read."""
    from rla.adaptation.drafting import read_critique, read_proposal
    from rla.envs.registry import environment, load_config
    from rla.llm.base import Completion, FinishReason
    from rla.rollouts.scores import unscored_judgement, voted

    def completion(ids: Sequence[int]) -> Any:
        empty: list[list[int]] = [[] for _ in ids]
        return Completion(
            token_ids=list(ids), logprobs=[0.0] * len(ids), allowed=empty, finish_reason=FinishReason.STOP
        )

    def judge(prompt: Any) -> Reading:
        def read(_: str, ids: Sequence[int]) -> str | None:
            score = voted(unscored_judgement(completion(ids), chat), prompt).score
            return None if score in (None, 1, -1) and not isinstance(score, bool) else f"no vote: {score!r:.80}"

        return read

    def proposal(_: str, ids: Sequence[int]) -> str | None:
        read_proposal(completion(ids), chat)
        read_critique(completion(ids), chat)
        return None

    found: dict[str, Reading] = {"proposer": proposal}
    alfworld: Any = environment("alfworld")
    for reply in ("text", "index", "tagged"):
        config = load_config(None, ["env.name=alfworld", f"policy.reply={reply}"])
        found[f"policy, {reply}"] = policy_reading(alfworld.policy_prompt(config))
    for name in ("plain", "published"):
        config = load_config(None, ["env.name=alfworld", f"judge.prompt={name}"])
        found[f"judge, {name}"] = judge(alfworld.judge_prompt(config))
    return found
