"""What a stage says of its first replies: one aloud, and why none of them can be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rla.errors import UserError
from rla.pipeline import StageContext
from rla.rollouts.first_replies import ENOUGH, FirstReplies
from rla.store.layout import artifact
from rla.store.records import Step
from rla.store.shards import Origin, write_shard
from stages import STAGES
from tests.unit.builders import configured, score, step, trajectory

COMMANDS = ("go to desk 1", "take mug 1")


class Notes:
    def __init__(self) -> None:
        self.said: list[str] = []

    def start(self, description: str, total: int) -> None: ...

    def advance(self, count: int = 1, *, resumed: bool = False, **fields: Any) -> None: ...

    def note(self, text: str) -> None:
        self.said.append(text)


def call(*overrides: str, env: str = "alfworld") -> tuple[StageContext, list[str]]:
    notes = Notes()
    config = configured(*overrides, env=env)
    return StageContext(
        spec=STAGES[0], stages=STAGES, config=config, run=Path("r"), iteration=1, progress=notes
    ), notes.said


WARN = "guards.stop=[]"


def heard(first: FirstReplies, steps: Sequence[Step]) -> None:
    for one in steps:
        first.replied(one, [5, 6, 7, 2])


def warned_of(reply: str, *overrides: str, model: Path | None = None, env: str = "alfworld", **changes: Any) -> str:
    """What is said if all of the first replies are this one."""
    ctx, said = call(WARN, *overrides, env=env)
    fields = {"reply": reply, "valid": False, "commands": COMMANDS} | changes
    heard(FirstReplies(ctx, "no-action", model or Path("elsewhere")), [step(**fields)] * ENOUGH)
    (warning,) = said
    return warning


CAUSES: list[tuple[str, str, str, dict[str, Any]]] = [
    ("I take it. <action>take mug 1</action>", "text", "policy.reply: tagged asks for, and it is text: set it", {}),
    ("\\boxed{1}", "tagged", "policy.reply: index asks for, and it is tagged", {}),
    ("take mug 1", "index", "policy.reply: text asks for", {}),
    ("I would rather sing.", "text", "none is one of the commands offered: set policy.reply: text and policy.dec", {}),
    ("I would rather sing.", "index", "none is of the form of policy.reply: index: set policy.reply: text and", {}),
    ("I would rather sing.", "tagged", "does not answer as the prompt of alfworld asks", {"commands": ()}),
    ("take the", "text", "most are cut by policy.max_tokens, which is 512: raise it", {"truncated": True}),
    ("<think>The mug", "text", "its thoughts do not end within policy.max_tokens", {"truncated": True}),
    (" \n", "text", "all are empty", {}),
    ("take <unk> 1", "text", "`rla envs --check alfworld` names them", {}),
]


@pytest.mark.parametrize(("reply", "form", "cause", "changes"), CAUSES, ids=[row[2][:30] for row in CAUSES])
def test_the_likely_cause_is_named(reply: str, form: str, cause: str, changes: dict[str, Any]) -> None:
    warning = warned_of(reply, f"policy.reply={form}", **changes)
    assert warning.startswith("warning (no-action): none of the first 32 replies hold an action")
    assert cause in warning


def test_a_model_that_nobody_has_trained() -> None:
    untrained = artifact(Path("r"), "init_policy", 0)
    assert "call `rla warm-start`" in warned_of("mug the", model=untrained, truncated=True)
    assert "warm-start" not in warned_of("mug the", "model.policy=some/model", model=untrained)


def test_what_a_model_wrote_cannot_speak_to_the_terminal() -> None:
    warning = warned_of("\x1b[31mred\x07\u202e\r\n" + "x" * 100_000)
    assert warning.isprintable() and len(warning) < 500


SILENT = step(reply="sing", valid=False, action="")


def test_first_replies_without_an_action_end_the_stage() -> None:
    ctx, said = call()
    first = FirstReplies(ctx, "no-action", None)
    heard(first, [SILENT] * (ENOUGH - 1))
    with pytest.raises(
        UserError, match=r"none of the first 32 replies .* 'sing'; .*take first-replies out of guards\.stop"
    ):
        first.replied(SILENT, [])
    assert said == []


def test_a_model_that_its_warm_start_will_teach_the_form_stops_nothing_before_it() -> None:
    ctx, said = call("model.policy=models/small", "warm_start.enabled=true")
    untrained = replace(ctx, iteration=0, paths={"out": Path("r/eval/untrained/trajectories")})
    unread = [step(reply="I would rather sing.", valid=False, commands=COMMANDS)] * ENOUGH
    heard(FirstReplies(untrained, "no-action", artifact(ctx.run, "init_policy", 0)), unread)
    assert said[0].endswith("the warm start, which comes next, teaches the form")
    with pytest.raises(UserError, match="none of the first 32 replies"):
        heard(FirstReplies(untrained, "no-action", artifact(ctx.run, "policy", 0)), unread)


def test_a_stage_of_few_replies_is_looked_at_at_its_end() -> None:
    first = FirstReplies(call()[0], "no-action", None)
    heard(first, [SILENT] * 2)
    with pytest.raises(UserError, match="none of the first 2 replies"):
        first.end()


def test_a_reply_that_is_read_ends_the_first_look() -> None:
    first = FirstReplies(call()[0], "no-action", None)
    heard(first, [*[SILENT] * 4, step(), *[SILENT] * 99])
    first.end()


class Tokens:
    """A chat format that writes each token as a letter and a line end."""

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(f"{chr(96 + number)}\n" for number in ids)


def aloud(tmp_path: Path, *, iteration: int = 0, out: str = "eval/0/trajectories") -> tuple[StageContext, list[str]]:
    ctx, said = call()
    return replace(ctx, run=tmp_path, iteration=iteration, paths={"out": tmp_path / out}), said


def test_the_first_reply_of_a_run_is_read_aloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The prompt without the reply, the reply behind bars, what was read in it; then how fast they came."""
    clock = iter([0.0, 100.0, 104.0])
    monkeypatch.setattr("rla.rollouts.first_replies.time.monotonic", lambda: next(clock))
    ctx, said = aloud(tmp_path)
    first = FirstReplies(ctx, "no-action", None, aloud=True)
    first.begin(Tokens())  # type: ignore[arg-type]
    first.replied(step(reply="I go.\nerror: none\x1b[2J"), [1, 2, 3, 4])
    assert said == [
        "the first prompt of the policy, of 2 tokens, ends\n    | a\n    | b\nand its reply is\n"
        "    | I go.\n    | error: none [2J\nread as the action: take mug 1 from desk 1"
    ]
    heard(first, [SILENT] * ENOUGH)
    assert said[1:] == ["1 of the first 32 replies hold an action; they took 4.0 s, 16 tokens a second"]


