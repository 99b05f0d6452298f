"""`launch.training: ray`: the stage's process drives, workers of Ray Train on a cluster train.

    driver    checks inputs, counts workers, submits a TorchTrainer, shows progress, starts it again after a loss
    worker    one rank: runs the stage as `accelerate launch` would (`ray_rank`); the first one writes

Ray starts all workers or none. A worker that is lost ends the others. The stage's own saved updates are what the next
workers go on from, so Ray's checkpoints are not used. An error that the user can mend ends the stage at once.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from concurrent.futures import Future, wait
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

from rla.config.sections import Config
from rla.errors import UserError
from rla.models.checkpoint import MANIFEST
from rla.pipeline.context import Progress, StageContext
from rla.plugins import from_checkout
from rla.processes import USED, end_with_parent
from rla.training.stage import TrainingJob
from rla.training.state import TrainingProgress
from rla_ray.code_digest import code_digest
from rla_ray.connection import address_of, connected, first_line
from rla_ray.crew import Crew, crew_of_rest, first_crew, living_resources
from rla_ray.engines.cluster import worker_share
from rla_ray.training.rank import USED_DEVICES, RankOrder, ReportedProgress, run_rank

KEY = "launch.training"
SHOWN = 0.5  # seconds between looks at the progress
RELEASE = 60.0  # seconds in which workers of an ended attempt let go of the output
TELL = "import json, os; print(json.dumps(dict(os.environ)))"
# Variables by which accelerate tells processes of its configuration.
SHARING = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")
STARTING = ("RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S", "30")  # seconds, after which the cluster is counted again


@dataclass(kw_only=True)
class Ended(Exception):
    """An attempt that another one may follow. `lost`: workers trained, and one of them ended."""

    why: str
    lost: bool


def train_on_ray(job: TrainingJob) -> None:
    """Train a stage on the workers of the cluster.

    Raises UserError if the cluster has too little, if workers are lost more than `launch.own.restarts` times, and for
    an error that the stage raises in a worker.
    """
    ctx, out, launch = job.ctx, job.out, job.ctx.config.launch
    ray = connected(address_of(launch.own, ctx.config.generator), what=f"{KEY} ray")
    crew = first_crew(launch, living_resources(ray))
    if crew.gpus:
        crew = replace(crew, gpu_share=worker_share(ray, ctx.config.generator))
    told = told_by_launcher(job.configuration)
    board = progress_board(ray)
    losses, since, before = 0, time.monotonic(), checkpoint_manifest(out)
    while True:
        TrainingProgress(out=out, interval_s=0.0).wait_until_unlocked(seconds=RELEASE)
        try:
            order = RankOrder(
                ctx=replace(ctx, config=with_replicas(ctx.config, crew), progress=ReportedProgress(None)),
                folder=Path.cwd(),
                reads=job.reads,
                environment=told,
                code=code_digest(),
                board=board,
            )
            run_attempt(ray, order, crew, progress=ctx.progress)
            return
        except Ended as ended:
            if checkpoint_manifest(out) != before:  # a node that was lost earlier is missed when the others have ended
                return
            losses += ended.lost
            since = time.monotonic() if ended.lost else since
            refuse_to_go_on(ctx, ended, losses=losses, waited=time.monotonic() - since)
            crew = crew_of_rest(crew, launch, living_resources(ray))
            go_on = "go on from the last saved update" if ended.lost else "wait for room on the cluster"
            ctx.progress.note(f"{ctx.spec.name}: {ended.why}; {crew.workers} workers {go_on}")


def told_by_launcher(file: Path) -> dict[str, str]:
    """The variables by which accelerate tells its processes what `file` says, whoever starts them. Raises UserError.

    The launcher itself is asked, with a process that prints them.
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
        raise UserError(f"{file}: accelerate launch does not take it: {last}") from None
    return {name: value for name, value in told.items() if name.startswith(SHARING)}


