"""Read `params.yaml` into a `Config`. Unknown keys and impossible combinations are refused before anything runs.

Packages add parameters of their own. They register them in their pyproject.toml:

    [project.entry-points."rla.sections"]
    harvest = "rla_farm.params:HarvestConfig"

    [project.entry-points."rla.engines"]
    farm = "rla_farm.engines:FarmEngines"

    [project.entry-points."rla.launchers"]
    farm = "rla_farm.launching:FarmLauncher"

A section is used like one of the core, in a params file (`harvest.size: 3`) and in every `Config`
(`config.harvest`), and cannot take the name of another. A stage whose outputs depend on it names it in
`StageSpec.sections`.

| key | dataclass | keys | protocol |
|---|---|---|---|
| `generator.backend: farm` | `FarmEngines` | `generator.own` | `rla.llm.factory.OwnEngine` |
| `launch.training: farm` | `FarmLauncher.Training` | `launch.own` | `rla.training.stage.Launcher` |
| `pool.backend: farm` | `FarmLauncher.Pool` | `pool.own` | `rla.envs.pool.hosting.PoolBackend` |

Outputs depend on none of these keys but the engine that computes (`OwnEngine.engine`). The methods of these dataclasses
do the work. A launcher may have one class only.

The fields of a dataclass are the keys, with defaults and bounds (`rla.config.schema.ranged`). A ValueError or UserError
in `__post_init__` refuses combinations of fields; its text continues the name of the section.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, field, fields, is_dataclass, make_dataclass, replace
from functools import cache
from keyword import kwlist
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, Literal, Union, get_args, get_origin, get_type_hints
from urllib.parse import SplitResult, urlsplit

import yaml

from rla.config.schema import flaw_of
from rla.config.sections import Config, CreditConfig, JudgeServerConfig, TasksConfig
from rla.config.training import protected, warmed
from rla.errors import UserError
from rla.plugins import loaded, package_of, registered

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


ParamsOf = Callable[[str], type]  # the dataclass of an environment's own parameters, by `env.name`
DEFAULTS = "the defaults"
LARGEST = 4 << 20  # bytes of a file
LONGEST, MOST_ALIASES = 1 << 19, 100  # characters and aliases of a document


class _PlainLoader(yaml.SafeLoader):
    """Refuses duplicate keys, and aliases that would make a large value of a small text."""

    anchored = aliases = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        event: Any = self.peek_event()
        is_alias = self.check_event(yaml.AliasEvent)
        self.aliases += is_alias
        if is_alias and (self.anchored or self.aliases > MOST_ALIASES):
            raise yaml.MarkedYAMLError(problem="an alias is not possible here", problem_mark=event.start_mark)
        self.anchored += event.anchor is not None
        node: Any = super().compose_node(parent, index)
        self.anchored -= event.anchor is not None
        seen: set[str] = set()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if str(key.value) in seen:
                raise yaml.MarkedYAMLError(problem=f"the key {key.value!r} is there twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return node


AS_TEXT: dict[str | None, Any] = {"tag:yaml.org,2002:timestamp": yaml.SafeLoader.construct_scalar}
_PlainLoader.yaml_constructors = yaml.SafeLoader.yaml_constructors | AS_TEXT


def plain_data(text: str) -> Any:
    """The data of an untrusted YAML text. Raises YAMLError if JSON cannot hold it."""
    if len(text) > LONGEST:
        raise yaml.YAMLError(f"longer than {LONGEST} characters")
    try:
        found = yaml.load(text, _PlainLoader)
        if "\\u0000" in json.dumps(found, ensure_ascii=False).encode().decode():
            raise ValueError("a null character")
    except RecursionError:
        raise yaml.YAMLError("nested too deeply") from None
    except (ValueError, TypeError, LookupError, AttributeError) as error:  # `!!int x`, a huge number
        raise yaml.YAMLError(f"a value cannot be read: {error}") from None
    return found


def yaml_flaw(error: yaml.YAMLError | UnicodeDecodeError) -> str:
    """The flaw and its position, as one line."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem:
        mark = error.problem_mark
        return error.problem if mark is None else f"{error.problem}, line {mark.line + 1}"
    return str(error).splitlines()[0]


