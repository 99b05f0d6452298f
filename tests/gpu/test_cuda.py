"""On a CUDA device: packed segments in fp32 and through FlashAttention give what the CPU gives."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.attention import varlen

from rla.training import packing
from rla.training.model import TokenScorer, collate
from tests.unit.training.builders import random_sequences
from tests.unit.training.test_packing import family

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

SEQUENCES = random_sequences(12)


def scored(name: str, device: str, *, mixed: bool = False) -> tuple[Tensor, Tensor]:
    """Log-probabilities of one packed row, and the gradient of their weighted sum as one vector, both on the CPU."""
    scorer = TokenScorer(family(name).eval().to(device), temperature=0.8, mixed=mixed)
    batch = collate(SEQUENCES, device=torch.device(device), packed=True)
    logp, _ = scorer(batch)
    (logp * batch.advantages).sum().backward()
    flat = [weight.grad.flatten() for weight in scorer.parameters() if weight.grad is not None]
    return logp.detach().float().cpu(), torch.cat(flat).float().cpu()


@pytest.mark.parametrize("name", ["qwen3", "qwen2", "mistral"])
def test_fp32_gives_the_log_probabilities_and_the_gradient_of_the_cpu(name: str) -> None:
    (expected, wanted), (logp, gradient) = scored(name, "cpu"), scored(name, "cuda")
    torch.testing.assert_close(logp, expected, atol=1e-4, rtol=0)
    assert (gradient - wanted).norm() < 1e-3 * wanted.norm()


@pytest.mark.parametrize("name", ["qwen3", "qwen2", "mistral"])
def test_flash_attention_gives_them_in_bf16(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the precision of bf16: no further from the CPU's fp32 than twice what the same pass without it is."""
    expected, wanted = scored(name, "cpu")
    calls, kernel = [], varlen.varlen_attn

    def counted(*arguments: Tensor, **options: object) -> Tensor:
        calls.append(options["window_size"])
        return kernel(*arguments, **options)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(packing, "_half", lambda value: None)
        plain, plainly = scored(name, "cuda", mixed=True)
    monkeypatch.setattr(varlen, "varlen_attn", counted)
    logp, gradient = scored(name, "cuda", mixed=True)

    assert calls == [(5 if name == "mistral" else -1, 0)] * 2
    assert (logp - expected).abs().max() < 2 * (plain - expected).abs().max() + 1e-3
    assert (gradient - wanted).norm() < 2 * (plainly - wanted).norm() + 1e-3 * wanted.norm()
