"""Passes of the transformers engine: new tokens of many sequences in one row, keys and values to their slots."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from rla.errors import UserError
from rla.llm.base import Completion, FinishReason, Ints, PlacedImage, Request, cache_keys, check_placed
from rla.llm.slots import SlotCache, SlotTable, make_plan
from rla.models.sight import ImageFeatures, image_features, joined_features, seeing_states, sees
from rla.models.vision import PixelMaker, VisionFormat, rope_positions

if TYPE_CHECKING:
    from transformers import PreTrainedModel

KEPT_BYTES = 1 << 28  # of features
AT_ONCE = 16  # pictures that the tower looks at together


@dataclass(slots=True, kw_only=True, eq=False)
class Row:
    """A completion being sampled, for all samples (one seed each) that have drawn the same tokens so far."""

    job: EngineJob
    seeds: list[int]
    session: str | None
    node: dict[int, Any] | None
    slot: int = -1
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    offered: list[list[int]] = field(default_factory=list)
    forced: int = 0  # how many of the tokens were the only one offered

    def part(self, seeds: list[int]) -> Row:
        """The row of samples that are about to draw another token. It has no slot, and the session stays behind."""
        return replace(
            self,
            seeds=seeds,
            session=None,
            slot=-1,
            tokens=self.tokens[:],
            logprobs=self.logprobs[:],
            offered=self.offered[:],
        )

    def choices(self) -> list[int]:
        """Ids that the trie offers next; empty where unrestricted."""
        return [] if self.node is None else sorted(self.node)

    def accept(self, token: int, logprob: float, offered: list[int]) -> None:
        """Append a token and go down the trie with it."""
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

    def finish_reason(self, stop_ids: Collection[int]) -> FinishReason | None:
        """Why there is nothing more to sample, or None while there is."""
        if self.node == {} or (self.node is None and self.tokens and self.tokens[-1] in stop_ids):
            return FinishReason.STOP
        return FinishReason.LENGTH if len(self.tokens) >= self.job.request.max_tokens else None


@dataclass(slots=True, kw_only=True, eq=False)
class EngineJob:
    """A request and those of its completions that are done, by sample index. `prompt`: its ids as the cache keeps them;
    `places`: their rotary positions and the next one, for who counts them in another way than by tokens.
    """

    request: Request
    prompt: Ints
    future: asyncio.Future[list[Completion]]
    done: dict[int, Completion] = field(default_factory=dict)
    places: tuple[Ints, int] | None = None

    def finish(self, row: Row, reason: FinishReason) -> None:
        """Note a finished row; the last one answers the request, samples in their order."""
        for seed in row.seeds:
            self.done[seed - self.request.seed] = Completion(
                token_ids=row.tokens, logprobs=row.logprobs, allowed=row.offered, finish_reason=reason
            )
        if len(self.done) == self.request.samples and not self.future.done():
            self.future.set_result([self.done[index] for index in range(self.request.samples)])


class TextPasses:
    """Passes of a model that reads texts."""

    def __init__(self, model: PreTrainedModel, cache: SlotCache, *, context: int) -> None:
        self.model, self.cache, self.context = model, cache, context

    def prompt(self, request: Request) -> Ints:
        """The ids of a prompt as the cache keeps them. Raises ValueError for pictures."""
        if request.images:
            raise ValueError("the prompt has pictures, and the model reads texts alone")
        return np.asarray(request.prompt_ids, dtype=np.int64)

    def forget(self) -> None:
        """Give up what was computed with weights that go."""

    @torch.inference_mode()
    def logits(
        self, table: SlotTable, rows: Sequence[Row], slots: Ints, starts: Ints, counts: Ints, complete: np.ndarray
    ) -> Tensor:
        """Logits [complete rows, V] after each complete row's last token; row i brings `counts[i]` new tokens."""
        device = self.model.device
        plan = make_plan(slots=slots, starts=starts, counts=counts, context=self.context, device=device)
        slot = np.repeat(slots, counts)
        position = np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(len(slot))
        last = torch.from_numpy((np.cumsum(counts) - 1)[complete]).to(device)
        self.cache.plan = plan
        options = {"past_key_values": self.cache, "use_cache": True, "slot_plan": plan}
        ids = table.ids[slot, position].astype(np.int64)
        return self.computed(ids, position, last, rows=rows, starts=starts, counts=counts, options=options)

    def computed(
        self, ids: Ints, position: Ints, last: Tensor, *, rows: Sequence[Row], starts: Ints, counts: Ints, options: Any
    ) -> Tensor:
        """The pass itself, over tokens `ids` at the places `position` of their sequences."""
        device = self.model.device
        output = self.model(
            input_ids=torch.from_numpy(ids)[None].to(device),
            position_ids=torch.from_numpy(position)[None].to(device),
            logits_to_keep=last,
            **options,
        )
        logits: Tensor = output.logits[0]
        return logits


