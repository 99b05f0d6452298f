"""FLOPs of a model that is small enough to count by hand."""

from __future__ import annotations

import pytest
import torch
from transformers import Qwen3Config
from transformers.models.qwen3.modeling_qwen3 import Qwen3ForCausalLM

from study_tests.bench.utilisation import Work, matrix_rate


def test_flops_of_a_worked_example() -> None:
    """Hidden 8, one layer, 2 heads of 4, 1 key head, intermediate 16, vocabulary 10.

    q 8x8, k and v 8x4 each, o 8x8, MLP 3 x 8x16, norms 8 + 8 + 8, q and k norms 4 + 4: 64 + 64 + 64 + 384 + 32 = 608.
    """
    config = Qwen3Config(
        vocab_size=10,
        hidden_size=8,
        intermediate_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=4,
        tie_word_embeddings=True,
    )
    work = Work.of(Qwen3ForCausalLM(config))
    assert (work.token, work.loss_token, work.pair) == (6 * 608, 6 * 80, 12 * 2 * 4)
    assert work.flops(tokens=10, loss_tokens=4, pairs=25.0) == pytest.approx(2 * (5 * 3648 + 2 * 480 + 25 * 48))


def test_measuring_leaves_the_random_state_alone() -> None:
    matrix_rate.cache_clear()
    before = torch.get_rng_state()
    matrix_rate("cpu", torch.float32)
    assert torch.equal(torch.get_rng_state(), before)


def test_the_matrix_rate_is_measured_once() -> None:
    rate = matrix_rate("cpu", torch.float32)
    assert 1e8 < rate < 1e15
    assert matrix_rate("cpu", torch.float32) == rate
