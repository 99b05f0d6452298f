"""Hostile parameters: YAML files and `--set` by a grammar that knows all keys, and damaged YAML texts.

A trial is a dry run. It is refused in one line, or it is accepted and then every number is finite.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.attack.areas import Numbered, Try, dice
from tests.attack.calls import fault
from tests.attack.hostile import changed, cut, loose_json, text, value
from tests.attack.inputs import called, within_memory
from tests.attack.small_run import PARAMS, World

STAGES = ("make-tasks", "rollout", "compute-rewards", "train-policy", "adapt-env", "warm-start")
ODD = (
    "seed: &a [*a]",
    "seed: &a {b: *a}",
    "a: &a {<<: *a}",
    "? [a, b]\n: 1",
    "? {a: 1}\n: 2",
    "--- 1\n--- 2",
    "%YAML 9.9\n---\nseed: 1",
    "!!python/object/apply:os.system ['true']",
    "seed: !!python/name:os.system",
    "seed: !!binary aGVsbG8=",
    "seed: !!set {1, 2}",
    "seed: !!timestamp 2024-01-01",
    "seed: 2024-01-01\nrollout: {tasks_per_iteration: 2024-01-01 10:00:00}",
    "tasks: {kinds: !!set {pick_two_obj: }}",
    "seed: 1\nseed: 2",
    "rollout: {concurrency: 1, concurrency: 2}",
    "rollout: {<<: {concurrency: 1}, <<: {concurrency: 2}}",
    "seed: 1_000",
    "seed: 0b11",
    "seed: 1:30:00",
    "seed: .nan",
    "seed: ~",
    "\t\tseed: 1",
    "seed: |\n  text\n" + " " * 500 + "x",
    "null: 1",
    "1: 1",
    "true: {a: 1}",
    "~",
    "[]",
    "12",
    "",
    "\ufeffseed: 1",
    "seed: '\\ud800'",
    'seed: "\\ud800"',
)


def bomb(lots: Random) -> str:
    """A short text that stands for a large or a deep structure."""
    depth = lots.choice((5, 9, 12))
    kind = lots.randrange(4)
    if kind == 0:
        lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
        lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, depth)]
        return "\n".join(lines)
    if kind == 1:
        lines = ["a0: &a0 {k: x}"] + [f"a{i}: &a{i} {{p: *a{i - 1}, q: *a{i - 1}}}" for i in range(1, 4 * depth)]
        return "\n".join([*lines, f"seed: *a{4 * depth - 1}"])
    if kind == 2:
        deep = lots.choice((500, 5000, 50_000))
        return f"seed: {'[' * deep}{']' * lots.choice((0, deep))}"
    deep = lots.choice((100, 1000))
    return "\n".join(f"{' ' * i}a:" for i in range(deep))


def yaml_text(lots: Random, sound: dict[str, Any]) -> bytes:
    """One hostile params file."""
    import yaml

    kind = lots.randrange(10)
    if kind == 0:
        return lots.choice(ODD).encode("utf-8", "surrogatepass")
    if kind == 1:
        return bomb(lots).encode()
    if kind == 2:
        return cut(PARAMS.encode(), lots)
    if kind == 3:
        return PARAMS.encode(lots.choice(("utf-16", "utf-32", "utf-8-sig"))) + lots.choice((b"", b"\xff\xfe"))
    if kind == 4:
        return (PARAMS + "\n" + lots.choice(ODD)).encode("utf-8", "surrogatepass")
    data = changed(sound, lots, times=lots.choice((1, 1, 1, 2, 5)))
    if kind == 5:
        return loose_json(data, lots).encode("utf-8", "surrogatepass")
    return yaml.safe_dump(data, allow_unicode=True).encode("utf-8", "surrogatepass")


def override(lots: Random, keys: list[str]) -> str:
    """One hostile `key=value`."""
    key = lots.choice(keys) if lots.random() < 0.8 else text(lots)[:60]
    given = lots.choice((lots.choice(ODD), text(lots), repr(value(lots)), bomb(lots)))
    made = f"{key}{lots.choice(('=', '=', '=', '', '==', '.x='))}{given}"
    return made.replace("\x00", "0").encode("utf-8", "replace").decode()  # a command line holds neither


@dataclass(frozen=True, slots=True)
class Params(Numbered):
    """Files and overrides, half and half."""

    name: str = "params"

    def opened(self, world: World, scratch: Path) -> Try:
        from rla.config import Config, resolved
        from rla.envs.registry import load_config

        place = scratch / "params.yaml"
        place.write_text(PARAMS)
        sound = resolved(load_config(place))
        keys = [".".join(path) for path in _keys(asdict(Config()))]
        within_memory()

        def tried(trial: str) -> str | None:
            lots = dice(world, f"{self.name}/{trial}")
            stage, overrides = lots.choice(STAGES), []
            place.write_bytes(PARAMS.encode())
            if lots.random() < 0.5:
                place.write_bytes(yaml_text(lots, sound))
            else:
                overrides = [override(lots, keys) for _ in range(lots.choice((1, 1, 3)))]
            options = [f"--set={text}" for text in overrides]
            ended = called([stage, "--dry-run", "--run", "r", "--params", "params.yaml", *options])
            if wrong := fault(ended):
                return wrong
            if ended.code == 0:
                found = [
                    at for at, number in _numbers(resolved(load_config(place, overrides))) if not math.isfinite(number)
                ]
                return f"accepted a number that is not finite: {', '.join(found)}" if found else None
            return None

        return tried


def _keys(data: Any, at: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if at:
        yield at
    for key, inner in data.items() if isinstance(data, dict) else ():
        yield from _keys(inner, (*at, str(key)))


def _numbers(data: Any, at: str = "") -> Iterator[tuple[str, float]]:
    if isinstance(data, float):
        yield at, data
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, inner in items:
        yield from _numbers(inner, f"{at}.{key}".lstrip("."))
