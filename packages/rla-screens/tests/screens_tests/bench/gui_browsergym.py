"""Resets and steps of BrowserGym's loop: `screens_tests.bench.bench_gui` runs this file with the Python that has it.

Prints mean seconds of a reset and of a step as a JSON list. Nothing of `rla` is imported.
"""

from __future__ import annotations

import json
import sys
import time


def main() -> None:
    import browsergym.miniwob  # type: ignore[import-not-found]  # noqa: F401 - registers its environments
    import gymnasium
    from browsergym.core.action.highlevel import HighLevelActionSet  # type: ignore[import-not-found]

    steps, pages = int(sys.argv[1]), sys.argv[2:]
    actions = HighLevelActionSet(subsets=["coord"], multiaction=False)
    resets, acting = 0.0, 0.0
    for page in pages:
        env = gymnasium.make(f"browsergym/miniwob.{page}", action_mapping=actions.to_python_code)
        began = time.perf_counter()
        env.reset(seed=1)
        resets += time.perf_counter() - began
        began = time.perf_counter()
        for _ in range(steps):
            env.step("mouse_click(150, 205)")
        acting += time.perf_counter() - began
        env.close()
    print(json.dumps([resets / len(pages), acting / (len(pages) * steps)]))


if __name__ == "__main__":
    main()