def checkpoint_manifest(out: Path) -> bytes | None:
    """The manifest of the checkpoint at `out`, which comes with a whole one."""
    file = out / MANIFEST
    return file.read_bytes() if file.is_file() else None


def with_replicas(config: Config, crew: Crew) -> Config:
    """The groups of HSDP that there are now."""
    return replace(config, launch=replace(config.launch, replicas=crew.replicas))


def refuse_to_go_on(ctx: StageContext, ended: Ended, *, losses: int, waited: float) -> None:
    """UserError where that was once too often, or for too long."""
    name, patience = ctx.spec.name, ctx.config.launch.own.patience
    again = "call the same again, which goes on from the last saved update"
    if losses > ctx.config.launch.own.restarts:
        raise UserError(
            f"{name}: {ended.why}, and launch.own.restarts is {ctx.config.launch.own.restarts}; see to the cluster and "
            f"{again}"
        )
    if not ended.lost and waited > patience:
        raise UserError(
            f"{name}: the cluster did not start its workers within launch.own.patience = {patience:g} seconds "
            f"({ended.why}); somebody else may use it: wait for that, or set launch.own.workers, and {again}"
        )


def progress_board(ray: Any) -> Any:
    """A queue beside this process, through which the first rank says how far it is."""
    from ray.util.queue import Queue
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = NodeAffinitySchedulingStrategy(node_id=ray.get_runtime_context().get_node_id(), soft=False)
    return Queue(actor_options={"num_cpus": 0, "scheduling_strategy": here})


def run_attempt(ray: Any, order: RankOrder, crew: Crew, *, progress: Progress) -> None:
    """One attempt. Raises Ended, and UserError for what another attempt would meet as well."""
    done: Future[None] = Future()
    trainer = make_trainer(order, crew)

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
        ray.shutdown()  # which ends the workers
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


def make_trainer(order: RankOrder, crew: Crew) -> Any:
    """Ray Train's, which tries once. Raises UserError where a package is missing."""
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
        # workers without GPUs are one on each node, as far as there are nodes
        scaling_config=ScalingConfig(
            num_workers=crew.workers,
            use_gpu=crew.gpus > 0,
            resources_per_worker=resources,
            placement_strategy="PACK" if crew.gpus else "SPREAD",
        ),
        run_config=RunConfig(
            storage_path="/rla",  # of a file system in memory: Ray Train has nothing to keep
            storage_filesystem=PyFileSystem(FSSpecHandler(filesystem("memory"))),
            failure_config=once,
            logging_config=LoggingConfig("ERROR"),
        ),
    )


def attempt_verdict(error: BaseException, crew: Crew) -> BaseException:
    """Ended where another attempt may get further, UserError for what the user can mend; else the error, a defect."""
    from ray.exceptions import RayError
    from ray.train import ControllerError, PreemptionError, WorkerGroupError
    from torch import OutOfMemoryError

    if isinstance(error, PreemptionError):
        return Ended(why="a node was taken away", lost=True)
    if isinstance(error, ControllerError):
        return startup_verdict(error.controller_failure)
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
    # What the others meet when one is gone: a connection that ends (RuntimeError of Gloo and NCCL).
    lost = [one for one in found if isinstance(one, RayError | RuntimeError | OSError)]
    return Ended(why=f"a worker was lost ({first_line(lost[0])})", lost=True) if lost else error


def startup_verdict(failure: BaseException) -> BaseException:
    """Of workers that did not start."""
    from ray.exceptions import RayError
    from ray.train.v2._internal.exceptions import RayTrainError

    if isinstance(failure, ImportError):
        return UserError(f"{KEY} ray: a worker does not start ({first_line(failure)}); install the same on all nodes")
    if isinstance(failure, RayError | RayTrainError):
        return Ended(why=first_line(failure).partition(". ")[0], lost=False)
    return failure


def cause(failure: BaseException) -> BaseException:
    """What a worker raised, without the coats that Ray Train puts around it."""
    for name in ("_base_exc", "health_check_failure"):
        failure = getattr(failure, name, failure)
    return failure
