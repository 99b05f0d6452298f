"""The parameters that `rla init --model` writes for a chat model: their base, the changes, and the reasons.

The tokens per pass are the largest number with which every stage fits, according to the plan that `rla plan-memory`
makes.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from rla.config.load import read_config
from rla.errors import UserError
from rla.models.load import configured_model, hollow_model, load_tokenizer
from rla.pictures.encoder import has_vision_encoder, vision_encoder
from rla.store.layout import resource
from rla.text import TAG
from rla_study.planning.before import this_machine
from rla_study.planning.memory import STATE
from rla_study.planning.plan import Machine, Models, stage_needs
from rla_study.planning.shapes import ModelShape, shape_of_config
from rla_study.planning.work import Guesses

FULL_SHARE, TRAINING_SHARE = 0.25, 0.85  # shares of the memory: for training all weights, and for training in total
SMALL = 2.5e9  # weights: smaller models seldom keep to an answer format, and are taught to reply with commands
PASSES = (16384, 8192, 4096, 2048, 1024)  # tokens; the last two on a CPU
REASONING_CONTEXT = 8192  # tokens, of a model whose replies reason; a small one has the pipeline's context
ERROR = 0.02  # of the weights by formula, relative to those of the architecture
TRAINED = ("train_policy", "train_rm")
TAUGHT = ("warm_start.policy", "warm_start.reward")


class ModelRecipe(NamedTuple):
    """`changes` to the parameters of `pipeline`, as `key=value`. `reasons`: one line each."""

    pipeline: str
    changes: list[str]
    reasons: list[str]


def recipe_for(source: str, memory: float | None) -> ModelRecipe:
    """The recipe for a model folder or hub id; weights are not read. `memory`: GB of the GPU; 0: no GPU; None: this
    machine.

    Raises UserError for a model without a chat template, or that does not fit.
    """
    folder = configured_model(source, key="--model", weights=False)
    shape, limit = shape_and_context(source, folder)
    thinks = TAG.search(str(load_tokenizer(folder).chat_template)) is not None
    machine = this_machine()
    if memory is not None:
        machine = replace(machine, gpus=int(memory > 0), gpu_bytes=memory * 1e9)
    if memory:  # another machine, whose host memory is unknown
        machine = replace(machine, host_bytes=math.inf)
    room = machine.gpu_bytes if machine.gpus else machine.host_bytes
    pipeline = "alfworld-24gb" if machine.gpus else "alfworld-laptop"
    own = read_config(resource("pipelines") / f"{pipeline}.yaml", params_of=None)
    lora = not machine.gpus or shape.weights * STATE > FULL_SHARE * room
    small = shape.weights < SMALL
    context = min(limit, own.generator.context if small else REASONING_CONTEXT)
    place = str(folder.resolve()) if Path(source).expanduser().is_dir() else source
    changes = [f"model.policy={place}", f"model.reward={place}", f"model.context={context}"]
    changes.append(f"generator.context={context}")
    changes += [f"{name}.lr=null" for name in (*TRAINED, *TAUGHT)]
    if not lora:
        changes += [*(f"{name}.lora.rank=0" for name in TRAINED), "generator.lora=merged"]
    if small:
        asked = (
            "replies are one of the commands offered, which a warm start teaches: so small a model seldom reasons well"
        )
    else:
        reply = min(2048 if thinks else 512, context // 4)
        asked = f"replies reason in up to {reply} tokens and end with a command's number; no warm start"
        changes += ["warm_start.enabled=false", "policy.reply=index", "policy.decoding=free", "policy.history=window"]
        changes += ["judge.prompt=published", "judge.decoding=free"]
        changes += [f"policy.max_tokens={reply}", f"judge.max_tokens={reply}"]
    for tokens in PASSES if machine.gpus else PASSES[-2:]:
        passes = [f"{name}.tokens_per_batch={tokens}" for name in TRAINED]
        passes += [f"warm_start.policy.tokens_per_pass={tokens}"]
        need, refusal = largest_training(pipeline, [*changes, *passes], shape, machine)
        if not refusal and need <= TRAINING_SHARE * room:
            break
    else:
        raise UserError(
            f"--model {source}: {refusal}"
            if refusal
            else f"--model {source}: training takes {need / 1e9:.1f} GB, and {room / 1e9:.1f} GB are there; take a "
            "smaller model"
        )
    whole = f"{STATE * shape.weights / 1e9:.1f} of {room / 1e9:.0f} GB while they train"
    reasons = [
        f"{shape.name}: {shape.weights / 1e6:,.0f}M weights, {shape.layers} layers, context of {limit:,} tokens, a "
        f"chat template{', thinks' if thinks else ''}",
        f"LoRA of rank {own.train_policy.lora.rank}: all weights would take {whole}"
        if lora
        else f"all weights train: they take {whole}, at most {FULL_SHARE:.0%}",
        f"passes of {tokens:,} tokens: training takes about {need / 1e9:.1f} GB",
        f"learning rates are the defaults of {'LoRA' if lora else 'full training'}",
        asked,
    ]
    return ModelRecipe(pipeline, [*changes, *passes], reasons)


def shape_and_context(source: str, folder: Path) -> tuple[ModelShape, int]:
    """The sizes of the model `source`, which lies in `folder`, and the tokens of its context. Raises UserError if the
    architecture has another number of weights than the formulas give, as its memory could not be planned.
    """
    model = hollow_model(folder)
    model.tie_weights()  # on the meta device an output layer is made apart from the embedding
    shape = shape_of_config(model.config.to_dict(), name=Path(source).name)
    vision = sum(weight.numel() for weight in vision_encoder(model).parameters()) if has_vision_encoder(model) else 0
    weights = model.num_parameters() - vision
    if abs(shape.weights / weights - 1) > ERROR:
        raise UserError(
            f"--model {source}: {type(model).__name__} has {weights / 1e6:,.0f}M weights, and its sizes give "
            f"{shape.weights / 1e6:,.0f}M: its memory cannot be planned; write the params file by hand"
        )
    return shape, int(model.config.get_text_config().max_position_embeddings)


def largest_training(pipeline: str, changes: list[str], shape: ModelShape, machine: Machine) -> tuple[float, str]:
    """Bytes of the largest training stage, and the reason if a stage does not fit, else an empty string."""
    config = read_config(resource("pipelines") / f"{pipeline}.yaml", changes, params_of=None)
    models = Models(policy=shape, reward=shape)
    needs = list(stage_needs(config, models, machine, Guesses(), by_task=False))
    trains = [one.gpu or one.host for one in needs if one.stage in ("warm-start", "train-policy", "train-rm")]
    return max(trains), next((one.refusal for one in needs if one.refusal), "")
