"""What `check_environment` says of prompts and optional protocols that are each broken in one way."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rla.config import Config
from rla.envs.authoring import tokenizer_texts
from rla.envs.chat_prompts import ChatPrompt, PlainJudge
from rla.envs.observation import Observation
from rla.envs.protocols import Demonstration, Labelled, Lesson, RejectedEdit
from rla.models.init import word_tokenizer
from rla.store.records import Task
from study_tests.contract.broken import (
    Game,
    GuessNumber,
    broken,
    complaints_of,
    config_of,
    the_only_complaint,
    with_game,
    with_members,
)

# Prompts.


def prompts_with(**members: Any) -> Any:
    prompt = type("Prompt", (ChatPrompt,), members)()
    return with_members(policy_prompt=lambda self, config: prompt)


def judge_with(**members: Any) -> Any:
    judge = type("Judge", (PlainJudge,), members)()
    return with_members(judge_prompt=lambda self, config: judge)


PROMPTS: list[tuple[str, Any, str]] = [
    ("no messages", prompts_with(opening=lambda *_: "Guess!"), "opening gives 'Guess!'"),
    ("a wrong role", prompts_with(opening=lambda *_: [{"role": "human", "content": "a"}]), "choose one of"),
    ("a wrong key", prompts_with(opening=lambda *_: [{"role": "user", "text": "a"}]), "a message is"),
    (
        "the agent's turn",
        prompts_with(opening=lambda *_: [{"role": "assistant", "content": "a"}]),
        "must be of the user",
    ),
    ("no turn", prompts_with(turn=lambda *_: None), "turn gives None"),
    ("no window", prompts_with(window=lambda *_: []), "window gives []"),
    ("another rendering", prompts_with(render=lambda _, action, commands: f"> {action}"), "write what parse reads"),
    ("a strict reader", prompts_with(parse=lambda _, reply, commands: commands[commands.index(reply)]), "ValueError"),
    ("a free reader", prompts_with(parse=lambda _, reply, commands: reply), "which is not offered; return None"),
    ("no judgement", judge_with(messages=lambda *_: []), "judge_prompt.messages gives []"),
    ("a fixed judgement", judge_with(parse=lambda *_: 1), "render must write what parse reads"),
    ("a judge of one mind", judge_with(replies=lambda _: (" score +1",)), "has no reply for one of the scores"),
    (
        "an unread reply",
        judge_with(replies=lambda _: ("yes", "score -1")),
        "'yes' of judge_prompt.replies is read as None",
    ),
    ("other reasons", judge_with(replies=lambda _: ("so: score +1", "so: score -1")), "add its reason there"),
]


@pytest.mark.parametrize(("env", "complaint"), [row[1:] for row in PROMPTS], ids=[row[0] for row in PROMPTS])
def test_broken_prompts(env: Any, complaint: str) -> None:
    complaints_of(env, complaint)


# Demonstrations and labels.


def demonstrating(**changes: Any) -> Any:
    """Every demonstration has these changes."""

    def demonstrate(self: Any, task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
        shown = GuessNumber.demonstrate(self, task, config, seed=seed, random_share=random_share)
        return replace(shown, **{name: change(shown) for name, change in changes.items()})

    return with_members(demonstrate=demonstrate)


def labelling(change: Callable[[list[list[Labelled]]], Any]) -> Any:
    def label(self: Any, *arguments: Any, **options: Any) -> Any:
        return change(GuessNumber.label(self, *arguments, **options))

    return with_members(label=label)


def first(steps: list[list[Labelled]], **changes: Any) -> list[list[Labelled]]:
    """The labels, the first of the action taken with these changes."""
    return [[replace(steps[0][0], **changes), *steps[0][1:]], *steps[1:]]


ABILITIES: list[tuple[str, Any, str]] = [
    ("by chance", demonstrating(final_observation=lambda _: str(random.random())), "demonstrate gave another result"),
    ("other texts", demonstrating(observations=lambda d: ["You win."] * len(d.actions)), "but the episode shows"),
    ("other commands", demonstrating(commands=lambda d: [("0",)] * len(d.actions)), "its commands do not hold"),
    ("of other lengths", demonstrating(observations=lambda d: d.observations[1:]), "give one of each per step"),
    ("too few labels", labelling(lambda steps: steps[1:]), "give one for each"),
    ("labels of nothing", labelling(lambda steps: []), "no judge of theirs can be measured"),
    ("no label", labelling(lambda steps: [[], *steps[1:]]), "step 0: the first label"),
    ("labels of others first", labelling(lambda steps: first(steps, action="0")), "is not of the action taken"),
    ("another answer", labelling(lambda steps: first(steps, next_observation="?")), "but the episode showed"),
    ("no score", labelling(lambda steps: first(steps, score=0)), "it must be 1 or -1"),
    ("too many labels", labelling(lambda steps: [[step[0]] * 5 for step in steps]), "were asked for at most"),
]


@pytest.mark.parametrize(("env", "complaint"), [row[1:] for row in ABILITIES], ids=[row[0] for row in ABILITIES])
def test_broken_demonstrations_and_labels(env: Any, complaint: str) -> None:
    complaints_of(env, complaint)


def test_an_expert_that_plays_by_chance() -> None:
    def play_expert(self: Any, task: Task, config: Config, *, seed: int) -> Demonstration:
        return GuessNumber.demonstrate(self, task, config, seed=random.getrandbits(9), random_share=1.0)

    complaints_of(with_members(play_expert=play_expert), "play_expert gave another result")


def test_a_tokenizer_that_is_given_no_texts() -> None:
    members = {"tokenizer_texts": lambda *_: [b"abc"], "tokenizer_phrases": lambda *_: (), "exact_text": False}
    assert "tokenizer_phrases gives b'abc'" in the_only_complaint(with_members(**members))


def knowing(*texts: str, **members: Any) -> Any:
    """An environment that gives these texts for its tokenizer."""
    vocabulary = {"tokenizer_texts": lambda *_: texts, "tokenizer_phrases": lambda *_: (), "exact_text": False}
    return with_members(**vocabulary, **members)


def test_a_new_model_knows_the_words_of_the_judge_and_of_commands() -> None:
    env = knowing("guess my number", policy_prompt=lambda *_: ChatPrompt(reply="tagged"))
    config = config_of(env)
    found = tokenizer_texts(env, env.tasks(config, split="train", seed=0), config)
    tokenizer = word_tokenizer(found.texts, phrases=found.phrases, written=found.written)
    told = [tokenizer.decode(tokenizer.encode(text).ids) for text in ("score +1", "score -1", "<action>3</action>")]
    assert [PlainJudge().parse(text) for text in told[:2]] == [1, -1]
    assert "<unk>" not in told[2]


def test_words_of_the_judge_and_of_commands_need_not_be_given() -> None:
    assert broken(knowing("guess my number")) == {}


def test_a_command_of_held_out_tasks_alone() -> None:
    def reset(self: Any) -> Observation:
        seen: Observation = Game.reset(self)
        return replace(seen, commands=(*seen.commands, *self.more))

    def step(self: Any, action: str) -> Any:
        return Game.step(self, "none" if action == "surrender" else action)

    def make(self: Any, task: Task, config: Config) -> Any:
        game = type("Surrendering", (Game,), {"reset": reset, "step": step})(task)
        game.more = () if task.split == "train" else ("surrender",)
        return game

    complaint = the_only_complaint(knowing("guess my number", make=make))
    assert "does not know 'surrender' of 'surrender'; give that word in tokenizer_texts" in complaint


def test_a_judge_whose_capitals_get_lost() -> None:
    said = {1: "GOOD", -1: "BAD"}
    members = {
        "parse": lambda _, reply: {"GOOD": 1, "BAD": -1}.get(reply),
        "render": lambda _, score, reason: said[score],
        "replies": lambda _: tuple(said.values()),
    }
    prompt = type("Judge", (PlainJudge,), members)()
    complaint = the_only_complaint(knowing("guess my number", judge_prompt=lambda *_: prompt))
    assert "'GOOD' comes back from its tokens as 'good'" in complaint and "set exact_text to True" in complaint


HERE = Path(__file__).name


def line_of(text: str) -> int:
    """The line of this file that ends with `text`."""
    lines = Path(__file__).read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if line.endswith(text))


def test_an_error_below_a_library_names_the_line_of_the_environment_and_the_edit() -> None:
    def apply(self: Any, task: Task, edit: str, **options: Any) -> Task:
        json.loads(edit[1:])  # raises in apply
        child: Task = GuessNumber.apply(self, task, edit, **options)
        return child

    env = type("Env", (GuessNumber,), {"apply": apply, "__module__": __name__})()
    place = f"({HERE}, line {line_of('# raises in apply')})"
    complaints_of(env, "raised JSONDecodeError", place, 'the edit was \'{"low": 1')


def test_an_error_of_a_step_names_its_action() -> None:
    def step(self: Any, action: str) -> Observation:
        return Observation(text=json.loads(action + "]"))  # raises in step

    complaints_of(with_game(step=step), "raised JSONDecodeError", "at action ")


def test_edits_that_all_fail_are_told_with_the_reason_of_the_last() -> None:
    complaints_of(proposing(['{"low": 3, "high": 2}']), "the last was", "high", "refused because of 'the number")


def test_lessons_without_replies() -> None:
    lesson = Lesson(messages=[{"role": "user", "content": "Write."}], replies=[])
    assert "give one text or more" in the_only_complaint(with_members(lesson=lambda *_, **__: lesson))


def test_a_service_that_shows_something_else() -> None:
    class Service:
        def make(self, task: Task) -> Any:
            return Game(replace(task, payload=json.dumps({"low": 50, "high": 70, "secret": 60})))

        async def close(self) -> None:
            pass

    complaints_of(with_members(service=lambda *_: Service()), "an episode of the service shows")


# Tasks that change.


def applying(change: Callable[[Task], Task]) -> Any:
    """Every changed task is changed once more."""
    return with_members(apply=lambda self, *given, **options: change(GuessNumber.apply(self, *given, **options)))


def proposing(edits: list[Any]) -> Any:
    return with_members(propose=lambda *_, **__: edits)


def trusting(self: Any, task: Task, edit: str, *, root: Task, taken: Any, created: int) -> Task:
    """Believes any edit."""
    values = json.loads(edit)
    low, high = values["low"], values["high"]
    if not low < high:
        raise RejectedEdit("no range")
    return GuessNumber.apply(self, task, edit, root=root, taken=taken, created=created)


ADAPTS: list[tuple[str, Any, str]] = [
    ("fields in a list", with_members(edit_fields=["low", "high"]), "it must be a frozenset"),
    ("unknown fields", proposing(['{"range": 3}']), "add that to edit_fields"),
    ("edits that are no text", proposing([{"low": 1, "high": 9}]), "the text of a JSON object"),
    ("too many edits", proposing(['{"low": 1, "high": 9}'] * 9), "more edits than"),
    (
        "edits by chance",
        with_members(propose=lambda *_, **__: [f'{{"low": {random.random()}}}']),
        "propose gave another result",
    ),
    ("edits that all fail", proposing(['{"low": 3, "high": 2}']), "apply accepts nothing"),
    ("an active child", applying(lambda child: replace(child, status="active")), "it must be 'pending'"),
    ("a child without a parent", applying(lambda child: replace(child, parent_id=None)), "has parent_id None"),
    ("another slot", applying(lambda child: replace(child, slot=child.task_id)), "has slot"),
    ("another split", applying(lambda child: replace(child, split="test")), "has split 'test'"),
    ("the same depth", applying(lambda child: replace(child, depth=0)), "has depth 0"),
    (
        "a child by chance",
        applying(lambda child: replace(child, plan_length=random.getrandbits(9))),
        "gave another result",
    ),
    ("a child without an edit", applying(lambda child: replace(child, edit=None)), "keep the edit that made it"),
    ("all are alike", with_members(likeness=lambda _, task: task.slot), "like its parent"),
    ("likeness by chance", with_members(likeness=lambda *_: str(random.random())), "return a text of the content"),
    ("edits that are believed", with_members(apply=trusting), "raised"),
    ("no course", with_members(course=lambda *_: None), "return rla.envs.protocols.Course"),
]


@pytest.mark.parametrize(("env", "complaint"), [row[1:] for row in ADAPTS], ids=[row[0] for row in ADAPTS])
def test_broken_changes(env: Any, complaint: str) -> None:
    complaints_of(env, complaint)


def test_tasks_that_exist_already() -> None:
    def apply(self: Any, task: Task, edit: str, *, root: Task, taken: Any, created: int) -> Task:
        return GuessNumber.apply(self, task, edit, root=root, taken=(), created=created)

    complaints_of(with_members(apply=apply), "whose id is in `taken`")


def test_an_edit_with_null_that_makes_a_task() -> None:
    def apply(self: Any, task: Task, edit: str, *, root: Task, taken: Any, created: int) -> Task:
        if edit == '{"high": null}':
            edit = json.dumps({"low": 1, "high": 31})
        return GuessNumber.apply(self, task, edit, root=root, taken=taken, created=created)

    complaints_of(with_members(apply=apply), "a null field", "made a task; raise RejectedEdit")


def test_a_proposer_that_is_asked_for_no_object() -> None:
    class Prompt:
        criticised = False

        def messages(self, task: Task, view: Any) -> list[dict[str, str]]:
            return [{"role": "user", "content": view.critique}]

        def schema(self, task: Task) -> dict[str, Any]:
            return {"type": "array"}

    complaints_of(with_members(proposal_prompt=lambda _: Prompt()), "return a JSON Schema of an object")
