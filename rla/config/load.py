"""Read `params.yaml` into a `Config`. Unknown keys and impossible combinations are refused before anything runs.

Packages add parameters of their own, each group of them a dataclass. One in the entry-point group `rla.sections`, such
as `harvest`, is used like a section of the core, in a params file (`harvest.size: 3`) and in every `Config`
(`config.harvest`), and cannot take the name of another. A stage whose outputs depend on it names it in
`StageSpec.sections`. A section may follow stages (`rla.pipeline.FollowsCalls`, `FollowsTraining`). The entry `farm` of
another group is an implementation that a key names:

| group | key | dataclass | keys | protocol |
|---|---|---|---|---|
| `rla.engines` | `generator.backend: farm` | the entry | `generator.own` | `rla.llm.factory.OwnEngine` |
| `rla.launchers` | `launch.training: farm` | its `Training` | `launch.own` | `rla.training.stage.Launcher` |
| `rla.launchers` | `pool.backend: farm` | its `Pool` | `pool.own` | `rla.envs.pool.PoolBackend` |
| `rla.models` | `model.architecture: farm` | the entry | `model.own` | `rla.models.init.OwnModel` |

Outputs depend on none of these keys but the last row's, and the engine that computes (`OwnEngine.engine`). The methods
of these dataclasses do the work. A launcher may have one class only.

The fields of a dataclass are the keys, with defaults and bounds (`rla.config.schema.ranged`). A ValueError or UserError
in `__post_init__` refuses combinations of fields; its text continues the name of the section.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import field, fields, is_dataclass, make_dataclass, replace
from functools import cache, lru_cache
from itertools import cycle, repeat
from keyword import kwlist
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args, get_type_hints
from urllib.parse import SplitResult, urlsplit

import yaml

from rla.config.schema import bounds_in_words, section_schema
from rla.config.sections import Config, JudgeServerConfig
from rla.config.training import protected, warmed
from rla.errors import UserError
from rla.plugins import loaded, package_of, registered

if TYPE_CHECKING:
    from jsonschema import ValidationError

ParamsOf = Callable[[str], type]  # the dataclass of an environment's own parameters, by `env.name`
DEFAULTS = "the defaults"
LARGEST = 4 << 20  # bytes of a file
LONGEST, DEEPEST, MOST_ALIASES = 1 << 19, 100, 100  # characters, levels and aliases of a document
_hints = cache(get_type_hints)  # which compiles every annotation


class _PlainLoader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """libyaml's, which is five times as fast, unless PyYAML was built without it."""


# Dates stay text, and 1e-6 and 1.5e6 are numbers, as in YAML 1.2.
AS_TEXT: dict[str | None, Any] = {"tag:yaml.org,2002:timestamp": yaml.SafeLoader.construct_scalar}
_PlainLoader.yaml_constructors = yaml.SafeLoader.yaml_constructors | AS_TEXT
_PlainLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+$"),
    list("-+.0123456789"),
)


def plain_data(text: str) -> Any:
    """The data of an untrusted YAML text. Raises YAMLError if JSON cannot hold it."""
    return deepcopy(_parsed(text))


@lru_cache(maxsize=16)  # a stage reads the same parameters several times; each --set is a text, too
def _parsed(text: str) -> Any:
    if len(text) > LONGEST:
        raise yaml.YAMLError(f"longer than {LONGEST} characters")
    try:
        _refuse_hostile(text)
        found = yaml.load(text, _PlainLoader)
        if "\\u0000" in json.dumps(found, ensure_ascii=False).encode().decode():
            raise ValueError("a null character")
    except (ValueError, TypeError, LookupError, AttributeError) as error:  # `!!int x`, a huge number
        raise yaml.YAMLError(f"a value cannot be read: {error}") from None
    return found


def _refuse_hostile(text: str) -> None:
    """Raise YAMLError for deep nesting, duplicate keys, and aliases that would make a large value of a small text."""
    levels: list[tuple[Any, set[str], Iterator[bool]]] = []  # of each open node: its event, keys, whether a key is next
    aliases = 0
    for event in yaml.parse(text, _PlainLoader):
        mark: Any = event.start_mark
        if isinstance(event, yaml.CollectionEndEvent):
            levels.pop()
        if not isinstance(event, yaml.NodeEvent):
            continue
        _, keys, places = levels[-1] if levels else (None, set(), repeat(False))
        is_key, flaw = next(places), None
        if isinstance(event, yaml.AliasEvent):
            aliases += 1
            if is_key or aliases > MOST_ALIASES or any(one.anchor for one, *_ in levels):
                flaw = "an alias is not possible here"
        elif isinstance(event, yaml.CollectionStartEvent):
            flaw = "nested too deeply" if len(levels) == DEEPEST else None
            levels.append((event, set(), cycle((isinstance(event, yaml.MappingStartEvent), False))))
        elif is_key and isinstance(event, yaml.ScalarEvent):
            flaw = f"the key {event.value!r} is there twice" if event.value in keys else None
            keys.add(event.value)
        if flaw:
            raise yaml.MarkedYAMLError(problem=flaw, problem_mark=mark)


