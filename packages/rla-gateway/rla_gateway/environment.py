"""The environment `agent`: tasks from a file of JSON lines, each played by a run of the user's own program."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from rla.config import Config
from rla.envs.authoring import root_task
from rla.envs.chat_prompts import judge_prompt, policy_prompt
from rla.envs.observation import AwaitedEnvironment
from rla.envs.protocols import JudgePrompt, PolicyPrompt
from rla.errors import UserError
from rla.models.init import OFTEN
from rla.store.records import Task
from rla_gateway.gateway import AgentEpisode, Gateway
from rla_gateway.params import NAME, AgentParams, check_agent


class Agent:
    """Your own program, which talks to the policy through an OpenAI-compatible endpoint."""

    name, Params, exact_text = NAME, AgentParams, True

    def check(self, config: Config) -> None:
        check_agent(config)

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        return self.import_tasks(config, split=split)[: config.tasks.count(split)]

    def import_tasks(self, config: Config, *, split: str, tell: Callable[[str], None] | None = None) -> list[Task]:
        """The lines of `tasks.path` with this `split`."""
        path, found = Path(str(config.tasks.path)), list[Task]()
        for number, line in enumerate(_lines(path, key="tasks.path"), start=1):
            try:
                row = json.loads(line)
                named = {"instruction": row["instruction"], "kind": row.get("kind", ""), "split": row["split"]}
            except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
                named = {"split": None}
            if not all(isinstance(value, str) and "\0" not in value for value in named.values()):
                raise UserError(f'{path}:{number}: a task is a JSON object with the texts "instruction" and "split"')
            if named["split"] == split:
                found.append(root_task(env=NAME, content=row, **named))
        if not found:
            raise UserError(f"{path}: no line has the split {split!r}; name its splits in tasks.*_split")
        return list({task.task_id: task for task in found}.values())[: config.tasks.limit]

    def make(self, task: Task, config: Config) -> AwaitedEnvironment:
        """An episode with its own gateway; the episodes of a stage share one (`service`)."""
        return AgentEpisode(Gateway(config), task, alone=True)

    def service(self, config: Config) -> Gateway:
        return Gateway(config)

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        return policy_prompt(config)

    def judge_prompt(self, config: Config) -> JudgePrompt:
        return judge_prompt(config, rules="a model that answers the requests of a program")

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterator[str]:
        path: str = config.env.own.vocabulary
        yield from (task.instruction for task in tasks)
        yield from _lines(Path(path), key="env.own.vocabulary") * OFTEN if path else ()

    def tokenizer_phrases(self, config: Config) -> Sequence[str]:
        return ()


def _lines(path: Path, *, key: str) -> list[str]:
    try:
        return [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{key}: {path} cannot be read as text ({error}); name a file in UTF-8") from None
