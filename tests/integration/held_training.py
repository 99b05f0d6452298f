"""`python -m tests.integration.held_training train-policy ...`: the command line, whose training saves its first update
at once, then waits without end. So a test kills it between two updates.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from rla.cli.app import run
from rla.training.checkpoints import TrainingProgress


def main() -> int:
    save = TrainingProgress.save

    def held(progress: TrainingProgress, state: Any, history: Sequence[dict[str, Any]]) -> None:
        progress.interval_s = 0.0
        save(progress, state, history)
        while True:
            time.sleep(1)

    TrainingProgress.save = held  # type: ignore[method-assign]
    return run(sys.argv[1:])


if __name__ == "__main__":
    raise SystemExit(main())
