"""Processes of a stage: ranks of a launcher, workers with a slice each, and the GPUs that they use.

Every process of rla imports this module, also the short-lived ones that host an environment, so its imports are light.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from rla.errors import UserError
from rla.plugins import registered

if TYPE_CHECKING:
    from rla.config import Config
    from rla.config.sections import GeneratorConfig
    from rla.store.atomic import Slice

LAUNCHED = "RLA_LAUNCHED"  # environment variable of the processes of `launch.training`
CORES = "RLA_CORES"  # environment variable: the share of the machine's cores that a process may use
WATCH = "RLA_END_WITH_STDIN"  # environment variable of workers
WORKER = "RLA_WORKER"  # environment variable of the slices that a call has started
LOOP = "RLA_LOOP"  # environment variable of a stage in a loop: how many iterations the loop has
BRIEF = "RLA_BRIEF"  # environment variable of a stage that prints one line only
ON_GPUS = ("vllm", "transformers")
SET_PARENT_DEATH_SIGNAL = 1  # prctl(2)
WORKER_PATIENCE = 20.0  # seconds after an interrupt in which a worker may close its engine
LAUNCH_PATIENCE = 40.0  # seconds after an interrupt: accelerate gives its ranks 30 s
# Functions of packages, called when a stage ends: devices that it used on other machines, for its record of times.
OTHER_DEVICES: list[Callable[[], list[dict[str, Any]]]] = []


def rank() -> int:
    """The index of this process among those of its launcher; 0 without a launcher."""
    return int(os.environ.get("RANK", "0"))


def world() -> int:
    """The number of processes of the launcher; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def launched() -> bool:
    """Whether a launcher (accelerate, torchrun) or `launch.training` started this process."""
    return LAUNCHED in os.environ or "WORLD_SIZE" in os.environ


def speaks() -> bool:
    """Whether this process reports to the user: the process that launched the ranks does, or else rank 0."""
    return rank() == 0 and LAUNCHED not in os.environ


def flag(name: str) -> bool:
    """Whether the launcher has set the environment variable `name`."""
    return os.environ.get(name, "").lower() in ("true", "1")