def _yaml_flaw(error: yaml.YAMLError | UnicodeDecodeError) -> str:
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

    with blaming(overrides, where=where):
        return config_of(apply_overrides(data or {}, overrides), where=where, params_of=params_of)


@contextmanager
def blaming(overrides: Sequence[str], *, where: str) -> Iterator[None]:
    """Inside, an error that begins with `where` begins with the overrides instead if it is about their keys."""
    try:
        yield
    except UserError as error:
        before, _, rest = str(error).partition(f"{where}: ")
        patterns = {one: rf"(?<![\w.]){re.escape(one.partition('=')[0])}(?!\w)" for one in overrides}
        unknown = rest.removeprefix("unknown key ").partition(";")[0]  # may be a section that no package has
        named = [one for one, key in patterns.items() if re.search(key, rest) or one.startswith(f"{unknown}.")]
        if before or not named:
            raise
        raise UserError(f"{' '.join(f'--set {one}' for one in named)}: {rest}") from None


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
        raise UserError(f"{path}: not valid YAML ({_yaml_flaw(error)}); mend the file") from None


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
    for flaw in _combinations(config):
        raise UserError(f"{where}: {flaw}")
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
                f"--set {text}: {value!r} is not valid YAML ({_yaml_flaw(error)}); quote it or close its brackets"
            ) from None
    return result


def build(section: Any, data: Any, where: str, prefix: str) -> Any:
    """An instance of the dataclass `section` from a mapping. Raises UserError for unknown keys, wrong types, values out
    of bounds, and errors of its `__post_init__`.
    """
    for error in _validator(section).iter_errors(data):
        raise UserError(f"{where}: {_flaw(error, prefix)}")
    return _made(section, data, where, prefix)


@cache
def _validator(section: Any) -> Any:
    """By the JSON Schema of the dataclass. It refuses 3.0 for a whole number, and NaN and infinity for any."""
    from jsonschema import Draft202012Validator, validators

    numbers = {"integer": lambda _, value: type(value) is int, "number": lambda _, value: _is_number(value)}
    kinds = Draft202012Validator.TYPE_CHECKER.redefine_many(numbers)
    return validators.extend(Draft202012Validator, type_checker=kinds)(section_schema(section))


def _is_number(value: Any) -> bool:
    return type(value) is int or (isinstance(value, float) and math.isfinite(value))


EXPECTED = {"number": "a finite number", "array": "list"}


def _flaw(error: ValidationError, prefix: str) -> str:
    """The error with the name of the key, in words. Items of a list are shown with their list."""
    key = ".".join([prefix.rstrip("."), *(part for part in error.absolute_path if isinstance(part, str))]).strip(".")
    node: Any = error.schema
    value: Any = error.instance
    match error.validator:
        case "additionalProperties":
            names = list(node["properties"])
            unknown = next(name for name in value if name not in names)
            near = difflib.get_close_matches(str(unknown), names, n=1)
            inside = f"{key}." if key else ""
            hint = f"did you mean {inside}{near[0]}?" if near else f"known: {', '.join(names)}"
            if not inside:  # may be the section of a package, whatever name it resembles
                other = "no installed package has this section"
                hint = f"{hint} {other.capitalize()}" if near else f"{other}; {hint}"
            return f"unknown key {inside}{unknown}; {hint}"
        case "type" if node["type"] == "object":
            return f"{key or 'params'} must be a mapping of keys, not {value!r}"
        case "enum":
            return f"{key} is {value!r}; choose one of {', '.join(map(str, node['enum']))}"
        case "type" | "anyOf" if not bounds_in_words(node) or not _is_number(value):
            kinds: list[str] = []
            for part in [node] if "type" in node else node["anyOf"]:
                found = part.get("type", part.get("enum", []))
                kinds += [found] if isinstance(found, str) else map(str, found)
            return f"{key} is {value!r}; expected {' or '.join(EXPECTED.get(kind, kind) for kind in kinds)}"
        case "minItems" | "maxItems":
            return f"{key} is {value!r}; expected list of {node['minItems']}"
        case "maximum":  # bounds in words do not name the largest whole number
            limit: Any = error.validator_value
            return f"{key} is {value}; it must be at most {limit if isinstance(limit, int) else f'{limit:g}'}"
    return f"{key} is {value}; it must be {bounds_in_words(node)}"


