"""Memory of training and of inference from shapes alone, in bytes.

    train state    16 per weight: fp32 weights, gradients and both moments; sharded over processes by FSDP2 and ZeRO 3
    LoRA           2 per frozen weight (4 in fp32) and 16 per weight of the adapter
    bf16 copies    2 per weight that autocast caches (whole models); under FSDP2 of the layer being computed and of all
                   outer weights, with their gradients
    activations    of one forward pass: what the backward pass needs of all layers, or of one layer with gradient
                   checkpointing plus each layer's input
    output layer   chunks of `CHUNK` logits, a few fp32 tensors of that size at once
    inference      weights, and keys and values of the tokens held

Activations of a token: `rla.training.cost`.
"""

from __future__ import annotations

from dataclasses import dataclass

from rla.config.training import TrainConfig
from rla.training.cost import token_bytes
from rla_study.planning.shapes import ModelShape

STATE = 16  # bytes per trained weight: weight, gradient, two moments
CHUNK = 2**25  # logits per chunk, as in rla.training.model
CHUNK_TENSORS = 4  # logits, their logarithm, and a gradient of each
BYTES = {"float32": 4, "bfloat16": 2}
ENGINE = 3e9  # of an inference engine besides weights and cache: activations of a pass, graphs, the CUDA context
CPU_TOKENS = 2048  # most tokens of a forward pass on a CPU, as in rla.training.shared


@dataclass(frozen=True, slots=True, kw_only=True)
class Launched:
    """The number of training processes, and whether they shard the state (`spread`). `reads_parts`: each process reads
    only its part of the model, not all of it. `cluster`: they may be on several machines.
    """

    processes: int = 1
    spread: bool = False
    reads_parts: bool = False
    cluster: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingBytes:
    """Of one process."""

    state: float
    copies: float
    activations: float
    output: float

    @property
    def total(self) -> float:
        return self.state + self.copies + self.activations + self.output


def training_bytes(
    shape: ModelShape, config: TrainConfig, launched: Launched, *, cuda: bool, tokens: int | None = None
) -> TrainingBytes:
    """The bytes that training needs on a GPU, or on the CPU without one. `tokens`: per pass, for parameters without
    `tokens_per_batch`.
    """
    mixed = config.dtype == "bfloat16"
    share = launched.processes if launched.spread else 1
    trained = shape.adapter_weights(config.lora.rank) if config.lora.rank else shape.weights
    frozen = shape.weights * (2 if mixed else 4) if config.lora.rank else 0
    tokens = tokens or (config.tokens_per_batch if cuda else min(config.tokens_per_batch, CPU_TOKENS))
    return TrainingBytes(
        state=(STATE * trained + frozen) / share,
        copies=_copies(shape, config, launched, mixed=mixed),
        activations=activation_bytes(
            shape, tokens, mixed=mixed, spread=launched.spread, recomputed=config.gradient_checkpointing
        ),
        output=4.0 * CHUNK_TENSORS * min(CHUNK, tokens * shape.vocabulary),
    )


def _copies(shape: ModelShape, config: TrainConfig, launched: Launched, *, mixed: bool) -> float:
    """Bytes of the weights in the precision of the computation. A sharded model gathers one layer ahead."""
    if launched.spread:
        weight = 2 if mixed else 4
        gradient = 0 if config.lora.rank else weight + 4  # gathered, and as fp32 for the sum over processes
        gathered = 2 * shape.layer_weights + shape.outer_weights
        return float(weight * gathered + gradient * max(shape.layer_weights, shape.outer_weights))
    return 2.0 * shape.weights if mixed and not config.lora.rank else 0.0


def activation_bytes(shape: ModelShape, tokens: int, *, mixed: bool, spread: bool, recomputed: bool) -> float:
    """Bytes of a forward pass of `tokens` tokens, with the largest gradients of its backward pass."""
    residual = 4 if not (mixed and spread) else 2
    product = 2 if mixed else 4
    return float(tokens * token_bytes(shape.sizes, product=product, residual=residual, recomputed=recomputed))


def inference_bytes(shape: ModelShape, *, dtype: str, held_tokens: int, tensor_parallel: int) -> float:
    """Bytes of weights and cache on one GPU. `held_tokens`: tokens that its engine holds at once."""
    width = BYTES[dtype]
    return (shape.weights * width + held_tokens * shape.cache_bytes(width)) / tensor_parallel


def held_tokens(shape: ModelShape, *, dtype: str, budget: float, tensor_parallel: int) -> int:
    """Tokens whose keys and values fit into `budget` bytes of each GPU; negative if the weights do not fit."""
    width = BYTES[dtype]
    left = budget * tensor_parallel - ENGINE * tensor_parallel - shape.weights * width
    return int(left // shape.cache_bytes(width))
