"""Episodes of made-up token ids, played by a real engine over a tiny model, as trajectory rows."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from rla.config.sections import GeneratorConfig
from rla.llm.base import Generator, Request, TokenTrie
from rla.llm.factory import make_generator

TEMPERATURE = 0.8
END = 3
COMMANDS = TokenTrie([[20, 21, 30, END], [20, 21, 31, END], [20, 22, END], [40, 41, 42, END]])
TURNS = (COMMANDS, None, COMMANDS)  # restricted, free, restricted


async def episode(engine: Generator, number: int) -> dict[str, Any]:
    """The turns, one growing segment; step i is turn i."""
    columns: dict[str, list[Any]] = {"token_ids": [], "sampled": [], "logprobs": [], "allowed": []}
    steps = []
    for turn, trie in enumerate(TURNS):
        asked = [50 + number, *range(60, 65 + turn)]
        columns["token_ids"] += asked
        columns["sampled"] += [False] * len(asked)
        columns["logprobs"] += [0.0] * len(asked)
        [said] = await engine.generate(
            Request(
                prompt_ids=list(columns["token_ids"]),
                max_tokens=6,
                temperature=TEMPERATURE,
                seed=100 * number + turn,
                session=str(number),
                allowed=trie,
            )
        )
        start = len(columns["token_ids"])
        columns["token_ids"] += said.token_ids
        columns["sampled"] += [True] * len(said.token_ids)
        columns["logprobs"] += said.logprobs
        columns["allowed"] += said.allowed
        steps.append({"segment": 0, "start": start, "end": len(columns["token_ids"])})
    return {"trajectory_id": str(number), "steps": steps, "segments": [columns]}


def play(model: Path, *, config: GeneratorConfig, episodes: int) -> list[dict[str, Any]]:
    engine, _ = make_generator(config, model=model, seed=0)

    async def all_of_them() -> list[dict[str, Any]]:
        return list(await asyncio.gather(*(episode(engine, number) for number in range(episodes))))

    try:
        return asyncio.run(all_of_them())
    finally:
        engine.close()
