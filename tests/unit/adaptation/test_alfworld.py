"""Two rounds of adaptation on built-in ALFWorld tasks: choose, propose, prove, accept, next pool."""

from __future__ import annotations

import asyncio

from rla.adaptation.acceptance import judge_pending, next_pool
from rla.adaptation.candidates import Candidate, prove
from rla.adaptation.drafting import Proposal
from rla.adaptation.selection import choose
from rla.config.sections import AdaptationConfig
from rla.envs.alfworld.environment import Alfworld
from rla.store.records import Status, Task
from tests.unit.builders import configured


def adapted(pool: list[Task], roots: dict[str, Task], iteration: int) -> list[Candidate]:
    """Candidates where every other task was always won and the rest never."""
    editor = Alfworld()
    accuracies = {task.task_id: float(number % 2) for number, task in enumerate(pool)}
    taken = {task.task_id for task in pool} | set(roots)
    found: list[Candidate] = []
    for choice in choose(pool, accuracies, config=AdaptationConfig(max_tasks=6), seed=iteration):
        direction = choice.direction.value
        edits = editor.propose(choice.task, direction=direction, count=4, seed=iteration)
        found += asyncio.run(
            prove(
                map(Proposal, edits),
                choice,
                editor=editor,
                root=roots[choice.task.slot],
                taken=taken,
                critique="",
                created=iteration,
            )
        )
        taken |= {candidate.task.task_id for candidate in found if candidate.valid}
    return found


def test_accepted_tasks_are_new_solvable_and_in_their_parents_slot() -> None:
    pool = Alfworld().tasks(configured("tasks.train_scenes=4"), seed=0, split="train")
    roots = {task.task_id: task for task in pool}
    seen = set(roots)
    for iteration in (1, 2):
        valid = [candidate for candidate in adapted(pool, roots, iteration) if candidate.valid]
        tasks = [candidate.task for candidate in valid]
        verdicts = judge_pending(
            tasks,
            {task.task_id: (0.5, 8) for task in tasks},
            {candidate.task.task_id: candidate.parent_accuracy for candidate in valid},
            iteration=iteration,
            config=AdaptationConfig(alpha_low=0.2, alpha_high=0.8),
        )
        following = next_pool(pool, tasks, verdicts)
        assert tasks and all(verdict.accepted for verdict in verdicts)
        assert all(task.plan_length and task.status == Status.PENDING for task in tasks)
        assert seen.isdisjoint({task.task_id for task in tasks})
        assert [task.slot for task in following] == [task.slot for task in pool]
        seen |= {task.task_id for task in tasks}
        pool = following
    assert max(task.depth for task in pool) == 2
