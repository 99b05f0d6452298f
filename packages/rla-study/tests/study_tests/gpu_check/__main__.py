"""`make gpu-check`: what only a GPU can tell, in ten minutes, on a machine that may have no network.

    python -m study_tests.gpu_check --out FOLDER [--minutes 9] [--shapes tiny] [PART ...]

tests        tests/gpu: packed attention against the CPU
training     tokens a second, share of the matrix rate and memory, by shape: full and LoRA, packed and padded
generation   tokens a second of the engine `transformers` at those shapes
logprobs     the sampler's log-probabilities against the trainer's, in fp32 and bf16
loop         SmolLM2-135M: warm start, then as many iterations as fit, with outcomes alone and with the loop

Each part is a process of its own with its share of the time; what one leaves over goes to the next. One that lacks
something, fails or is stopped says so and takes nothing from the others. `gpu.json` in FOLDER is written after each
part, and `python -m study_tests.gpu_check.page FOLDER/gpu.json` makes docs/results/gpu.md of it. This process imports
the standard library alone.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from study_tests.gpu_check.parcel import SITE
from study_tests.gpu_check.record import PARTS, add, record_of, write_record

TOP = Path(__file__).parents[5]
SHARES = {"tests": 8, "training": 30, "generation": 14, "logprobs": 6, "loop": 42}
MODULES = {"tests": "passing", "training": "training", "generation": "sampling", "logprobs": "sampling", "loop": "loop"}
GRACE = 15.0  # seconds that a part may take beyond its time before it is stopped


def environment() -> dict[str, str]:
    """Of the parts: packages that are not installed are found in this checkout and in `SITE`."""
    places = [TOP / SITE, TOP, *sorted(TOP.glob("packages/*/tests")), *sorted(TOP.glob("packages/rla-*"))]
    path = os.pathsep.join([*map(str, places), *filter(None, [os.environ.get("PYTHONPATH")])])
    own = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "PYTHONUNBUFFERED": "1"}
    return os.environ | own | {"PYTHONPATH": path}


def run_part(part: str, out: Path, *, seconds: float, tiny: bool, model: str) -> None:
    """Run a part and note how it ended; `seconds`: its time."""
    call = {"part": part, "out": str(out), "until": time.time() + seconds, "tiny": tiny, "model": model}
    command = [sys.executable, "-m", f"study_tests.gpu_check.{MODULES[part]}", json.dumps(call)]
    started = time.monotonic()
    with (
        (out / "log").open("a") as log,
        subprocess.Popen(
            command, cwd=TOP, env=environment(), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        ) as process,
    ):
        try:
            status = process.wait(seconds + GRACE)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            status = None
    took = round(time.monotonic() - started, 1)
    state, reason = "done", ""
    if status is None:
        state, reason = "stopped", f"it was not done after its {seconds:.0f} s"
    elif status:
        [last] = (out / "log").read_text(errors="replace").splitlines()[-1:] or [""]
        missing = last.startswith("ModuleNotFoundError: ")
        state, reason = ("skipped", last) if missing else ("failed", f"exit status {status}: {last}")
    skipped = record_of(out).get(part, {}).get("state") == "skipped"
    add(out, part, seconds=took, **({} if skipped and not status else {"state": state, "reason": reason}))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)}; all by default")
    parser.add_argument("--out", type=Path, default=Path("runs/gpu-check/found"), help="a folder for record and log")
    parser.add_argument("--minutes", type=float, default=9.0, help="of all parts together")
    parser.add_argument("--shapes", default="real", choices=("real", "tiny"), help="tiny: a rehearsal, on a CPU too")
    parser.add_argument("--model", default="", help="a model folder; by default SmolLM2-135M, with tiny a new model")
    given = parser.parse_args()
    if unknown := {*given.parts} - {*PARTS}:
        parser.error(f"{', '.join(sorted(unknown))}: the parts are {', '.join(PARTS)}")
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + 60 * given.minutes
    left = [part for part in PARTS if part in (given.parts or PARTS)]
    while left:
        share = SHARES[left[0]] / sum(SHARES[part] for part in left)
        part = left.pop(0)
        run_part(part, out, seconds=share * (end - time.monotonic()), tiny=given.shapes == "tiny", model=given.model)
        write_record(out)
        found = record_of(out)[part]
        print(f"{part}: {found['state']} after {found['seconds']:.0f} s {found['reason']}".rstrip(), flush=True)
        print("\n".join(map(json.dumps, found["rows"])), flush=True)
    return int(any(part["state"] in ("failed", "stopped") for part in record_of(out).values()))


if __name__ == "__main__":
    sys.exit(main())
