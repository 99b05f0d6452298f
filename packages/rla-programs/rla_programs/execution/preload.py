"""Code before a program: modules that a controller imports once for all its runs, and a prelude."""

from __future__ import annotations

import re

# Importing these has no effect that a later `import` in the program would not have; `random` reseeds itself after a
# fork.
WARM = frozenset(
    (
        *("array", "bisect", "cmath", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions"),
        *("functools", "hashlib", "heapq", "io", "itertools", "json", "math", "operator", "random", "re", "statistics"),
        *("string", "threading", "traceback", "types", "typing"),
    )
)
FUTURE = re.compile(r"^from __future__ import [^\n]*\n", re.MULTILINE)
LINE = re.compile(r"^[ \t]*(?:from|import)[ \t][^\n]*", re.MULTILINE)


def mentioned(source: str) -> tuple[str, ...]:
    """The preloadable modules whose names occur in import lines of a program."""
    words = {word for line in LINE.findall(source) for word in re.findall(r"\w+", line)}
    return tuple(sorted(words & WARM))


def with_prelude(prelude: str, program: str) -> str:
    """The program behind the one-line prelude; imports from `__future__` stay in front."""
    if not prelude:
        return program
    last = max((found.end() for found in FUTURE.finditer(program)), default=0)
    return f"{program[:last]}{prelude}\n{program[last:]}"