def read_config(path: str | Path | None, overrides: Sequence[str] = (), *, params_of: ParamsOf | None) -> Config:
    """The config of `path` (None: all defaults) with `key=value` overrides applied.

    Without `params_of` the config is for a command that does not start an environment: `env.name` may be missing, and
    `env.own` is not checked. Raises UserError naming file and key for unknown keys, wrong types and impossible
    combinations, and the errors of `params_of`.
    """
    where = str(path) if path else DEFAULTS
    data = read_yaml(Path(path), remedy="give --params a file such as params.yaml") if path else {}
    if not isinstance(data or {}, dict):
        raise UserError(f"{path}: params must be a mapping of sections; see schemas/params.schema.json")

    def read(overrides: Sequence[str]) -> Config:
        return config_of(apply_overrides(data or {}, overrides), where=where, params_of=params_of)

    return blaming(read, overrides, where=where)


def blaming(read: Callable[[Sequence[str]], Config], overrides: Sequence[str], *, where: str) -> Config:
    """`read(overrides)`. Errors begin with `where`, or with the overrides that cause them."""

    def flaw(left: Sequence[str]) -> str:
        try:
            read(left)
        except UserError as error:
            return str(error)
        return ""

    try:
        return read(overrides)
    except UserError as error:
        said = str(error)
        before, _, rest = said.partition(f"{where}: ")
        if before or not rest:
            raise
        causes = [one for i, one in enumerate(overrides) if flaw([*overrides[:i], *overrides[i + 1 :]]) != said]
        named = [one for one in causes if one.partition("=")[0] in rest]
        if not causes:
            raise
        raise UserError(f"{' '.join(f'--set {one}' for one in named or causes)}: {rest}") from None


