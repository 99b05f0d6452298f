"""Transcripts that were written elsewhere, as replies and results: nothing in them is run.

    REPLY <tool_call>{"name": ..., "arguments": ...}</tool_call><tool_response>RESULT</tool_response> REPLY

A result begins at its tag, unless the tag is inside a call or a thought, and ends at the last closing tag before the
next result. Results separated only by white space belong to the same reply. Text that chat templates print around turns
does not belong to a reply: `<|im_end|>`, and the roles `user` and `assistant` on a line of their own.

Calls are parsed in the Hermes format and in the environment's own format. At most `MOST_READ` calls of a transcript are
separated from results; everything after them, up to the last result, counts as one result.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rla.text import CLOSING, TAG
from rla_programs.tool.calls import CallFormat, Malformed
from rla_programs.tool.hermes import OPEN as CALL
from rla_programs.tool.hermes import HermesFormat, hermes_call

RESULT, RESULT_END = "<tool_response>", "</tool_response>"
TURN, TURN_END, END = "<|im_start|>", "<|im_end|>", "<|endoftext|>"
MOST_READ = 1024
HERMES = HermesFormat()

ToldTurns = list[tuple[str, str | None]]  # replies, and the answer to each: None if there is none


def told_turns(text: str) -> ToldTurns:
    """The turns of a text; the last one is the part after the last result, even if it is empty."""
    turns: ToldTurns = []
    at = 0
    for start, end in _results_in(text):
        reply, result = _reply_in(text[at:start]), text[start + len(RESULT) : end - len(RESULT_END)].strip("\n")
        if turns and not reply:
            turns[-1] = (turns[-1][0], f"{turns[-1][1]}\n\n{result}")
        else:
            turns.append((reply, result))
        at = end
    return [*turns, (_reply_in(text[at:]) if turns else text, None)]


def _results_in(text: str) -> Iterator[tuple[int, int]]:
    """The begin of each result and the position after it. A result without an end extends to the end of the text."""
    starts = [*_result_starts(text), len(text)]
    for start, following in pairwise(starts):
        closing = text.rfind(RESULT_END, start, following)
        if closing >= 0:
            yield start, closing + len(RESULT_END)
        elif following == len(text):
            yield start, len(text) + len(RESULT_END)  # so that removing the tag leaves all of the text


def _result_starts(text: str) -> Iterator[int]:
    """Begins of results. A thought may contain the tag, and so may the program of a call that can be parsed."""
    tags = list(TAG.finditer(text))
    opened = [tag.start() for tag in tags if not CLOSING.search(tag[0])]
    closed = [tag.end() for tag in tags if CLOSING.search(tag[0])]
    at = closed[0] if closed and closed[0] < [*opened, len(text)][0] else 0  # the template had opened that thought
    result, call, read = text.find(RESULT, at), text.find(CALL, at), 0
    thought, outside = _next_at(opened, at), at
    while result >= 0 and read <= MOST_READ:
        if 0 <= thought < result and not 0 <= call < thought:
            at = outside = _next_at(closed, thought, last=len(text))
        elif 0 <= call < result:
            found, at = hermes_call(text, call + len(CALL))
            outside = at = min(at, result) if isinstance(found, Malformed) else at
            read += 1
        else:
            yield result
            at = result + len(RESULT)
            outside = max(at, text.find(RESULT_END, at)) if opened else at  # a result does not think
        thought = _next_at(opened, outside) if 0 <= thought < outside else thought
        result = text.find(RESULT, at) if 0 <= result < at else result
        call = text.find(CALL, at) if 0 <= call < at else call


def _next_at(places: Sequence[int], at: int, *, last: int = -1) -> int:
    """The first of the sorted `places` that is not before `at`, or else `last`."""
    index = bisect_left(places, at)
    return places[index] if index < len(places) else last


def _reply_in(text: str) -> str:
    """A reply without the text that templates print before and after it."""
    text = text.strip().removeprefix(TURN_END).lstrip()
    text = text.removeprefix(TURN)
    text = text[len("assistant") :].lstrip() if text.startswith(("assistant\n", "assistant\r")) else text
    text = "" if text == "assistant" else text
    if text.endswith(f"{TURN}user"):
        text = text.removesuffix(f"{TURN}user").rstrip()
    elif text == "user" or text.endswith(("\nuser", "</tool_call>user")):
        text = text.removesuffix("user").rstrip()
    return text.removesuffix(END).rstrip().removesuffix(TURN_END).rstrip()


def calls_told(reply: str, own: CallFormat | None) -> int:
    """The number of calls in a reply, including those that cannot be parsed."""
    text = reply.strip()
    formats: Sequence[CallFormat] = (HERMES,) if own is None else (HERMES, own)
    return max(len(one.parse(text).calls) for one in formats)
