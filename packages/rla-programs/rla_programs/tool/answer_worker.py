"""The process that compares answers: a line of JSON in, a line of JSON out.

    {"kind": "math", "gold": [...], "answer": "..."}     1.0 if the answer is the same as one of `gold`
    {"kind": "family", "item": {...}, "answer": "..."}   the score of the family's verifier, in [0, 1]

An answer is a model's text. It is parsed and never run, but a number in it may take any time and any memory. So the
system kills this process after `cpu_s` seconds of processor time for one answer, and memory is limited. The caller then
knows that the answer is not right.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

from rla_programs.coding.importing.apart import limit_memory
from rla_programs.tool.mathematics.comparing import same_mathematics

ROOM = 2 << 30  # bytes of address space beyond those of the loaded packages
READY = "ready"
UNMADE = "unmade"


def serve_answers() -> None:
    """Serve requests until there are no more. Arguments: the kind of the requests, and `cpu_s`."""
    kind, cpu_s = sys.argv[1], float(sys.argv[2])
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # output of packages must not mix with replies
    compare = load_comparison(kind)
    limit_memory(ROOM)
    print(json.dumps(READY), file=out, flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, cpu_s)
        reply = compare(json.loads(line))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(json.dumps(reply), file=out, flush=True)


def load_comparison(kind: str) -> Any:
    """The function for requests of the kind, with its package loaded."""
    if kind == "math":
        same_mathematics(r"\sqrt{x}", r"x^{1/2}")  # loads mpmath, which must not count for an answer's time
        return lambda request: float(any(same_mathematics(one, request["answer"]) for one in request["gold"]))
    from rla_bridges.adapters.reasoning_families import reasoning_library

    reasoning_library()
    return lambda request: _family_score(request["item"], request["answer"])


def _family_score(item: Mapping[str, Any], answer: str) -> float | str:
    """The score of reasoning-gym's verifier, or UNMADE if the package cannot make the question again."""
    from rla_bridges.adapters.reasoning_families import NoItem
    from rla_bridges.adapters.reasoning_items import Item, answer_score

    try:
        return answer_score(Item(**item), answer)
    except NoItem:
        return UNMADE
