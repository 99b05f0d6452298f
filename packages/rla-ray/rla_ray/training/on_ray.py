"""`launch.training: ray`: the stage's process is the driver, and workers of Ray Train on a cluster do the training.

    driver    checks inputs, counts workers, submits a TorchTrainer, shows progress, restarts it after a loss
    worker    one rank: runs the stage as `accelerate launch` would (`training/rank.py`); the first rank writes

Ray starts all workers or none, and the loss of one ends the others. The next workers resume from the last update that
the stage saved, so Ray's own checkpoints are not used. An error that the user can fix ends the stage at once.
"""

from __future__ import annotations

import fcntl
import json
import os
import pickle
import subprocess
import sys
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from rla.config.sections import Config
from rla.errors import UserError
from rla.models.checkpoint import MANIFEST
from rla.pipeline import Progress, StageContext
from rla.plugins import from_checkout
from rla.processes import end_with_parent
from rla.training.checkpoints import LOCK, TrainingProgress
from rla.training.stage import TrainingJob
from rla_ray.code_digest import code_digest
from rla_ray.connection import address_of, connected, first_line
from rla_ray.crew import Crew, crew_of_rest, first_crew, living_resources
from rla_ray.devices import USED
from rla_ray.engines.cluster import worker_share
from rla_ray.training.rank import USED_DEVICES, RankOrder, ReportedProgress, run_rank

KEY = "launch.training"
SHOWN = 0.5  # seconds between updates of the progress display
RELEASE = 60.0  # seconds within which workers of an ended attempt release the output folder
TELL = "import json, os; print(json.dumps(dict(os.environ)))"
# Prefixes of the variables through which accelerate passes its configuration to processes.
SHARING = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")
# seconds, after which the cluster's resources are counted again
STARTING = ("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "30")


@dataclass(kw_only=True)
class Ended(Exception):
    """The end of an attempt that may be repeated. `lost`: workers had begun to train, and one of them was lost."""

    why: str
    lost: bool


def train_on_ray(job: TrainingJob) -> None:
    """Train a stage on the workers of the cluster.

    Raises UserError if the cluster has too few resources, if workers are lost more than `launch.own.restarts` times,
    and for an error that the stage raises in a worker.
    """
    ctx, out, launch = job.ctx, job.out, job.ctx.config.launch
    ray = connected(address_of(launch.own, ctx.config.generator), what=f"{KEY} ray")
    crew = first_crew(launch, living_resources(ray))
    if crew.gpus:
        crew = replace(crew, gpu_share=worker_share(ray, ctx.config.generator))
    told = _told_by_launcher(job.configuration)
    board = _progress_board(ray)
    losses, since, before = 0, time.monotonic(), _checkpoint_manifest(out)
    while True:
        wait_until_unlocked(TrainingProgress(out=out).folder / LOCK, seconds=RELEASE)
        try:
            order = RankOrder(
                ctx=pickle.dumps(
                    replace(ctx, config=_with_replicas(ctx.config, crew), progress=ReportedProgress(None))
                ),
                folder=Path.cwd(),
                reads=job.reads,
                environment=told,
                code=code_digest(),
                board=board,
            )
            _run_attempt(ray, order, crew, progress=ctx.progress)
            return
        except Ended as ended:
            if (
                _checkpoint_manifest(out) != before
            ):  # Ray may notice a lost node only after the other workers have ended
                return
            losses += ended.lost
            since = time.monotonic() if ended.lost else since
            _refuse_to_go_on(ctx, ended, losses=losses, waited=time.monotonic() - since)
            crew = crew_of_rest(crew, launch, living_resources(ray))
            go_on = "go on from the last saved update" if ended.lost else "wait for room on the cluster"
            ctx.progress.note(f"{ctx.spec.name}: {ended.why}; {crew.workers} workers {go_on}")


def wait_until_unlocked(lock: Path, *, seconds: float) -> None:
    """Wait, `seconds` at most, for a process that still trains, such as a lost worker."""
    until = time.monotonic() + seconds
    while lock.exists() and time.monotonic() < until:
        with suppress(OSError), lock.open("r+") as held:  # locked, or removed by now
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        time.sleep(0.2)


def _told_by_launcher(file: Path) -> dict[str, str]:
    """The variables through which accelerate passes the configuration in `file` to its processes. Raises UserError.

    They come from the launcher itself, by launching a process that prints its environment.
    """
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file)]
    command += ["--num_processes", "1", "--num_machines", "1", "--main_process_port", "0", "--no_python"]
    done = subprocess.run(
        [*command, sys.executable, "-c", TELL], capture_output=True, text=True, preexec_fn=end_with_parent, check=False
    )
    try:
        told: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise UserError(f"{file}: accelerate launch rejects it: {last}") from None
    return {name: value for name, value in told.items() if name.startswith(SHARING)}


def _checkpoint_manifest(out: Path) -> bytes | None:
    """The manifest of the checkpoint at `out`; None if there is no complete checkpoint."""
    file = out / MANIFEST
    return file.read_bytes() if file.is_file() else None


def _with_replicas(config: Config, crew: Crew) -> Config:
    """The config with the current number of HSDP groups."""
    return replace(config, launch=replace(config.launch, replicas=crew.replicas))