def _made(hint: Any, value: Any, where: str, prefix: str) -> Any:
    """The valid `value` as the type `hint`: sections as dataclasses, lists as tuples, numbers as floats if they may."""
    if is_dataclass(hint):
        section: Any = hint
        hints = _hints(section)
        values = {key: _made(hints[key], inner, where, f"{prefix}{key}.") for key, inner in value.items()}
        try:
            return section(**values)
        except (UserError, ValueError) as error:
            raise UserError(f"{where}: {prefix}{error}") from None
    if isinstance(value, list) and hint is not Any:
        return tuple(_made(get_args(hint)[0], item, where, prefix) for item in value)
    return float(value) if type(value) is int and float in (hint, *get_args(hint)) else value


def _plain(value: Any) -> Any:
    """A section as nested dicts of its keys, and tuples as lists."""
    if is_dataclass(value):
        return {entry.name: _plain(getattr(value, entry.name)) for entry in fields(value) if entry.init}
    return [*map(_plain, value)] if isinstance(value, tuple) else value


def resolved(config: Config, sections: Sequence[str] = ()) -> dict[str, Any]:
    """The config as plain data. `sections`: restricts it to the seed and these sections (`env`) or keys
    (`policy.reply`). Raises KeyError for a section or key that does not exist.
    """
    data: dict[str, Any] = _plain(config)
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
    # A section may become empty.
    return {name: value for name, value in kept.items() if value != {} or data[name] == {}}


NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # of a run or a held-out split, as a folder


def _combinations(config: Config) -> Iterator[str]:
    """Combinations of values that no run can use: the key and the remedy of each."""
    tasks, judge, credit, warm = config.tasks, config.judge, config.credit, config.warm_start
    if not tasks.test_splits:
        yield "tasks.test_splits is empty; name the split that is held out, such as [test]"
    named = [("name", config.name)] if config.name else []
    for key, name in [*named, *(("tasks.test_splits", split) for split in tasks.test_splits)]:
        if not NAME.fullmatch(name):
            yield f"{key}: {name!r} names a folder; use letters, digits, _, - and ."
    names = (tasks.train_split, *tasks.test_splits)
    if twice := sorted({name for name in names if names.count(name) > 1}):
        yield f"tasks.test_splits: {twice[0]} is named twice or is tasks.train_split; name each split once"
    if config.policy.decoding == "admissible" and config.policy.reply != "text":
        yield "policy.decoding: admissible needs policy.reply: text"
    if judge.decoding == "admissible" and judge.prompt != "plain":
        yield "judge.decoding: admissible needs judge.prompt: plain"
    if not judge.trains:
        yield from chat_server_flaws(judge.server, "judge.server", "judge.server is set")
        if judge.decoding == "admissible":
            yield "judge.server is set, and a chat server does not restrict its replies; set judge.decoding: free"
    if server := config.adaptation.llm.server:
        yield from address_flaws(server, "adaptation.llm.server", "adaptation.llm.server is set")
        proposing_server(server)
    ordered = {
        "credit.policy_band": credit.policy_band,
        "credit.reward_model_band": credit.reward_model_band,
        "credit.shaping.overlong": credit.shaping.overlong,
    }
    for key, (low, high) in ordered.items():
        if low > high:
            yield f"{key} is [{low}, {high}]; set it to [low, high] with low <= high"
    low, high = config.adaptation.alpha_low, config.adaptation.alpha_high
    if low >= high:
        yield f"adaptation needs alpha_low < alpha_high, not {low} and {high}"
    pairs = config.adaptation.acceptance == "interval" and config.rollout.pending == "within"
    if pairs and config.rollout.tasks_per_iteration < 2:
        yield (
            "adaptation.acceptance: interval plays a task and its parent, and rollout.pending: within counts both; set "
            "rollout.tasks_per_iteration to 2 or more"
        )
    alone = judge.votes == 1 and credit.reward_model_normalise == "step"
    if alone and judge.enabled and judge.trains and config.train_rm.enabled:
        yield (
            "judge.votes is 1, and credit.reward_model_normalise: step compares a vote with the others of its step, so "
            "the reward model would learn nothing; set that to task, judge.votes to 2 or more, or train_rm.enabled: "
            "false"
        )
    if credit.judged == "baseline" and credit.estimator == "step":
        yield "credit.judged: baseline needs credit.estimator: integrated"
    # A baseline must not be summed over steps or scaled to unit spread; other estimators do not use judgements.
    unscaled = credit.normalise != "step" and credit.policy_band[0] >= 0 and credit.policy_band[1] <= 1
    if credit.judged == "baseline" and credit.estimator == "integrated" and not unscaled:
        yield (
            "credit.judged: baseline would train on judgements alone if all outcomes of a group are equal; set "
            "credit.normalise to task or place, and keep policy_band within [0, 1]"
        )
    if not warm.policy.trains:
        yield "warm_start.policy.steps is 0; it must be 1 or more, or warm_start.policy.epochs"
    if warm.expert.trains and warm.conversations:
        yield (
            "warm_start.expert plays demonstrations, and warm_start.conversations takes their place; set "
            "warm_start.expert.steps to 0"
        )
    adapters = (config.train_policy.lora, config.train_rm.lora)
    if warm.reward_from_policy and all(one.rank for one in adapters) and adapters[0] != adapters[1]:
        yield (
            "warm_start.reward_from_policy: the reward model goes on with the policy's adapter, so rank and alpha are "
            "the same; set train_rm.lora to the values of train_policy.lora"
        )
    generator = config.generator
    if generator.lora == "adapter" and generator.engine_name != "vllm":
        yield f"generator.lora: adapter needs the engine vllm, not {generator.engine_name}; set it to merged"
    for name, train in (("train_policy", config.train_policy), ("train_rm", config.train_rm)):
        if generator.lora == "adapter" and train.lora.rank > generator.max_lora_rank:
            yield f"{name}.lora.rank is {train.lora.rank}; set generator.max_lora_rank to as much or more"
        if train.lora.rank and config.teaches_pretrained and train.kl_coef and train.kl_reference == "initial":
            yield (
                f"{name}.kl_reference: initial is the base, and the warm start has moved its adapter away from it; set "
                f"{name}.kl_reference to previous, or {name}.kl_coef to 0"
            )
        if train.dual_clip and train.dual_clip <= 1 + train.clip_high:
            yield f"{name}.dual_clip is {train.dual_clip}; it must be 0 or above 1 + clip_high"


