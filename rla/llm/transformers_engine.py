"""Any Hugging Face causal language model as a Generator, with continuous batching over KV cache slots.

A forward pass takes the next tokens of every live sequence: one for a sequence that decodes, many for a prompt. A
sequence that ends frees its slot at once. Tokens that the trie forces need no pass; the samples of a request are one
sequence until they draw different tokens. Passes run on the event loop's own thread, and callers run between passes.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import AttentionInterface, PreTrainedModel

from rla.errors import UserError
from rla.llm.base import Completion, FinishReason, Request, check_request, usable_completions
from rla.llm.slots import IMPLEMENTATION, Ints, SlotCache, SlotTable, make_plan, slot_attention
from rla.pictures.encoder import VisionPasses, VisionPrompt, has_vision_encoder, set_text_attention
from rla.pictures.vision import VisionFormat

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_MASK = (1 << 64) - 1
YIELDS = 3  # turns of the event loop between passes: enough for a caller to act on a reply and ask again
ROUNDING = 1e-6  # by which a sum of fp32 probabilities may miss a top_p that it reaches
COUNTS = ("generated_tokens", "forced_tokens", "prefilled_tokens", "cached_tokens", "passes")


def _splitmix(state: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """SplitMix64's output for each state (Steele, Lea and Flood 2014)."""
    mixed = state + _GOLDEN
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX2
    return mixed ^ (mixed >> np.uint64(31))


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> npt.NDArray[np.float64]:
    """One number in [0, 1) for each (seed, position), independent of the batch; any Python int is a seed."""
    seed = np.array([value & _MASK for value in seeds], dtype=np.uint64)
    position = np.asarray(positions, dtype=np.uint64)
    bits = _splitmix(_splitmix(seed) ^ position)
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def sample(
    logits: Tensor,
    *,
    offered: Sequence[list[int]],
    temperatures: Sequence[float],
    uniform: npt.NDArray[np.float64],
    top_ps: Sequence[float] | None = None,
) -> tuple[list[int], list[float]]:
    """Tokens and log-probabilities for logits [N, V] by inverse CDF: token = first id with CDF > u. An empty
    `offered[n]` leaves row n unrestricted. `top_ps` has a value per row, by default 1.

    Log-probabilities belong to the distribution sampled from: softmax(logits / T) over the whole vocabulary, or over
    the offered ids only; with top_p < 1, this distribution filtered to its nucleus and renormalised. T = 0 takes the
    most likely id, with log-probability 0.
    """
    heat, share = np.asarray(temperatures), np.asarray([1.0] * len(offered) if top_ps is None else top_ps)
    tokens, logprobs = [0] * len(offered), [0.0] * len(offered)
    for restricted in (True, False):
        rows = [row for row, ids in enumerate(offered) if bool(ids) is restricted]
        if not rows:
            continue
        chosen = logits if len(rows) == len(offered) else logits[torch.as_tensor(rows, device=logits.device)]
        ids = [offered[row] for row in rows] if restricted else None
        drawn = _draw(chosen.float(), ids, heat[rows], share[rows], uniform[rows])
        for row, token, logprob in zip(rows, *drawn, strict=True):
            tokens[row], logprobs[row] = token, logprob
    return tokens, logprobs


