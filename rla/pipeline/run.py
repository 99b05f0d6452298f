"""The loop of a folder, as `rla run` runs it: the outdated stages of dvc.yaml in order, each in its own process.

DVC finds outdated stages and their order. The processes of the stages are forked from one that has imported torch, so a
run pays for that import once. After each stage its outputs go into `dvc.lock`, so that `dvc repro`, which calls plain
`rla <stage>`, finds the stage up to date.

`ready_dvc` makes the `.dvc` folder, in a git repository or outside of one.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import shlex
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from multiprocessing import forkserver, get_context, parent_process
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from configobj import ConfigObj, ConfigObjError

from rla.config.load import read_yaml
from rla.errors import UserError
from rla.pipeline.plan import PLAN
from rla.processes import BRIEF, LOOP, end_at_once, end_with_parent, end_with_stdin, exit_text
from rla.store.atomic import write_text

if TYPE_CHECKING:
    from dvc.stage import PipelineStage

PIPELINE, LOCK = Path("dvc.yaml"), Path("dvc.lock")
PATIENCE = 60.0  # seconds in which a stage may save its progress after an interrupt
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
# A child inherits only the thread that forks, and no context of a GPU. numpy and pyarrow start threads when they are
# imported, asking CUDA for its devices makes such a context, and polars cannot be kept from starting threads.
FORKABLE = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    "PYTHONSAFEPATH": "1",
}
# pandas, because pyarrow asks for it when it makes its first array
PRELOADED = (
    *("jsonschema", "pandas", "pyarrow.dataset", "pyarrow.parquet", "pydantic.type_adapter", "rich.table"),
    *("torch", "transformers.models.qwen3.modeling_qwen3"),
    *("rla.cli.app", "rla.cli.calls", "rla.cli.progress", "rla.envs.alfworld.environment", "rla.models.load"),
    *("rla.llm.transformers_engine", "rla.pipeline.run", "rla.training.loop", "rla.training.stage"),
    *("stages.make_tasks", "stages.init_model", "stages.warm_start", "stages.rollout", "stages.score_steps"),
    *("stages.validate_tasks", "stages.train_policy", "stages.train_rm", "stages.adapt_env", "stages.evaluate"),
)

StageDone = Callable[[str, list[str]], None]


def run_stages(*, say: Callable[[str], None], verbose: bool, done: StageDone | None = None) -> int:
    """Run the outdated stages of ./dvc.yaml. Returns the exit status of the stage that failed, or 0.

    `done` is called after each stage. Raises UserError if DVC cannot read its files.
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
        with TemporaryDirectory() as private, Repo() as repo:
            repo.tmp_dir = private  # DVC's list of who uses which path, which a kill would leave torn for all others
            with repo.scm_context(quiet=True):
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
                    if status := _run_forked(command, environment):
                        say(f"{command}: {exit_text(status)}; the same call goes on from here")
                        return status if status > 0 else 128 - status
                    with repo.lock:
                        _record(stage)
                    if done is not None:
                        done(stage.addressing, [one.addressing for one in stages[place:]])
    except DvcException as error:
        remedy = f"if {LOCK} is damaged, remove it: every stage then finds its outputs complete"
        raise UserError(f"{Path.cwd()}: DVC says: {error}; {remedy}") from None
    return 0


def _record(stage: PipelineStage) -> None:
    """Write inputs and outputs of the stage to dvc.lock, atomically; DVC itself would write the file in place."""
    from dvc.stage.serialize import to_lockfile
    from dvc.utils.serialize import dumps_yaml, load_yaml

    stage.save(run_cache=False)
    stage.commit()
    lock: dict[str, Any] = load_yaml(LOCK) if LOCK.exists() else {"schema": "2.0", "stages": {}}
    lock["stages"].update(to_lockfile(stage))
    write_text(LOCK, dumps_yaml(lock))


