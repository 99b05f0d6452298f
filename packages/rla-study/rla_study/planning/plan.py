"""The needs of every stage of a run, and whether a machine meets them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rla.config import Config
from rla.config.load import read_yaml
from rla.config.training import LoraConfig, TrainConfig
from rla.errors import UserError
from rla.store.layout import resource
from rla.text import readable_bytes
from rla.training.cost import pass_tokens
from rla_study.planning.memory import BYTES, ENGINE, Launched, held_tokens, inference_bytes, training_bytes
from rla_study.planning.shapes import ModelShape
from rla_study.planning.work import (
    Guesses,
    Tokens,
    episode_steps,
    inference_flops,
    judged,
    played,
    proposed,
    training_flops,
)

CUDA_PROCESS, CPU_PROCESS = 3e9, 0.7e9  # of the host: Python, torch and its libraries
LOADED = 4  # bytes per weight that a training process reads, in fp32
FSDP = "pipelines/accelerate/fsdp2.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One node. `gpus` 0: CPU only. `flops`: FLOP/s of a large matrix product on a GPU (or on all cores of the CPU);
    training and prompts reach the share `training_share` of it, sampled tokens `decoding_share`.
    """

    gpus: int = 8
    gpu_bytes: float = 80e9
    host_bytes: float = 1e12
    flops: float = 400e12
    training_share: float = 0.4
    decoding_share: float = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The shapes of a run's models. `proposer`: None if rules propose."""

    policy: ModelShape
    reward: ModelShape
    proposer: ModelShape | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StageNeed:
    """`gpu`: bytes of each of the `gpus` in use, 0 without one; `refusal`: why it does not fit, empty if it does. A
    stage that has nothing to do loads no model and needs nothing. `parts`: bytes of the weights with gradients and
    optimizer, of activations, and of keys and values; the rest is of processes.
    """

    stage: str
    gpus: int = 0
    gpu: float = 0.0
    host: float = 0.0
    tokens: float = 0.0
    flops: float = 0.0
    seconds: float = 0.0
    refusal: str = ""
    parts: tuple[float, float, float] = (0.0, 0.0, 0.0)


def read_launch(config: Config, machine: Machine) -> Launched:
    """The processes on which `launch.training` trains. Raises UserError if its file does not exist.

    A launcher without a number of workers counts as a cluster of this one machine.
    """
    name = config.launch.configuration
    if name is None:
        return Launched()
    file = Path(name) if Path(name).is_file() else resource(name)
    remedy = f"name a configuration of accelerate, such as {FSDP}"
    found: dict[str, Any] = read_yaml(file, remedy=remedy) or {}
    try:
        stage = (found.get("deepspeed_config") or {}).get("zero_stage", 0)
        sharded = found.get("distributed_type") == "FSDP"
        spread = sharded or int(stage) == 3
        cluster = config.launch.own is not None
        workers = getattr(config.launch.own, "workers", 0) or max(1, machine.gpus)
        processes = workers if cluster else int(found.get("num_processes", 1))
        return Launched(processes=processes, spread=spread, reads_parts=sharded, cluster=cluster)
    except (AttributeError, TypeError, ValueError):
        raise UserError(f"launch.training: {file} is not a configuration of accelerate; {remedy}") from None


def stage_needs(
    config: Config, models: Models, machine: Machine, guesses: Guesses, *, by_task: bool
) -> Iterator[StageNeed]:
    """The needs of the warm start and of each stage of an iteration that uses a model. `by_task`: the reward model
    judges whole tasks and not steps.
    """
    yield _warm_start_need(config, models, machine, guesses)
    tasks = config.rollout.tasks_per_iteration
    beside = config.adaptation.enabled and config.rollout.pending == "beside"
    tasks += config.adaptation.max_tasks if beside else 0
    episodes = tasks * config.rollout.rollouts_per_task
    units = tasks if by_task else episodes * episode_steps(config, guesses)
    rollout, scores = played(config, guesses, episodes), judged(config, guesses, units)
    sampled = min(units, config.train_rm.max_samples or units)
    trained_on = judged(config, guesses, sampled * (1 + config.train_rm.replay))  # the first iterations replay fewer
    yield _inference_need("rollout", config, models.policy, machine, rollout)
    judging = config if config.judge.trains else replace(config, generator=replace(config.generator, backend="server"))
    if config.judge.enabled:
        yield _inference_need("score-steps", judging, models.reward, machine, scores)
    else:
        yield StageNeed(stage="score-steps")
    for stage, key, shape, train, trains, tokens in (
        ("train-policy", "train_policy", models.policy, config.train_policy, config.train_policy.enabled, rollout),
        ("train-rm", "train_rm", models.reward, config.train_rm, reward_model_trains(config), trained_on),
    ):
        if trains:
            yield _training_need(stage, key, shape, train, read_launch(config, machine), machine, tokens)
        else:
            yield StageNeed(stage=stage)
    if models.proposer is not None:
        context = config.adaptation.llm.context or config.generator.context
        own = replace(config, generator=replace(config.generator, context=context))
        yield _inference_need("adapt-env", own, models.proposer, machine, proposed(config, guesses))
    count = (config.evaluation.tasks or guesses.held_out) * config.evaluation.rollouts_per_task
    longer = replace(config, env=replace(config.env, max_steps=config.evaluation.max_steps))
    yield _inference_need("evaluate", config, models.policy, machine, played(longer, guesses, count))


