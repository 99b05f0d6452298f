"""Computes OSWorld's metrics for `official.py`: a line of JSON in, a line out. Run by a Python that has `desktop_env`.

    {"names": true}                                          {"names": ["exact_match", ...]}
    {"func", "result", "expected", "options"}                {"score": 1.0} or {"error": "..."}

It imports nothing of `rla`.
"""

import base64
import json
import os
import sys
import tempfile
from typing import Any


def received(value: Any, folder: str) -> Any:
    """A file becomes the path of one, as OSWorld's metrics take it."""
    if isinstance(value, list):
        return [received(each, folder) for each in value]
    if "file" not in value:
        return value["value"]
    handle, path = tempfile.mkstemp(dir=folder)
    with os.fdopen(handle, "wb") as file:
        file.write(base64.b64decode(value["file"]))
    return path


def answered(asked: dict[str, Any], metrics: Any) -> dict[str, Any]:
    if asked.get("names"):
        return {"names": sorted(name for name in dir(metrics) if callable(getattr(metrics, name)))}
    with tempfile.TemporaryDirectory() as folder:
        given = [received(asked[name], folder) for name in ("result", "expected") if name in asked]
        return {"score": float(getattr(metrics, asked["func"])(*given, **asked["options"]))}


def main() -> None:
    out, sys.stdout = sys.stdout, sys.stderr  # metrics print
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
