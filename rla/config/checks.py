"""Combinations of values that no run can use, refused when params are read: UserError with file and key."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import SplitResult, urlsplit

from rla.config.sections import (
    Config,
    CreditConfig,
    GeneratorConfig,
    JudgeConfig,
    JudgeServerConfig,
    TasksConfig,
)
from rla.errors import UserError

SPLIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # names of held-out splits
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # vLLM's MaxLoRARanks


def check_config(config: Config, where: str) -> None:
    """Refuse values that no run can use, with the key to change."""
    if config.name and not SPLIT.fullmatch(config.name):
        raise UserError(f"{where}: name: {config.name!r} names a folder; use letters, digits, _, - and .")
    if config.tasks.source == "files" and not config.tasks.path:
        raise UserError(f"{where}: tasks.source is files; set tasks.path to the data")
    check_splits(config.tasks, where)
    if config.policy.decoding == "admissible" and config.policy.reply != "text":
        raise UserError(f"{where}: policy.decoding: admissible needs policy.reply: text")
    if config.judge.decoding == "admissible" and config.judge.prompt != "plain":
        raise UserError(f"{where}: judge.decoding: admissible needs judge.prompt: plain")
    check_judge_server(config.judge, where)
    check_server(config.generator, where)
    check_adaptation(config, where)
    if own := config.adaptation.llm.server:  # asked like `backend: server`
        check_server(replace(config.generator, backend="server", server=own), f"{where}: adaptation.llm.server")
    check_adapters(config, where)
    check_training(config, where)
    for key in ("policy_band", "reward_model_band"):
        low, high = getattr(config.credit, key)
        if low > high:
            raise UserError(f"{where}: credit.{key} is [{low}, {high}]; set it to [low, high] with low <= high")
    check_baseline(config.credit, where)
    start, end = config.credit.shaping.overlong
    if start > end:
        raise UserError(
            f"{where}: credit.shaping.overlong is [{start}, {end}]; set it to [start, end] with start <= end"
        )
    for key in ("policy", "reward"):
        if not getattr(config.warm_start, key).trains:  # 0 steps of the expert and the calibration are possible
            raise UserError(f"{where}: warm_start.{key}.steps is 0; it must be 1 or more")
    ranks = (config.train_policy.lora.rank, config.train_rm.lora.rank)
    if config.warm_start.reward_from_policy and all(ranks) and ranks[0] != ranks[1]:
        raise UserError(
            f"{where}: warm_start.reward_from_policy: the reward model goes on with the policy's adapter, and the "
            f"ranks are {ranks[0]} and {ranks[1]}; set train_rm.lora.rank to that of train_policy"
        )
    if config.warm_start.expert.trains and config.warm_start.conversations:
        raise UserError(
            f"{where}: warm_start.expert plays demonstrations, and warm_start.conversations takes their place; set "
            "warm_start.expert.steps to 0"
        )


def check_training(config: Config, where: str) -> None:
    """Refuse combinations of keys in `train_policy` and `train_rm` that contradict each other."""
    for name, train in (("train_policy", config.train_policy), ("train_rm", config.train_rm)):
        if train.lora.rank and config.teaches_pretrained and train.kl_coef and train.kl_reference == "initial":
            raise UserError(
                f"{where}: {name}.kl_reference: initial is the base, and the warm start has moved its adapter away "
                f"from it; set {name}.kl_reference to previous, or {name}.kl_coef to 0"
            )
        if (train.mask_low or train.mask_high) and train.old != "trainer":
            raise UserError(
                f"{where}: {name}.mask_low and mask_high compare sampler and trainer; set old: trainer beside them"
            )
        if train.correction != "none" and train.old != "trainer":
            raise UserError(f"{where}: {name}.correction compares sampler and trainer; set {name}.old: trainer")
        if train.aggregation in ("fixed", "trajectory_fixed") and train.fixed_length <= 0:
            raise UserError(
                f"{where}: {name}.aggregation: {train.aggregation} divides by {name}.fixed_length; set it above 0"
            )
        if train.dual_clip and train.dual_clip <= 1 + train.clip_high:
            raise UserError(f"{where}: {name}.dual_clip is {train.dual_clip}; it must be 0 or above 1 + clip_high")
        if 0 < train.lr_steps <= train.warmup_steps:
            raise UserError(f"{where}: {name}.lr_steps is {train.lr_steps}; set it to 0, or above warmup_steps")


def check_splits(tasks: TasksConfig, where: str) -> None:
    """Held-out splits are folders of the run, each once, and none of them trains."""
    if not tasks.test_splits:
        raise UserError(f"{where}: tasks.test_splits is empty; name the split that is held out, such as [test]")
    for split in tasks.test_splits:
        if not SPLIT.fullmatch(split):
            raise UserError(f"{where}: tasks.test_splits: {split!r} names a folder; use letters, digits, _, - and .")
    names = (tasks.train_split, *tasks.test_splits)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(
            f"{where}: tasks.test_splits: {twice[0]} is named twice or is tasks.train_split; name each split once"
        )


def check_adaptation(config: Config, where: str) -> None:
    """Refuse bounds without a band between them, and too few places for a task and its parent."""
    adaptation = config.adaptation
    low, high = adaptation.alpha_low, adaptation.alpha_high
    if low >= high:
        raise UserError(f"{where}: adaptation needs alpha_low < alpha_high, not {low} and {high}")
    pairs = adaptation.acceptance == "interval" and config.rollout.pending == "within"
    if pairs and config.rollout.tasks_per_iteration < 2:
        raise UserError(
            f"{where}: adaptation.acceptance: interval plays a task and its parent, and rollout.pending: within counts "
            "both; set rollout.tasks_per_iteration to 2 or more"
        )


def check_server(generator: GeneratorConfig, where: str) -> None:
    """`backend: server` needs the base URL of a server without a password, because params lie next to every output."""
    if generator.backend != "server":
        return
    check_address(generator.server, "generator.server", f"{where}: generator.backend is server")


def check_address(text: str, key: str, where: str) -> None:
    """The base URL of a server, and no more than host and path."""
    url = web_address(text)
    if url is None:
        raise UserError(
            f"{where}; set {key} to the base URL of an OpenAI-compatible server, such as http://localhost:8000/v1, "
            f"not {text!r}"
        )
    if url.username or url.password or url.query:
        raise UserError(f"{where}; {key} holds more than host and path; keys belong into the environment")


def check_judge_server(judge: JudgeConfig, where: str) -> None:
    """A chat server that judges needs an address, the name of its model, and a prompt that leaves the reply free."""
    if judge.trains:
        return
    where = f"{where}: judge.server is set"
    check_chat_server(judge.server, "judge.server", where)
    if judge.decoding == "admissible":
        raise UserError(f"{where}, and a chat server does not restrict its replies; set judge.decoding: free")


def check_chat_server(server: JudgeServerConfig, key: str, where: str) -> None:
    """A chat server needs an address and the name of its model."""
    check_address(server.url, f"{key}.url", where)
    if not server.model:
        raise UserError(f"{where}; set {key}.model to the name by which the server knows it")


def web_address(text: str) -> SplitResult | None:
    """The parts of an HTTP address; None if the text is not one."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # half an IPv6 address, a port that is not a number
        return None
    return parts if usable else None