def start_server() -> None:
    """Start the process that stages are forked from, unless it runs. It imports in the background, and ends with this
    process only, because it ignores signals to the terminal's process group.
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


def _run_forked(command: str, environment: dict[str, str]) -> int:
    """Run a command line in a process group of its own. Returns its exit status, negative for a signal. An interrupt is
    passed on once, so that the stage can save its progress, and raised again.
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
    """In the forked process: run the command and exit at once, because shutting the interpreter down takes longer."""
    gc.freeze()  # a collection would copy every page that holds a Python object
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    end_with_parent()
    threading.Thread(target=_end_with_run, daemon=True).start()
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    status = 1
    try:
        if not command.startswith("rla ") or set(command) & set("\n|&;<>$`"):
            # Waits for an interrupted shell, which `subprocess.run` would kill after 0.25 s.
            status = os.waitstatus_to_exitcode(os.system(command))
        else:  # a plain call of `rla` needs no shell
            sys.argv = shlex.split(command)
            status = import_module("rla.cli.app").run(sys.argv[1:])  # by name: the command line imports this module
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    except Exception:
        sys.excepthook(*sys.exc_info())
    end_at_once(status)


def _end_with_run() -> None:
    """Kill this process group when the process of `rla run` is gone, however it died."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Run the loop of the working directory, as ablations do in the folder of an arm."""
    end_with_stdin()
    sys.exit(run_stages(say=lambda text: print(text, flush=True), verbose=True))


SITE_CACHE = ".dvc/tmp/site-cache"
GIT_IGNORED = "/config.local\n/tmp\n/cache\n"  # as DVC writes it when it opens a project inside of git


def ready_dvc(folder: Path) -> None:
    """Make `folder` a project of DVC unless it is one already. A killed call is repeated: `.dvc/config` comes last.

    A project at the top of a git repository works with git, even if the repository is newer than the project. Without a
    repository, or if the repository ignores `dvc.lock` as a clone of rla does, the project works without git.

    DVC's default site cache can be written by every user of the host, so the project gets one in its own folder, unless
    the user has chosen another (`core.site_cache_dir`). Raises UserError if that folder belongs to somebody else.
    """
    folder = folder.resolve()
    paths = [folder / ".dvc/config.local", folder / ".dvc/config"]
    new = not paths[1].exists()
    (folder / ".dvc").mkdir(exist_ok=True)
    before = [path.read_text().splitlines() if path.exists() else [] for path in paths]
    try:
        local, shared = configs = [ConfigObj(lines, interpolation=False) for lines in before]
    except ConfigObjError as error:
        raise UserError(f"{folder / '.dvc'}: its config or config.local cannot be read ({error}); mend it") from None
    without_git = [config["core"] for config in configs if "no_scm" in config.setdefault("core", {})]
    top = (folder / ".git").exists()
    if top and _git_follows_lock(folder):
        for core in without_git:
            del core["no_scm"]
        if not (ignored := folder / ".dvc/.gitignore").exists():
            ignored.write_text(GIT_IGNORED)
    elif new:
        shared["core"]["no_scm"] = "true"
    elif not without_git and (top or not any((parent / ".git").exists() for parent in folder.parents)):
        local["core"]["no_scm"] = "true"
    chosen = local["core"].get("site_cache_dir") or shared["core"].get("site_cache_dir")
    if chosen is None or chosen.endswith(SITE_CACHE):  # the project may have been moved or copied
        local["core"]["site_cache_dir"] = str(_private_folder(folder / SITE_CACHE))
    for path, config, lines in zip(paths, configs, before, strict=True):
        if not config["core"]:
            del config["core"]
        if config.write() != lines or not path.exists():
            write_text(path, "\n".join([*config.write(), ""]))


def _private_folder(cache: Path) -> Path:
    with contextlib.suppress(FileExistsError):
        cache.mkdir(mode=0o700, parents=True)
    found = cache.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise UserError(
            f"{cache}: not a folder of this user; remove it, or name another one by "
            "`dvc config --local core.site_cache_dir FOLDER`"
        )
    cache.chmod(0o700)  # DVC makes it for everybody if it is missing
    return cache


def _git_follows_lock(folder: Path) -> bool:
    """Whether the git repository in `folder` does not ignore dvc.lock; DVC refuses to work with a repository that does.
    False if git is not installed or fails.
    """
    command = ["git", "check-ignore", "--quiet", "--no-index", "dvc.lock"]
    try:
        return subprocess.run(command, cwd=folder, stderr=subprocess.DEVNULL, check=False).returncode == 1
    except FileNotFoundError:
        return False
