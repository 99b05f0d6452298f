"""The text that the published reward reads: the whole response, whatever ended it.

    REPLYuser
    <tool_response>
    RESULT
    </tool_response>
    assistant
    REPLY

These are the decoded tokens behind the prompt. Decoding drops control tokens and keeps the text that Qwen's templates
print next to them: the names of the roles and the tags. The published code leaves out the line end after the end of a
turn. It runs nothing after the reply at which it stops, at a malformed call and at a limit, so no result follows the
last reply.
"""

from __future__ import annotations

from collections.abc import Sequence


def whole_response(replies: Sequence[str], results: Sequence[str]) -> str:
    """`results`: the answer to each reply; an answer to the last one is left out."""
    pieces = [
        f"{reply}user\n<tool_response>\n{result}\n</tool_response>\nassistant\n"
        for reply, result in zip(replies[:-1], results, strict=False)
    ]
    return "".join([*pieces, *replies[-1:]])
