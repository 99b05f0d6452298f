"""Two calls at once on one run, of every pair of stages; two equal calls on a fresh folder.

Each may win, or end with one error in one line. Called again one after the other, they come to what two undisturbed
calls come to.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import combinations_with_replacement
from pathlib import Path

from tests.attack.areas import Needs, Try, dice
from tests.attack.calls import begin, call, fault
from tests.attack.kills import begun
from tests.attack.small_run import BY_NAME, Case, World, difference, digests

ORDER = (  # in which a run calls them
    *("make-tasks", "init-model", "warm-start", "rollout", "validate-tasks", "score-steps", "compute-rewards"),
    *("judge-accuracy", "train-policy", "train-rm", "adapt-env", "evaluate", "report"),
)
AGAIN = tuple(f"{name}-again" for name in ORDER)


@dataclass(frozen=True, slots=True)
class Pairs:
    """All pairs that replace outputs of the same run, and every fresh case against itself."""

    name: str = "pairs"
    together: int = 2
    seconds: float = 600.0
    rights: str | None = None
    needs: Needs = Needs.CASES

    def trials(self, world: World) -> list[str]:
        mixed = [f"{first}+{second}" for first, second in combinations_with_replacement((*AGAIN, "prune"), 2)]
        alike = [f"{case.name}+{case.name}" for case in world.cases if f"{case.name}+{case.name}" not in mixed]
        dice(world, "pairs").shuffle(mixed)
        return [*alike, *mixed]

    def opened(self, world: World, scratch: Path) -> Try:
        def tried(trial: str) -> str | None:
            first, second = (BY_NAME[name] for name in trial.split("+"))
            for name in ("calm", "storm"):
                shutil.rmtree(scratch / name, ignore_errors=True)
                (scratch / name).mkdir()
            folder = begun(world, first, scratch / "storm")
            running = [begin(case.arguments, folder) for case in (first, second)]
            for case, ended in zip((first, second), [one.wait() for one in running], strict=True):
                if wrong := fault(ended):
                    return f"{case.name} beside another call: {wrong}"
            if wrong := one_after_the_other(first, second, folder):
                return wrong
            if first == second:
                return difference(world.after(first), digests(folder))
            calm = begun(world, first, scratch / "calm")
            if wrong := one_after_the_other(first, second, calm):
                return f"undisturbed: {wrong}"
            return difference(digests(calm), digests(folder))

        return tried


def one_after_the_other(first: Case, second: Case, folder: Path) -> str | None:
    for case in dict.fromkeys((first, second)):
        ended = call(case.arguments, folder)
        if ended.code or fault(ended):
            return f"{case.name} afterwards: {fault(ended) or ended.said.splitlines()[-1][:160]}"
    return None
