"""The process in which answers are compared: a line of JSON comes in, a line of JSON goes out.

    {"kind": "math", "gold": [...], "answer": "..."}     1.0 where math-verify finds the answer equal to one of `gold`
    {"kind": "family", "item": {...}, "answer": "..."}   what the verifier of the family gives, in [0, 1]

An answer is what a model wrote. It is parsed and never run, but SymPy may take any time and any memory for it: the
system ends this process after `cpu_s` seconds of processor time for one answer, whatever it does then, and memory is
limited. Whoever asked then knows that the answer is not right.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from rla.envs.coding.importing.apart import limit_memory

ROOM = 2 << 30  # bytes of address space beyond what the loaded packages take
READY = "ready"
UNMADE = "unmade"


def serve_answers() -> None:
    """Reads requests until there are no more. Arguments: the kind of the requests, and `cpu_s`."""
    kind, cpu_s = sys.argv[1], float(sys.argv[2])
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what packages print is no answer
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
    logging.disable(logging.CRITICAL)  # math-verify warns of the timeouts that this process has no need of
    if kind == "math":
        same_value(["x^2-1"], "(x-1)(x+1)")  # loads grammar and SymPy, which no answer's time shall pay for
        return lambda request: float(same_value(request["gold"], request["answer"]))
    from rla.envs.adapters.reasoning_families import reasoning_library

    reasoning_library()
    return lambda request: family_score(request["item"], request["answer"])


def same_value(gold: Sequence[str], answer: str) -> bool:
    """Whether math-verify finds `answer` equal to one of `gold`."""
    from math_verify import verify

    try:
        said = box_values(answer)
        return any(verify(box_values(one), said, timeout_seconds=None) for one in gold)
    except Exception:  # a text that the package fails on, in whatever way, is not equal to anything
        return False


def box_values(text: str) -> Any:
    """The values that math-verify reads in a text, which stands in a box."""
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    boxes = LatexExtractionConfig(boxed_match_priority=0)
    return parse(f"\\boxed{{{text}}}", [boxes, ExprExtractionConfig()], parsing_timeout=None)


def family_score(item: Mapping[str, Any], answer: str) -> float | str:
    """What reasoning-gym's verifier gives, or UNMADE where the package cannot make the question again."""
    from rla.envs.adapters.reasoning_families import NoItem
    from rla.envs.adapters.reasoning_items import Item, answer_score

    try:
        return answer_score(Item(**item), answer)
    except NoItem:
        return UNMADE