class KeptFeatures:
    """Features by the digest of their picture, the ones used last."""

    def __init__(self, limit: int = KEPT_BYTES) -> None:
        self.limit = limit
        self._found: OrderedDict[str, ImageFeatures] = OrderedDict()
        self.bytes = 0

    def get(self, digest: str) -> ImageFeatures | None:
        found = self._found.get(digest)
        if found is not None:
            self._found.move_to_end(digest)
        return found

    def put(self, digest: str, features: ImageFeatures) -> None:
        self._found[digest] = features
        self.bytes += features.bytes
        while self.bytes > self.limit and len(self._found) > 1:
            _, gone = self._found.popitem(last=False)
            self.bytes -= gone.bytes


class PicturePasses(TextPasses):
    """Passes of a vision-language model. Tokens of pictures are never sampled: their logits are -inf.

    The vision tower runs when a pass first brings tokens of a picture; what it found is kept by the picture's digest,
    up to a number of bytes, since an episode shows its last screens again in every prompt.
    """

    def __init__(self, model: PreTrainedModel, cache: SlotCache, *, context: int, vision: VisionFormat) -> None:
        super().__init__(model, cache, context=context)
        self._vision = vision
        self._pixels = PixelMaker(vision)
        self._kept = KeptFeatures()

    def prompt(self, request: Request) -> Ints:
        """Raises ValueError where tokens and pictures do not belong together."""
        check_placed(request.prompt_ids, request.images, image=self._vision.image)
        for one in request.images:
            rows, columns = self._vision.grid(one.png)
            if rows * columns != one.length:
                raise ValueError(f"a picture of {rows} x {columns} tokens has {one.length} in the prompt")
        return cache_keys(request.prompt_ids, request.images)

    def forget(self) -> None:
        self._kept = KeptFeatures()

    def computed(
        self, ids: Ints, position: Ints, last: Tensor, *, rows: Sequence[Row], starts: Ints, counts: Ints, options: Any
    ) -> Tensor:
        device = self.model.device
        looked = ids < 0
        bounds = [(row, int(low), int(low + count)) for row, low, count in zip(rows, starts, counts, strict=True)]
        places = np.concatenate([self._places(row, low, high) for row, low, high in bounds], axis=1)
        hidden = seeing_states(
            self.model,
            torch.from_numpy(np.where(looked, self._vision.image, ids))[None].to(device),
            torch.from_numpy(places)[:, None].to(device),
            looked=torch.from_numpy(looked)[None].to(device),
            features=self._features(bounds) if looked.any() else None,
            **options,
        )
        logits: Tensor = self.model.get_output_embeddings()(hidden[0, last])
        logits[:, list(self._vision.banned)] = -torch.inf
        return logits

    def _places(self, row: Row, low: int, high: int) -> Ints:
        """(3, high - low) rotary positions of the tokens from `low` to `high` of a row."""
        if row.job.places is None:
            row.job.places = self._prompt_places(row.job.request)
        (told, following), count = row.job.places, len(row.job.prompt)
        inside = told[:, low:high]
        behind = following + np.arange(max(low, count), high) - count
        return np.concatenate([inside, np.broadcast_to(behind, (3, len(behind)))], axis=1)

    def _prompt_places(self, request: Request) -> tuple[Ints, int]:
        grids = [(one.start, self._vision.grid(one.png)) for one in request.images]
        return rope_positions(len(request.prompt_ids), grids)

    def _features(self, bounds: Sequence[tuple[Row, int, int]]) -> ImageFeatures:
        """Of the picture tokens in a pass, in order."""
        shown = [
            (one, max(low, one.start) - one.start, min(high, one.end) - one.start)
            for row, low, high in bounds
            for one in row.job.request.images
            if one.start < high and one.end > low
        ]
        found = self._looked_at({one.digest: one for one, _, _ in shown})
        return joined_features([found[one.digest].cut(low, high) for one, low, high in shown])

    def _looked_at(self, images: dict[str, PlacedImage]) -> dict[str, ImageFeatures]:
        found = {digest: kept for digest in images if (kept := self._kept.get(digest)) is not None}
        fresh = [one for digest, one in images.items() if digest not in found]
        for low in range(0, len(fresh), AT_ONCE):
            part = fresh[low : low + AT_ONCE]
            pixels, grids = self._pixels.pixels([one.png for one in part])
            for one, features in zip(part, image_features(self.model, pixels, grids), strict=True):
                found[one.digest] = features
                self._kept.put(one.digest, features)
        return found


def passes_of(
    model: PreTrainedModel, cache: SlotCache, *, context: int, vision: VisionFormat | None
) -> TextPasses | PicturePasses:
    """How an engine runs a model. Raises UserError for one that sees pictures and whose `vision` is not known."""
    if vision is not None:
        return PicturePasses(model, cache, context=context, vision=vision)
    if sees(model):
        raise UserError(f"{type(model).__name__} sees pictures: its image processor must lie beside the weights")
    return TextPasses(model, cache, context=context)
