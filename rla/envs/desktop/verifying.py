"""The score of an episode by the evaluator of its task, as OSWorld computes it, and why there may be none.

`infeasible` is won by an agent that says so (`fail`), and any other task is lost by that. Of several metrics one has to
be full (`or`), or none empty, and then their mean counts (`and`). What is not supported is told, and never scored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rla.envs.desktop.client import GuestClient, GuestRefusal
from rla.envs.desktop.getting import GETTERS
from rla.envs.desktop.json_rules import lacking_of_json
from rla.envs.desktop.measuring import METRICS, OURS, metric_score
from rla.envs.desktop.official import OfficialFailure, OfficialMetrics
from rla.envs.desktop.params import DesktopParams
from rla.envs.desktop.resources import ResourceMissing
from rla.envs.desktop.scenarios import INFEASIBLE
from rla.envs.desktop.setting_up import SetupFailure, set_up

Evaluator = Mapping[str, Any]


class NotScored(Exception):
    """There is no score; the message says why."""


def evaluator_parts(evaluator: Evaluator) -> list[tuple[str, Any, Any, Mapping[str, Any]]]:
    """Metric, what is looked at, what is expected, and options, of each part. Raises NotScored."""
    func, count = evaluator["func"], None
    if isinstance(func, list):
        count = len(func)
    fields: list[list[Any]] = []
    empties: list[tuple[str, Any]] = [("result", None), ("expected", None), ("options", {})]
    for name, empty in empties:
        value = evaluator.get(name) or empty
        if count is None:
            fields.append([value])
        elif isinstance(value, list) and len(value) == count:
            fields.append([each or empty for each in value])
        elif not value:
            fields.append([empty] * count)
        else:
            raise NotScored(f"its evaluator has {count} metrics, and another number of {name}")
    funcs = func if isinstance(func, list) else [func]
    return [(str(name), *rest) for name, *rest in zip(funcs, *fields, strict=True)]


def measured_here(name: str, rules: Any, options: Mapping[str, Any], own: DesktopParams) -> bool:
    """Whether it is a metric of our own that scores. YAML always is: OSWorld's own reader runs what the file says."""
    if name not in METRICS or name in OURS or options.get("is_yaml"):
        return name in METRICS
    lacking = name == "check_json" and bool(own.osworld_python) and lacking_of_json(rules) != ""
    return own.metrics == "own" and not lacking


class StateVerifier:
    """For one event loop. `official`: None where there is no Python with OSWorld's metrics."""

    def __init__(self, own: DesktopParams, official: OfficialMetrics | None) -> None:
        self._own, self._official = own, official

    async def score(self, evaluator: Evaluator, client: GuestClient, *, failed: bool) -> float:
        """From 0 to 1. `failed`: the agent has said that it cannot be done. Raises NotScored, and MachineLost as the
        client does.
        """
        try:
            await set_up(evaluator.get("postconfig") or [], client, self._own)
            if evaluator["func"] == INFEASIBLE or failed:
                return float((evaluator["func"] == INFEASIBLE) is failed)
            return await self._parts(evaluator, client)
        except (SetupFailure, GuestRefusal, ResourceMissing, OfficialFailure) as error:
            raise NotScored(str(error)) from None
        except (LookupError, TypeError, ValueError) as error:
            raise NotScored(f"its evaluator is flawed ({type(error).__name__}: {error})") from None

    async def _parts(self, evaluator: Evaluator, client: GuestClient) -> float:
        parts, all_of = evaluator_parts(evaluator), evaluator.get("conj", "and") == "and"
        scores: list[float] = []
        for part in parts:
            scores.append(await self._part(*part, client))
            if all_of and scores[-1] == 0.0:
                return 0.0
            if not all_of and scores[-1] == 1.0:
                return 1.0
        return sum(scores) / len(scores) if all_of else max(scores)

    async def _part(
        self, name: str, result: Any, expected: Any, options: Mapping[str, Any], client: GuestClient
    ) -> float:
        found = await GETTERS[result["type"]](result, client, self._own)
        wanted = await GETTERS[expected["type"]](expected, client, self._own) if expected else None
        if measured_here(name, wanted, options, self._own):
            return metric_score(name, found, wanted, options, has_expected=bool(expected))
        if self._official is None:
            raise NotScored(f"metric {name!r} is OSWorld's; set env.own.osworld_python")
        return await self._official.score(name, found, wanted, options, has_expected=bool(expected))

    async def close(self) -> None:
        if self._official is not None:
            await self._official.close()
