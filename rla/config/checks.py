"""What no run can use, refused when params are read: UserError with the file and the key to change."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import urlsplit

from rla.config.sections import Config, GeneratorConfig, RolloutConfig, TasksConfig
from rla.config.training import TrainConfig
from rla.errors import UserError

SPLIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # what a held-out split may be called
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # vLLM's MaxLoRARanks


def check_config(config: Config, where: str) -> None:
    """Refuse values that no run can use, with the key to change."""
    if config.tasks.source == "files" and not config.tasks.path:
        raise UserError(f"{where}: tasks.source is files; set tasks.path to the data")
    check_splits(config.tasks, where)
    if config.policy.decoding == "admissible" and config.policy.reply != "text":
        raise UserError(f"{where}: policy.decoding: admissible needs policy.reply: text")
    if config.warm_start.enabled and config.policy.history == "window":
        raise UserError(
            f"{where}: warm_start.enabled needs policy.history: full; set warm_start.enabled: false for models that "
            "follow instructions"
        )
    if config.judge.decoding == "admissible" and config.judge.prompt != "plain":
        raise UserError(f"{where}: judge.decoding: admissible needs judge.prompt: plain")
    check_server(config.generator, where)
    check_sampling(config.rollout, where)
    check_adaptation(config, where)
    check_proposer(config, where)
    check_adapters(config, where)
    for name, train in (("train_policy", config.train_policy), ("train_rm", config.train_rm)):
        check_ratios(train, f"{where}: {name}")
        if train.correction != "none" and train.old != "trainer":
            raise UserError(f"{where}: {name}.correction compares sampler and trainer; set {name}.old: trainer")
        if train.sequences_per_update < 0:
            raise UserError(
                f"{where}: {name}.sequences_per_update is {train.sequences_per_update}; it must be 0 or more"
            )
        if train.aggregation == "fixed" and train.fixed_length <= 0:
            raise UserError(f"{where}: {name}.aggregation: fixed divides by {name}.fixed_length; set it above 0")
        if train.dual_clip and train.dual_clip <= 1 + train.clip_high:
            raise UserError(f"{where}: {name}.dual_clip is {train.dual_clip}; it must be 0 or above 1 + clip_high")
        if train.lr_schedule != "constant" and train.lr_steps <= train.warmup_steps:
            raise UserError(
                f"{where}: {name}.lr_schedule: {train.lr_schedule} ends at lr_steps; set it above warmup_steps"
            )
        if train.max_skipped < 0:
            raise UserError(f"{where}: {name}.max_skipped is {train.max_skipped}; it must be 0 or more")
        if train.lora.rank < 0 or not 0 <= train.lr_min <= 1:
            raise UserError(f"{where}: {name}.lora.rank must be 0 or more, {name}.lr_min lie in [0, 1]")
    for key, value in (
        ("pool.workers", config.pool.workers),
        ("checkpoints.keep", config.checkpoints.keep),
        ("checkpoints.every", config.checkpoints.every),
        ("checkpoints.export_every", config.checkpoints.export_every),
        ("warm_start.alike", config.warm_start.alike),
        ("warm_start.calibration.steps", config.warm_start.calibration.steps),
        ("evaluation.temperature", config.evaluation.temperature),  # 0: the likeliest token, which nothing learns from
    ):
        if value < 0:
            raise UserError(f"{where}: {key} is {value}; it must be 0 or more")
    for key in ("discount", "outcome_discount"):
        if not 0 <= (value := getattr(config.credit, key)) <= 1:
            raise UserError(f"{where}: credit.{key} is {value}; it must lie in [0, 1]")
    for key in ("policy", "reward_model"):
        low, high = getattr(config.credit, f"{key}_low"), getattr(config.credit, f"{key}_high")
        if low > high:
            raise UserError(f"{where}: credit needs {key}_low <= {key}_high, not {low} and {high}")
    if not 0 <= config.judge.sampled <= 1:
        raise UserError(f"{where}: judge.sampled is {config.judge.sampled}; it must lie in [0, 1]")
    for key, value in positive_values(config).items():
        if value <= 0:
            raise UserError(f"{where}: {key} is {value}; it must be above 0")


def check_splits(tasks: TasksConfig, where: str) -> None:
    """Held-out splits are folders of the run, each once, and none of them trains."""
    for split in tasks.test_splits:
        if not SPLIT.fullmatch(split):
            raise UserError(f"{where}: tasks.test_splits: {split!r} names a folder; use letters, digits, _, - and .")
    names = (tasks.train_split, *tasks.test_splits) if tasks.test_splits else ()
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(
            f"{where}: tasks.test_splits: {twice[0]} is named twice or is tasks.train_split; name each split once"
        )


def check_sampling(rollout: RolloutConfig, where: str) -> None:
    """A share that is one, and a budget that holds the tasks which are played in any case."""
    if not 0 < rollout.revisit <= 1:
        raise UserError(f"{where}: rollout.revisit is {rollout.revisit}; it must lie above 0 and at most at 1")
    if rollout.most_tasks and rollout.most_tasks < rollout.tasks_per_iteration:
        raise UserError(
            f"{where}: rollout.most_tasks is {rollout.most_tasks}; it must be 0 or at least rollout.tasks_per_iteration"
        )


def check_ratios(train: TrainConfig, where: str) -> None:
    """Bounds of trainer / sampler: one below 1 and one above it, of ratios that are taken at all."""
    if (train.mask_low or train.mask_high) and train.old != "trainer":
        raise UserError(f"{where}.mask_low and mask_high compare sampler and trainer; set old: trainer beside them")
    if not 0 <= train.mask_low < 1:
        raise UserError(f"{where}.mask_low is {train.mask_low}; it must be 0, or lie below 1")
    if train.mask_high and train.mask_high <= 1:
        raise UserError(f"{where}.mask_high is {train.mask_high}; it must be 0, or above 1")


def check_adaptation(config: Config, where: str) -> None:
    """Bounds that leave a band, and places enough to play what is to be compared."""
    adaptation = config.adaptation
    low, high = adaptation.alpha_low, adaptation.alpha_high
    if not 0 <= low < high <= 1:
        raise UserError(f"{where}: adaptation needs 0 <= alpha_low < alpha_high <= 1, not {low} and {high}")
    if not 0 < adaptation.confidence < 1:
        raise UserError(f"{where}: adaptation.confidence is {adaptation.confidence}; it must lie between 0 and 1")
    for key in ("return_after", "expert_episodes", "cooldown", "max_depth"):
        if getattr(adaptation, key) < 0:
            raise UserError(f"{where}: adaptation.{key} is {getattr(adaptation, key)}; it must be 0 or more")
    pairs = adaptation.acceptance == "interval" and config.rollout.pending == "within"
    if pairs and config.rollout.tasks_per_iteration < 2:
        raise UserError(
            f"{where}: adaptation.acceptance: interval plays a task and its parent, and rollout.pending: within counts "
            "both; set rollout.tasks_per_iteration to 2 or more"
        )


def check_server(generator: GeneratorConfig, where: str) -> None:
    """`backend: server` needs the base URL of a server, and no password in it: params lie beside every output."""
    if generator.backend != "server":
        return
    url = urlsplit(generator.server)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise UserError(
            f"{where}: generator.backend is server; set generator.server to the base URL of an OpenAI-compatible "
            f"server, such as http://localhost:8000/v1, not {generator.server!r}"
        )
    if url.username or url.password or url.query:
        raise UserError(f"{where}: generator.server holds more than host and path; keys belong into the environment")


def check_proposer(config: Config, where: str) -> None:
    """A server of its own is asked like `backend: server`; the limits of its replies are numbers of tokens."""
    own = config.adaptation.llm
    if own.server:
        check_server(replace(config.generator, backend="server", server=own.server), f"{where}: adaptation.llm.server")
    for key in ("temperature", "max_tokens", "critique_tokens", "episodes"):
        if getattr(own, key) <= 0:
            raise UserError(f"{where}: adaptation.llm.{key} is {getattr(own, key)}; it must be above 0")


def check_adapters(config: Config, where: str) -> None:
    """`lora: adapter` needs vLLM, which has room for certain ranks only."""
    generator = config.generator
    if generator.lora != "adapter":
        return
    if generator.backend != "vllm":
        raise UserError(
            f"{where}: generator.lora: adapter needs generator.backend: vllm, not {generator.backend}; set it to merged"
        )
    if generator.max_lora_rank not in LORA_RANKS:
        ranks = ", ".join(map(str, LORA_RANKS))
        raise UserError(f"{where}: generator.max_lora_rank is {generator.max_lora_rank}; vLLM knows {ranks}")
    for name, train in (("train_policy", config.train_policy), ("train_rm", config.train_rm)):
        if train.lora.rank > generator.max_lora_rank:
            raise UserError(
                f"{where}: {name}.lora.rank is {train.lora.rank}; set generator.max_lora_rank to as much or more"
            )


def positive_values(config: Config) -> dict[str, float]:
    return {
        "rollout.tasks_per_iteration": config.rollout.tasks_per_iteration,
        "rollout.rollouts_per_task": config.rollout.rollouts_per_task,
        "rollout.concurrency": config.rollout.concurrency,
        "generator.max_sequences": config.generator.max_sequences,
        "generator.tensor_parallel": config.generator.tensor_parallel,
        "generator.max_loras": config.generator.max_loras,
        "generator.data_parallel": 1 if config.generator.data_parallel == "auto" else config.generator.data_parallel,
        "generator.server_connections": config.generator.server_connections,
        "generator.server_timeout": config.generator.server_timeout,
        "launch.replicas": config.launch.replicas,
        "judge.votes": config.judge.votes,
        "env.max_steps": config.env.max_steps,
        "pool.step_deadline_s": config.pool.step_deadline_s,
        "policy.temperature": config.policy.temperature,
        "policy.max_tokens": config.policy.max_tokens,
        "judge.temperature": config.judge.temperature,
        "judge.max_tokens": config.judge.max_tokens,
        "evaluation.rollouts_per_task": config.evaluation.rollouts_per_task,
        "evaluation.max_steps": config.evaluation.max_steps,
        "train_policy.updates": config.train_policy.updates,
        "train_rm.updates": config.train_rm.updates,
        **{
            f"warm_start.{name}.{key}": getattr(getattr(config.warm_start, name), key)
            for name in ("policy", "reward", *(["calibration"] if config.warm_start.calibration.steps else []))
            for key in ("examples", "steps", "batch_size")
        },
    }