def _draw(
    logits: Tensor,
    offered: list[list[int]] | None,
    temperatures: npt.NDArray[np.float64],
    top_ps: npt.NDArray[np.float64],
    uniform: npt.NDArray[np.float64],
) -> tuple[list[int], list[float]]:
    device = logits.device
    ids: Tensor | None = None
    if offered is not None:
        widest = max(map(len, offered))
        table = np.array([row + row[-1:] * (widest - len(row)) for row in offered], dtype=np.int64)
        filler = np.arange(widest) >= np.array([len(row) for row in offered])[:, None]
        ids = torch.from_numpy(table).to(device)
        logits = logits.gather(1, ids).masked_fill_(torch.from_numpy(filler).to(device), float("-inf"))
    greedy = torch.from_numpy(temperatures == 0).to(device)
    heat = torch.from_numpy(np.where(temperatures == 0, 1.0, temperatures)).to(device, torch.float32)
    logprobs = torch.log_softmax(logits / heat[:, None], dim=1)
    if (top_ps < 1).any():
        logprobs = _nucleus(logprobs, torch.from_numpy(top_ps).to(device))
    choice = _inverse_cdf(logprobs, torch.from_numpy(uniform).to(device))
    choice = torch.where(greedy, logprobs.argmax(1), choice)
    picked = torch.where(greedy, 0.0, logprobs.gather(1, choice[:, None])[:, 0])
    tokens = choice if ids is None else ids.gather(1, choice[:, None])[:, 0]
    return tokens.tolist(), picked.tolist()


def _nucleus(logprobs: Tensor, top_p: Tensor) -> Tensor:
    """Log-probabilities of each row's nucleus, renormalised, -inf outside; a row with top_p 1 is unchanged.

    nucleus = the smallest set of the likeliest ids whose probability reaches top_p: an id is in it if all ids before
    it, likelier ones and equal ones of lower position, have less than top_p together.
    """
    ordered, order = logprobs.double().sort(dim=1, descending=True, stable=True)
    mass = ordered.exp()
    inside = mass.cumsum(1) - mass < top_p[:, None] - ROUNDING
    inside[:, 0] = True
    kept = torch.zeros_like(inside).scatter_(1, order, inside)
    filtered = torch.log_softmax(logprobs.masked_fill(~kept, float("-inf")), dim=1)
    return torch.where(top_p[:, None] < 1, filtered, logprobs)


def _inverse_cdf(logprobs: Tensor, uniform: Tensor) -> Tensor:
    """Index of the first entry whose cumulated probability exceeds u; never one of probability zero."""
    cumulated = logprobs.double().exp().cumsum(1)
    target = uniform[:, None] * cumulated[:, -1:]
    index = torch.searchsorted(cumulated, target, right=True)[:, 0]
    last = logprobs.shape[1] - 1 - (logprobs > float("-inf")).flip(1).int().argmax(1)
    return torch.minimum(index, last)


@dataclass(slots=True, kw_only=True, eq=False)
class _Row:
    """A completion being sampled, shared by all samples (one seed each) that have drawn the same tokens so far."""

    job: _Job
    seeds: list[int]
    session: str | None
    node: dict[int, Any] | None
    slot: int = -1
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    offered: list[list[int]] = field(default_factory=list)
    forced: int = 0  # number of tokens that were the only one offered

    def part(self, seeds: list[int]) -> _Row:
        """A copy for samples that are about to draw a different token, without slot and session."""
        return replace(
            self,
            seeds=seeds,
            session=None,
            slot=-1,
            tokens=self.tokens[:],
            logprobs=self.logprobs[:],
            offered=self.offered[:],
        )

    def accept(self, token: int, logprob: float, offered: list[int]) -> None:
        """Append a token and descend the trie."""
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.offered.append(offered)
        if self.node is not None:
            self.node = self.node[token]

    def force(self) -> None:
        """Take every token that is the only one offered."""
        while self.node is not None and len(self.node) == 1 and len(self.tokens) < self.job.request.max_tokens:
            (token,) = self.node
            self.accept(token, 0.0, [token])
            self.forced += 1


@dataclass(slots=True, kw_only=True, eq=False)
class _Job:
    """A request and its finished completions by sample index. `prompt` has its ids as the cache compares them; `vision`
    is set for a vision-language model.
    """

    request: Request
    prompt: Ints
    future: asyncio.Future[list[Completion]]
    done: dict[int, Completion] = field(default_factory=dict)
    vision: VisionPrompt | None = None


