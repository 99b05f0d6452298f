"""What a Generator may refuse."""

from __future__ import annotations


class ContextOverflow(Exception):
    """The prompt and `max_tokens` together do not fit the engine's context; all counts are tokens."""

    def __init__(self, *, prompt: int, max_tokens: int, context: int) -> None:
        super().__init__(
            f"prompt of {prompt} tokens + {max_tokens} to sample exceed the context of {context}"
        )
        self.prompt = prompt
        self.max_tokens = max_tokens
        self.context = context
