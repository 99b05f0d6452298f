"""Computes OSWorld's metrics for `official.py`: a line of JSON in, a line out. Run by a Python that has `desktop_env`.

    {"names": true}                                          {"names": ["exact_match", ...]}
    {"func", "result", "expected", "options"}                {"score": 1.0} or {"error": "..."}

It imports nothing of `rla`.
"""

import base64
import json
import os
import resource
import sys
import tempfile
from typing import Any

MOST_MEMORY = 16 << 30  # bytes; a small archive can unpack to any size
LONGEST = 60  # characters of a file name, of at most four bytes each


def received(value: Any, folder: str) -> Any:
    """Write a file under its name and return its path, which OSWorld's metrics expect: many go by the extension, and
    some read other files in the same folder.
    """
    if isinstance(value, list):
        return [received(each, folder) for each in value]
    if "file" not in value:
        return value["value"]
    for other in value.get("beside", []):
        received(other, folder)
    name = os.path.basename(value.get("name", ""))[-LONGEST:]  # the end keeps the extension
    path = os.path.join(folder, name if name not in ("", ".", "..") else "file")
    data = base64.b64decode(value["file"])
    if os.path.exists(path) and not same(path, data):
        path = os.path.join(tempfile.mkdtemp(dir=folder), os.path.basename(path))
    with open(path, "wb") as file:
        file.write(data)
    return path


def same(path: str, data: bytes) -> bool:
    with open(path, "rb") as file:
        return file.read() == data


def answered(asked: dict[str, Any], metrics: Any) -> dict[str, Any]:
    if asked.get("names"):
        return {"names": sorted(name for name in dir(metrics) if callable(getattr(metrics, name)))}
    with tempfile.TemporaryDirectory() as folder:
        given = []
        for side in ("result", "expected"):
            if side in asked:
                os.mkdir(os.path.join(folder, side))
                given.append(received(asked[side], os.path.join(folder, side)))
        return {"score": float(getattr(metrics, asked["func"])(*given, **asked["options"]))}


def main() -> None:
    out, sys.stdout = sys.stdout, sys.stderr  # because metrics print
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    # if the host runs out of memory, kill this process and not the stage
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    try:
        from desktop_env.evaluators import metrics  # type: ignore[import-not-found]
    except Exception as error:  # its many imports may raise anything
        metrics, flaw = None, f"{type(error).__name__}: {error}"
    for line in sys.stdin:
        try:
            answer = {"error": flaw} if metrics is None else answered(json.loads(line), metrics)
        except Exception as error:  # a metric may raise anything: then there is no score
            answer = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