def reward_model_trains(config: Config) -> bool:
    """Whether the run's own reward model judges and is trained on its judgements."""
    return config.train_rm.enabled and config.judge.enabled and config.judge.trains


def _inference_need(stage: str, config: Config, shape: ModelShape, machine: Machine, tokens: Tokens) -> StageNeed:
    """The need of a stage that samples. A server's machine is not part of the plan."""
    generator = config.generator
    engines = _engines_of(config, machine)
    used = generator.tensor_parallel * engines if machine.gpus else 0
    here = generator.backend in ("transformers", "vllm")
    slots = generator.max_sequences * generator.context
    weights, held = (
        inference_bytes(shape, dtype=generator.dtype, held_tokens=tokens, tensor_parallel=generator.tensor_parallel)
        for tokens in (0, slots)
    )
    budget, gpu, cache, refusal = generator.gpu_memory * machine.gpu_bytes, held, held - weights, ""
    if here and used > machine.gpus:
        refusal = (
            f"{stage} runs on generator.tensor_parallel x generator.data_parallel = {used} GPUs, the machine has "
            f"{machine.gpus}; lower generator.data_parallel"
        )
    elif here and generator.backend == "vllm" and machine.gpus:
        gpu, cache = budget, max(0.0, budget - weights - ENGINE)  # it takes its share, whatever it will hold
        refusal = _cache_refusal(stage, config, shape, machine, budget)
    elif here and machine.gpus and gpu > machine.gpu_bytes:
        refusal = (
            f"{stage} needs {readable_bytes(gpu)} on a GPU of {readable_bytes(machine.gpu_bytes)}, most of it for "
            f"generator.max_sequences x generator.context tokens; lower one of them, or set generator.backend: vllm"
        )
    process = CUDA_PROCESS if machine.gpus else CPU_PROCESS
    host = process * engines + (held * engines if here and not machine.gpus else 0)
    read = inference_flops(shape, replace(tokens, written=0.0))
    written = inference_flops(shape, replace(tokens, read=0.0))
    rate = machine.flops * max(1, used)
    return StageNeed(
        stage=stage,
        gpus=used if here else 0,
        gpu=gpu if here and machine.gpus else 0.0,
        host=host,
        tokens=tokens.total,
        flops=read + written,
        seconds=read / (rate * machine.training_share) + written / (rate * machine.decoding_share),
        refusal=refusal or _host_refusal(stage, host, machine, "lower generator.max_sequences or generator.context"),
        parts=(weights, 0.0, cache) if here else (0.0, 0.0, 0.0),
    )


