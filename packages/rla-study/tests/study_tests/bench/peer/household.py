"""ALFWorld as an environment of TRL's `GRPOTrainer` (`environment_factory`), for the small models of `rla`.

The interface is made for chat models that write tool calls. These models write a bare command, so a template and a
parser make the command the argument of the one tool, `act`, and the tokens of an episode are those of `rla`:

    <user> observation <end> <assistant> command <end> <user> observation <end> <assistant> ...

TRL (1.16) does not let an environment end its episode: a reply without a call ends it, or a result that leaves no room
(its issue 5389 asks for more). A model that writes commands alone would play on after it has won. So the result of the
last step is longer than any completion may be; TRL takes it back and leaves the episode as it stood.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rla.agents import NO_ACTION
from rla.config import Config
from rla.envs.observation import Environment, Observation, offered
from rla.envs.registry import environment
from rla.store.records import Task

TOOL = "act"
# TRL demands that a call's name and arguments are printed. It never asks for tokens of a call but with empty arguments.
TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<assistant>' if message['role'] == 'assistant' else '<user>' }}"
    "{% for call in message['tool_calls'] or [] %}"
    "{{ call['function']['name'] }}"
    "{% for key, value in call['function']['arguments'].items() %}{{ ' ' + key + ' ' + value }}{% endfor %}"
    "{% endfor %}"
    "{{ message['content'] + '<end>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<assistant>' }}{% endif %}"
)
RESPONSE = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<assistant>",
    "fields": {
        "tool_calls": {
            "close": "<end>",
            "content": "text",
            "repeats": True,
            "transform": {"type": "function", "function": {"name": TOOL, "arguments": {"command": "{content}"}}},
        }
    },
}


def taught_tokenizer(tokenizer: Any) -> Any:
    """The tokenizer of a small model with the template and the parser."""
    tokenizer.chat_template, tokenizer.response_template = TEMPLATE, RESPONSE
    return tokenizer


class Household:
    """One episode at a time. TRL makes one instance for each rollout and calls `reset` with the row of the data set."""

    def __init__(self, tasks: Mapping[str, Task], config: Config) -> None:
        self._tasks, self._config = tasks, config
        self._rules = environment(config.env.name)
        self._prompt = self._rules.policy_prompt(config)
        self._over = "over " * config.generator.context
        self._episode: Environment | None = None
        self._seen = Observation(text="")
        self._steps = 0

    def reset(self, *, task_id: str, **columns: Any) -> str:
        """The first observation, which TRL appends to the empty user turn of the data set."""
        self._task = self._tasks[task_id]
        if self._episode is not None:
            self._episode.close()
        self._episode, self._steps = self._rules.make(self._task, self._config), 0
        self._seen = self._episode.reset()
        (message,) = self._prompt.opening(self._seen.text, self._offered())
        return str(message["content"])

    def act(self, command: str) -> str:
        """Do something in the house.

        Args:
            command: what is to be done

        Returns:
            what happens
        """
        if self._episode is None:
            raise ValueError("no episode has begun")
        self._seen = self._episode.step(self._prompt.parse(command, self._offered()) or NO_ACTION)
        self._steps += 1
        if self._won() or self._seen.done or self._steps == self._config.env.max_steps:
            return self._over
        return self._prompt.turn(self._seen.text, self._offered(), self._task.instruction)

    def get_reward(self) -> float:
        """The outcome, +1 or -1."""
        return 1.0 if self._won() else -1.0

    def _won(self) -> bool:
        return self._seen.success(self._config.env.reward_threshold)

    def _offered(self) -> tuple[str, ...]:
        return offered(self._seen.commands, self._config.env.omit_commands)
