"""Critique and proposed edits of a task that should change: by counting and rules, or by a language model.

Both count how the episodes went (`Course`). The language model also reads the judgements, in two steps. Map: one failed
episode with the judgements against its steps, to a few sentences. Reduce: those sentences and the counts, to a few
sentences on the task. Everything that models or environments wrote stands between lines of dashes, and `ChatFormat`
encodes it so that control tokens in it cannot act.

An edit stays a JSON text here, untrusted until `rla.adaptation.candidates.prove` has proven it. Its kind is the names
of the fields that it changes, in alphabetical order and joined by "+": `goal`, `move+remove`.
A text that is not such an object is `unreadable`; without a proposal the kind is `none`.
"""

from __future__ import annotations

import asyncio
import json
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from rla.config.sections import ProposerConfig
from rla.envs.chat_prompts import QUOTED, quoted, user
from rla.envs.protocols import Adapts, Course, Message, ProposalPrompt, ProposalView
from rla.llm.base import Completion, FinishReason, Generator, Request, UnusableReply, replies_to
from rla.llm.chat import ChatFormat, reply_text
from rla.seeds import derive
from rla.store.records import Direction, StopReason, Task
from rla.text import TAG, after_thinking, one_line, open_thought, printable

EPISODES = 8  # of a task that the critic reads
_STEPS_SHOWN = (12, 6, 3, 1)  # judged steps of an episode that a prompt shows; fewer if it does not fit
_MAX_CRITIQUE = 1200  # characters
MAX_REASON = 160  # characters of a reason that is counted
_EXCERPT = 240  # characters of an observation or a judgement that are shown
_LONGEST = 8000  # characters of a reply that are stored
_EPISODE = (
    "An agent failed at a task, and a judge wrote what was wrong with some of its steps. Say in at most three "
    "sentences at which point the episode went wrong and why. " + QUOTED
)
_TOO_HARD = (
    "An agent mostly fails at the task below. From what was counted and from the notes on its failed episodes, say in "
    "at most four sentences what makes the task too hard for it: where the episodes fail, and what it does instead. "
    + QUOTED
)
_TOO_EASY = (
    "An agent nearly always succeeds at the task below. From what was counted and from the actions of its episodes, "
    "say in at most four sentences where its effort goes and which part costs it none. " + QUOTED
)
_VERDICT = re.compile(r"\\boxed\s*\{[^{}]*\}|\bscore\s*:?\s*[+-]?\s*1\b|[+-]\s*1\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?;]+(?=\s|$)|\n+")

UNREADABLE, NONE = "unreadable", "none"  # kinds of edits
Tally = dict[str, dict[str, dict[str, int]]]  # direction -> kind of edit -> name -> count


class Choice(NamedTuple):
    """A task to change, the direction, and the accuracy that calls for it."""

    task: Task
    direction: Direction
    accuracy: float


class Proposal(NamedTuple):
    """An edit as JSON text. `refused`: the reason if it is known to be unusable before the environment looks at it.
    Without an edit, `refused` is the reason why nothing was proposed.
    """

    edit: str | None
    refused: str = ""


NOTHING = Proposal(None, "no edit was found")


class Draft(NamedTuple):
    """Proposed edits of a task, and the critique behind them."""

    critique: str
    proposals: list[Proposal]


def edit_kind(edit: str | None, fields: Collection[str]) -> str:
    """The kind of an edit, from its JSON text. `fields`: the names that an edit in this environment may have."""
    if edit is None:
        return NONE
    try:
        read = json.loads(edit)
    except (ValueError, RecursionError):
        return UNREADABLE
    if not isinstance(read, dict) or not read or not set(read) <= set(fields):
        return UNREADABLE
    return "+".join(sorted(read))


def edit_tally(
    entries: Iterable[tuple[str | None, str | None, Mapping[str, bool]]], *, fields: Collection[str]
) -> Tally:
    """Counts of (direction, edit, marks such as {"proposed": True, "valid": False}), by direction and kind of edit."""
    return added({str(direction): {edit_kind(edit, fields): marks}} for direction, edit, marks in entries)


