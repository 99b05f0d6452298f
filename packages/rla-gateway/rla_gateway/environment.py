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
from rla.store.records import Task
from rla_gateway.gateway import AgentEpisode, Gateway
from rla_gateway.params import NAME, AgentParams, agent_params, check_agent


class Agent:
    """Your own program, which talks to the policy through an OpenAI-compatible endpoint."""

    name, Params, exact_text = NAME, AgentParams, False

    def check(self, config: Config) -> None:
        check_agent(config)

    def tasks(self, config: Config, *, split: str, seed: int) -> list[Task]:
        raise UserError(f"tasks.path is null; name a file of tasks: env.name: {NAME} has none of its own")

    def import_tasks(self, config: Config, *, split: str, tell: Callable[[str], None] | None = None) -> list[Task]:
        """The lines of `tasks.path` whose `split` is this one or missing. A held-out split may have its own file."""
        held_out = agent_params(config).test_path if config.tasks.held_out(split) else ""
        path = Path(held_out or str(config.tasks.path))
        found: dict[str, Task] = {}
        for number, line in enumerate(_text(path, key="tasks.path").splitlines(), start=1):
            try:
                row = json.loads(line) if line.strip() else None
                if row is None or row.get("split", split) != split:
                    continue
                instruction, kind = row["instruction"], row.get("kind", "")
                if not isinstance(instruction, str) or not isinstance(kind, str):
                    raise TypeError
            except (ValueError, AttributeError, KeyError, TypeError, RecursionError):
                raise UserError(f'{path}:{number}: a task is a JSON object with an "instruction", a text') from None
            task = root_task(env=NAME, split=split, instruction=instruction, content=row, kind=kind)
            found.setdefault(task.task_id, task)
        if not found:
            raise UserError(f"{path}: no task of the split {split!r} in it; give lines the split, or leave it out")
        if not held_out and config.tasks.held_out(split) and '"split"' not in next(iter(found.values())).payload:
            raise UserError(f"{path}: its lines have no split, so they would train, too; set env.own.test_path")
        return list(found.values())[: config.tasks.limit]

    def make(self, task: Task, config: Config) -> AwaitedEnvironment:
        """An episode with its own gateway; the episodes of a stage share one (`service`)."""
        return AgentEpisode(Gateway(config), task, alone=True)

    def service(self, config: Config) -> Gateway:
        return Gateway(config)

    def policy_prompt(self, config: Config) -> PolicyPrompt:
        """Reads replies as they are; the prompts come from the agent."""
        return policy_prompt(config)

    def judge_prompt(self, config: Config) -> JudgePrompt:
        return judge_prompt(config, rules="a model that answers the requests of a program")

    def tokenizer_texts(self, tasks: Iterable[Task], config: Config) -> Iterator[str]:
        path = agent_params(config).vocabulary
        yield from (task.instruction for task in tasks)
        yield from _text(Path(path), key="env.own.vocabulary").splitlines() if path else ()

    def tokenizer_phrases(self, config: Config) -> Sequence[str]:
        return ()


def _text(path: Path, *, key: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{key}: {path} cannot be read as text ({error}); name a file in UTF-8") from None
