"""Two scripted iterations of `coding`, and digests of the rows that they write.

`python -m programs_tests.integration.golden` writes `golden.json` anew.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

from rla_programs.coding.data.problems import problem_of
from rla_programs.coding.tasks import builtin_problems
from rla_programs.coding.writing import PlainTestPrompt

from rla.llm.base import Request
from rla.llm.chat import ChatFormat
from rla.llm.factory import ScriptedGenerator
from rla.models.load import load_tokenizer
from tests.integration.golden import turned

GOLDEN = Path(__file__).with_name("golden.json")
CODING = """
env: {name: coding, max_steps: 1, own: {prompt: plain, tests: 4, execution: {backend: rlimits}}}
tasks: {size: tiny, train_scenes: 8, test_scenes: 4, tasks_per_scene: 1}
policy: {reply: text, repeat_task: false, history: full, decoding: free, max_tokens: 256, temperature: 1.0}
judge: {prompt: plain, decoding: free, votes: 4, max_tokens: 96, temperature: 1.0}
rollout: {tasks_per_iteration: 6, rollouts_per_task: 4}
credit: {step_weight: 0.5, policy_band: [0.0, 1.0], reward_model_band: [0.0, 1.0]}
adaptation: {max_tasks: 4}
evaluation: {rollouts_per_task: 2, temperature: 1.0, max_steps: 1}
"""


def coding(folder: Path) -> dict[str, str]:
    """Of three problems one is always solved, one is not, and one is every other time; tests are the problem's own."""
    known = [
        problem_of(task.payload)
        for task in builtin_problems(
            seed=11, count=8, split="train", held_out=False, tests=4, levels=(1, 2), kinds=("stdio", "function")
        )
    ]

    def made(config: Any, *, model: Path, seed: int, training: bool = True) -> Any:
        tokenizer = load_tokenizer(model)
        chat = ChatFormat(tokenizer)

        def reply(request: Request, seed: int) -> list[int]:
            asked = chat.decode(list(request.prompt_ids))
            own = next((number for number, problem in enumerate(known) if problem.statement in asked), None)
            right = own is not None and (True, False, seed % 2 == 0)[own % 3]
            problem = known[own if own is not None and right else seed % len(known)]
            test = known[own or 0].tests[seed % 4]
            said = problem.solution if request.session else PlainTestPrompt().render(test)
            return [*chat.encode(said or ""), chat.end_id]

        return ScriptedGenerator(reply, context=config.context), tokenizer

    with patch("rla.llm.factory.make_generator", made):
        return turned(folder, CODING)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        found = coding(Path(folder))
    GOLDEN.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
