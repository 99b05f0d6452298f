"""Critique and edits of a task that should change: by counting and rules, or by a language model.

Both count how the episodes went (`Course`); the language model also reads the judgements. Drafts are untrusted until
`rla.adaptation.edits.prove` has proven them.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rla.adaptation.edits import Choice
from rla.agents.critic import episode_messages, excerpt, read_critique, task_messages
from rla.agents.proposer import NOTHING, Proposal, held_after_thoughts, read_proposal
from rla.config.sections import ProposerConfig
from rla.envs.protocols import Adapts, Ask, ProposalPrompt
from rla.envs.views import Course, Message, ProposalView
from rla.folding import printable
from rla.llm.base import Completion, FinishReason, Generator, Request, UnusableReply, replies_to
from rla.llm.chat import ChatFormat, reply_text
from rla.seeds import derive
from rla.store.reading import stream_rows
from rla.store.records import Direction, StopReason
from rla.thoughts import after_thinking

_VERDICT = re.compile(r"\\boxed\s*\{[^{}]*\}|\bscore\s*:?\s*[+-]?\s*1\b|[+-]\s*1\b", re.IGNORECASE)
_SENTENCE_END = re.compile(r"[.!?;]+(?=\s|$)|\n+")
_NUMBER = re.compile(r"\d+")
EPISODES = 8  # of a task that the critic reads
MAX_REASON = 160  # characters


def critique(texts: Iterable[str], *, reasons: int = 3) -> str:
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
        found = {_key(sentence): sentence for sentence in reversed(sentences(text))}
        for key, sentence in reversed(found.items()):
            counts[key] += 1
            wording.setdefault(key, sentence)
    return "; ".join(f"{wording[key]} ({count} of {total})" for key, count in counts.most_common(reasons))


def sentences(text: str) -> list[str]:
    """The sentences of a judgement, one line each, without verdict and control characters, cut to length."""
    parts = (" ".join(part.split()) for part in _SENTENCE_END.split(_VERDICT.sub(" ", printable(after_thinking(text)))))
    return [part[:MAX_REASON].rstrip() for part in parts if any(sign.isalpha() for sign in part)]


def _key(sentence: str) -> str:
    return _NUMBER.sub("#", sentence.casefold())


EPISODE = (
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
JUDGED = (
    "task_id",
    "trajectory_id",
    "step",
    "judgements.list.element.score",
    "judgements.list.element.text",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """The episodes of a task that should change, without those that ended because their environment failed.

    `episodes`: trajectory rows with the columns of EPISODE. `against`: trajectory id -> step -> texts of the judgements
    with score -1.
    """

    episodes: list[Mapping[str, Any]] = field(default_factory=list)
    against: dict[str, dict[int, list[str]]] = field(default_factory=dict)

    def failed(self) -> list[Mapping[str, Any]]:
        return [episode for episode in self.episodes if episode["outcome"] != 1]

    def rejections(self) -> list[str]:
        """Judgements against steps of failed episodes, in order."""
        found = [self.against.get(episode["trajectory_id"], {}) for episode in self.failed()]
        return [text for steps in found for step in sorted(steps) for text in steps[step]]


def read_evidence(tasks: Collection[str], *, trajectories: Path, scores: Path) -> dict[str, Evidence]:
    """`evidence_of` two shards, of which no token ids are read."""
    return evidence_of(
        tasks,
        stream_rows(trajectories, "trajectories", EPISODE, keys=tasks) if tasks else (),
        stream_rows(scores, "scores", JUDGED, keys=tasks) if tasks else (),
    )


def evidence_of(
    tasks: Collection[str], episodes: Iterable[Mapping[str, Any]], scores: Iterable[Mapping[str, Any]]
) -> dict[str, Evidence]:
    """task id -> evidence for every task of `tasks`; for a task that was not played it is empty."""
    found = {task: Evidence() for task in tasks}
    for row in episodes:
        if row["task_id"] in found and row["stop_reason"] != StopReason.ENV_ERROR:
            found[row["task_id"]].episodes.append(row)
    for row in scores:
        texts = [judgement["text"] for judgement in row["judgements"] if judgement["score"] == -1]
        if row["task_id"] in found and texts:
            found[row["task_id"]].against.setdefault(row["trajectory_id"], {})[row["step"]] = texts
    return found


STEPS_SHOWN = (12, 6, 3, 1)  # judged steps of an episode that a prompt shows; fewer if it does not fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """Proposed edits of a task, and the critique behind them."""

    critique: str
    proposals: list[Proposal]


class Drafter(Protocol):
    """`course` summarises the episodes of `evidence`. Equal arguments give equal drafts."""

    async def draft(self, choice: Choice, evidence: Evidence, course: Course, *, count: int, seed: int) -> Draft: ...


def critique_by_counts(choice: Choice, evidence: Evidence, course: Course) -> str:
    """The critique without a language model: the course and, for a task that is too hard, reasons against steps."""
    reasons = critique(evidence.rejections()) if choice.direction is Direction.EASIER else ""
    return "; ".join(part for part in (course.told(), f"judged -1: {reasons}" if reasons else "") if part)


@dataclass(frozen=True, slots=True)
class RulesDrafter:
    """Edits by the environment's rules, in the phase that the course points to."""

    editor: Adapts

    async def draft(self, choice: Choice, evidence: Evidence, course: Course, *, count: int, seed: int) -> Draft:
        said = critique_by_counts(choice, evidence, course)
        edits = self.editor.propose(
            choice.task,
            direction=choice.direction.value,
            critique=said,
            focus=course.focus(choice.direction),
            seed=seed,
            count=count,
        )
        return Draft(critique=said, proposals=[Proposal(edit) for edit in edits] or [NOTHING])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelDrafter:
    """A language model as critic and as proposer."""

    generator: Generator
    chat: ChatFormat
    prompt: ProposalPrompt
    config: ProposerConfig

    async def draft(self, choice: Choice, evidence: Evidence, course: Course, *, count: int, seed: int) -> Draft:
        """If a prompt does not fit the context, the draft has the counted critique, or no edit and the reason."""
        facts = critique_by_counts(choice, evidence, course)
        said = ""
        if self.prompt.criticised:
            said = await self._criticise(choice, evidence, course.told(), seed=derive(seed, "critique"))
        whole = "; ".join(part for part in (course.told() if said else facts, said) if part)
        view = ProposalView(direction=choice.direction.value, accuracy=choice.accuracy, critique=whole)
        ids = self.chat.first(self.prompt.messages(choice.task, view))
        if not self._fits(ids, self.config.max_tokens):
            held = self.generator.context
            why = f"the prompt of {len(ids)} tokens and a reply do not fit a context of {held} tokens"
            return Draft(critique=whole, proposals=[Proposal(None, why)])
        request = Request(
            prompt_ids=ids,
            max_tokens=self.config.max_tokens,
            temperature=self.config.temperature,
            seed=derive(seed, "edits"),
            samples=count,
            json_schema=self.prompt.schema(choice.task),
        )
        try:
            replies = await held_after_thoughts(self.generator, request, self.chat)
        except UnusableReply as unusable:
            return Draft(critique=whole, proposals=[Proposal(None, str(unusable))])
        return Draft(critique=whole, proposals=[read_proposal(reply, self.chat) for reply in replies])

    async def _criticise(self, choice: Choice, evidence: Evidence, facts: str, *, seed: int) -> str:
        """Notes on episodes, then a critique of the task; empty if nothing could be asked or was answered."""
        failed = choice.direction is Direction.EASIER
        notes = await self._on_failures(evidence, seed=seed) if failed else actions(evidence)
        while True:
            messages = task_messages(choice.task.instruction, counted=facts, notes=notes, failed=failed)
            replies = await self._ask([messages], seed=derive(seed, "task"))
            if replies or not notes:
                return read_critique(replies[0], self.chat) if replies else ""
            notes = notes[: len(notes) // 2]

    async def _on_failures(self, evidence: Evidence, *, seed: int) -> list[str]:
        """A note on each of the first failed episodes that have judgements against them."""
        judged = [row for row in evidence.failed() if evidence.against.get(row["trajectory_id"])]
        asked = []
        for row in judged[:EPISODES]:
            against = evidence.against[row["trajectory_id"]]
            versions = [episode_messages(row, against, steps=steps) for steps in STEPS_SHOWN]
            asked.append(self._ask(versions, seed=derive(seed, row["trajectory_id"])))
        replies = await asyncio.gather(*asked)
        return [note for found in replies for reply in found if (note := read_critique(reply, self.chat))]

    async def _ask(self, versions: Sequence[list[Message]], *, seed: int) -> list[Completion]:
        """The reply to the first version of a prompt that fits; empty if none fits, or no reply is usable."""
        for messages in versions:
            ids = self.chat.first(messages)
            if self._fits(ids, self.config.max_tokens):
                request = Request(
                    prompt_ids=ids,
                    max_tokens=self.config.max_tokens,
                    temperature=self.config.temperature,
                    seed=seed,
                )
                return await usable_replies(self.generator, request)
        return []

    def _fits(self, ids: Sequence[int], sampled: int) -> bool:
        return len(ids) + sampled <= self.generator.context


async def usable_replies(generator: Generator, request: Request) -> list[Completion]:
    """The engine's replies; none if they are unusable."""
    try:
        return await replies_to(generator, request)
    except UnusableReply:
        return []


def replies_of(drafter: ModelDrafter, *, seed: int) -> Ask:
    """A function that asks the drafter's model other questions; without replies if a question does not fit the context
    or the engine's replies are unusable.
    """
    config, chat, generator = drafter.config, drafter.chat, drafter.generator

    async def ask(messages: list[Message], samples: int) -> list[str]:
        ids = chat.first(messages)
        if len(ids) + config.max_tokens > generator.context:
            return []
        request = Request(
            prompt_ids=ids,
            max_tokens=config.max_tokens,
            temperature=config.temperature,
            seed=derive(seed, *ids),
            samples=samples,
        )
        replies = await usable_replies(generator, request)
        whole = [reply for reply in replies if reply.finish_reason is FinishReason.STOP]
        return [said for reply in whole if (said := after_thinking(reply_text(reply, chat)))]

    return ask


def actions(evidence: Evidence) -> list[str]:
    """The actions of the first episodes, one line each."""
    return ["; ".join(excerpt(step["action"]) for step in episode["steps"]) for episode in evidence.episodes[:EPISODES]]
