"""What a teacher reads of its own earlier replies, and what is kept of them."""

from __future__ import annotations

from rla_bridges.engines.chat_server import ChatReply
from rla_programs.collecting.teachers import Dialogue


def test_a_server_reads_its_earlier_replies_without_their_thoughts_and_the_lesson_keeps_them() -> None:
    dialogue = Dialogue([{"role": "user", "content": "2 + 2?"}])
    dialogue.reply("<think>\nEasy.\n</think>\n\n4")
    assert dialogue.sent[-1] == {"role": "assistant", "content": "4"}
    assert dialogue.said[-1].content == "<think>\nEasy.\n</think>\n\n4"


def test_so_does_a_server_that_called_a_tool() -> None:
    dialogue = Dialogue([{"role": "user", "content": "2 + 2?"}])
    answer = ChatReply(text="<think>\nEasy.\n</think>\n\nI compute.", truncated=False, calls=(("python", "{}"),))
    dialogue.reply("whole", answer)
    assert dialogue.sent[-1]["content"] == "I compute."
