"""The loop of a folder, as `rla run` turns it: its outdated stages in the order of dvc.yaml, each in its own process.

DVC finds outdated stages and their order. Their processes are forked from one that has imported torch, so a run pays
for that import once. After each stage its outputs go into `dvc.lock`, so that `dvc repro`, which calls plain `rla
<stage>`, finds the stage up to date.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from importlib import import_module
from multiprocessing import forkserver, get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rla.cli.progress import BRIEF, LOOP
from rla.config.load import read_yaml
from rla.errors import UserError
from rla.pipeline.dvc_project import one_run, ready_dvc
from rla.pipeline.plan import Plan, named_plan, run_folder, write_plan
from rla.processes.ranks import end_at_once, end_with_parent
from rla.processes.workers import end_with_stdin, exit_text
from rla.store.atomic import write_text
from rla.store.layout import artifact
from stages import STAGES

if TYPE_CHECKING:
    from dvc.repo import Repo
    from dvc.stage import PipelineStage

PIPELINE, LOCK, PLAN = Path("dvc.yaml"), Path("dvc.lock"), Path("iterations.yaml")
PATIENCE = 60.0  # seconds for a stage to put down its work after an interrupt
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A child inherits only the thread that forks, and no context of a GPU. numpy and pyarrow start threads when they are
# imported, asking CUDA for its devices makes such a context, and polars cannot be kept from starting threads.
FORKABLE = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "PYTHONSAFEPATH": "1",
}
IMPORTS_POLARS = ("compute-rewards", "judge-accuracy", "report")
PRELOADED = (
    "pandas",  # pyarrow asks for it when it makes its first array
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pydantic.type_adapter",
    "rich.progress",
    "rich.table",
    "torch",
    "tensorboard.plugins.text.summary_v2",
    "torch.utils.tensorboard",
    "transformers.models.qwen3.modeling_qwen3",
    "rla.cli.app",
    "rla.cli.calls",
    "rla.cli.progress",
    "rla.envs.alfworld.environment",
    "rla.cli.loop",
    "rla.llm.transformers_engine",
    "rla.models.load",
    "rla.training.loop",
    "rla.tracking.run_curves",
    "rla.tracking.trackers",
    "rla.training.stage",
    *(spec.module for spec in STAGES if spec.name not in IMPORTS_POLARS),
)


def turn_loop(plan: Plan, *, say: Callable[[str], None], verbose: bool = False) -> int:
    """The exit status of the loop; if it is 0, the report is printed. Raises UserError if there is no pipeline."""
    from rla.metrics.custom import brought  # polars, which the process that forks stages must not import
    from rla.report.build import Accompanies

    if not PIPELINE.is_file():
        raise UserError(f"{PIPELINE}: no such file here; `rla init` writes all that the loop needs")
    asked = plan
    plan, config = named_plan(plan)
    with one_run(PIPELINE):
        say(write_plan(plan, PLAN, stages=STAGES))
        ready_dvc(Path())
        told = [one.accompany(asked, run_folder(plan), config, say) for one in brought(Accompanies)]

        def passed(stage: str, following: list[str]) -> None:
            for tell in told:
                tell(stage, following)

        status = turn_planned_loop(say=say, verbose=verbose, passed=passed)
    if not status:
        print_report(run_folder(plan), say=say)
        passed("", [])
    return status


def print_report(run: Path, *, say: Callable[[str], None]) -> None:
    """Print the report that a stage has written. Its files are not touched, so DVC finds them unchanged."""
    from rla.report.build import tables_of_run, text_of_run
    from rla.report.collect import collect
    from rla.report.render import terminal_width

    summary = collect(run)
    say(text_of_run(summary, tables_of_run(summary), width=terminal_width()).rstrip("\n"))
    say(f"page: {artifact(run, 'report', 0) / 'report.html'}")


def turn_planned_loop(
    *, say: Callable[[str], None], verbose: bool, passed: Callable[[str, list[str]], None] | None = None
) -> int:
    """Run the outdated stages of ./dvc.yaml; the exit status of the stage that failed, or 0.

    `passed` is called with each stage that has run and the stages after it. Raises UserError if DVC cannot read its
    files.
    """
    start_server()
    from dvc.exceptions import DvcException
    from dvc.repo import Repo
    from dvc.repo.reproduce import get_active_graph, plan_repro

    logging.getLogger("dvc").setLevel(logging.WARNING)
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",  # with this `rla`
        "DVC_NO_ANALYTICS": "1",
        LOOP: str(read_yaml(PLAN, remedy="call `rla plan`")["last"]),
        **({} if verbose else {BRIEF: "1"}),
    }
    try:
        with Repo() as repo, own_records(repo), repo.scm_context(quiet=True):
            stages = plan_repro(get_active_graph(repo.index.graph), repo.stage.collect("dvc.yaml"))
            for place, stage in enumerate(stages, 1):
                with repo.lock:
                    changed = stage.changed()
                    if changed:
                        stage.remove_outs()  # none that persists
                if not changed:
                    if verbose:
                        say(f"Stage '{stage.addressing}' didn't change, skipping")
                    continue
                command = stage.cmd if isinstance(stage.cmd, str) else "\n".join(stage.cmd)
                if verbose:
                    say(f"Running stage '{stage.addressing}':\n> {command}")
                if status := run_forked(command, environment):
                    say(f"{command}: {exit_text(status)}; the same call goes on from here")
                    return status if status > 0 else 128 - status
                with repo.lock:
                    record_stage(stage)
                if passed is not None:
                    passed(stage.addressing, [one.addressing for one in stages[place:]])
    except DvcException as error:
        remedy = f"if {LOCK} is damaged, remove it: every stage then finds its outputs complete"
        raise UserError(f"{Path.cwd()}: DVC says: {error}; {remedy}") from None
    return 0


@contextlib.contextmanager
def own_records(repo: Repo) -> Iterator[None]:
    """DVC's list of who uses which path is this process's own: a kill would leave it torn for all others."""
    with TemporaryDirectory() as private:
        repo.tmp_dir = private
        yield


def record_stage(stage: PipelineStage) -> None:
    """Record inputs and outputs of the stage in dvc.lock, atomically; DVC itself would write the file in place."""
    from dvc.stage.serialize import to_lockfile
    from dvc.utils.serialize import dumps_yaml, load_yaml

    stage.save(run_cache=False)
    stage.commit()
    lock: dict[str, Any] = load_yaml(LOCK) if LOCK.exists() else {"schema": "2.0", "stages": {}}
    lock["stages"].update(to_lockfile(stage))
    write_text(LOCK, dumps_yaml(lock))


def start_server() -> None:
    """Start the process that stages are forked from, unless it runs. It imports in the background.

    It ends with this process only: it ignores signals to the terminal's process group.
    """
    get_context("forkserver").set_forkserver_preload(list(PRELOADED))
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in ENDING}
    before = dict(os.environ)
    os.environ.update(FORKABLE)
    try:
        forkserver.ensure_running()
    finally:
        os.environ.clear()
        os.environ.update(before)
        for number, handler in handlers.items():
            signal.signal(number, handler or signal.SIG_DFL)


def run_forked(command: str, environment: dict[str, str]) -> int:
    """Run a command line in a process group of its own; its exit status, negative for a signal. An interrupt of this
    process is passed on once, so that the stage can save its work, and raised again.
    """
    process = get_context("forkserver").Process(target=become_stage, args=(command, environment, os.getcwd()))
    process.start()
    try:
        process.join()
    except KeyboardInterrupt:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.ident or 0, signal.SIGINT)
            process.join(PATIENCE)
        raise
    finally:
        process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.ident or 0, signal.SIGKILL)
    return process.exitcode or 0


def become_stage(command: str, environment: dict[str, str], folder: str) -> None:
    """In the forked process: run the command, then leave at once, because taking the interpreter down takes longer."""
    gc.freeze()  # a collection would copy every page that holds a Python object
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    end_with_parent()
    threading.Thread(target=end_with_run, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    status = 1
    try:
        status = run_command(command)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except Exception:
        sys.excepthook(*sys.exc_info())
    end_at_once(status)


def run_command(command: str) -> int:
    """A plain call of `rla` runs in this process, whatever else in a shell."""
    words = shlex.split(command)
    if words[:1] != ["rla"] or set(command) & set("\n|&;<>$`"):
        return subprocess.run(command, shell=True, check=False).returncode
    sys.argv = words
    status: int = import_module("rla.cli.app").run(words[1:])  # by name: the command line imports this module
    return status


def end_with_run() -> None:
    """Kill this process group when the process that turns the loop is gone, however it died."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)


def main() -> None:
    """The entry point of an ablation in the folder of an arm."""
    end_with_stdin()
    sys.exit(turn_planned_loop(say=lambda text: print(text, flush=True), verbose=True))
