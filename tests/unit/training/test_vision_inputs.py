"""Passes over sequences with pictures: packed, padded, with branches, against single passes of transformers."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from zipfile import ZipFile

import pytest
import torch
from torch import Tensor

from rla.models.load import load_model
from rla.pictures.encoder import VisionCollator, write_images
from rla.pictures.vision import PixelMaker, VisionFormat, load_vision, png_digest
from rla.store.records import ImageSpan
from rla.training.model import TokenScorer, collate
from rla.training.sequences import (
    StoredSequences,
    TrainingSequence,
    split_branches,
    without_long_replies,
    write_sequences,
)
from tests.seeing import KINDS, png_of, small_model

CPU = torch.device("cpu")
FILES = [png_of("red"), png_of("blue", width=24, height=60), png_of("green", width=64, height=12)]
PNGS = {png_digest(file): file for file in FILES}


def vision_of(kind: str) -> VisionFormat:
    found = load_vision(small_model(kind))
    assert found is not None
    return found


def told(vision: VisionFormat, rng: random.Random, parts: Sequence[bytes | int]) -> tuple[list[int], list[ImageSpan]]:
    """Ids of pictures, and of as many random texts tokens as numbers say."""
    ids: list[int] = []
    images = []
    for part in parts:
        if isinstance(part, int):
            ids += [rng.randrange(7, 60) for _ in range(part)]
            continue
        own = vision.tokens(part)
        images.append(ImageSpan(digest=png_digest(part), start=len(ids) + 1, length=len(own) - 2))
        ids += own
    return ids, images


def sequence(
    vision: VisionFormat, seed: int, parts: Sequence[bytes | int], *, allowed: bool = False
) -> TrainingSequence:
    """Four tokens of loss behind what is shown."""
    rng = random.Random(seed)
    ids, images = told(vision, rng, parts)
    reply = [rng.randrange(7, 60) for _ in range(4)]
    return TrainingSequence(
        token_ids=[*ids, *reply],
        positions=list(range(len(ids), len(ids) + 4)),
        logp=[-1.0] * 4,
        allowed=[[token, 8, 9] if allowed else [] for token in reply],
        advantages=[1.0, -1.0, 0.5, 2.0],
        images=tuple(images),
    )


def several(vision: VisionFormat) -> list[TrainingSequence]:
    return [
        sequence(vision, 1, [3, FILES[0], 5]),
        sequence(vision, 2, [FILES[0], 2, FILES[1], 4], allowed=True),
        sequence(vision, 3, [9]),
        sequence(vision, 4, [1, FILES[2], FILES[1], 1]),
    ]


def branching(vision: VisionFormat) -> TrainingSequence:
    """A prompt with a picture, and two judgements of it."""
    one = sequence(vision, 5, [2, FILES[1], 6])
    prefix = len(one.token_ids) - 4
    more = [11, 12, 13]
    return TrainingSequence(
        token_ids=[*one.token_ids, *more],
        positions=[*one.positions, *range(prefix + 4, prefix + 7)],
        logp=[-1.0] * 7,
        allowed=[[]] * 7,
        advantages=[1.0] * 7,
        branches=((prefix, prefix + 4), (prefix + 4, prefix + 7)),
        replies=[0, 0, 0, 0, 1, 1, 1],
        images=one.images,
    )


def scorer_of(kind: str) -> TokenScorer:
    torch.manual_seed(0)
    return TokenScorer(load_model(small_model(kind)), temperature=0.7, banned=vision_of(kind).banned)


def scored(scorer: TokenScorer, kind: str, chosen: Sequence[TrainingSequence], *, packed: bool) -> Tensor:
    batch = collate(chosen, device=CPU, packed=packed, vision=VisionCollator(vision_of(kind), PNGS.__getitem__))
    logp, _ = scorer(batch)
    assert isinstance(logp, Tensor)
    return logp


def gradients(kind: str, chosen: Sequence[TrainingSequence], *, packed: bool) -> dict[str, Tensor]:
    scorer = scorer_of(kind)
    if not packed:
        scorer.model.set_attn_implementation("sdpa")
    logp = scored(scorer, kind, chosen, packed=packed)
    weights = torch.tensor([value for one in chosen for value in one.advantages])
    (weights * logp).sum().backward()
    return {name: one.grad for name, one in scorer.model.named_parameters() if one.grad is not None}


@pytest.mark.parametrize("kind", KINDS)
def test_log_probabilities_are_those_of_a_pass_of_transformers_for_each_sequence(kind: str) -> None:
    vision, model = vision_of(kind), load_model(small_model(kind))
    found = scored(scorer_of(kind), kind, several(vision), packed=True).detach().split(4)
    for one, logp in zip(several(vision), found, strict=True):
        ids = torch.tensor([one.token_ids])
        inputs = {}
        if one.images:
            pixels, grids = PixelMaker(vision).pixels([PNGS[image.digest] for image in one.images])
            inputs = {"pixel_values": pixels, "image_grid_thw": grids}
        with torch.no_grad():
            logits = model(input_ids=ids, mm_token_type_ids=(ids == vision.image).int(), **inputs).logits[0] / 0.7
        logits[:, list(vision.banned)] = -torch.inf
        for number, (position, allowed) in enumerate(zip(one.positions, one.allowed, strict=True)):
            row, token = logits[position - 1], one.token_ids[position]
            total = row[allowed].logsumexp(0) if allowed else row.logsumexp(0)
            assert float(logp[number]) == pytest.approx(float(row[token] - total), abs=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_and_padded_gradients_agree(kind: str) -> None:
    chosen = several(vision_of(kind))
    packed, padded = (gradients(kind, chosen, packed=flag) for flag in (True, False))
    assert packed.keys() == padded.keys() and any("visual" in name for name in packed)
    for name, one in packed.items():
        size = max(1.0, float(padded[name].abs().max()))
        torch.testing.assert_close(one, padded[name], atol=1e-5 * size, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("packed", [True, False])
def test_branches_are_what_each_would_be_alone(kind: str, packed: bool) -> None:
    tree = branching(vision_of(kind))
    alone = tree.texts()
    scorer = scorer_of(kind)
    together = scored(scorer, kind, [sequence(vision_of(kind), 6, [FILES[0], 3]), tree], packed=packed)[4:]
    apart = torch.cat([scored(scorer, kind, [one], packed=True) for one in alone])
    torch.testing.assert_close(together, apart, atol=1e-5, rtol=1e-5)


def test_a_picture_that_many_sequences_show_is_looked_at_once() -> None:
    vision = vision_of("qwen3-vl")
    chosen = [sequence(vision, seed, [FILES[0], 3, FILES[1]]) for seed in range(5)]
    inputs = collate(chosen, device=CPU, packed=True, vision=VisionCollator(vision, PNGS.__getitem__)).vision
    assert inputs is not None and inputs.grids is not None
    assert len(inputs.grids) == 2 and inputs.order == (0, 1) * 5


def test_a_blank_picture_for_other_ranks_changes_nothing_but_reaches_the_tower() -> None:
    vision, scorer = vision_of("qwen3-vl"), scorer_of("qwen3-vl")
    chosen = [sequence(vision, 3, [9])]
    plain = scored(scorer, "qwen3-vl", chosen, packed=True)
    batch = collate(chosen, device=CPU, packed=True, vision=VisionCollator(vision, PNGS.__getitem__, always=True))
    logp, _ = scorer(batch)
    assert torch.equal(logp, plain)
    logp.sum().backward()
    tower = [one.grad for name, one in scorer.model.named_parameters() if "visual.blocks" in name]
    assert tower and all(one is not None and not one.any() for one in tower)


def test_sequences_and_their_pictures_come_back_from_the_disk(tmp_path: Path) -> None:
    vision = vision_of("qwen3-vl")
    given = [*several(vision), branching(vision)]
    stats = write_sequences(tmp_path / "s.arrow", given, max_tokens=1000, budget=1000)
    write_images(tmp_path / "i.zip", ((digest, PNGS[digest]) for digest in stats.pictures))
    with ZipFile(tmp_path / "i.zip") as images:
        kept = StoredSequences(tmp_path / "s.arrow", stats, png_of=images.read)
        assert list(kept) == given and set(stats.pictures) == set(PNGS) == set(images.namelist())
        assert {digest: kept.png_of(digest) for digest in PNGS} == PNGS


def test_what_is_cut_keeps_the_pictures_that_stand_before_it() -> None:
    vision = vision_of("qwen3-vl")
    tree = branching(vision)
    assert [piece.images for piece in split_branches(tree, budget=tree.prefix + 4)] == [tree.images] * 2
    early, late = sequence(vision, 1, [FILES[0], 3]), sequence(vision, 2, [FILES[1], 2])
    ids = [*early.token_ids, *late.token_ids]
    shift = len(early.token_ids)
    moved = [ImageSpan(digest=one.digest, start=one.start + shift, length=one.length) for one in late.images]
    both = TrainingSequence(
        token_ids=ids,
        positions=[*early.positions, *(place + shift for place in late.positions)],
        logp=[-1.0] * 8,
        allowed=[[]] * 8,
        advantages=[1.0] * 8,
        replies=[0] * 4 + [1] * 4,
        images=(*early.images, *moved),
    )
    cut = without_long_replies(both, max_tokens=len(ids) - 1)
    assert cut is not None and cut.images == early.images and cut.token_ids == early.token_ids