def end_with_parent(parent: int | None = None) -> None:
    """On Linux, have this process killed when its parent dies. Raises SystemExit if `parent` is already dead."""
    control = getattr(ctypes.CDLL(None), "prctl", None)
    if control is not None:
        control(SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        raise SystemExit(0)


def end_at_once(status: int) -> NoReturn:
    """Flush the output if possible and end this process without the interpreter's shutdown."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # absent, full, closed
            stream.flush()
    ctypes.CDLL(None).fflush(None)
    os._exit(status)


def leave(status: int) -> NoReturn:
    """Join threads and run exit functions as Python would, then end without the interpreter's shutdown.

    Gloo's threads release the tensors of a collective after it is done. If that happens during the shutdown, the
    process aborts, which fails a launch whose work is finished. Destroying the process group joins these threads only
    if nothing else holds the group, and FSDP2 and DeepSpeed do. Errors on the way are printed.
    """
    for step in (threading._shutdown, atexit._run_exitfuncs):  # type: ignore[attr-defined]
        try:
            step()
        except BaseException:
            traceback.print_exc()
    end_at_once(status)


def launcher(config: Config) -> Path | None:
    """The accelerate configuration to launch training with; None if this process trains. Raises UserError."""
    name = config.launch.configuration
    if name is None or launched():
        return None
    from rla.config.load import LAUNCHERS
    from rla.store.layout import resource

    try:
        return Path(name) if Path(name).is_file() else resource(name)
    except UserError:
        key = "launch.training" if config.launch.own is None else "launch.own.configuration"
        others = ", ".join(registered(LAUNCHERS)) or "none"
        raise UserError(
            f"{key}: {name}: no such file; name a configuration of accelerate launch, such as "
            f"pipelines/accelerate/fsdp2.yaml, or a launcher (installed: {others}; others come with their package)"
        ) from None


def launch(file: Path, arguments: Sequence[str]) -> None:
    """Run `rla <arguments>` under `accelerate launch` with the configuration `file`, and wait for it.

    An interrupt is passed on once, so that the ranks can save their progress. Raises UserError if a process fails.
    """
    command = [sys.executable, "-m", "accelerate.commands.launch", "--config_file", str(file), "-m", "rla", *arguments]
    own = os.environ | {LAUNCHED: "1"}
    with subprocess.Popen(command, env=own, preexec_fn=end_with_parent, start_new_session=True) as process:
        try:
            status = process.wait()
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LAUNCH_PATIENCE)
            process.kill()
            raise
    if status:
        raise UserError(f"{arguments[0]}: the processes of {file} ended with status {status}; they say why above")


def run_workers(
    arguments: Sequence[str],
    parts: Sequence[Slice],
    *,
    generator: GeneratorConfig,
    asked: str,
) -> dict[Slice, str]:
    """Run `rla <arguments> --slice i/n` for all slices at once. Returns failed slices with their exit status.

    A worker that fails does not stop the others, because their work is kept. `asked`: the option or key that set their
    number. Raises UserError if they need more GPUs than are visible.
    """
    gpus = gpu_shares(generator, len(parts), asked=asked)
    running, listeners = [], []
    try:
        for part, own in zip(parts, gpus, strict=True):
            worker = subprocess.Popen(
                [sys.executable, "-m", "rla", *arguments, "--slice", str(part)],
                env=worker_environment(workers=len(parts), gpus=own),
                stdin=subprocess.PIPE,  # `end_with_stdin`
                stdout=subprocess.DEVNULL,  # the summary of a slice; the caller prints one of the whole
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
            running.append(worker)
            listeners.append(threading.Thread(target=_forward, args=(worker, f"[{part}] "), daemon=True))
            listeners[-1].start()
        codes = [process.wait() for process in running]
        for listener in listeners:
            listener.join()
    except KeyboardInterrupt:
        for process in running:
            process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            for process in running:
                process.wait(WORKER_PATIENCE)
        raise
    finally:
        for process in running:  # a worker that still runs ends with its pipe
            if process.stdin is not None:
                process.stdin.close()
    return {part: exit_text(code) for part, code in zip(parts, codes, strict=True) if code}


def worker_environment(*, workers: int, gpus: Sequence[str]) -> dict[str, str]:
    """The environment of a worker: its GPUs and its share of the CPU threads."""
    own = os.environ | {WATCH: "1", WORKER: "1"}
    own.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // workers)))
    if gpus:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return own


def _forward(process: subprocess.Popen[bytes], prefix: str) -> None:
    """Print the stderr of a process line by line, each with a prefix."""
    assert process.stderr is not None
    for line in process.stderr:
        sys.stderr.write(prefix + line.decode(errors="replace"))
        sys.stderr.flush()


def exit_text(code: int) -> str:
    return f"exit status {code}" if code > 0 else signal.Signals(-code).name


def end_with_stdin() -> None:
    """In a worker, kill its process group when standard input closes: the process that started it is done or dead."""
    if os.environ.pop(WATCH, None) is None:
        return

    def watch() -> None:
        while os.read(0, 1):
            pass
        # A stage may be killed at any instant, and processes that it started must end, too.
        os.killpg(0, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()


def usable_cores() -> int:
    """The number of cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return min(found, int(os.environ.get(CORES) or found))


def workers_of(generator: GeneratorConfig) -> int:
    """The number of workers by `generator.data_parallel`. `auto`: one for each GPU, or for each `tensor_parallel` GPUs;
    one on a machine without GPUs.
    """
    if generator.data_parallel != "auto":
        return generator.data_parallel
    gpus = visible_gpus() if generator.backend in ON_GPUS else []
    return max(1, len(gpus) // gpus_each(generator))


def gpus_each(generator: GeneratorConfig) -> int:
    return generator.tensor_parallel if generator.backend == "vllm" else 1


def gpu_shares(generator: GeneratorConfig, workers: int, *, asked: str = "--workers") -> list[list[str]]:
    """The GPUs of each worker; empty lists on a machine without GPUs. Raises UserError if there are too few."""
    gpus = visible_gpus() if generator.backend in ON_GPUS else []
    if not gpus:
        return [[] for _ in range(workers)]
    each = gpus_each(generator)
    if each * workers > len(gpus):
        most = len(gpus) // each
        remedy = f"{asked} {most}" if most else "a smaller generator.tensor_parallel"
        raise UserError(
            f"{asked} {workers}: each worker takes {each} GPU{'s' * (each > 1)}, and {len(gpus)} "
            f"{'is' if len(gpus) == 1 else 'are'} visible; call it with {remedy}"
        )
    return [gpus[each * index : each * (index + 1)] for index in range(workers)]


def visible_gpus() -> list[str]:
    """The names of the visible GPUs in CUDA_VISIBLE_DEVICES, or their numbers if it is not set."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() and not name.strip().startswith("-")]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def gpu_and_model(name: str, index: int) -> tuple[str, str]:
    """The GPU `name` with the beginning of its UUID, `2 (1a2b3c4d)`, because another job may number it otherwise; and
    the name of its model. Without loaded torch, or if torch does not see a GPU at `index`: `name` and an empty text.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_available() or index >= torch.cuda.device_count():
        return name, ""
    uuid = str(torch.cuda.get_device_properties(index).uuid)
    return f"{name} ({uuid[:8]})", str(torch.cuda.get_device_name(index))