def check_adapters(config: Config, where: str) -> None:
    """`lora: adapter` needs vLLM, which has room for certain ranks only."""
    generator = config.generator
    if generator.lora != "adapter":
        return
    if generator.engine_name != "vllm":
        raise UserError(
            f"{where}: generator.lora: adapter needs the engine vllm, not {generator.engine_name}; set it to merged"
        )
    if generator.max_lora_rank not in LORA_RANKS:
        ranks = ", ".join(map(str, LORA_RANKS))
        raise UserError(f"{where}: generator.max_lora_rank is {generator.max_lora_rank}; vLLM knows {ranks}")
    for name, train in (("train_policy", config.train_policy), ("train_rm", config.train_rm)):
        if train.lora.rank > generator.max_lora_rank:
            raise UserError(
                f"{where}: {name}.lora.rank is {train.lora.rank}; set generator.max_lora_rank to as much or more"
            )


def check_baseline(credit: CreditConfig, where: str) -> None:
    """Refuse estimators that would add a baseline up or scale it to unit spread; others ask no judge."""
    if credit.judged != "baseline":
        return
    if credit.estimator == "step":
        raise UserError(f"{where}: credit.judged: baseline needs credit.estimator: integrated")
    if credit.estimator == "integrated" and (
        credit.normalise == "step" or credit.policy_band[0] < 0 or credit.policy_band[1] > 1
    ):
        raise UserError(
            f"{where}: credit.judged: baseline would train on judgements alone where all outcomes of a group are "
            "equal; set credit.normalise to task or place, and keep policy_band within [0, 1]"
        )