def _engines_of(config: Config, machine: Machine) -> int:
    """The value of `generator.data_parallel`; `auto`: as many engines as the machine's GPUs hold."""
    asked = config.generator.data_parallel
    return max(1, machine.gpus // config.generator.tensor_parallel) if asked == "auto" else asked


def _cache_refusal(stage: str, config: Config, shape: ModelShape, machine: Machine, budget: float) -> str:
    """The refusal if vLLM's share does not hold the weights and one sequence of the full context."""
    generator = config.generator

    def room(parallel: int) -> int:
        return held_tokens(shape, dtype=generator.dtype, budget=budget, tensor_parallel=parallel)

    if room(generator.tensor_parallel) >= generator.context:
        return ""
    sizes = [size for size in (2, 4, 8, 16) if generator.tensor_parallel < size <= machine.gpus]
    fitting = next((size for size in sizes if room(size) >= generator.context), None)
    remedy = (
        f"set generator.tensor_parallel: {fitting}"
        if fitting
        else "lower generator.context, or take larger GPUs or a smaller model"
    )
    return (
        f"{stage}: weights of {readable_bytes(shape.weights * BYTES[generator.dtype])} and one sequence of "
        f"{generator.context} tokens do not fit into generator.gpu_memory = {generator.gpu_memory} of "
        f"{generator.tensor_parallel} x {readable_bytes(machine.gpu_bytes)}; {remedy}"
    )


def _warm_start_need(config: Config, models: Models, machine: Machine, guesses: Guesses) -> StageNeed:
    """The most that one of its trainings needs, and the time of all, in this process: in fp32, or only the adapter of a
    pretrained model, in the dtype of the loop's training.
    """
    own, length = config.warm_start, played(config, guesses, 1).length
    sections = [("policy", models.policy), ("expert", models.policy)]
    if config.judge.enabled and config.judge.trains:
        sections += [("reward", models.reward), ("calibration", models.reward)]
    needs = []
    for name, shape in sections if own.enabled else ():
        sft = own.settings(name)
        if not sft.trains:
            continue
        bound = pass_tokens(shape.sizes, recomputed=sft.gradient_checkpointing, cuda=machine.gpus > 0)
        longest = min(config.model.context, config.generator.context)
        most = min(max(sft.tokens_per_pass or bound, longest), sft.batch_size * longest)
        lora = config.taught_by_adapter("policy" if name in ("policy", "expert") else "rm")
        recompute = "" if sft.gradient_checkpointing else "warm_start.policy.gradient_checkpointing: true, or "
        trained = sft.updates(sft.examples) * sft.batch_size * length
        needs.append(
            _training_need(
                "warm-start",
                f"warm_start.{name}",
                shape,
                TrainConfig(
                    kl_coef=0.0,
                    gradient_checkpointing=sft.gradient_checkpointing,
                    max_tokens=longest,
                    dtype=lora.dtype if lora else "float32",
                    lora=lora.lora if lora else LoraConfig(),
                ),
                Launched(),
                machine,
                Tokens(read=0.0, written=trained, length=length),
                most=most,
                remedy=f"set {recompute}warm_start.enabled: false, or take a larger GPU",
            )
        )
    if not needs:
        return StageNeed(stage="warm-start")
    largest = max(needs, key=lambda one: (bool(one.refusal), one.gpu, one.host))
    tokens, flops, seconds = (sum(getattr(one, key) for one in needs) for key in ("tokens", "flops", "seconds"))
    return replace(largest, tokens=tokens, flops=flops, seconds=seconds)


def _training_need(
    stage: str,
    key: str,
    shape: ModelShape,
    config: TrainConfig,
    launched: Launched,
    machine: Machine,
    tokens: Tokens,
    *,
    most: int | None = None,
    remedy: str = "",
) -> StageNeed:
    """The need of a training stage. `most`: tokens per pass, if `config` does not set them. `remedy`: replaces
    `training_remedy`.
    """
    cuda = machine.gpus > 0
    held = training_bytes(shape, config, launched, cuda=cuda, tokens=most)
    need = held.total
    refusal = ""
    if cuda and launched.processes > machine.gpus and not launched.cluster:
        refusal = (
            f"{stage} starts {launched.processes} processes, the machine has {machine.gpus} GPUs; "
            "set num_processes in the file of launch.training"
        )
    elif cuda and need > machine.gpu_bytes:
        refusal = (
            f"{stage} needs {readable_bytes(need)} on a GPU of {readable_bytes(machine.gpu_bytes)}; "
            f"{remedy or training_remedy(key, shape, config, launched, machine)}"
        )
    # If parts are read, there is one model in total, and the first process has a second, complete one for export and
    # reference.
    here = min(launched.processes, machine.gpus) if launched.cluster else launched.processes
    copies = 2 if launched.reads_parts and not config.lora.rank else here
    export = 0 if config.lora.rank else BYTES[config.dtype] * shape.weights  # an adapter is not merged
    loaded = copies * LOADED * shape.weights
    # The export is made after the activations are freed.
    host = here * CUDA_PROCESS + loaded if cuda else CPU_PROCESS + max(need, held.state + export)
    cut = replace(tokens, length=min(tokens.length, config.max_tokens))
    flops = training_flops(shape, cut, config)
    rate = machine.flops * machine.training_share * (launched.processes if cuda else 1)
    return StageNeed(
        stage=stage,
        gpus=launched.processes if cuda else 0,
        gpu=need if cuda else 0.0,
        host=host,
        tokens=tokens.total,
        flops=flops,
        seconds=flops / rate,
        refusal=refusal or _host_refusal(stage, host, machine, "take a machine with more memory or a smaller model"),
        parts=(held.state + held.copies, held.activations + held.output, 0.0),
    )


def training_remedy(key: str, shape: ModelShape, config: TrainConfig, launched: Launched, machine: Machine) -> str:
    """The first change that makes it fit."""
    spread = Launched(processes=machine.gpus, spread=True)
    smaller = replace(config, gradient_checkpointing=True, tokens_per_batch=config.max_tokens)
    ways = (
        (replace(config, gradient_checkpointing=True), launched, f"set {key}.gradient_checkpointing: true"),
        (config, spread, f"set launch.training: {FSDP} with num_processes: {machine.gpus}"),
        (smaller, launched, f"set {key}.tokens_per_batch: {config.max_tokens} and gradient_checkpointing: true"),
        (smaller, spread, f"set launch.training: {FSDP}, {key}.tokens_per_batch: {config.max_tokens}"),
        (replace(smaller, lora=replace(config.lora, rank=32)), launched, f"set {key}.lora.rank: 32"),
    )
    for changed, processes, text in ways:
        if training_bytes(shape, changed, processes, cuda=True).total <= machine.gpu_bytes:
            return text
    return "take more or larger GPUs, or a smaller model"


def _host_refusal(stage: str, host: float, machine: Machine, remedy: str) -> str:
    if host <= machine.host_bytes:
        return ""
    return f"{stage} needs {readable_bytes(host)} of the host's {readable_bytes(machine.host_bytes)}; {remedy}"
