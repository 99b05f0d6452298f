"""Strings that act in chat templates or stand for pictures, broken in texts that people or models wrote."""

from __future__ import annotations

import re

CONTROL = re.compile(
    r"<[|\uff5c]|</?(?:s|think)>|<(?:bos|eos|pad)>|<(?:start|end)_of_turn>|<</?SYS>>"
    r"|\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\]",
    re.IGNORECASE,
)
PLACEHOLDER = re.compile(
    r"<(?=/?(?:image|img|video|vision|start_of_image|end_of_image|image_soft_token|audio)[\w|]*>)|\[(?=/?IMG)",
    re.IGNORECASE,
)


def neutral(text: str) -> str:
    """`text` with the control strings of common chat templates broken: which of them act, the server alone knows."""
    return CONTROL.sub(lambda found: f"{found[0][0]} {found[0][1:]}", text)


def plain_beside_pictures(text: str) -> str:
    """`neutral`, and nothing in it stands for a picture either: `< image>`."""
    return PLACEHOLDER.sub(lambda found: f"{found[0]} ", neutral(text))