def _refuse_to_go_on(ctx: StageContext, ended: Ended, *, losses: int, waited: float) -> None:
    """Raises UserError after too many losses, or after too long a wait."""
    name, patience = ctx.spec.name, ctx.config.launch.own.patience
    again = "repeat the call, which continues from the last saved update"
    if losses > ctx.config.launch.own.restarts:
        raise UserError(
            f"{name}: {ended.why}, and launch.own.restarts is {ctx.config.launch.own.restarts}; check the cluster and "
            f"{again}"
        )
    if not ended.lost and waited > patience:
        raise UserError(
            f"{name}: the cluster did not start its workers within launch.own.patience = {patience:g} seconds "
            f"({ended.why}); somebody else may use it: wait for that, or set launch.own.workers, and {again}"
        )


def _progress_board(ray: Any) -> Any:
    """A queue next to this process, through which the first rank reports its progress."""
    from ray.util.queue import Queue
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
    return Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})


def _run_attempt(ray: Any, order: RankOrder, crew: Crew, *, progress: Progress) -> None:
    """Run one attempt. Raises Ended, and UserError for an error that another attempt would meet as well."""
    done: Future[None] = Future()
    trainer = _make_trainer(order, crew)

    def work() -> None:
        try:
            trainer.fit()
            done.set_result(None)
        except BaseException as error:
            done.set_exception(error)

    Thread(target=work, daemon=True).start()
    try:
        while not done.done():
            wait([done], timeout=SHOWN)
            show_progress(order.board, progress)
    except KeyboardInterrupt:
        ray.shutdown()  # this ends the workers
        raise
    finally:
        USED.end_all()
    if (error := done.exception()) is not None:
        raise attempt_verdict(error, crew) from error


def show_progress(board: Any, progress: Progress) -> None:
    for name, value, fields in board.get_nowait_batch(board.qsize()):
        if name == USED_DEVICES:
            USED.begin(("training", value), value)
        else:
            getattr(progress, name)(value, **fields)


def _make_trainer(order: RankOrder, crew: Crew) -> Any:
    """A Ray Train trainer that tries once. Raises UserError if a package is missing."""
    os.environ.setdefault(*STARTING)
    try:
        from fsspec import filesystem
        from pyarrow.fs import FSSpecHandler, PyFileSystem
        from ray.train import FailureConfig, LoggingConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchConfig, TorchTrainer
    except ImportError as error:
        raise UserError(f"{KEY} ray: {first_line(error)}; {from_checkout('rla-ray')}") from error
    from torch.distributed import is_nccl_available

    from rla.training.shared import TIMEOUT

    backend = "nccl" if crew.gpus and is_nccl_available() else "gloo"
    once = FailureConfig(max_failures=0, controller_failure_limit=0, max_preemption_failures=0)
    resources = {"CPU": crew.cpus, **({"GPU": crew.gpus * crew.gpu_share} if crew.gpus else {})}
    return TorchTrainer(
        partial(run_rank, order),
        torch_config=TorchConfig(backend=backend, timeout_s=int(TIMEOUT.total_seconds())),
        # workers without GPUs go to one node each, as far as there are nodes
        scaling_config=ScalingConfig(
            num_workers=crew.workers,
            use_gpu=crew.gpus > 0,
            resources_per_worker=resources,
            placement_strategy="PACK" if crew.gpus else "SPREAD",
        ),
        run_config=RunConfig(
            storage_path="/rla",  # in memory: Ray Train has nothing to keep
            storage_filesystem=PyFileSystem(FSSpecHandler(filesystem("memory"))),
            failure_config=once,
            logging_config=LoggingConfig("ERROR"),
        ),
    )


def attempt_verdict(error: BaseException, crew: Crew) -> BaseException:
    """The exception to raise for a failed attempt: Ended if another attempt may succeed, UserError if the user can fix
    it, and otherwise the error itself, which is a defect.
    """
    from ray.exceptions import RayError
    from ray.train import ControllerError, PreemptionError, WorkerGroupError
    from torch import OutOfMemoryError

    if isinstance(error, PreemptionError):
        return Ended(why="a node was taken away", lost=True)
    if isinstance(error, ControllerError):
        return _startup_verdict(error.controller_failure)
    if not isinstance(error, WorkerGroupError):
        return error
    found = [cause(one) for _, one in sorted(error.worker_failures.items())]
    for one in found:
        if isinstance(one, UserError):
            return UserError(str(one))
    for one in found:
        if isinstance(one, OutOfMemoryError | MemoryError):
            return UserError(
                f"{crew.workers} workers of {crew.each} each do not hold the training ({first_line(one)}); lower "
                "tokens_per_batch, set gradient_checkpointing: true, or add nodes"
            )
    # Other workers see a broken connection when one is gone: a RuntimeError of Gloo or NCCL.
    lost = [one for one in found if isinstance(one, RayError | RuntimeError | OSError)]
    return Ended(why=f"a worker was lost ({first_line(lost[0])})", lost=True) if lost else error


def _startup_verdict(failure: BaseException) -> BaseException:
    """The exception for workers that did not start."""
    from ray.exceptions import RayError
    from ray.train.v2._internal.exceptions import RayTrainError

    if isinstance(failure, ImportError):
        return UserError(f"{KEY} ray: a worker does not start ({first_line(failure)}); install the same on all nodes")
    if isinstance(failure, RayError | RayTrainError):
        return Ended(why=first_line(failure).partition(". ")[0], lost=False)
    return failure


def cause(failure: BaseException) -> BaseException:
    """The exception that a worker raised, without Ray Train's wrappers."""
    for name in ("_base_exc", "health_check_failure"):
        failure = getattr(failure, name, failure)
    return failure