def chat_server_flaws(server: JudgeServerConfig, key: str, reason: str) -> Iterator[str]:
    """Why the section `key` does not name a chat server and its model. `reason`: why it has to."""
    yield from address_flaws(server.url, f"{key}.url", reason)
    if not server.model:
        yield f"{reason}; set {key}.model to the name by which the server knows it"


def address_flaws(text: str, key: str, reason: str) -> Iterator[str]:
    """Why `text` is not the base URL of a server. Passwords and queries are refused, because params are stored next to
    every output.
    """
    url = web_address(text)
    if url is None:
        example = "an OpenAI-compatible server, such as http://localhost:8000/v1"
        yield f"{reason}; set {key} to the base URL of {example}, not {text!r}"
    elif url.username or url.password or url.query:
        yield f"{reason}; {key} holds more than host and path; keys belong into the environment"


def web_address(text: str) -> SplitResult | None:
    """The parts of an HTTP address; None if it is not a valid one."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # half an IPv6 address, a port that is not a number
        return None
    return parts if usable else None


SECTIONS, ENGINES, LAUNCHERS, MODELS = "rla.sections", "rla.engines", "rla.launchers", "rla.models"
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


# Section, key that names an implementation, entry points, implementations without parameters, attribute of the class.
OWN = (
    ("generator", "backend", ENGINES, BUILTIN, ""),
    ("pool", "backend", LAUNCHERS, ("local",), "Pool"),
    ("launch", "training", LAUNCHERS, (None,), "Training"),
    ("model", "architecture", MODELS, ("qwen3",), ""),
)


def proposing_server(url: str) -> Any:
    """The parameters `generator.own` of the engine that asks `adaptation.llm.server`. Raises UserError."""
    return _own(OWN[0], "server", {"url": url}, "adaptation.llm.server is set")


def _own(of: tuple[str, str, str, tuple[str | None, ...], str], name: str | None, data: Any, where: str) -> Any:
    section, key, group, builtin, role = of
    installed = registered(group)
    if name in builtin or (section == "launch" and name not in installed):  # launch.training may name a file
        return None
    if name not in installed:
        choices = ", ".join([*map(str, builtin), *installed])
        raise UserError(
            f"{where}: {section}.{key} is {name!r}; installed: {choices}; choose one of these, or install the package "
            f"that brings {name} (docs/guide/install.md)"
        )
    entry = installed[name]
    found = loaded(entry)
    shape = getattr(found, role, None) if role else found
    if not (isinstance(shape, type) and is_dataclass(shape)):
        flaw = f"{entry.name} is {entry.value}, which is not a dataclass; mend its package"
        raise UserError(f"{where}: {section}.{key}: {flaw}")
    return build(shape, data or {}, where, f"{section}.own.")


def _with_own_parameters(config: Config, *, where: str) -> Config:
    """`config` with `own` of generator, launch, pool and model as instances of the dataclasses of their packages, or
    None for implementations of the core. Raises UserError for a name that is not installed or cannot be imported, and
    for unknown keys.
    """
    changes = {}
    for of in OWN:
        section, key, *_ = of
        part = getattr(config, section)
        changes[section] = replace(part, own=_own(of, getattr(part, key), part.own, where))
    return replace(config, **changes)
