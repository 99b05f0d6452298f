"""Training speed of a model of a real shape with random weights: `bench-shape SHAPE=qwen2.5-7b`.

Optimizer steps of the training loop itself, full or LoRA, bf16 forward on fp32 weights, on whole trajectories of random
tokens: tokens a second and the share of the device's measured matrix rate. Needs torch, transformers and
pyarrow alone. A full fp32 train state takes 16 bytes a weight: 122 GB for 7.6 billion, so `--weights bfloat16` is
there for smaller GPUs (weights, gradients and moments in bf16: the same arithmetic and 8 bytes a weight, but no way
to train).
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from rla_study.planning.shapes import SHAPES, ModelShape
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen3_5TextConfig, Qwen3Config

from rla.config.training import LoraConfig, TrainConfig
from rla.training.checkpoints import TrainState
from rla.training.loop import PreparedStage, update
from rla.training.model import TokenScorer, add_new_adapter, checkpoint_gradients
from rla.training.sequences import StoredSequences, TrainingSequence, write_sequences
from rla.training.shared import Compute, Ranks, make_backend
from study_tests.bench.utilisation import matrix_rate, utilisation


def config_of(shape: ModelShape) -> Qwen2Config | Qwen3Config | Qwen3_5TextConfig:
    """The architecture that has this shape."""
    kind = Qwen3_5TextConfig if shape.linear else Qwen3Config if shape.head_norms else Qwen2Config
    return kind(
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        head_dim=shape.width,
        vocab_size=shape.vocabulary,
        tie_word_embeddings=shape.tied,
        max_position_embeddings=32768,
        **({"linear_num_value_heads": shape.linear.value_heads} if shape.linear else {}),
    )


def trajectories(count: int, *, tokens: int, vocabulary: int) -> list[TrainingSequence]:
    """Of random tokens, a fifth of which were sampled, lengths from half of `tokens` on."""
    draw = torch.Generator().manual_seed(0)
    found = []
    for _ in range(count):
        length = int(torch.randint(tokens // 2, tokens + 1, (1,), generator=draw))
        positions = [position for position in range(10, length) if position % 50 >= 40]
        found.append(
            TrainingSequence(
                token_ids=torch.randint(vocabulary, (length,), generator=draw).tolist(),
                positions=positions,
                logp=[-11.0] * len(positions),
                allowed=[[]] * len(positions),
                advantages=[1.0] * len(positions),
            )
        )
    return found


@contextmanager
def prepared(
    shape: ModelShape, settings: TrainConfig, *, weights: str = "float32", trajectories_per_update: int = 32
) -> Iterator[PreparedStage]:
    """A stage that trains such a model, or an adapter over it, on that many trajectories; random weights.

    `weights`: precision of what trains in full. Under an adapter the base has that of the forward pass.
    """
    compute = Compute.choose(settings, Ranks())
    frozen = "bfloat16" if compute.mixed else "float32"
    with torch.device(compute.device):
        model = AutoModelForCausalLM.from_config(
            config_of(shape), dtype=getattr(torch, frozen if settings.lora.rank else weights)
        ).eval()
    if settings.lora.rank:
        model = add_new_adapter(model, settings)[0].to(compute.device)
    if settings.gradient_checkpointing:
        checkpoint_gradients(model)
    scorer = TokenScorer(model, temperature=1.0, mixed=compute.mixed)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "sequences.jsonl"
        rows = trajectories(trajectories_per_update, tokens=settings.max_tokens, vocabulary=model.config.vocab_size)
        yield PreparedStage(
            config=settings,
            compute=compute,
            scorer=scorer,
            state=TrainState(model=model, backend=make_backend(scorer, settings, compute), ranks=compute.ranks),
            sequences=StoredSequences(
                file, write_sequences(file, rows, max_tokens=settings.max_tokens, budget=compute.tokens_per_batch)
            ),
            reference=None,
            old=None,
        )


def settings_of(*, tokens: int, tokens_per_batch: int, checkpointing: bool = True, rank: int = 0) -> TrainConfig:
    """bf16 forward passes without a reference model. `tokens`: of the longest trajectory."""
    return TrainConfig(
        lr=1e-6,
        kl_coef=0.0,
        dtype="bfloat16",
        tokens_per_batch=tokens_per_batch,
        max_tokens=tokens,
        gradient_checkpointing=checkpointing,
        lora=LoraConfig(rank=rank),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=[name for name, shape in SHAPES.items() if shape.bias], default="tiny")
    parser.add_argument("--weights", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--tokens", type=int, default=4096, help="of the longest trajectory")
    parser.add_argument("--trajectories", type=int, default=32, help="of an optimizer step")
    parser.add_argument("--tokens-per-batch", type=int, default=16384)
    parser.add_argument("--updates", type=int, default=4)
    parser.add_argument("--no-checkpointing", action="store_true")
    parser.add_argument("--rank", type=int, default=0, help="of a LoRA adapter; 0: all weights train")
    options = parser.parse_args()
    settings = settings_of(
        tokens=options.tokens,
        tokens_per_batch=options.tokens_per_batch,
        checkpointing=not options.no_checkpointing,
        rank=options.rank,
    )
    shape, count = SHAPES[options.shape], options.trajectories
    with prepared(shape, settings, weights=options.weights, trajectories_per_update=count) as stage:
        shown = ("tokens", "loss_tokens", "seconds", "tokens_per_second")
        for _ in range(options.updates):
            metrics = update(stage, range(count))
            found = {key: metrics[key] for key in shown} | {"flop_utilisation": utilisation(stage, metrics)}
            print(json.dumps(found), flush=True)
        weights = sum(one.numel() for one in stage.scorer.model.parameters())
        compute = stage.compute
    rate = matrix_rate(compute.device.type, torch.bfloat16 if compute.mixed else torch.float32)
    memory = torch.cuda.max_memory_allocated() / 2**30 if compute.device.type == "cuda" else float("nan")
    print(f"{weights:,} weights; matrix rate {rate / 1e12:.1f} TFLOP/s")
    print(f"peak memory {memory:.1f} GiB")


if __name__ == "__main__":
    main()
