"""`--workers n`: the same stage in n processes of this machine, one slice each, that end when this one does.

Each is a fresh interpreter and leads a process group. Its standard input is a pipe from here: when that closes,
because this process is done or dead, however it died, the worker kills its group.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence

from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.store.atomic import Slice

CORES = "RLA_CORES"  # environment variable: the share of a machine's cores that a process was started with
WATCH = "RLA_END_WITH_STDIN"
ON_GPUS = ("vllm", "transformers")
PATIENCE = 20.0  # seconds for a worker to put down its engine after an interrupt


def usable_cores() -> int:
    """The cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    found = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return min(found, int(os.environ.get(CORES) or found))


def run_workers(
    arguments: Sequence[str],
    parts: Sequence[Slice],
    *,
    generator: GeneratorConfig,
    asked: str,
    more: Mapping[str, str],
) -> dict[Slice, str]:
    """Run `rla <arguments> --slice i/n` for all slices at once; returns the failed ones, each with its exit status.

    A worker that fails does not stop the others: what they finish need not be done again. `asked`: the option or key
    that set their number. `more`: variables of their environment. Raises UserError for more GPUs than are visible.
    """
    gpus = gpu_shares(generator, len(parts), asked=asked)
    running = []
    try:
        for part, own in zip(parts, gpus, strict=True):
            environment = worker_environment(workers=len(parts), gpus=own) | dict(more)
            running.append(start_worker([*arguments, "--slice", str(part)], environment))
        listeners = [listen(process, f"[{part}] ") for part, process in zip(parts, running, strict=True)]
        codes = [process.wait() for process in running]
        for listener in listeners:
            listener.join()
    except KeyboardInterrupt:
        interrupt(running)
        raise
    finally:
        for process in running:
            if process.stdin is not None:
                process.stdin.close()
    return {part: exit_text(code) for part, code in zip(parts, codes, strict=True) if code}


def start_worker(arguments: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "rla", *arguments],
        env=dict(environment),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,  # the summary of a slice: the whole has one of its own
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def worker_environment(*, workers: int, gpus: Sequence[str]) -> dict[str, str]:
    """What a worker is started with: its GPUs, its share of the CPU threads, no shared engine."""
    own = os.environ | {WATCH: "1"}
    own.setdefault("OMP_NUM_THREADS", str(max(1, usable_cores() // workers)))
    if gpus:
        own["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return own


def workers_of(generator: GeneratorConfig) -> int:
    """How many workers `generator.data_parallel` asks for. `auto`: one for each GPU, or for each `tensor_parallel` of
    them; one where the machine has none.
    """
    if generator.data_parallel != "auto":
        return generator.data_parallel
    gpus = visible_gpus() if generator.backend in ON_GPUS else []
    return max(1, len(gpus) // gpus_each(generator))


def gpus_each(generator: GeneratorConfig) -> int:
    return generator.tensor_parallel if generator.backend == "vllm" else 1


def gpu_shares(generator: GeneratorConfig, workers: int, *, asked: str = "--workers") -> list[list[str]]:
    """The GPUs of each worker: `tensor_parallel` each; none where there are none. Raises UserError."""
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
    """As CUDA_VISIBLE_DEVICES names them, else by number."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() and not name.strip().startswith("-")]
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


def listen(process: subprocess.Popen[bytes], prefix: str) -> threading.Thread:
    """Pass on what a process says, line by line, each with its slice in front."""

    def pump() -> None:
        assert process.stderr is not None
        for line in process.stderr:
            sys.stderr.write(prefix + line.decode(errors="replace"))
            sys.stderr.flush()

    thread = threading.Thread(target=pump, daemon=True)
    thread.start()
    return thread


def interrupt(running: Sequence[subprocess.Popen[bytes]]) -> None:
    """Let workers end by themselves; the pipe ends those that do not."""
    for process in running:
        process.send_signal(signal.SIGINT)
    for process in running:
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            break


def exit_text(code: int) -> str:
    return f"exit status {code}" if code > 0 else signal.Signals(-code).name


def end_with_stdin() -> None:
    """In a worker: end its process group when standard input closes. Nothing to do in any other process."""
    if os.environ.pop(WATCH, None) is None:
        return

    def watch() -> None:
        while os.read(0, 1):
            pass
        os.killpg(0, signal.SIGKILL)  # a stage may be killed at any instant; what it has started has to end, too

    threading.Thread(target=watch, daemon=True).start()