def test_a_reply_without_an_action_is_read_aloud_before_the_stage_ends(tmp_path: Path) -> None:
    ctx, said = aloud(tmp_path)
    first = FirstReplies(ctx, "no-action", None, aloud=True)
    first.begin(Tokens())  # type: ignore[arg-type]
    first.replied(replace(SILENT, truncated=True, reply="sing " * 400), [*range(1, 27), 1, 2])
    shown = said[0].splitlines()
    assert shown[1:4] == ["    | a", "    | b", "and its reply is, cut by max_tokens,"]
    assert shown[-2:] == ["    | ...", "nothing could be read in it"] and len(said[0]) < 1200


def test_only_the_first_reply_of_a_run_is_read_aloud(tmp_path: Path) -> None:
    """Iteration 1 only if iteration 0 was not evaluated; a further split and a slice after the first never."""

    def said_of(place: tuple[StageContext, list[str]], *, speaks: bool = True) -> int:
        FirstReplies(place[0], "no-action", None, aloud=speaks).replied(step(), [])
        return len(place[1])

    assert said_of(aloud(tmp_path, iteration=1)) == 1
    origin = Origin(config="c", inputs={}, seed=0)
    write_shard(tmp_path / "eval/0/trajectories", "trajectories", [trajectory().row()], origin)
    assert said_of(aloud(tmp_path, iteration=1)) == 0 and said_of(aloud(tmp_path, iteration=2)) == 0
    assert said_of(aloud(tmp_path)) == 1 and said_of(aloud(tmp_path), speaks=False) == 0
    assert said_of(aloud(tmp_path, out="splits/unseen/eval/0/trajectories")) == 0


def test_the_first_vote_of_a_run_is_read_aloud(tmp_path: Path) -> None:
    ctx, said = aloud(tmp_path)
    first = FirstReplies(ctx, "unreadable-votes", None, aloud=True)
    first.begin(Tokens())  # type: ignore[arg-type]
    first.voted(score(votes=()))  # its prompt did not fit
    first.voted(score(votes=(-1, None)))
    assert said == [
        "the first prompt of the reward model, of 3 tokens, ends\n    | a\n    | b\n    | c\nand its reply is\n"
        "    | score\nread as the vote -1"
    ]


def test_a_vote_of_a_chat_server_has_no_prompt_in_tokens(tmp_path: Path) -> None:
    ctx, said = aloud(tmp_path)
    FirstReplies(ctx, "unreadable-votes", None, aloud=True).voted(score(votes=(1,)))
    assert said == ["the first reply of the reward model:\n    | score\nread as the vote +1"]


def judged(
    text: str, *overrides: str, env: str = "alfworld", votes: tuple[int | None, ...] = (None, None)
) -> list[str]:
    ctx, said = call(WARN, *overrides, env=env)
    row = score(votes=votes)
    for judgement in row.judgements:
        object.__setattr__(judgement, "text", text)
    first = FirstReplies(ctx, "unreadable-votes", None)
    first.voted(row)
    first.end()
    return said


def test_a_judge_that_votes_in_another_form() -> None:
    (warning,) = judged("It helps. \\boxed{1}")
    assert "warning (unreadable-votes): none of the first 2 votes can be read" in warning
    assert "judge.prompt: published asks for, and it is plain: set it to published" in warning
    assert "judge.prompt: plain asks for" in judged("it helps score +1", "judge.prompt=published")[0]
    assert judged("score +1", votes=(1, None)) == []
