"""Prompts with pictures on a completions server: as messages, because `/completions` takes no pictures.

The server makes token ids of the messages by itself and returns them (`return_token_ids`). They have to be those of the
request, picture tokens included: what is stored is what the model has read.
"""

from __future__ import annotations

from typing import Any, Protocol

from rla.errors import UserError
from rla.llm.base import Completion, Request
from rla.llm.picture_parts import parts_message
from rla.llm.restricted import SEED_MASK
from rla.llm.vllm_pictures import bias_against


class PictureServer(Protocol):
    """What is asked of the engine over a server."""

    stop_ids: list[int]
    banned: tuple[int, ...]

    async def ask_chat(self, messages: list[dict[str, Any]], samples: int, **params: Any) -> tuple[Any, list[Any]]: ...

    def completion(self, choice: dict[str, Any], temperature: float) -> Completion: ...

    def lacking(self, what: str, remedy: str) -> UserError: ...


async def ask_with_pictures(server: PictureServer, request: Request) -> list[Completion]:
    """The completions of a request with pictures. Raises UserError for what a server cannot do with them."""
    if request.allowed is not None:
        raise server.lacking(
            "cannot hold a reply to commands beside pictures", "set decoding: free, or use generator.backend vllm"
        )
    if not request.turns:
        raise server.lacking(
            "takes pictures in new conversations alone", "set policy.history: window, or use generator.backend vllm"
        )
    made, choices = await server.ask_chat(
        list(map(parts_message, request.turns)),
        request.samples,
        seed=request.seed & SEED_MASK,
        temperature=request.temperature,
        top_p=request.top_p,
        max_tokens=request.max_tokens,
        stop_token_ids=server.stop_ids,
        **bias_against(server.banned),
    )
    if made is None or list(made) != list(request.prompt_ids):
        count = "no" if made is None else len(made)
        raise server.lacking(
            f"made {count} token ids of a prompt with pictures that has {len(request.prompt_ids)}",
            "start it with the folder of this stage's checkpoint, its chat template and its image processor",
        )
    return [server.completion(choice, request.temperature) for choice in choices]