def read_yaml(path: Path, *, remedy: str) -> Any:
    """The content of a YAML file. Raises UserError naming the file, with the `remedy` if it is missing."""
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: a folder, a pipe or a device, not a file; move it away, or name the right file")
    if not path.is_file():
        raise UserError(f"{path}: no such file; {remedy}")
    if path.stat().st_size > LARGEST:
        raise UserError(f"{path}: {path.stat().st_size:,} bytes, more than parameters can have; give the right file")
    try:
        return plain_data(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid YAML ({yaml_flaw(error)}); mend the file") from None


def config_of(data: Mapping[str, Any], *, where: str, params_of: ParamsOf | None) -> Config:
    """The config of nested params. `where`: the beginning of errors. Raises UserError as `read_config` does."""
    config: Config = build(config_type(), data, where, "")
    if params_of is not None:
        if not config.env.name:
            raise UserError(
                f"{where}: env.name says no environment; set it, or give --env NAME (`rla envs` lists them)"
            )
        own = build(params_of(config.env.name), config.env.own or {}, where, "env.own.")
        config = replace(config, env=replace(config.env, own=own))
    config = _with_own_parameters(decided(config), where=where)
    check_config(config, where)
    return config


def decided(config: Config) -> Config:
    """The config with open values decided by other keys."""
    half = config.generator.dtype == "bfloat16"
    model = replace(config.model, reward=config.model.reward or config.model.policy)
    first = model.policy if config.warm_start.reward_from_policy else model.reward
    return replace(
        config,
        model=model,
        train_policy=protected(config.train_policy, half=half),
        train_rm=protected(config.train_rm, half=half),
        warm_start=warmed(
            config.warm_start,
            new=(model.policy == "init", first == "init"),
            lora=(config.train_policy.lora.rank > 0, config.train_rm.lora.rank > 0),
        ),
    )


def apply_overrides(data: Mapping[str, Any], overrides: Sequence[str]) -> dict[str, Any]:
    """`data` with `a.b=value` texts applied. Values are YAML."""
    result: dict[str, Any] = json.loads(json.dumps(data))
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise UserError(f"--set {text}: expected key=value, for example --set rollout.rollouts_per_task=4")
        node = result
        *parents, last = key.split(".")
        for parent in parents:
            child = node[parent] = {} if node.get(parent) is None else node[parent]
            if not isinstance(child, dict):
                raise UserError(f"--set {text}: {parent} is not a section")
            node = child
        try:
            node[last] = plain_data(value)
        except yaml.YAMLError as error:
            raise UserError(
                f"--set {text}: {value!r} is not valid YAML ({yaml_flaw(error)}); quote it or close its brackets"
            ) from None
    return result


def build(section: Any, data: Any, where: str, prefix: str) -> Any:
    """An instance of the dataclass `section` from a mapping. Raises UserError for unknown keys, wrong types, values out
    of bounds, and errors of its `__post_init__`.
    """
    if not isinstance(data, dict):
        raise UserError(f"{where}: {prefix.rstrip('.') or 'params'} must be a mapping of keys, not {data!r}")
    hints = get_type_hints(section)
    known = {entry.name: entry for entry in fields(section)}
    names = list(known)
    values = {}
    for key, value in data.items():
        if key not in known:
            near = difflib.get_close_matches(str(key), names, n=1)
            other = "" if prefix else "no installed package has this section; "
            hint = f"did you mean {prefix}{near[0]}?" if near else f"{other}known: {', '.join(names)}"
            raise UserError(f"{where}: unknown key {prefix}{key}; {hint}")
        values[key] = _coerced(hints[key], value, where, f"{prefix}{key}")
        if flaw := flaw_of(values[key], known[key].metadata):
            raise UserError(f"{where}: {prefix}{key} is {values[key]}; {flaw}")
    try:
        return section(**values)
    except (UserError, ValueError) as error:
        raise UserError(f"{where}: {prefix}{error}") from None


def _coerced(hint: Any, value: Any, where: str, key: str) -> Any:
    """`value` as the type `hint`. YAML reads 1e-6 as text, so floats are parsed here."""
    if is_dataclass(hint):
        return build(hint, value, where, f"{key}.")
    args = get_args(hint)
    if hint is Any:
        return value
    if get_origin(hint) in (Union, UnionType):
        if value is None and type(None) in args:
            return None
        named = [one for one in args if get_origin(one) is Literal and value in get_args(one)]
        others = [one for one in args if get_origin(one) is not Literal]
        return _coerced((named or others)[0], value, where, key)
    if args and args[-1] is Ellipsis and isinstance(value, list):
        return tuple(_coerced(args[0], item, where, key) for item in value)
    if get_origin(hint) is tuple and isinstance(value, list) and len(value) == len(args):
        return tuple(_coerced(one, item, where, key) for one, item in zip(args, value, strict=True))
    if args and get_origin(hint) is not tuple:
        if value not in args:
            raise UserError(f"{where}: {key} is {value!r}; choose one of {', '.join(map(str, args))}")
        return value
    if hint is float and not isinstance(value, bool):
        try:
            number = float(value)
        except (TypeError, ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
        raise UserError(f"{where}: {key} is {value!r}; expected a finite number")
    if hint in (int, str, bool) and type(value) is hint:
        return value
    wanted = getattr(hint, "__name__", None) if not args else "list" if args[-1] is Ellipsis else f"list of {len(args)}"
    raise UserError(f"{where}: {key} is {value!r}; expected {wanted}")


def resolved(config: Config, sections: Sequence[str] = ()) -> dict[str, Any]:
    """The config as plain data. `sections`: restricts it to the seed and these sections (`env`) or keys
    (`policy.reply`). Raises KeyError for a section or key that does not exist.
    """
    data: dict[str, Any] = json.loads(json.dumps(asdict(config)))
    if not sections:
        return data
    kept: dict[str, Any] = {"seed": data["seed"]}
    for path in sections:
        *parents, last = path.split(".")
        source, target = data, kept
        for name in parents:
            source, target = source[name], target.setdefault(name, {})
        target[last] = source[last]
    return kept


def config_digest(config: Config, sections: Sequence[str]) -> str:
    """SHA-256 (16 hex digits) of the sections and keys that a stage reads, without keys that have no effect."""
    text = json.dumps(effective_parameters(config, sections), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def effective_parameters(config: Config, sections: Sequence[str] = ()) -> dict[str, Any]:
    """`resolved` without keys that do not affect outputs."""
    kept: dict[str, Any] = effective(config, resolved(config, sections))
    return kept


def effective(section: Any, data: Any) -> Any:
    """`data` of the dataclass `section` without keys that do not affect outputs."""
    if not is_dataclass(section):
        return data
    kept = {}
    for entry in fields(section):
        if entry.name in data and entry.metadata.get("effect", True):
            name = entry.metadata.get("recorded_as")
            value = data[entry.name] if name is None else getattr(section, name)
            kept[entry.name] = effective(getattr(section, entry.name), value)
    return {
        name: value for name, value in kept.items() if value != {} or data[name] == {}
    }  # a section may become empty


NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # of a run or a held-out split, as a folder
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)  # vLLM's MaxLoRARanks


def check_config(config: Config, where: str) -> None:
    """Raise UserError for combinations of values that no run can use."""
    if config.name and not NAME.fullmatch(config.name):
        raise UserError(f"{where}: name: {config.name!r} names a folder; use letters, digits, _, - and .")
    if config.tasks.source == "files" and not config.tasks.path:
        raise UserError(f"{where}: tasks.source is files; set tasks.path to the data")
    _check_splits(config.tasks, where)
    if config.policy.decoding == "admissible" and config.policy.reply != "text":
        raise UserError(f"{where}: policy.decoding: admissible needs policy.reply: text")
    if config.judge.decoding == "admissible" and config.judge.prompt != "plain":
        raise UserError(f"{where}: judge.decoding: admissible needs judge.prompt: plain")
    if not config.judge.trains:
        check_chat_server(config.judge.server, "judge.server", f"{where}: judge.server is set")
        if config.judge.decoding == "admissible":
            raise UserError(
                f"{where}: judge.server is set, and a chat server does not restrict its replies; set judge.decoding: "
                "free"
            )
    _check_adaptation(config, where)
    if server := config.adaptation.llm.server:
        check_address(server, "adaptation.llm.server", f"{where}: adaptation.llm.server is set")
        own_engine("server", {"url": server}, where=f"{where}: adaptation.llm.server is set")
    _check_adapters(config, where)
    _check_training(config, where)
    alone = config.judge.votes == 1 and config.credit.reward_model_normalise == "step"
    if alone and config.judge.enabled and config.judge.trains and config.train_rm.enabled:
        raise UserError(
            f"{where}: judge.votes is 1, and credit.reward_model_normalise: step compares a vote with the others of "
            "its step, so the reward model would learn nothing; set that to task, judge.votes to 2 or more, or "
            "train_rm.enabled: false"
        )
    for key in ("policy_band", "reward_model_band"):
        low, high = getattr(config.credit, key)
        if low > high:
            raise UserError(f"{where}: credit.{key} is [{low}, {high}]; set it to [low, high] with low <= high")
    _check_baseline(config.credit, where)
    start, end = config.credit.shaping.overlong
    if start > end:
        raise UserError(
            f"{where}: credit.shaping.overlong is [{start}, {end}]; set it to [start, end] with start <= end"
        )
    for key in ("policy", "reward"):
        if not getattr(config.warm_start, key).trains:  # 0 steps of the expert and the calibration are possible
            raise UserError(f"{where}: warm_start.{key}.steps is 0; it must be 1 or more")
    adapters = (config.train_policy.lora, config.train_rm.lora)
    both = all(adapter.rank for adapter in adapters)
    if config.warm_start.reward_from_policy and both and adapters[0] != adapters[1]:
        raise UserError(
            f"{where}: warm_start.reward_from_policy: the reward model goes on with the policy's adapter, so rank, "
            "alpha and targets are the same; set train_rm.lora to the values of train_policy.lora"
        )
    if config.warm_start.expert.trains and config.warm_start.conversations:
        raise UserError(
            f"{where}: warm_start.expert plays demonstrations, and warm_start.conversations takes their place; set "
            "warm_start.expert.steps to 0"
        )


def _check_training(config: Config, where: str) -> None:
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


def _check_splits(tasks: TasksConfig, where: str) -> None:
    if not tasks.test_splits:
        raise UserError(f"{where}: tasks.test_splits is empty; name the split that is held out, such as [test]")
    for split in tasks.test_splits:
        if not NAME.fullmatch(split):
            raise UserError(f"{where}: tasks.test_splits: {split!r} names a folder; use letters, digits, _, - and .")
    names = (tasks.train_split, *tasks.test_splits)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UserError(
            f"{where}: tasks.test_splits: {twice[0]} is named twice or is tasks.train_split; name each split once"
        )


def _check_adaptation(config: Config, where: str) -> None:
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


def check_address(text: str, key: str, where: str) -> None:
    """Raise UserError unless `text` is the base URL of a server. Passwords and queries are refused, because params are
    stored next to every output.
    """
    url = web_address(text)
    if url is None:
        raise UserError(
            f"{where}; set {key} to the base URL of an OpenAI-compatible server, such as http://localhost:8000/v1, "
            f"not {text!r}"
        )
    if url.username or url.password or url.query:
        raise UserError(f"{where}; {key} holds more than host and path; keys belong into the environment")


def check_chat_server(server: JudgeServerConfig, key: str, where: str) -> None:
    """Raise UserError if a chat server has no address or no name of a model. `where`: the beginning of the error."""
    check_address(server.url, f"{key}.url", where)
    if not server.model:
        raise UserError(f"{where}; set {key}.model to the name by which the server knows it")


def web_address(text: str) -> SplitResult | None:
    """The parts of an HTTP address; None if it is not a valid one."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # half an IPv6 address, a port that is not a number
        return None
    return parts if usable else None


def _check_adapters(config: Config, where: str) -> None:
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


def _check_baseline(credit: CreditConfig, where: str) -> None:
    """A baseline must not be summed over steps or scaled to unit spread; other estimators do not use judgements."""
    if credit.judged != "baseline":
        return
    if credit.estimator == "step":
        raise UserError(f"{where}: credit.judged: baseline needs credit.estimator: integrated")
    if credit.estimator == "integrated" and (
        credit.normalise == "step" or credit.policy_band[0] < 0 or credit.policy_band[1] > 1
    ):
        raise UserError(
            f"{where}: credit.judged: baseline would train on judgements alone if all outcomes of a group are "
            "equal; set credit.normalise to task or place, and keep policy_band within [0, 1]"
        )


SECTIONS, ENGINES, LAUNCHERS = "rla.sections", "rla.engines", "rla.launchers"
BUILTIN = ("transformers", "vllm", "scripted")  # engines without parameters of their own


def config_type(packages: Collection[str] | None = None) -> type[Config]:
    """`Config` with a field for each section of `packages` (None: of all installed ones). Raises UserError for a
    section that cannot be imported, is not a dataclass, or has a name that is taken.
    """
    entries = registered(SECTIONS).items()
    chosen = {name: entry for name, entry in entries if packages is None or package_of(entry) in packages}
    found = {name: type(loaded(entry, instance=True)) for name, entry in chosen.items()}  # each key has a default
    taken = {one.name for one in fields(Config)} | {*kwlist}
    for name, shape in found.items():
        if name in taken or not (name.isidentifier() and is_dataclass(shape)):
            raise UserError(
                f"{SECTIONS}: {name} must be a dataclass, and its name an identifier that rla does not use; mend the "
                f"package {package_of(chosen[name])}"
            )
    return _with_sections(tuple(found.items())) if found else Config


@cache  # configs are equal only if they have the same class
def _with_sections(found: tuple[tuple[str, Any], ...]) -> type[Config]:
    def reduced(config: Config) -> tuple[Any, ...]:  # pickle looks up classes by name
        return _restored, (found, {one.name: getattr(config, one.name) for one in fields(config)})

    own = [(name, shape, field(default_factory=shape)) for name, shape in found]
    kept = {"__doc__": Config.__doc__, "__module__": Config.__module__, "__reduce__": reduced}
    return make_dataclass("Config", own, bases=(Config,), namespace=kept, frozen=True, slots=True, kw_only=True)


def _restored(found: tuple[tuple[str, Any], ...], values: Mapping[str, Any]) -> Config:
    return _with_sections(found)(**values)


def own_engine(name: str, data: Any, *, where: str) -> Any:
    """The parameters `generator.own` of a registered engine. Raises UserError as `_with_own_parameters` does."""
    entry = _registration("generator.backend", name, ENGINES, BUILTIN, where)
    return _own("generator.backend", entry, data, where)


def _registration(key: str, name: str, group: str, builtin: tuple[str, ...], where: str) -> EntryPoint:
    installed = registered(group)
    if name not in installed:
        raise UserError(
            f"{where}: {key} is {name!r}; installed: {', '.join([*builtin, *installed])}; choose one of these, or "
            f"install the package that brings {name} (docs/guide/install.md)"
        )
    return installed[name]


def _own(key: str, entry: EntryPoint, data: Any, where: str, *, role: str = "") -> Any:
    found = loaded(entry)
    shape = getattr(found, role, None) if role else found
    if not (isinstance(shape, type) and is_dataclass(shape)):
        raise UserError(f"{where}: {key}: {entry.name} is {entry.value}, which is not a dataclass; mend its package")
    return build(shape, data or {}, where, f"{key.partition('.')[0]}.own.")


def _with_own_parameters(config: Config, *, where: str) -> Config:
    """`config` with `own` of generator, launch and pool as instances of the dataclasses of their packages, or None for
    implementations of the core. Raises UserError for a name that is not installed or cannot be imported, and for
    unknown keys.
    """
    generator, launch, pool = config.generator, config.launch, config.pool
    engine = hosts = training = None
    if generator.backend not in BUILTIN:
        engine = own_engine(generator.backend, generator.own, where=where)
    if pool.backend != "local":
        entry = _registration("pool.backend", pool.backend, LAUNCHERS, ("local",), where)
        hosts = _own("pool.backend", entry, pool.own, where, role="Pool")
    if launch.training is not None and (
        launcher := registered(LAUNCHERS).get(launch.training)
    ):  # else the name of a file
        training = _own("launch.training", launcher, launch.own, where, role="Training")
    return replace(
        config,
        generator=replace(generator, own=engine),
        launch=replace(launch, own=training),
        pool=replace(pool, own=hosts),
    )
