"""Packed segments give what each gives alone: values and gradients, with branches, windows and other families."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from rla.training.model import TokenScorer, checkpoint_gradients, collate
from rla.training.packing import PACKED, enable_packing, forks, pack
from rla.training.sequences import TrainingSequence
from tests.unit.training.builders import random_sequences

CPU = torch.device("cpu")
SIZE = {"vocab_size": 100, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1}


def forked(prompt: int, *replies: int, first: int = 1) -> TrainingSequence:
    """A prompt and replies of these lengths as branches; every token of a reply trains."""
    total = prompt + sum(replies)
    bounds = [prompt + sum(replies[:index]) for index in range(len(replies) + 1)]
    return TrainingSequence(
        token_ids=[(first + 7 * index) % 100 for index in range(total)],
        positions=list(range(prompt, total)),
        logp=[-1.0] * sum(replies),
        allowed=[[]] * sum(replies),
        advantages=[(-1.0) ** index for index in range(sum(replies))],
        branches=tuple(itertools.pairwise(bounds)),
    )


def family(name: str) -> Any:
    torch.manual_seed(0)
    if name == "qwen3":
        return Qwen3ForCausalLM(Qwen3Config(**SIZE, **HEADS, head_dim=8))
    if name == "qwen2":
        return Qwen2ForCausalLM(Qwen2Config(**SIZE, **HEADS))
    if name == "llama":
        return LlamaForCausalLM(LlamaConfig(**SIZE, **HEADS))
    if name == "mistral":
        return MistralForCausalLM(MistralConfig(**SIZE, **HEADS, head_dim=8, sliding_window=6))
    if name == "gpt2":
        return GPT2LMHeadModel(GPT2Config(vocab_size=100, n_embd=16, n_layer=2, n_head=2, n_positions=64))
    return BloomForCausalLM(BloomConfig(vocab_size=100, hidden_size=16, n_layer=2, n_head=2))


def gradients(scorer: TokenScorer, sequences: list[TrainingSequence], *, packed: bool) -> tuple[Tensor, list[Tensor]]:
    """Log-probabilities and the gradient of their weighted sum: in one pass, or a pass for each sequence."""
    scorer.zero_grad()
    passes = [list(range(len(sequences)))] if packed else [[index] for index in range(len(sequences))]
    found = []
    for indices in passes:
        batch = collate([sequences[index] for index in indices], device=CPU, packed=packed)
        logp, _ = scorer(batch)
        (logp * batch.advantages).sum().backward()
        found.append(logp.detach())
    return torch.cat(found), [weight.grad.clone() for weight in scorer.parameters() if weight.grad is not None]


@pytest.mark.parametrize("name", ["qwen3", "qwen2", "llama", "mistral", "gpt2"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_packed_and_unpacked_give_the_same_gradient(name: str, checkpointing: bool) -> None:
    model = family(name).eval()
    alone = TokenScorer(family(name).eval(), temperature=0.8)
    alone.model.set_attn_implementation("sdpa")  # transformers' own attention and masks, a row at a time
    if checkpointing:
        checkpoint_gradients(model)
    scorer = TokenScorer(model, temperature=0.8)
    assert scorer.packs
    assert model.config._attn_implementation == PACKED
    sequences = random_sequences(9)
    logp, packed = gradients(scorer, sequences, packed=True)
    expected, unpacked = gradients(alone, sequences, packed=False)
    torch.testing.assert_close(logp, expected, atol=1e-5, rtol=0)
    assert len(packed) == len(unpacked) > 5
    for one, two in zip(packed, unpacked, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", ["qwen3", "mistral"])
def test_branches_beside_plain_segments_give_the_gradient_of_texts_alone(name: str) -> None:
    """Each branch as a text of its own, its prompt repeated, is what a forked segment stands for."""
    trees = [forked(11, 3, 5, 2), forked(4, 2, 2, first=50)]
    texts = []
    for tree in trees:
        for start, end in tree.branches:
            chosen = [index for index, position in enumerate(tree.positions) if start <= position < end]
            texts.append(
                replace(
                    tree,
                    token_ids=tree.token_ids[: tree.prefix] + tree.token_ids[start:end],
                    positions=[tree.prefix + index for index in range(end - start)],
                    logp=[tree.logp[index] for index in chosen],
                    allowed=[[]] * len(chosen),
                    advantages=[tree.advantages[index] for index in chosen],
                    branches=(),
                )
            )
    plain = random_sequences(3)
    scorer = TokenScorer(family(name).eval(), temperature=1.0)
    logp, packed = gradients(scorer, [*trees, *plain], packed=True)
    alone = TokenScorer(family(name).eval(), temperature=1.0)
    alone.model.set_attn_implementation("sdpa")
    expected, unpacked = gradients(alone, [*texts, *plain], packed=False)
    torch.testing.assert_close(logp, expected, atol=1e-5, rtol=0)
    for one, two in zip(packed, unpacked, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)


def test_a_model_without_the_attention_interface_keeps_padded_rows() -> None:
    model = family("bloom").eval()
    scorer = TokenScorer(model, temperature=1.0)
    assert not scorer.packs
    sequences = random_sequences(5)
    batch = collate(sequences, device=CPU, packed=scorer.packs)
    expected = gradients(scorer, sequences, packed=False)[0]
    torch.testing.assert_close(scorer(batch)[0].detach(), expected, atol=1e-5, rtol=0)


def test_layers_that_are_no_attention_are_not_packed() -> None:
    model = family("qwen3")
    model.config.layer_types = ["linear_attention", "full_attention"]
    assert not enable_packing(model)
    model.config.layer_types = ["full_attention", "full_attention"]
    assert enable_packing(model)


def test_the_layout_of_a_worked_example() -> None:
    """Lengths 2, 4 and 3: the four and the three share a block (3 >= 0.75 * 4), the two stands alone."""
    packing = pack([2, 4, 3], [[], [], []])
    assert [(block.rows, block.length) for block in packing.blocks] == [(2, 4), (1, 2)]
    assert packing.cells.tolist() == [2, 3, 4, 5, 6, 7, 8, 8, 0, 1]
    assert packing.order.tolist() == [8, 9, 0, 1, 2, 3, 4, 5, 6]
    assert packing.bounds.tolist() == [0, 2, 6, 9]
    assert packing.places.tolist() == [[0, 1, 0, 1, 2, 3, 0, 1, 2]]
    assert packing.longest == 4


def test_a_window_counts_places_within_a_branch() -> None:
    """Prompt of 3, branches of 2: with a window of 2 a branch's first token sees itself and the prompt's last."""
    [block] = pack([7], [[(3, 5, 3), (5, 7, 3)]]).blocks
    assert block.forks is not None
    mask = block.mask(2, like=torch.zeros(1))
    assert mask is not None
    assert (mask[0, 0] == 0).int().tolist()[5:] == [[0, 0, 1, 0, 0, 1, 0], [0, 0, 0, 0, 0, 1, 1]]
    whole = block.mask(9, like=torch.zeros(1))
    assert whole is not None
    assert whole.shape == (1, 1, 4, 7)
    assert forks([[]], 4) is None


@pytest.mark.parametrize("name", ["qwen3", "mistral"])
def test_the_call_of_flash_attention(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its arguments, read as torch documents them: bounds of the sequences, tokens seen to the left, grouped heads.

    The kernel itself runs on CUDA only; here each sequence is attended to by itself.
    """
    calls = []

    def by_definition(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        bounds: Tensor,
        bounds_k: Tensor,
        longest: int,
        longest_k: int,
        **o: Any,
    ) -> Tensor:
        assert set(o) == {"scale", "window_size", "enable_gqa"}
        assert (longest, bounds.tolist(), bounds.dtype) == (longest_k, bounds_k.tolist(), torch.int32)
        left, right = o["window_size"]
        assert right == 0
        calls.append(left)
        outputs = []
        for low, high in itertools.pairwise(bounds.tolist()):
            assert high - low <= longest
            place = torch.arange(high - low)
            distance = place[:, None] - place
            seen = (distance >= 0) & ((distance <= left) if left >= 0 else True)
            rows = [one[low:high].transpose(0, 1)[None] for one in (query, key, value)]
            attended = torch.nn.functional.scaled_dot_product_attention(
                *rows, attn_mask=seen, scale=o["scale"], enable_gqa=o["enable_gqa"]
            )
            outputs.append(attended[0].transpose(0, 1))
        return torch.cat(outputs)

    sequences = random_sequences(7)
    scorer = TokenScorer(family(name).eval(), temperature=1.0)
    expected, unpacked = gradients(scorer, sequences, packed=True)
    monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", by_definition)
    monkeypatch.setattr("rla.training.packing._half", lambda value: value.dtype)
    logp, packed = gradients(scorer, sequences, packed=True)
    assert calls == [5 if name == "mistral" else -1] * 2  # a window of 6 sees itself and five to the left
    torch.testing.assert_close(logp, expected, atol=1e-5, rtol=0)
    for one, two in zip(packed, unpacked, strict=True):
        torch.testing.assert_close(one, two, atol=1e-5, rtol=1e-5)
