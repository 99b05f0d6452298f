"""Tool use as an environment: questions, a Python interpreter, checked answers, and a judge of each round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from rla.config import Config
from rla.envs.observation import AwaitedEnvironment
from rla.envs.protocols import (
    Ask,
    Course,
    Demonstration,
    JudgePrompt,
    Labelled,
    PolicyPrompt,
    Proof,
    ProposalPrompt,
    SeenStep,
)
from rla.store.records import Task
from rla_programs.tool.adapting import (
    QUESTION_FIELDS,
    QuestionProposals,
    child_of_question,
    drawn_question_edits,
    round_course,
    task_likeness,
)
from rla_programs.tool.answers import answer_class, said_answer
from rla_programs.tool.calls import CallFormat
from rla_programs.tool.decoration import shown_question
from rla_programs.tool.demonstrating import solver_reply, taught_rounds
from rla_programs.tool.families.registry import DEFAULT
from rla_programs.tool.formats import make_format
from rla_programs.tool.imported import import_questions
from rla_programs.tool.interpreter import PythonTool
from rla_programs.tool.judging import round_judge
from rla_programs.tool.labels import labels_of_actions, labels_seen
from rla_programs.tool.params import ToolParams, check_tool, tool_params
from rla_programs.tool.prompts import QuestionPrompt
from rla_programs.tool.proving import AnswerProof
from rla_programs.tool.questions import NAME, question_of
from rla_programs.tool.service import LoneToolEpisode, ToolService
from rla_programs.tool.stitching import stitched
from rla_programs.tool.tasks import builtin_questions
from rla_programs.tool.vocabulary import question_texts
from rla_programs.tool.whole_response import whole_response


class Tool:
    """The policy answers questions with a Python interpreter."""

    name = NAME
    Params = ToolParams
    exact_text = True
    edit_fields = QUESTION_FIELDS

    def check(self, config: Config) -> None:
        check_tool(config)

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        """Generated questions of `tasks.kinds`, in turn; fewer than requested if there are no more."""
        return builtin_questions(
            kinds=config.tasks.kinds_of(split) or DEFAULT,
            level=tool_params(config).level,
            spread=tool_params(config).level_spread,
            count=config.tasks.count(split),
            held_out=config.tasks.held_out(split),
            seed=seed,
            split=split,
        )

    def import_tasks(self, config: Config, *, split: str, tell: Callable[[str], None] | None = None) -> list[Task]:
        own = tool_params(config)
        return import_questions(
            (own.test_path if config.tasks.held_out(split) else "") or str(config.tasks.path),
            split=split,
            layout=own.layout,
            limit=config.tasks.limit,
            tell=tell,
        )

    def make(self, task: Task, config: Config) -> AwaitedEnvironment:
        """An episode with its own sandbox; the episodes of a stage share one (`service`)."""
        return LoneToolEpisode(question_of(task), tool_params(config))

    def service(self, config: Config) -> ToolService:
        return ToolService(tool_params(config))

    def spreads(self, config: Config) -> bool:
        return tool_params(config).execution.on_this_machine

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        calls = call_format(config)
        told = calls.schemas if tool_params(config).has_tool else ()
        return QuestionPrompt(schemas=told, result_role=calls.role, calls=calls)

    def judge_prompt(self, config: Config) -> JudgePrompt:
        return round_judge(config)

    def answer(self, task: Task, config: Config, reply: str) -> str | None:
        """None for a call, malformed or not, which is not an answer. Programs vote as they are."""
        said = self.prediction(task, config, [reply], [], ended=True)
        whole = tool_params(config).answer == "published"
        if said is None or (whole and call_format(config).parse(reply).calls):
            return None
        return said if whole else answer_class(question_of(task), said)

    def prediction(
        self, task: Task, config: Config, actions: Sequence[str], answers: Sequence[str], *, ended: bool
    ) -> str | None:
        """With `env.own.answer: published` from the whole response, whatever ended it."""
        if tool_params(config).answer == "published":
            return said_answer(question_of(task), whole_response(actions, answers), published=True)
        called = not actions or not ended or call_format(config).parse(actions[-1]).calls
        return None if called else said_answer(question_of(task), actions[-1])

    def demonstrate(self, task: Task, config: Config, *, seed: int, random_share: float) -> Demonstration:
        calls, shown, tool = call_format(config), _shown_text(task, config), tool_params(config).has_tool
        return taught_rounds(task, calls, seed=seed, random_share=random_share, shown=shown, tool=tool)

    def solve(self, task: Task, config: Config, history: Sequence[tuple[str, str]], seed: int) -> str:
        return solver_reply(task, history, call_format(config), seed=seed, tool=tool_params(config).has_tool)

    def stitch(self, task: Task, config: Config, *, seed: int) -> Demonstration:
        return stitched(task, call_format(config), seed=seed, shown=_shown_text(task, config))

    def label(
        self, task: Task, config: Config, actions: Sequence[str], *, others: int = 0, seed: int = 0
    ) -> list[list[Labelled]]:
        own = tool_params(config)
        return labels_of_actions(task, call_format(config), own, actions, others=others, seed=seed)

    def label_seen(self, task: Task, config: Config, steps: Sequence[SeenStep]) -> Sequence[Labelled]:
        return labels_seen(task, call_format(config), steps)

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterator[str]:
        """The questions of the pool, the answers of good and weak teachers, and the judge's verdicts. With
        `judge.prompt: published` no verdict is known beforehand.
        """
        verdicts, tool = self.judge_prompt(config).replies(), tool_params(config).has_tool
        return question_texts(tasks, call_format(config), seed=config.seed, verdicts=verdicts, tool=tool)

    def tokenizer_phrases(self, config: Config) -> Sequence[str]:
        return ()

    def course(self, task: Task, episodes: Sequence[Mapping[str, Any]]) -> Course:
        return round_course(task, episodes)

    def propose(self, task: Task, *, direction: str, focus: str = "", seed: int, count: int) -> list[str]:
        return drawn_question_edits(task, direction=direction, seed=seed, count=count)

    def proposal_prompt(self) -> ProposalPrompt:
        return QuestionProposals()

    def apply(self, task: Task, edit: str, *, root: Task, taken: Collection[str], created: int) -> Task:
        return child_of_question(task, edit, root=root, taken=taken, created=created)

    def likeness(self, task: Task) -> str:
        return task_likeness(task)

    def proof(self, config: Config, ask: Ask | None) -> Proof:
        """Questions of a family are proven when they are made; those that a language model has written, by programs."""
        own = tool_params(config)
        return AnswerProof(PythonTool(own.execution), ask=ask, solvers=own.solvers, agreement=own.agreement)


def call_format(config: Config) -> CallFormat:
    """The format of calls that `env.own.format` names."""
    return make_format(tool_params(config).format)


def _shown_text(task: Task, config: Config) -> str:
    """The question as the policy reads it."""
    own = tool_params(config)
    return shown_question(question_of(task), published=own.prompt == "published", tool=own.has_tool)