def added(tallies: Iterable[Mapping[str, Mapping[str, Mapping[str, int]]]]) -> Tally:
    total: Tally = {}
    for found in tallies:
        for direction, kinds in found.items():
            for kind, counts in kinds.items():
                cell = total.setdefault(direction, {}).setdefault(kind, {})
                for name, count in counts.items():
                    cell[name] = cell.get(name, 0) + count
    return {direction: dict(sorted(kinds.items())) for direction, kinds in sorted(total.items())}


EPISODE_COLUMNS = (
    "task_id",
    "trajectory_id",
    "instruction",
    "outcome",
    "stop_reason",
    "steps.list.element.observation",
    "steps.list.element.action",
    "final_observation",
    "screens",  # marks episodes with pictures
)
SCORE_COLUMNS = (
    "task_id",
    "trajectory_id",
    "step",
    "judgements.list.element.score",
    "judgements.list.element.text",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The episodes of a task that should change, without episodes that ended because their environment failed.

    `episodes`: trajectory rows with EPISODE_COLUMNS. `against`: trajectory id -> step -> texts of the judgements with
    score -1.
    """

    episodes: list[Mapping[str, Any]] = field(default_factory=list)
    against: dict[str, dict[int, list[str]]] = field(default_factory=dict)

    def failed(self) -> list[Mapping[str, Any]]:
        return [episode for episode in self.episodes if episode["outcome"] != 1]


def evidence_of(
    tasks: Collection[str], episodes: Iterable[Mapping[str, Any]], scores: Iterable[Mapping[str, Any]]
) -> dict[str, Evidence]:
    """task id -> evidence for every task of `tasks`; empty evidence for a task that was not played."""
    found = {task: Evidence() for task in tasks}
    for row in episodes:
        if row["task_id"] in found and row["stop_reason"] != StopReason.ENV_ERROR:
            found[row["task_id"]].episodes.append(row)
    for row in scores:
        texts = [judgement["text"] for judgement in row["judgements"] if judgement["score"] == -1]
        if row["task_id"] in found and texts:
            found[row["task_id"]].against.setdefault(row["trajectory_id"], {})[row["step"]] = texts
    return found


def frequent_reasons(texts: Iterable[str], *, reasons: int = 3) -> str:
    """The `reasons` most frequent reasons, as "reason (12 of 40)" joined by "; "; "" without any.

    Each text counts a reason once. Reasons that differ only in numbers ("cabinet 1", "cabinet 2") are one, in the
    wording that came first. Ties are shown in order of first appearance. The texts are untrusted: they are cleaned,
    counted and cut to length, and nothing in them is interpreted.
    """
    counts: Counter[str] = Counter()
    wording: dict[str, str] = {}
    total = 0
    for text in texts:
        total += 1
        found = {re.sub(r"\d+", "#", one.casefold()): one for one in reversed(sentences(text))}
        for key, sentence in reversed(found.items()):
            counts[key] += 1
            wording.setdefault(key, sentence)
    return "; ".join(f"{wording[key]} ({count} of {total})" for key, count in counts.most_common(reasons))


def sentences(text: str) -> list[str]:
    """The sentences of a judgement, one line each, without verdict and control characters, cut to length."""
    parts = (" ".join(part.split()) for part in _SENTENCE_END.split(_VERDICT.sub(" ", printable(after_thinking(text)))))
    return [part[:MAX_REASON].rstrip() for part in parts if any(sign.isalpha() for sign in part)]


def _critique_by_counts(choice: Choice, evidence: Evidence, course: Course) -> str:
    """The critique without a language model: the course and, for a task that is too hard, reasons against steps."""
    reasons = ""
    if choice.direction is Direction.EASIER:
        judged = [evidence.against.get(episode["trajectory_id"], {}) for episode in evidence.failed()]
        reasons = frequent_reasons(text for steps in judged for step in sorted(steps) for text in steps[step])
    return "; ".join(part for part in (course.told(), f"judged -1: {reasons}" if reasons else "") if part)


@dataclass(frozen=True, slots=True)
class RulesDrafter:
    """Edits by the environment's rules, in the phase that the course points to. Equal arguments give equal drafts."""

    editor: Adapts

    async def draft(self, choice: Choice, evidence: Evidence, course: Course, *, count: int, seed: int) -> Draft:
        said = _critique_by_counts(choice, evidence, course)
        edits = self.editor.propose(
            choice.task,
            direction=choice.direction.value,
            focus=course.focus(choice.direction),
            seed=seed,
            count=count,
        )
        return Draft(critique=said, proposals=[Proposal(edit) for edit in edits] or [NOTHING])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDrafter:
    """A language model as critic and as proposer. `course` summarises the episodes of `evidence`."""

    generator: Generator
    chat: ChatFormat
    prompt: ProposalPrompt
    config: ProposerConfig

    async def draft(self, choice: Choice, evidence: Evidence, course: Course, *, count: int, seed: int) -> Draft:
        """If a prompt does not fit the context, the draft has the counted critique, or no edit and the reason."""
        said = ""
        if self.prompt.criticised:
            said = await self._criticise(choice, evidence, course.told(), seed=derive(seed, "critique"))
        facts = course.told() if said else _critique_by_counts(choice, evidence, course)
        whole = "; ".join(part for part in (facts, said) if part)
        view = ProposalView(direction=choice.direction.value, accuracy=choice.accuracy, critique=whole)
        ids = self.chat.first(self.prompt.messages(choice.task, view))
        if not self._fits(ids):
            why = f"the prompt of {len(ids)} tokens and a reply do not fit a context of {self.generator.context} tokens"
            return Draft(critique=whole, proposals=[Proposal(None, why)])
        request = self._request(ids, seed=derive(seed, "edits"), samples=count)
        try:
            replies = await _constrained_replies(
                self.generator, replace(request, json_schema=self.prompt.schema(choice.task)), self.chat
            )
        except UnusableReply as unusable:
            return Draft(critique=whole, proposals=[Proposal(None, str(unusable))])
        return Draft(critique=whole, proposals=[read_proposal(reply, self.chat) for reply in replies])

    async def answers(self, messages: list[Message], samples: int, *, seed: int) -> list[str]:
        """Whole replies to another question, without thoughts; empty if it does not fit, or no reply is usable."""
        ids = self.chat.first(messages)
        replies = await self._replies([ids], seed=derive(seed, *ids), samples=samples)
        whole = [reply for reply in replies if reply.finish_reason is FinishReason.STOP]
        return [said for reply in whole if (said := after_thinking(reply_text(reply, self.chat)))]

    async def _criticise(self, choice: Choice, evidence: Evidence, facts: str, *, seed: int) -> str:
        """Notes on episodes, then a critique of the task; empty if nothing could be asked or was answered."""
        failed = choice.direction is Direction.EASIER
        if failed:
            judged = [row for row in evidence.failed() if evidence.against.get(row["trajectory_id"])]
            asked = (self._note(row, evidence, seed=seed) for row in judged[:EPISODES])
            notes = [note for note in await asyncio.gather(*asked) if note]
        else:
            played = evidence.episodes[:EPISODES]
            notes = ["; ".join(excerpt(step["action"]) for step in episode["steps"]) for episode in played]

        def version(count: int) -> list[Message]:
            told = "\n".join(f"- {note}" for note in notes[:count]) or "(none)"
            parts = {"Task": choice.task.instruction, "Counted": facts or "(nothing)", "Notes": told}
            return [user(f"{_TOO_HARD if failed else _TOO_EASY}\n\n{quoted(parts)}")]

        counts = dict.fromkeys((len(notes), len(notes) // 2, len(notes) // 4, 0))
        return await self._critique(map(version, counts), seed=derive(seed, "task"))

    async def _note(self, episode: Mapping[str, Any], evidence: Evidence, *, seed: int) -> str:
        """A note on a failed episode with judgements against it."""
        name = episode["trajectory_id"]
        versions = (_episode_messages(episode, evidence.against[name], steps=steps) for steps in _STEPS_SHOWN)
        return await self._critique(versions, seed=derive(seed, name))

    async def _critique(self, versions: Iterable[list[Message]], *, seed: int) -> str:
        """The critique in the reply to the first version of a prompt that fits; empty if there is none."""
        replies = await self._replies(map(self.chat.first, versions), seed=seed)
        return read_critique(replies[0], self.chat) if replies else ""

    async def _replies(self, prompts: Iterable[list[int]], *, seed: int, samples: int = 1) -> list[Completion]:
        """The replies to the first prompt that fits; empty if none fits, or no reply is usable."""
        ids = next(filter(self._fits, prompts), None)
        try:
            asked = None if ids is None else self._request(ids, seed=seed, samples=samples)
            return [] if asked is None else await replies_to(self.generator, asked)
        except UnusableReply:
            return []

    def _request(self, ids: list[int], *, seed: int, samples: int) -> Request:
        config = self.config
        return Request(
            prompt_ids=ids, max_tokens=config.max_tokens, temperature=config.temperature, seed=seed, samples=samples
        )

    def _fits(self, ids: Sequence[int]) -> bool:
        return len(ids) + self.config.max_tokens <= self.generator.context


Drafter = RulesDrafter | ModelDrafter


def _episode_messages(episode: Mapping[str, Any], against: Mapping[int, Sequence[str]], *, steps: int) -> list[Message]:
    """The prompt on one failed episode: the first `steps` steps that were judged -1, in full, between the others'
    actions. Answers of an episode with pictures are not shown: in words they are all alike.
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
    return [user(f"{_EPISODE}\n\n{quoted(parts)}")]


def read_critique(completion: Completion, chat: ChatFormat) -> str:
    """The reply as one printable line of bounded length, without thoughts; empty if it was cut before they ended."""
    return one_line(after_thinking(reply_text(completion, chat)), _MAX_CRITIQUE)


def excerpt(text: str) -> str:
    return one_line(text, _EXCERPT)


async def _constrained_replies(generator: Generator, request: Request, chat: ChatFormat) -> list[Completion]:
    """The replies to a request with a JSON Schema. Engines apply a schema from the first token on, so a model that
    thinks is asked twice: freely, and then for the rest behind its thoughts. `max_tokens` is for both together.
    """
    if not chat.thinks:
        return await replies_to(generator, request)
    free = await replies_to(generator, replace(request, json_schema=None))
    single = [replace(request, samples=1, seed=request.seed + index) for index in range(request.samples)]
    asked = (_continued(generator, one, said, chat) for one, said in zip(single, free, strict=True))
    return list(await asyncio.gather(*asked))


async def _continued(generator: Generator, request: Request, said: Completion, chat: ChatFormat) -> Completion:
    count = _thought_length(said, chat)
    if count is None or count >= request.max_tokens:
        return said
    thoughts = said.token_ids[:count]
    prompt = [*request.prompt_ids, *thoughts]
    (rest,) = await replies_to(generator, replace(request, prompt_ids=prompt, max_tokens=request.max_tokens - count))
    return replace(
        rest,
        token_ids=[*thoughts, *rest.token_ids],
        logprobs=[*said.logprobs[:count], *rest.logprobs],
        allowed=[*said.allowed[:count], *rest.allowed],
    )


def _thought_length(said: Completion, chat: ChatFormat) -> int | None:
    """The number of tokens up to the end of a reply's thoughts and the white space behind them; 0 without thoughts,
    None if they do not end.
    """
    if open_thought(reply_text(said, chat)):
        return None
    ids = said.token_ids

    def tags(count: int) -> int:
        return len(TAG.findall(chat.decode(ids[:count])))

    end = bisect_left(range(len(ids) + 1), tags(len(ids)), key=tags)
    while end and chat.decode(ids[end : end + 1]).isspace():
        end += 1
    return end


def read_proposal(completion: Completion, chat: ChatFormat) -> Proposal:
    """The JSON object in the reply, from the first brace to the last; all of the reply if it has none.

    Thoughts before it and a fence around it are left out, and the text is cut to a length that can be stored.
    """
    text = reply_text(completion, chat)
    answer, refused = after_thinking(text), ""
    if completion.finish_reason is FinishReason.LENGTH:
        answer, refused = text, "the reply was cut at adaptation.llm.max_tokens"
    elif text and not answer:
        answer, refused = text, "the reply ends with its thoughts"
    else:
        start, end = answer.find("{"), answer.rfind("}")
        answer = answer[start : end + 1] if 0 <= start < end else answer.strip()
    return Proposal(answer[:_LONGEST].encode("utf-8", "replace").decode("utf-8"), refused)
