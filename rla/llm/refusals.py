"""What a Generator may refuse."""

from __future__ import annotations

from rla.llm.base import Request


class ContextOverflow(Exception):
    """The prompt and `max_tokens` together do not fit the engine's context; all counts are tokens."""

    def __init__(self, *, prompt: int, max_tokens: int, context: int) -> None:
        super().__init__(f"prompt of {prompt} tokens + {max_tokens} to sample exceed the context of {context}")
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.context = context


def check_request(request: Request, *, context: int) -> None:
    """Raises ContextOverflow, or ValueError for a request without a prompt or without anything to sample, or with a
    schema where its reply may train: restricted to a trie, or part of a session.
    """
    if not request.prompt_ids or request.max_tokens < 1 or request.samples < 1:
        raise ValueError("a request needs a prompt, max_tokens and samples of at least one")
    if request.json_schema is not None and (request.allowed is not None or request.session is not None):
        raise ValueError("json_schema is for replies that do not train: without allowed and without session")
    if len(request.prompt_ids) + request.max_tokens > context:
        raise ContextOverflow(prompt=len(request.prompt_ids), max_tokens=request.max_tokens, context=context)
