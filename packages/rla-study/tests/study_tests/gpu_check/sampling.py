"""The parts `generation` and `logprobs`: the engine `transformers` alone, and beside the trainer."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from rla_study.planning.shapes import SHAPES
from torch import Tensor
from transformers import AutoModelForCausalLM

from rla.llm.base import Completion, Request
from rla.llm.transformers_engine import TransformersGenerator
from rla.models.load import load_model, load_tokenizer
from rla.training.model import TokenScorer, collate
from rla.training.sequences import TrainingSequence
from study_tests.bench.bench_shape import config_of
from study_tests.gpu_check.call import Call, Skipped, measure
from study_tests.gpu_check.training import REAL

TEXTS = (
    "The capital of France is",
    "You are in the middle of a room. Looking quickly around you, you see a cabinet 1, a fridge 1 and a sinkbasin 1.",
    "Write a short story about a robot that learns to cook.",
    "def fibonacci(n):",
)
ROUNDS = 3  # the quickest counts: a difference of two times that were taken once may be negative


def random_model(shape: str, *, dtype: torch.dtype, device: str) -> Any:
    torch.manual_seed(0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(config_of(SHAPES[shape]), dtype=dtype).eval()


async def replies(
    engine: TransformersGenerator, prompts: Sequence[list[int]], *, tokens: int
) -> tuple[list[Completion], float]:
    """One reply to each prompt, and the seconds that all took."""
    started = time.perf_counter()
    asked = (
        engine.generate(Request(prompt_ids=prompt, max_tokens=tokens, temperature=1.0, seed=seed))
        for seed, prompt in enumerate(prompts)
    )
    found = [completion for completions in await asyncio.gather(*asked) for completion in completions]
    return found, time.perf_counter() - started


def prompts_of(count: int, *, tokens: int, vocabulary: int) -> list[list[int]]:
    draw = torch.Generator().manual_seed(0)
    return torch.randint(vocabulary, (count, tokens), generator=draw).tolist()


def generation(call: Call) -> None:
    """The first token of every reply tells how fast prompts are read, the others how fast tokens come."""
    prompt, reply = (32, 8) if call.tiny else (512, 128)
    for shape in ("tiny",) if call.tiny else REAL:
        model = random_model(shape, dtype=torch.bfloat16, device=call.device)
        for sequences in (4, 8) if call.tiny else (64, 256):
            case = {"shape": shape, "sequences": sequences, "prompt": prompt, "reply": reply}
            call.attempt(case, partial(paces, model, sequences, prompt=prompt, reply=reply))
        del model


def paces(model: Any, sequences: int, *, prompt: int, reply: int) -> dict[str, float]:
    engine = TransformersGenerator(model, stop_ids=(), max_sequences=sequences, context=prompt + reply)
    prompts = prompts_of(sequences, tokens=prompt, vocabulary=model.config.vocab_size)
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()

    async def served() -> tuple[float, float]:
        await replies(engine, prompts, tokens=2)  # warms up
        taken = {1: float("inf"), reply: float("inf")}
        for tokens in (1, reply) * ROUNDS:
            engine.forget()
            taken[tokens] = min(taken[tokens], (await replies(engine, prompts, tokens=tokens))[1])
        return taken[1], taken[reply]

    first, whole = asyncio.run(served())
    row = {
        "prompt_tokens_per_second": round(sequences * prompt / first),
        "reply_tokens_per_second": round(sequences * (reply - 1) / (whole - first)),
        "ms_per_pass": round(1000 * (whole - first) / (reply - 1), 2),
    }
    return row | (
        {"peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 1)} if model.device.type == "cuda" else {}
    )


def logprobs(call: Call) -> None:
    """Mean and largest |difference| of a token's log-probability. Random weights stand in where SmolLM2 is missing:
    their distributions are flatter, so gaps are smaller.
    """
    try:
        folder = call.model_folder()
    except Skipped as reason:
        folder, name = None, f"{'tiny' if call.tiny else 'qwen2.5-0.5b'}, random weights ({reason})"
    else:
        name = "SmolLM2-135M" if not call.model else "given"
    if folder is None:
        model = random_model("tiny" if call.tiny else "qwen2.5-0.5b", dtype=torch.float32, device=call.device)
        prompts = prompts_of(8 if call.tiny else 64, tokens=16, vocabulary=model.config.vocab_size)
    else:
        model, tokenizer = load_model(folder, device=call.device), load_tokenizer(folder)
        prompts = [tokenizer.encode(text) for text in TEXTS] * (2 if call.tiny else 16)
    reply = 8 if call.tiny else 128
    for dtype in (torch.float32, torch.bfloat16):
        sampler = copy.deepcopy(model).to(dtype)
        engine = TransformersGenerator(
            sampler, stop_ids=(), max_sequences=len(prompts), context=max(map(len, prompts)) + reply
        )
        found, _ = asyncio.run(replies(engine, prompts, tokens=reply))
        rows = [sequence(prompt, one) for prompt, one in zip(prompts, found, strict=True)]
        sampled = torch.tensor([value for row in rows for value in row.logp])
        for trainer in ("float32", "bfloat16"):
            gap = (scored(model, rows, device=call.device, mixed=trainer == "bfloat16") - sampled).abs()
            call.add(
                model=name,
                sampler=str(dtype).rpartition(".")[2],
                trainer=trainer,
                tokens=len(gap),
                mean_gap=float(f"{gap.mean():.3g}"),
                largest_gap=float(f"{gap.max():.3g}"),
            )


def sequence(prompt: list[int], reply: Completion) -> TrainingSequence:
    return TrainingSequence(
        token_ids=[*prompt, *reply.token_ids],
        positions=list(range(len(prompt), len(prompt) + len(reply.token_ids))),
        logp=reply.logprobs,
        allowed=[[]] * len(reply.token_ids),
        advantages=[1.0] * len(reply.token_ids),
    )


@torch.no_grad()
def scored(model: Any, rows: list[TrainingSequence], *, device: str, mixed: bool) -> Tensor:
    """By the trainer, as its updates do it: packed where the model takes that."""
    scorer = TokenScorer(model, temperature=1.0, mixed=mixed)
    logp, _ = scorer(collate(rows, device=torch.device(device), packed=scorer.packs))
    return logp.float().cpu()


if __name__ == "__main__":
    measure(generation, logprobs)