class TransformersGenerator:
    """Generator over a transformers model, on the device of its weights.

    `max_sequences` slots of `context` tokens are allocated at once. At most `tokens_per_pass` tokens go through the
    model in one pass; longer prompts are split. A session without a request in the last `idle_seconds` may lose its
    slot to a waiting request. One event loop at a time may use the engine. `vision` is set for a vision-language model.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *,
        stop_ids: Collection[int],
        max_sequences: int = 64,
        context: int = 1024,
        tokens_per_pass: int = 8192,
        idle_seconds: float = 0.2,
        vision: VisionFormat | None = None,
    ) -> None:
        text_config = model.config.get_text_config()
        limit = getattr(text_config, "max_position_embeddings", None)
        if limit is not None and context > limit:
            raise UserError(f"generator.context {context} exceeds the model's {limit} positions; lower it")
        AttentionInterface.register(IMPLEMENTATION, slot_attention)  # without a mask function: the plan makes its own
        set_text_attention(model, IMPLEMENTATION)
        if model.config._attn_implementation != IMPLEMENTATION:
            raise UserError(f"{type(model).__name__} has its own attention; use generator.backend vllm")
        self.context = context
        self._model = model.eval()
        self._stop_ids = frozenset(stop_ids)
        self._idle_seconds = idle_seconds
        self._tokens_per_pass = max(tokens_per_pass, max_sequences)
        self._table = SlotTable(slots=max_sequences, context=context)
        self._cache = SlotCache(
            config=text_config, slots=max_sequences, context=context, dtype=model.dtype, device=model.device
        )
        if vision is None and has_vision_encoder(model):
            raise UserError(f"{type(model).__name__} sees pictures: its image processor must lie beside the weights")
        self._vision = None if vision is None else VisionPasses(model, vision)
        self._live: list[_Row] = []
        self._returning: list[_Row] = []  # rows whose session holds a slot
        self._waiting: deque[_Row] = deque()
        self._pump: asyncio.Task[None] | None = None
        self._stats = dict.fromkeys(COUNTS, 0)
        self._seconds = 0.0

    async def generate(self, request: Request) -> list[Completion]:
        """Sample `request.samples` completions.

        Raises ValueError as `check_request` does and for images that do not belong to the prompt's tokens, and
        UnusableReply if the model computes NaN.
        """
        check_request(request, context=self.context, vocabulary=self._model.get_input_embeddings().weight.shape[0])
        if request.images and self._vision is None:
            raise ValueError("the prompt has pictures, and the model reads texts alone")
        vision = None if self._vision is None else self._vision.prompt(request.prompt_ids, request.images)
        ids = np.asarray(request.prompt_ids, dtype=np.int64) if vision is None else vision.keys
        job = _Job(request=request, prompt=ids, future=asyncio.get_running_loop().create_future(), vision=vision)
        node = None if request.allowed is None else request.allowed.root
        seeds = [request.seed + index for index in range(request.samples)]
        row = _Row(job=job, seeds=seeds, node=node, session=request.session)
        (self._waiting if self._table.slot_of(row.session) is None else self._returning).append(row)
        if self._pump is None or self._pump.done():
            self._pump = asyncio.create_task(self._run())
            self._pump.add_done_callback(self._fail_all)
        return usable_completions(await job.future)

    def release(self, session: str) -> None:
        """Give up the cache slot of a session."""
        self._table.release(session)

    def forget(self) -> None:
        """Drop every cached prompt and session, so that the next passes equal those of a new engine.

        Raises RuntimeError while a request is unanswered.
        """
        if not all(row.job.future.done() for row in (*self._live, *self._returning, *self._waiting)):
            raise RuntimeError("requests are unanswered: their cache cannot go")
        self._live, self._returning, self._waiting = [], [], deque()
        slots, context = self._table.ids.shape
        self._table = SlotTable(slots=slots, context=context)
        if self._vision is not None:
            self._vision.forget()

    async def reload(self, model: Path | str, *, stop_ids: Collection[int]) -> None:
        """Take the weights of another model of the same architecture. Raises RuntimeError as `forget` does."""
        from rla.models.load import load_weights

        self.forget()
        load_weights(self._model, model)
        self._stop_ids = frozenset(stop_ids)

    def close(self) -> None:
        """Stop sampling and cancel waiting requests."""
        if self._pump is not None and not self._pump.done():
            self._pump.cancel()

    def stats(self) -> dict[str, float]:
        """Counts since the start: tokens generated (including forced ones), prefilled, cached; passes; seconds."""
        return {**self._stats, "seconds": self._seconds}

    async def _run(self) -> None:
        while self._live or self._returning or self._waiting:
            started = time.perf_counter()
            self._admit(started)
            if self._live:
                self._step()
                self._seconds += time.perf_counter() - started
                for _ in range(YIELDS):
                    await asyncio.sleep(0)
            else:
                await asyncio.sleep(self._idle_seconds / 10)

    def _fail_all(self, task: asyncio.Task[None]) -> None:
        """Pass the error that ended the pump to all waiting requests.

        This runs one turn of the loop after the end. By then a new request may have started the next pump, which owns
        the rows.
        """
        if task is not self._pump:
            return
        rows = [*self._live, *self._returning, *self._waiting]
        error = None if task.cancelled() else task.exception()
        for row in rows:
            if not row.job.future.done():
                if error is None:
                    row.job.future.cancel()
                else:
                    row.job.future.set_exception(error)
        for row in self._live:
            self._table.finish(row.slot, now=time.perf_counter())
        self._live, self._returning, self._waiting = [], [], deque()

    def _admit(self, now: float) -> None:
        """Start rows with a slot, then waiting rows in order, but not before a row that computes their prompt."""
        returning, self._returning = self._returning, []
        self._waiting.extendleft(row for row in reversed(returning) if not self._try_start(row, now))
        later: list[_Row] = []
        while self._waiting and len(later) < 4 * len(self._table.valid):
            if not self._table.has_room(idle_before=now - self._idle_seconds):
                break
            row = self._waiting.popleft()
            if self._table.worth_waiting(row.job.prompt):
                later.append(row)
            else:
                self._try_start(row, now)
        self._waiting.extendleft(reversed(later))

    def _try_start(self, row: _Row, now: float) -> bool:
        """Claim a slot and the cached prefix of the prompt. True also for a row whose request was cancelled."""
        job = row.job
        if job.future.done():
            return True
        claimed = self._table.claim(row.session, job.prompt, idle_before=now - self._idle_seconds)
        if claimed is None:
            return False
        row.slot, source, shared = claimed
        if source != row.slot:
            self._cache.copy(source=source, target=row.slot, length=shared)
        self._stats["cached_tokens"] += shared
        self._stats["prefilled_tokens"] += len(job.prompt) - shared
        self._live.append(row)
        self._advance(row)
        return True

    def _advance(self, row: _Row) -> None:
        """After a start or a sampled token: take forced tokens, record the ids, finish the row if it is done."""
        known = int(self._table.length[row.slot]) - len(row.job.prompt)
        row.force()
        self._table.append(row.slot, row.tokens[known:])
        if self._finish(row):
            self._retire(row)

    def _finish(self, row: _Row) -> bool:
        """Hand over a row that is done, and with the last row the request; False if there is more to sample."""
        request, done, future = row.job.request, row.job.done, row.job.future
        if row.node == {} or (row.node is None and row.tokens and row.tokens[-1] in self._stop_ids):
            reason = FinishReason.STOP
        elif len(row.tokens) >= request.max_tokens:
            reason = FinishReason.LENGTH
        else:
            return False
        self._stats["generated_tokens"] += len(row.tokens) * len(row.seeds)
        self._stats["forced_tokens"] += row.forced * len(row.seeds)
        for seed in row.seeds:
            done[seed - request.seed] = Completion(
                token_ids=row.tokens, logprobs=row.logprobs, allowed=row.offered, finish_reason=reason
            )
        if len(done) == request.samples and not future.done():
            future.set_result([done[index] for index in range(request.samples)])
        return True

    def _retire(self, row: _Row) -> None:
        self._live.remove(row)
        self._table.finish(row.slot, now=time.perf_counter())

    def _step(self) -> None:
        """One forward pass, then one sampled token for each sequence whose pending tokens were all in it."""
        for row in [row for row in self._live if row.job.future.done()]:
            self._retire(row)
        if not self._live:
            return
        slots = np.array([row.slot for row in self._live])
        starts = self._table.valid[slots]
        pending = self._table.length[slots] - starts
        counts = self._fit(pending)
        keep, complete = counts > 0, counts == pending
        taken = list(compress(self._live, keep))
        logits = self._logits(taken, slots[keep], starts[keep], counts[keep], complete[keep])
        self._stats["passes"] += 1
        self._table.valid[slots] += counts
        rows = list(compress(self._live, complete))
        if rows:
            self._sample(rows, logits)

    @torch.inference_mode()
    def _logits(
        self, rows: Sequence[_Row], slots: Ints, starts: Ints, counts: Ints, complete: npt.NDArray[np.bool_]
    ) -> Tensor:
        """Logits [complete rows, V] after each complete row's last token; row i brings `counts[i]` new tokens."""
        device = self._model.device
        plan = make_plan(slots=slots, starts=starts, counts=counts, context=self.context, device=device)
        slot = np.repeat(slots, counts)
        position = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(len(slot))
        last = torch.from_numpy((np.cumsum(counts) - 1)[complete]).to(device)
        self._cache.plan = plan
        options = {"past_key_values": self._cache, "use_cache": True, "slot_plan": plan}
        ids = self._table.ids[slot, position].astype(np.int64)
        if self._vision is not None:
            prompts = [row.job.vision for row in rows if row.job.vision is not None]
            bounds = zip(prompts, starts.tolist(), (starts + counts).tolist(), strict=True)
            return self._vision.logits(ids, list(bounds), last, options)
        output = self._model(
            input_ids=torch.from_numpy(ids)[None].to(device),
            position_ids=torch.from_numpy(position)[None].to(device),
            logits_to_keep=last,
            **options,
        )
        return cast(Tensor, output.logits[0])

    def _fit(self, pending: Ints) -> Ints:
        """The number of tokens of each row in the pass: short rows first, the last one cut to fit."""
        if int(pending.sum()) <= self._tokens_per_pass:
            return pending
        order = np.argsort(pending, kind="stable")
        before = np.cumsum(pending[order]) - pending[order]
        counts = np.empty_like(pending)
        counts[order] = np.clip(self._tokens_per_pass - before, 0, pending[order])
        return counts

    def _sample(self, rows: list[_Row], logits: torch.Tensor) -> None:
        """Draw for every sample of every row; samples that draw different tokens become rows of their own."""
        drawing = [(index, row, seed) for index, row in enumerate(rows) for seed in row.seeds]
        offered = [[] if row.node is None else sorted(row.node) for row in rows]  # empty: unrestricted
        if len(drawing) > len(rows):
            logits = logits[torch.tensor([index for index, _, _ in drawing], device=logits.device)]
        places = [len(row.job.prompt) + len(row.tokens) for _, row, _ in drawing]
        tokens, logprobs = sample(
            logits,
            offered=[offered[index] for index, _, _ in drawing],
            temperatures=[row.job.request.temperature for _, row, _ in drawing],
            top_ps=[row.job.request.top_p for _, row, _ in drawing],
            uniform=uniforms([seed for _, _, seed in drawing], places),
        )
        drawn: list[dict[int, tuple[float, list[int]]]] = [{} for _ in rows]
        for (index, _, seed), token, logprob in zip(drawing, tokens, logprobs, strict=True):
            drawn[index].setdefault(token, (logprob, []))[1].append(seed)
        for row, ids, choices in zip(rows, offered, drawn, strict=True):
            (first, (logprob, row.seeds)), *others = choices.items()
            for token, (other, seeds) in others:
                parted = row.part(seeds)
                parted.accept(token, other, ids)
                parted.force()
                if not self._finish(parted):
                    self._waiting.append(parted)
            row.accept(first, logprob, ids)
            self._advance(row)
