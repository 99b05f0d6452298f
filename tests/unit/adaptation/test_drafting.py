"""Critique and edits by a language model: what it is shown, and what is read from it, hostile replies included."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import jsonschema  # type: ignore[import-untyped,unused-ignore]
import pytest

from rla.adaptation.candidates import Candidate, prove
from rla.adaptation.drafting import Choice, Draft, Evidence, ModelDrafter, RulesDrafter
from rla.config.sections import ProposerConfig
from rla.envs.alfworld.environment import Alfworld
from rla.llm.base import Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import ScriptedGenerator
from rla.store.records import Direction, Task
from tests.unit.builders import configured
from tests.unit.llm.test_chat import HOSTILE, QWEN_LIKE, byte_tokenizer

CHAT = ChatFormat(byte_tokenizer())
EDITOR = Alfworld()
(TASK,) = EDITOR.tasks(configured("tasks.train_scenes=1", "tasks.tasks_per_scene=1"), seed=5, split="train")
HARD = Choice(TASK, Direction.EASIER, 0.0)
EASY = Choice(TASK, Direction.HARDER, 1.0)
Reply = Callable[[str, Request, int], str]


def episode(name: str, *, outcome: int, actions: list[str]) -> dict[str, Any]:
    steps = [{"observation": "Nothing happens.", "action": action} for action in actions]
    return {
        "task_id": TASK.task_id,
        "trajectory_id": name,
        "instruction": TASK.instruction,
        "outcome": outcome,
        "steps": steps,
        "final_observation": "Nothing happens.",
    }


LOST = Evidence(
    episodes=[episode(f"t{n}", outcome=-1, actions=["go to desk 1", "go to desk 2"]) for n in range(3)],
    against={"t0": {1: ["it has been there"]}, "t2": {0: ["no use"], 1: ["it has been there"]}},
)
WON = Evidence(episodes=[episode("w", outcome=1, actions=["go to desk 1", "use desklamp 1"])])


class Model:
    """A generator of texts that keeps what it was asked."""

    def __init__(self, reply: Reply, *, context: int = 1 << 20, chat: ChatFormat = CHAT) -> None:
        self.asked: list[tuple[str, Request]] = []
        self._reply, self._chat = reply, chat
        self.engine = ScriptedGenerator(self._complete, context=context)

    def _complete(self, request: Request, seed: int) -> list[int]:
        prompt = self._chat.tokenizer.decode(list(request.prompt_ids))
        if seed == request.seed:
            self.asked.append((prompt, request))
        return [*self._chat.encode(self._reply(prompt, request, seed - request.seed)), self._chat.end_id]

    def draft(self, choice: Choice, evidence: Evidence, *, count: int = 4) -> Draft:
        config = ProposerConfig(max_tokens=4000)
        drafter = ModelDrafter(generator=self.engine, chat=self._chat, prompt=EDITOR.proposal_prompt(), config=config)
        course = EDITOR.course(choice.task, evidence.episodes)
        return asyncio.run(drafter.draft(choice, evidence, course, count=count, seed=9))


def proven(draft: Draft, choice: Choice = HARD) -> list[Candidate]:
    return asyncio.run(
        prove(
            draft.proposals,
            choice,
            editor=EDITOR,
            root=TASK,
            taken={TASK.task_id},
            critique=draft.critique,
            created=1,
        )
    )


def scripted(*edits: str, note: str = "It looks in the wrong places.") -> Reply:
    """Notes and critiques as one text, edits sample by sample."""
    return lambda prompt, request, sample: note if request.json_schema is None else edits[sample % len(edits)]


def test_failed_episodes_are_condensed_then_the_task_then_edits_are_asked_for() -> None:
    model = Model(scripted('{"hint": "where"}'))
    draft = model.draft(HARD, LOST)
    first, second, task, edits = (prompt for prompt, _ in model.asked)
    assert "step 1: go to desk 2" in first and "judged: it has been there" in first
    assert "judged: no use" in second  # the second episode has no judgement against it: there is nothing to read
    assert "- It looks in the wrong places." in task and "failures ended at" in task
    assert draft.critique in edits and "0% of the episodes" in edits and "easier" in edits
    assert draft.critique.startswith("won 0 of 3") and draft.critique.endswith("It looks in the wrong places.")
    (valid,) = proven(draft)
    assert valid.valid and "you can find" in valid.task.instruction
    assert valid.critique == draft.critique


def test_a_task_that_is_too_easy_is_criticised_by_where_the_effort_went() -> None:
    model = Model(scripted('{"hint": "none"}', note="All goes into walking."))
    draft = model.draft(EASY, WON)
    task, edits = (prompt for prompt, _ in model.asked)
    assert "go to desk 1; use desklamp 1" in task and "steps by phase" in task
    assert "won 1 of 1" in draft.critique and "All goes into walking." in edits


def test_the_same_seed_gives_the_same_draft() -> None:
    def reply(prompt: str, request: Request, sample: int) -> str:
        return f"{request.seed} {sample}"

    assert Model(reply).draft(HARD, LOST) == Model(reply).draft(HARD, LOST)


def test_of_an_episode_with_pictures_the_critic_reads_no_constant_answers() -> None:
    """Nor is it told that every task is a text game."""
    seen = [{**row, "screens": [["d"]] * 3} for row in LOST.episodes]
    for episodes, told in ((LOST.episodes, True), (seen, False)):
        model = Model(scripted(GOOD))
        model.draft(HARD, Evidence(episodes=episodes, against=LOST.against))
        first = model.asked[0][0]
        assert ("seen: Nothing happens." in first) is told
        assert "judged: it has been there" in first and "text game" not in first


def test_samples_are_asked_for_once_with_the_schema_of_the_scene() -> None:
    model = Model(scripted('{"hint": "where"}'))
    model.draft(HARD, LOST, count=3)
    _, request = model.asked[-1]
    assert (request.samples, request.session, request.allowed) == (3, None, None)
    assert request.json_schema is not None
    jsonschema.Draft202012Validator.check_schema(dict(request.json_schema))
    for edit in EDITOR.propose(TASK, direction="easier", seed=1, count=8):
        jsonschema.validate(json.loads(edit), request.json_schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"remove": [{"object": "unicorn 1"}]}, request.json_schema)


GOOD = '{"hint": "where"}'
OPENS = QWEN_LIKE.replace("assistant\\n' }}{% endif", "assistant\\n<think>\\n' }}{% endif")
STRIPS = QWEN_LIKE.replace("message['content']", "message['content'].split('</think>')[-1]")


def thinker(thought: str) -> Reply:
    """Writes as engines do that hold a reply to its schema from the first token: only a free reply may think, and the
    edit is the one that the thought in the prompt arrives at.
    """

    def reply(prompt: str, request: Request, sample: int) -> str:
        if request.json_schema is None:
            return f'{thought}Gladly: {{"hint": "none"}}' if "Answer with one JSON object" in prompt else "A note."
        return GOOD if prompt.endswith(thought) else '{"goal": "unthinking"}'

    return reply


@pytest.mark.parametrize(
    ("template", "thought"),
    [(STRIPS, "<think>\nA hint helps.\n</think>\n\n"), (OPENS, "A hint helps.\n</think>\n\n"), (STRIPS, "")],
)
def test_a_model_that_thinks_does_so_before_its_edit_is_held_to_the_schema(template: str, thought: str) -> None:
    """One that could and did not is held from the first token on."""
    model = Model(thinker(thought), chat=ChatFormat(byte_tokenizer(template)))
    draft = model.draft(HARD, LOST, count=2)
    assert [one.edit for one in draft.proposals] == [GOOD, GOOD]
    free, *held = [request for _, request in model.asked[-3:]]
    assert (free.samples, free.json_schema) == (2, None)
    assert [(one.samples, one.seed - free.seed) for one in held] == [(1, 0), (1, 1)]
    assert {one.max_tokens for one in held} == {free.max_tokens - len(thought)}


def test_a_tokenizer_with_a_tag_for_thoughts_belongs_to_a_model_that_thinks() -> None:
    tokenizer = deepcopy(byte_tokenizer())
    assert not ChatFormat(tokenizer).thinks
    tokenizer.add_tokens(["<think>", "</think>"])
    assert ChatFormat(tokenizer).thinks


def test_thoughts_that_do_not_end_leave_no_room_for_an_edit() -> None:
    model = Model(lambda prompt, request, sample: "<think>" + "x" * 5000, chat=ChatFormat(byte_tokenizer(STRIPS)))
    (refused,) = model.draft(HARD, LOST, count=1).proposals
    assert refused.refused == "the reply was cut at adaptation.llm.max_tokens"


def test_a_model_that_does_not_think_is_asked_once() -> None:
    model = Model(scripted(GOOD))
    model.draft(EASY, WON, count=2)
    assert [request.samples for _, request in model.asked] == [1, 2]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("", "not a JSON object"),
        ("I would rather not.", "not a JSON object"),
        ('{"goal": "win"}', "goal breaks the rule 'type'"),
        ('{"remove": [{"object": "mug 1) (won"}]}', "remove.0.object breaks the rule 'enum'"),
        ('{"add": [{"object_type": "../x", "to": "desk 1", "count": 1}]}', "add.0.object_type breaks the rule 'enum'"),
        (HOSTILE, "not a JSON object"),
        ('{"hint": "' + HOSTILE.replace("\n", "") + '"}', "hint breaks the rule 'enum'"),
        ('{"hint": NaN}', "not a whole number"),
        ("x" * 5000, "cut at adaptation.llm.max_tokens"),
    ],
)
def test_a_hostile_reply_is_kept_with_the_reason_and_the_next_one_counts(reply: str, reason: str) -> None:
    refused, valid = proven(Model(scripted(reply, GOOD)).draft(HARD, LOST, count=2))
    assert not refused.valid and reason in refused.reason
    assert valid.valid


@pytest.mark.parametrize("reply", [f"```json\n{GOOD}\n```", f"<think>{{hm}}</think>\n{GOOD}", f"Here: {GOOD}."])
def test_the_edit_is_found_in_what_chat_models_put_around_it(reply: str) -> None:
    (valid,) = proven(Model(scripted(reply)).draft(HARD, LOST, count=1))
    assert valid.valid


def test_a_reply_that_was_cut_in_its_thoughts_is_no_critique() -> None:
    draft = Model(scripted(GOOD, note="<think>First I look at")).draft(HARD, LOST)
    assert "First" not in draft.critique and "it has been there (2 of 3)" in draft.critique
    said = Model(scripted(GOOD, note="<think>First I look at</think> It waits.")).draft(HARD, LOST)
    assert "First" not in said.critique and said.critique.endswith("It waits.")


def test_an_edit_in_thoughts_that_do_not_end_is_kept_and_not_applied() -> None:
    (refused,) = proven(Model(scripted(f"<think>{GOOD} or")).draft(HARD, LOST, count=1))
    assert (refused.valid, refused.reason) == (False, "the reply ends with its thoughts")
    assert refused.task.edit == f"<think>{GOOD} or"


def test_what_models_wrote_stays_data_in_every_prompt() -> None:
    """Two roles in a prompt: as many control tokens as in a clean one, whatever was said before."""

    def controls(note: str, against: str) -> list[int]:
        evidence = Evidence(episodes=LOST.episodes[:1], against={"t0": {0: [against]}})
        model = Model(scripted(GOOD, note=note))
        model.draft(HARD, evidence)
        ends = (CHAT.end_id, CHAT.tokenizer.convert_tokens_to_ids("<|im_start|>"))
        return [list(request.prompt_ids).count(end) for _, request in model.asked for end in ends]

    assert controls(HOSTILE, HOSTILE) == controls("clean", "clean")


def test_prompts_that_do_not_fit_leave_the_counted_critique_and_the_reason() -> None:
    draft = Model(scripted(GOOD), context=900).draft(HARD, LOST)
    assert "it has been there (2 of 3)" in draft.critique
    (refused,) = proven(draft)
    assert "do not fit a context of 900 tokens" in refused.reason


def test_the_first_steps_are_shown_in_full_where_all_of_them_do_not_fit() -> None:
    judged = {n: ["w" * 200] for n in range(12)}
    long = Evidence(episodes=[episode("t", outcome=-1, actions=["go"] * 12)], against={"t": judged})
    model = Model(scripted(GOOD), context=6400)
    model.draft(HARD, long)
    assert model.asked[0][0].count("judged:") == 6


def test_rules_draw_edits_of_the_phase_in_which_episodes_end() -> None:
    course = EDITOR.course(TASK, LOST.episodes)
    assert course.focus(Direction.EASIER) == "finding"
    draft = asyncio.run(RulesDrafter(EDITOR).draft(HARD, LOST, course, count=4, seed=3))
    assert draft.critique.startswith("won 0 of 3, 2.0 steps on average; failures ended at: finding a ")
    assert "judged -1: it has been there (2 of 3)" in draft.critique
    drawn = {
        focus: EDITOR.propose(TASK, direction="easier", focus=focus, seed=3, count=4)
        for focus in ("finding", "placing")
    }
    assert [proposal.edit for proposal in draft.proposals] == drawn["finding"] != drawn["placing"]
    assert sum(candidate.valid for candidate in proven(draft)) == 1


def test_rules_say_where_the_effort_went_for_a_task_that_is_too_easy() -> None:
    course = EDITOR.course(TASK, WON.episodes)
    draft = asyncio.run(RulesDrafter(EDITOR).draft(EASY, WON, course, count=1, seed=3))
    assert draft.critique.startswith("won 1 of 1") and "by action: go 50%, use 50%" in draft.critique
    assert "judged" not in draft.critique


def test_no_task_is_its_own_proposal(task: Task = TASK) -> None:
    same = json.dumps({"hint": "none"})
    (refused,) = proven(Model(scripted(same)).draft(HARD, LOST, count=1))
    assert refused.reason == "the edit changes nothing"
