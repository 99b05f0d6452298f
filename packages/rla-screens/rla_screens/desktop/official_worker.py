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
LONGEST = 60  # characters of the name of a file, of at most four bytes each


def received(value: Any, folder: str) -> Any:
    """A file becomes the path of one by its name, as OSWorld's metrics take it: many go by the extension, and some look
    for other files beside it.
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
    out, sys.stdout = sys.stdout, sys.stderr  # metrics print
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, MOST_MEMORY))
    with open("/proc/self/oom_score_adj", "w") as file:  # rather than the stage, if the host has no memory left
        file.write("1000")
    try:
        from desktop_env.evaluators import metrics  # type: ignore[import-not-found]
    except Exception as error:  # whatever its many imports raise
        metrics, flaw = None, f"{type(error).__name__}: {error}"
    for line in sys.stdin:
        try:
            answer = {"error": flaw} if metrics is None else answered(json.loads(line), metrics)
        except Exception as error:  # a metric may raise anything: that is no score
            answer = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps(answer) + "\n")
        out.flush()


if __name__ == "__main__":
    main()
