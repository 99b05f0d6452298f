"""The text of a run for the model: its output as plain text, a sentence on how it ended, cut to a length.

    output of stdout, output of stderr, "The program was stopped after 10 seconds."

The output of a program is text of the environment. So it must not contain control characters, or tags by which chat
templates mark calls, results and reasoning: in Qwen's tokenizers these are single tokens.
"""

from __future__ import annotations

import re
from typing import Literal

from rla.envs.chat_prompts import plain_tags
from rla.envs.observation import CallResult
from rla_programs.execution import ExitStatus, Limits, Result

Cut = Literal["middle", "published"]
REPLACED = "\N{REPLACEMENT CHARACTER}"
CONTROLS = dict.fromkeys({*range(32), *range(127, 160), *range(0xD800, 0xE000)} - {ord("\n"), ord("\t")}, REPLACED)
CONTROLS |= dict.fromkeys((0x2028, 0x2029), "\n")  # line ends that not every reader recognises
PLACE = re.compile(r'File "[^"\n]*/program\.py"')  # a folder with a random name, in some sandboxes
SILENT = "The program printed nothing."
PUBLISHED_MARK = "...(truncated)..."
STATUSES = {
    ExitStatus.OK: "ok",
    ExitStatus.TIMEOUT: "timeout",
    ExitStatus.CPU: "timeout",
    ExitStatus.SKIPPED: "timeout",
    ExitStatus.MEMORY: "memory",
    ExitStatus.OUTPUT: "output",
}


def told_result(result: Result, limits: Limits, *, chars: int, how: Cut = "middle") -> CallResult:
    """The result of a sandbox run; `chars` limits its text (except for the mark of `published`)."""
    stderr = PLACE.sub('File "program.py"', result.stderr)
    parts = [part.rstrip("\n") for part in (result.stdout, stderr) if part.strip()]
    ending = _how_it_ended(result, limits)
    if not ending and not parts:
        ending = SILENT
    text = harmless("\n".join([*parts, ending] if ending else parts))
    return CallResult(text=cut_text(text, chars, how), status=STATUSES.get(result.status, "error"))


def _how_it_ended(result: Result, limits: Limits) -> str:
    """How the program ended, if its output does not show it."""
    wall_s = min(limits.wall_s, limits.program_s or limits.wall_s)
    match result.status:
        case ExitStatus.TIMEOUT | ExitStatus.SKIPPED:
            return f"The program was stopped after {_with_unit(wall_s, 'second')}."
        case ExitStatus.CPU:
            return f"The program was stopped after it had computed for {_with_unit(limits.cpu_s, 'second')}."
        case ExitStatus.MEMORY:
            return f"The program was stopped because it needs more than {limits.memory_mb} MB of memory."
        case ExitStatus.OUTPUT:
            return f"The program was stopped because it printed more than {limits.output_kb} KB."
        case ExitStatus.SIGNAL:
            return f"The program was ended by {result.detail or 'a signal'}."
        case ExitStatus.NONZERO if not result.stderr.strip():
            return f"The program ended with exit code {result.exit_code}."
    return ""


def _with_unit(number: float, unit: str) -> str:
    """`1 second`, `2.5 seconds`."""
    return f"{number:g} {unit}" if number == 1 else f"{number:g} {unit}s"


def harmless(text: str) -> str:
    """Plain text: control characters and lone surrogates replaced, tags of chat templates broken."""
    return plain_tags(text.replace("\r\n", "\n").translate(CONTROLS))


def cut_text(text: str, chars: int, how: Cut = "middle") -> str:
    """At most `chars` characters: the beginning, the number of missing characters, and the end, which in a traceback
    names the error. `published`: half of `chars` from each end, with a mark between them.
    """
    if len(text) <= chars:
        return text
    if how == "published":
        return text[: chars // 2] + PUBLISHED_MARK + text[-chars // 2 :]  # for odd numbers, the larger half
    kept = chars - len(missing(len(text)))
    if kept < 2:  # too short for the mark
        return text[-chars:]
    head, tail = kept // 2, kept - kept // 2
    return text[:head] + missing(len(text) - kept) + text[-tail:]


def missing(count: int) -> str:
    return f"\n[{count} characters are missing here]\n"
