"""What no run can use, refused when params are read: UserError with the file and the key to change."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
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

SPLIT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # what a held-out split may be called
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")  # the name of an environment variable
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
    rollout = config.rollout
    if rollout.most_tasks and rollout.most_tasks < rollout.tasks_per_iteration:  # they are played in any case
        raise UserError(
            f"{where}: rollout.most_tasks is {rollout.most_tasks}; it must be 0 or at least rollout.tasks_per_iteration"
        )
    check_adaptation(config, where)
    if own := config.adaptation.llm.server:  # asked like `backend: server`
        check_server(replace(config.generator, backend="server", server=own), f"{where}: adaptation.llm.server")
    check_adapters(config, where)
    check_training(config, where)
    for key in ("policy", "reward_model"):
        low, high = getattr(config.credit, f"{key}_low"), getattr(config.credit, f"{key}_high")
        if low > high:
            raise UserError(f"{where}: credit needs {key}_low <= {key}_high, not {low} and {high}")
    check_baseline(config.credit, where)
    shaping = config.credit.shaping
    if 0 < shaping.overlong_max < shaping.overlong_buffer:
        raise UserError(
            f"{where}: credit.shaping.overlong_buffer is {shaping.overlong_buffer}, and it is a part of overlong_max; "
            "set it to as much at most"
        )
    for key in ("policy", "reward"):
        if not getattr(config.warm_start, key).trains:  # of the expert and of the calibration 0 is possible
            raise UserError(f"{where}: warm_start.{key}.steps is 0; it must be 1 or more, or set epochs")
    ranks = (config.train_policy.lora.rank, config.train_rm.lora.rank)
    if config.warm_start.reward_from_policy and all(ranks) and ranks[0] != ranks[1]:
        raise UserError(
            f"{where}: warm_start.reward_from_policy: the reward model goes on with the policy's adapter, and the "
            f"ranks are {ranks[0]} and {ranks[1]}; set train_rm.lora.rank to that of train_policy"
        )
    if config.warm_start.expert.trains and config.warm_start.conversations:
        raise UserError(
            f"{where}: warm_start.expert plays demonstrations, and warm_start.conversations takes their place; set "
            "warm_start.expert.steps and warm_start.expert.epochs to 0"
        )


def check_training(config: Config, where: str) -> None:
    """What goes together in the sections of both models."""
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
        if train.lr_schedule != "constant" and train.lr_steps <= train.warmup_steps:
            raise UserError(
                f"{where}: {name}.lr_schedule: {train.lr_schedule} ends at lr_steps; set it above warmup_steps"
            )


def check_splits(tasks: TasksConfig, where: str) -> None:
    """Held-out splits are folders of the run, each once, and none of them trains. Shares of curation are of a whole."""
    for split in tasks.test_splits:
        if not SPLIT.fullmatch(split):
            raise UserError(f"{where}: tasks.test_splits: {split!r} names a folder; use letters, digits, _, - and .")
    names, key = (tasks.train_split, *tasks.held_out_splits), "test_splits" if tasks.test_splits else "test_split"
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(
            f"{where}: tasks.{key}: {twice[0]} is named twice or is tasks.train_split; name each split once"
        )
    shares = asdict(tasks.curation).values()
    if any(shares) and abs(sum(shares) - 1) > 1e-6:
        raise UserError(f"{where}: tasks.curation: easy, medium and hard sum to {sum(shares):g}; they must sum to 1")


def check_adaptation(config: Config, where: str) -> None:
    """Bounds that leave a band, and places enough to play what is to be compared."""
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
    """`backend: server` needs the base URL of a server, and no password in it: params lie beside every output."""
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
    """`judge.backend: server` needs a server, the name of its model, and a prompt that leaves the reply free."""
    if judge.backend != "server":
        return
    where = f"{where}: judge.backend is server"
    check_chat_server(judge.server, "judge.server", where)
    if judge.decoding == "admissible":
        raise UserError(f"{where}, and a chat server does not restrict its replies; set judge.decoding: free")


def check_chat_server(server: JudgeServerConfig, key: str, where: str) -> None:
    """The address of a chat server, the name of its model, and a variable for its API key."""
    check_address(server.url, f"{key}.url", where)
    if not server.model:
        raise UserError(f"{where}; set {key}.model to the name by which the server knows it")
    if not VARIABLE.fullmatch(server.key_variable):
        raise UserError(
            f"{where}; {key}.key_variable is the name of an environment variable, such as RLA_JUDGE_API_KEY; put the "
            "key itself into that variable"
        )


def web_address(text: str) -> SplitResult | None:
    """The parts of an address of HTTP; None for a text that is none."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # half an IPv6 address, a port that is no number
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
    """Refuse what would blow a baseline up to unit spread, or add it up; estimators that ask no judge may stand by."""
    if credit.judged != "baseline":
        return
    if credit.estimator in ("step", "return"):
        raise UserError(f"{where}: credit.judged: baseline needs credit.estimator: integrated")
    if credit.estimator == "integrated" and (
        credit.normalise == "step" or credit.policy_low < 0 or credit.policy_high > 1
    ):
        raise UserError(
            f"{where}: credit.judged: baseline would train on judgements alone where all outcomes of a group are "
            "equal; set credit.normalise to task or place, policy_low to 0 or more, and policy_high to 1 or less"
        )
