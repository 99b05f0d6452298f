"""Turns with pictures as messages of a chat server: OpenAI's content parts, pictures as data URLs.

Servers look for the placeholders of their models in texts. Which ones act, the server alone knows: the common ones are
broken in every text, `< image>`.
"""

from __future__ import annotations

import base64
from typing import Any

from rla.llm.control_strings import plain_beside_pictures
from rla.llm.picture_chat import HasParts


def parts_message(message: HasParts) -> dict[str, Any]:
    """{"role", "content"}, the content a list of parts; a turn of texts alone has a plain text."""
    if all(isinstance(part, str) for part in message.parts):
        return {"role": message.role, "content": "".join(plain_beside_pictures(str(part)) for part in message.parts)}
    return {
        "role": message.role,
        "content": [
            {"type": "text", "text": plain_beside_pictures(part)}
            if isinstance(part, str)
            else {"type": "image_url", "image_url": {"url": data_url(part.png)}}
            for part in message.parts
        ],
    }


def data_url(png: bytes) -> str:
    """A PNG file as a URL that holds it."""
    return f"data:image/png;base64,{base64.b64encode(png).decode()}"
