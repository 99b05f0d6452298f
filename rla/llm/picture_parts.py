"""Turns with pictures as messages of a chat server: OpenAI's content parts, pictures as data URLs.

Servers look for the placeholders of their models in texts. Which ones act, the server alone knows: the common ones are
broken in every text, `< image>`.
"""

from __future__ import annotations

import base64
import re
from typing import Any

from rla.llm.picture_chat import HasParts

PLACEHOLDER = re.compile(
    r"<(?=/?(?:image|img|video|vision|start_of_image|end_of_image|image_soft_token|audio)[\w|]*>)|\[(?=/?IMG)",
    re.IGNORECASE,
)


def parts_message(message: HasParts) -> dict[str, Any]:
    """{"role", "content"}, the content a list of parts; a turn of texts alone has a plain text."""
    if all(isinstance(part, str) for part in message.parts):
        return {"role": message.role, "content": "".join(broken_placeholders(str(part)) for part in message.parts)}
    return {
        "role": message.role,
        "content": [
            {"type": "text", "text": broken_placeholders(part)}
            if isinstance(part, str)
            else {"type": "image_url", "image_url": {"url": data_url(part.png)}}
            for part in message.parts
        ],
    }


def broken_placeholders(text: str) -> str:
    """`text`, in which nothing stands for a picture."""
    return PLACEHOLDER.sub(lambda found: f"{found[0]} ", text)


def data_url(png: bytes) -> str:
    """A PNG file as a URL that holds it."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
