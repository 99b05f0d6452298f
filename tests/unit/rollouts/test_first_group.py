"""What a stage says of a first group of which nothing can be read: one reply, and why."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from rla.errors import UserError
from rla.pipeline.context import StageContext
from rla.rollouts.first_group import FirstGroup
from rla.store.layout import artifact
from rla.store.records import Trajectory
from stages import STAGES
from tests.unit.builders import configured, score, step, trajectory

COMMANDS = ("go to desk 1", "take mug 1")


class Notes:
    def __init__(self) -> None:
        self.said: list[str] = []

    def start(self, description: str, total: int) -> None: ...

    def advance(self, count: int = 1, **fields: Any) -> None: ...

    def note(self, text: str) -> None:
        self.said.append(text)


def call(*overrides: str, env: str = "alfworld") -> tuple[StageContext, list[str]]:
    notes = Notes()
    config = configured(*overrides, env=env)
    return StageContext(
        spec=STAGES[0], stages=STAGES, config=config, run=Path("r"), iteration=1, progress=notes
    ), notes.said


WARN = "guards.first_group=warn"


def warned_of(reply: str, *overrides: str, model: Path | None = None, env: str = "alfworld", **changes: Any) -> str:
    """What is said of a group whose steps all have this reply."""
    ctx, said = call(WARN, *overrides, env=env)
    steps = [step(**({"reply": reply, "valid": False, "commands": COMMANDS} | changes))] * 8
    FirstGroup(ctx, model or Path("elsewhere")).played([trajectory(steps=steps)])
    (warning,) = said
    return warning


CAUSES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("I take it. <action>take mug 1</action>", "text", "policy.reply: tagged asks for, and it is text: set it", {}),
    ("\\boxed{1}", "tagged", "policy.reply: index asks for, and it is tagged", {}),
    ("take mug 1", "index", "policy.reply: text asks for", {}),
    ("I would rather sing.", "text", "none is one of the commands offered: set policy.decoding to admissible", {}),
    ("I would rather sing.", "tagged", "does not answer as the prompt of alfworld asks", {}),
    ("take the", "text", "most are cut by policy.max_tokens, which is 512: raise it", {"truncated": True}),
    ("<think>The mug", "text", "its thoughts do not end within policy.max_tokens", {"truncated": True}),
    (" \n", "text", "all are empty", {}),
    ("take <unk> 1", "text", "`rla check-env alfworld` names them", {}),
]


@pytest.mark.parametrize(("reply", "form", "cause", "changes"), CAUSES, ids=[row[2][:30] for row in CAUSES])
def test_the_likely_cause_is_named(reply: str, form: str, cause: str, changes: dict[str, Any]) -> None:
    warning = warned_of(reply, f"policy.reply={form}", **changes)
    assert warning.startswith("warning (no-action): none of the 8 replies of the first group holds an action")
    assert cause in warning


def test_a_model_that_nobody_has_trained() -> None:
    untrained = artifact(Path("r"), "init_policy", 0)
    assert "call `rla warm-start`" in warned_of("mug the", model=untrained, truncated=True)
    assert "warm-start" not in warned_of("mug the", "model.policy=some/model", model=untrained)


def test_what_a_model_wrote_cannot_speak_to_the_terminal() -> None:
    warning = warned_of("\x1b[31mred\x07\u202e\r\n" + "x" * 100_000)
    assert warning.isprintable() and len(warning) < 500


def silent(count: int) -> Trajectory:
    return trajectory(steps=[step(reply="sing", valid=False)] * count)


def test_a_first_group_without_an_action_ends_the_stage() -> None:
    ctx, said = call()
    with pytest.raises(UserError, match=r"none of the 8 replies .* the first is 'sing'; .*guards\.first_group: warn"):
        FirstGroup(ctx, None).played([silent(8)])
    assert said == []


def test_a_group_of_few_replies_is_looked_at_with_the_next() -> None:
    """All episodes of one task may be one reply each, and the task hard."""
    first = FirstGroup(call()[0], None)
    first.played([silent(1)] * 4)
    with pytest.raises(UserError, match="none of the 8 replies"):
        first.played([silent(1)] * 4)


def test_a_stage_of_few_replies_is_looked_at_when_all_are_there() -> None:
    first = FirstGroup(call()[0], None, total=2)
    first.played([silent(1)])
    with pytest.raises(UserError, match="none of the 2 replies"):
        first.played([silent(1)])


def test_a_reply_that_is_read_ends_the_first_look() -> None:
    first = FirstGroup(call()[0], None)
    first.played([silent(4)])
    first.played([trajectory(steps=[step()])])
    first.played([silent(99)])


def judged(
    text: str, *overrides: str, env: str = "alfworld", votes: tuple[int | None, ...] = (None, None)
) -> list[str]:
    ctx, said = call(WARN, *overrides, env=env)
    row = score(votes=votes)
    for judgement in row.judgements:
        object.__setattr__(judgement, "text", text)
    FirstGroup(ctx, None, total=2).judged([row])
    return said


def test_a_judge_that_votes_in_another_form() -> None:
    (warning,) = judged("It helps. \\boxed{1}")
    assert "warning (unreadable-votes): none of the 2 votes of the first group can be read" in warning
    assert "judge.prompt: published asks for, and it is plain: set it to published" in warning
    assert "judge.prompt: plain asks for" in judged("it helps score +1", "judge.prompt=published")[0]
    assert judged("score +1", votes=(1, None)) == []
