"""What the model reads of a run: its output as plain text, a sentence on how it ended, cut to a length.

    output of stdout, output of stderr, "The program was stopped after 10 seconds."

Whatever a program prints is text of the environment. So it may hold no control characters, and no tag by which chat
templates mark calls, results and reasoning: in the tokenizers of Qwen these are tokens of their own.
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
CONTROLS |= dict.fromkeys((0x2028, 0x2029), "\n")  # line ends that not every reader takes for one
PLACE = re.compile(r'File "[^"\n]*/program\.py"')  # a folder with a name by lot, in some sandboxes
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
    """The result of a run that the sandbox has made; `chars` bounds its text (but for the mark of `published`)."""
    stderr = PLACE.sub('File "program.py"', result.stderr)
    parts = [part.rstrip("\n") for part in (result.stdout, stderr) if part.strip()]
    ending = how_it_ended(result, limits)
    if not ending and not parts:
        ending = SILENT
    text = harmless("\n".join([*parts, ending] if ending else parts))
    return CallResult(text=cut_text(text, chars, how), status=STATUSES.get(result.status, "error"))


def how_it_ended(result: Result, limits: Limits) -> str:
    """How the program ended, where its output does not say so."""
    wall_s = min(limits.wall_s, limits.program_s or limits.wall_s)
    match result.status:
        case ExitStatus.TIMEOUT | ExitStatus.SKIPPED:
            return f"The program was stopped after {with_unit(wall_s, 'second')}."
        case ExitStatus.CPU:
            return f"The program was stopped after it had computed for {with_unit(limits.cpu_s, 'second')}."
        case ExitStatus.MEMORY:
            return f"The program was stopped because it needs more than {limits.memory_mb} MB of memory."
        case ExitStatus.OUTPUT:
            return f"The program was stopped because it printed more than {limits.output_kb} KB."
        case ExitStatus.SIGNAL:
            return f"The program was ended by {result.detail or 'a signal'}."
        case ExitStatus.NONZERO if not result.stderr.strip():
            return f"The program ended with exit code {result.exit_code}."
    return ""


def with_unit(number: float, unit: str) -> str:
    """`1 second`, `2.5 seconds`."""
    return f"{number:g} {unit}" if number == 1 else f"{number:g} {unit}s"


def harmless(text: str) -> str:
    """Plain text: control characters and halves of surrogate pairs replaced, tags of chat templates broken."""
    return plain_tags(text.replace("\r\n", "\n").translate(CONTROLS))


def cut_text(text: str, chars: int, how: Cut = "middle") -> str:
    """At most `chars` characters: the beginning, how many are missing, and the end, which is where a traceback says
    what went wrong. `published`: half of `chars` from both ends, and a mark between them.
    """
    if len(text) <= chars:
        return text
    if how == "published":
        return text[: chars // 2] + PUBLISHED_MARK + text[-chars // 2 :]  # of odd numbers, the larger half
    kept = chars - len(missing(len(text)))
    if kept < 2:  # no room to say so
        return text[-chars:]
    head, tail = kept // 2, kept - kept // 2
    return text[:head] + missing(len(text) - kept) + text[-tail:]


def missing(count: int) -> str:
    return f"\n[{count} characters are missing here]\n"
