"""`bench-peer`: TRL's GRPOTrainer on the work of `make run`, beside `rla` with outcomes alone and with the loop.

    python -m study_tests.bench.bench_peer --root runs/peer [--seeds 3] [--start RUN] [--set key=value]

Built-in household tasks, the small models of `rla` and one thread; the trainings run one after another, each in a
process of its own. All begin with the same warm-started policy, and `rla` with its warm-started judge, play the same
number of episodes an update and, unless tasks adapt, the same tasks in each iteration. Parameters are those of
`--params`. Decoding is free for all: TRL has no log-probabilities for sampling that is restricted to commands.

1. `--start RUN` links pools and warm start of a run; without it they are made.
2. Every learning rate is tried for each arm with a seed of its own, and the policies are played on tasks that the
   report does not use (`study_tests.bench.peer.plan`).
3. Every arm is trained at its rate with each seed, and its policies are played on the held-out tasks of the start.

What is done is kept, so the same call goes on where one stopped. Memory and times are those of the training processes,
without start-up; the processor's seconds say more than the clock's on a machine that does other work.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from rla_study.ablation.folders import share_artifacts

from rla.cli.app import run
from rla.store.layout import artifact, resource
from rla.store.reading import read_tasks
from study_tests.bench.peer.calling import run_apart, run_cell
from study_tests.bench.peer.measuring import start_job
from study_tests.bench.peer.ours import SHARED
from study_tests.bench.peer.places import Places, refuse_other_options, success_in
from study_tests.bench.peer.plan import CHOICE_SEED, Arm, Cell, choice_cells, chosen_rate, report_cells
from study_tests.bench.peer.table import summary, text_of

ARMS = tuple(Arm)
# No training, two iterations of four episodes: whether everything still fits together.
QUICK = (
    *("warm_start.enabled=false", "tasks.train_scenes=4", "tasks.test_scenes=2", "env.max_steps=3"),
    *("evaluation.max_steps=3", "evaluation.rollouts_per_task=1", "evaluation.tasks=2"),
    *("rollout.tasks_per_iteration=2", "rollout.rollouts_per_task=2", "train_policy.updates=2"),
)


def call_rla(words: Sequence[str]) -> None:
    if status := run(words):
        raise SystemExit(f"rla {' '.join(words)} ended with {status}")


def make_start(places: Places, given: Path | None) -> None:
    """Pools and iteration 0 of `given`, linked, or made with the params' own seed."""
    if given is not None:
        share_artifacts(given, places.start, SHARED, of_split=())
        return
    for stage in ("make-tasks", "init-model", "warm-start"):
        call_rla([stage, *places.options(places.start)])


def make_choice_pool(places: Places) -> None:
    """Held-out tasks of another seed. SystemExit where one of them is trained on or reported on."""
    call_rla(["make-tasks", *places.options(places.root / "choice", seed=CHOICE_SEED), "--split", "test"])
    chosen_on = ids(places.choice_pool)
    for name in ("train_tasks", "test_tasks"):
        if shared := chosen_on & ids(artifact(places.start, name, 0)):
            raise SystemExit(f"{len(shared)} tasks of the choice are also in {artifact(places.start, name, 0)}")


def ids(pool: Path) -> set[str]:
    return {task.task_id for task in read_tasks(pool)}


def measured(places: Places, jobs: Sequence[Sequence[str]], *, name: str) -> None:
    """Play those policies in one process whose metrics are not there yet. `name` is that of its log's folder."""
    left = [job for job in jobs if not Path(job[2]).exists()]
    if left:
        call = json.dumps({"jobs": left, "params": str(places.params), "sets": places.sets})
        run_apart("measuring", places, call, folder=places.root / "logs" / name)


def choose_rates(places: Places, rates: Sequence[float], *, iterations: int) -> dict[Arm, float]:
    """The learning rate of each arm. One candidate alone needs no trial."""
    if len(rates) == 1:
        return dict.fromkeys(ARMS, rates[0])
    cells = choice_cells(ARMS, rates, iterations=iterations)
    trained(places, cells)
    jobs = [played(places, cell, cell.iterations, places.choice_pool) for cell in cells]
    measured(places, jobs, name="choice")
    chosen = {}
    for arm in ARMS:
        own = {cell.rate: success_in(Path(job[2])) for cell, job in zip(cells, jobs, strict=True) if cell.arm is arm}
        chosen[arm] = chosen_rate(own)
        tell(f"{arm}: {', '.join(f'{rate:g} {success:.1%}' for rate, success in own.items())}; {chosen[arm]:g}")
    return chosen


def trained(places: Places, cells: Sequence[Cell]) -> None:
    for number, cell in enumerate(cells, start=1):
        tell(f"training {number} of {len(cells)}: {cell.name}")
        run_cell(places, cell)


def played(places: Places, cell: Cell, iteration: int, pool: Path) -> list[str]:
    """A job of `study_tests.bench.peer.measuring`."""
    metrics = places.cell(cell) / "eval" / f"{iteration}.json"
    return [str(places.policy(cell, iteration)), str(pool), str(metrics)]


def tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def bench(places: Places, given: argparse.Namespace) -> str:
    """The report's text; its figures lie in `<root>/report.json`."""
    refuse_other_options(places, given.start)
    make_start(places, given.start)
    make_choice_pool(places)
    rates = choose_rates(places, given.rates, iterations=given.choice_iterations)
    seeds = range(given.first_seed, given.first_seed + given.seeds)
    cells = report_cells(rates, seeds, iterations=given.iterations, evaluate_every=given.evaluate_every)
    for seed in seeds:
        own = [cell for cell in cells if cell.seed == seed]
        trained(places, own)
        pool = artifact(places.start, "test_tasks", 0)
        jobs = [played(places, cell, iteration, pool) for cell in own for iteration in cell.evaluated]
        measured(places, [start_job(places), *jobs], name=f"seed{seed}")
        done = [cell for cell in cells if cell.seed <= seed]
        found = summary(places, done, start=success_in(Path(start_job(places)[2])), gains=given.gains)
        (places.root / "report.json").write_text(json.dumps(found, indent=1))
        tell(text_of(found))
    return text_of(found)


def parsed(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, default=Path("runs/peer"))
    parser.add_argument("--params", type=Path, default=resource("params.yaml"))
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--start", type=Path, help="a run folder with a warm start, such as one of `make run`")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--first-seed", type=int, default=1)
    parser.add_argument("--iterations", type=int, help="9, with --quick 2")
    parser.add_argument("--evaluate-every", type=int, default=3)
    parser.add_argument("--rates", type=float, nargs="+", default=[1e-4, 3e-4, 1e-3])
    parser.add_argument("--choice-iterations", type=int, default=3)
    parser.add_argument(
        "--gains", type=float, nargs="+", default=[0.05, 0.10], help="levels, above the start's success"
    )
    parser.add_argument("--quick", action="store_true", help="a run of a minute that measures nothing")
    given = parser.parse_args(words)
    given.iterations = given.iterations or (2 if given.quick else 9)
    if given.quick:
        given.seeds, given.evaluate_every, given.choice_iterations = 1, 1, 1
        given.rates = given.rates[:2]
    return given


def main(words: Sequence[str] | None = None) -> None:
    given = parsed(words)
    sets = (*(QUICK if given.quick else ()), *given.set)
    places = Places(root=given.root.resolve(), params=given.params.resolve(), sets=sets)
    print(bench(places, given))


if __name__ == "__main__":
    main()
