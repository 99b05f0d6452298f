"""Options whose work only packages do: functions of the entry-point group `rla.options`, each named by its option.

    [project.entry-points."rla.options"]
    "evaluate.from" = "answers:judge_file"

| option | asked for by | called with | returns |
|---|---|---|---|
| `evaluate.from` | `rla evaluate --from FILE` | the `StageContext` of each split, the file, `metrics` | a summary |
| `init.model` | `rla init --model` | folder or hub id, GB of the GPU or None | pipeline, `key=value`s, reasons |
| `warm_start.conversations` | warm-start | `StageContext` | `rla.training.warm_start.GivenExamples` |

`metrics` is the file to write, None for a file of the function's own choice beside the evaluation.
"""

from __future__ import annotations

from typing import Any

from rla.errors import UserError
from rla.plugins import loaded, registered

GROUP = "rla.options"


def implementation(option: str) -> Any:
    """The function of an option. Raises UserError if no package has it, or if it cannot be imported."""
    found = registered(GROUP)
    if option not in found:
        raise UserError(f"{option}: no installed package does this; install one with {option} in its {GROUP}")
    return loaded(found[option])
