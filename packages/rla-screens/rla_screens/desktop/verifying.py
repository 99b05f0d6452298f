"""The score of an episode by the evaluator of its task, as OSWorld computes it, or the reason why there is none.

`infeasible` is won by an agent that says so (`fail`), and any other task is lost by saying so. Several metrics are
combined by `or`, which needs one full score, or by `and`, which takes the mean unless one is 0. Unsupported evaluators
are reported, and never scored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla_screens.desktop.client import GuestClient, GuestRefusal
from rla_screens.desktop.getting import GETTERS
from rla_screens.desktop.measuring import METRICS, OURS, metric_score
from rla_screens.desktop.official import OfficialFailure, OfficialMetrics
from rla_screens.desktop.params import DesktopParams
from rla_screens.desktop.resources import ResourceMissing, data_of_url, reachable
from rla_screens.desktop.scenarios import INFEASIBLE, Scenario
from rla_screens.desktop.setting_up import FIELDS, MALFORMED, SetupFailure, never_filled, set_up

Evaluator = Mapping[str, Any]


class NotScored(Exception):
    """There is no score; the message says why."""


def evaluator_parts(evaluator: Evaluator) -> list[tuple[str, Any, Any, Mapping[str, Any]]]:
    """Metric, getter, expected value and options of each part. Raises NotScored."""
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


def _measured_here(name: str, own: DesktopParams) -> bool:
    """Whether a metric is computed here: OSWorld's package takes precedence if it is available."""
    return name in OURS or (name in METRICS and not own.osworld_python)


def unplayable_reason(scenario: Scenario, own: DesktopParams, official: Collection[str] | None = None) -> str:
    """A short reason why a task cannot be played and judged here; empty if it can. Needs no machine.

    `official`: the metrics of OSWorld's package; None if it was not asked. Tasks are untrusted data and may have any
    JSON shape. Raises UserError if a task needs OSWorld's package and it is not configured.
    """
    try:
        return next(_flaws(scenario, own, official), "")
    except NotScored as flaw:
        return str(flaw)
    except MALFORMED as error:
        return f"its setup or its evaluator is malformed ({type(error).__name__}: {error})"


def _flaws(scenario: Scenario, own: DesktopParams, official: Collection[str] | None) -> Iterator[str]:
    evaluator = scenario.evaluator
    for step in (*scenario.config, *(evaluator.get("postconfig") or [])):
        yield from _flaws_of_step(step, own)
    if evaluator["func"] == INFEASIBLE:
        return
    if evaluator.get("conj", "and") not in ("and", "or"):
        yield f"conj {str(evaluator['conj'])[:40]!r}"
    for name, result, expected, options in evaluator_parts(evaluator):
        for look in (result, expected) if expected else (result,):
            yield from _flaws_of_look(look, own)
        if options.get("is_yaml"):
            yield f"metric {name[:40]!r} of YAML, whose tags OSWorld's reader executes"
        if _measured_here(name, own):
            continue
        if not own.osworld_python:
            raise UserError(
                f"the metric {name[:40]!r} is OSWorld's; set env.own.osworld_python to a Python that has desktop_env"
            )
        if official is not None and name not in official:
            yield f"metric {name[:40]!r}, which the desktop_env of env.own.osworld_python does not have"


def _flaws_of_step(step: Mapping[str, Any], own: DesktopParams) -> Iterator[str]:
    kind, given = step.get("type"), step.get("parameters", {})
    if not isinstance(kind, str) or kind not in FIELDS:
        yield f"setup {str(kind)[:40]!r}"
        return
    if unknown := sorted(given.keys() - FIELDS[kind]):
        yield f"setup {kind} with {unknown[0][:40]!r}"
    if lacking := never_filled(given.get("command", "")):
        yield f"setup {kind} with {lacking}"
    for entry in given.get("files", []):
        yield from _flaws_of_file(entry["url"] if kind == "download" else Path(entry["local_path"]).name, own)


def _flaws_of_look(look: Mapping[str, Any], own: DesktopParams) -> Iterator[str]:
    """Flaws of a getter."""
    kind = look["type"]
    if kind not in GETTERS:
        yield f"getter {str(kind)[:40]!r}"
    if lacking := never_filled(look.get("command", "")):
        yield f"getter {kind} with {lacking}"
    if look.get("time_suffix"):
        yield f"getter {kind} with 'time_suffix'"
    if kind == "cloud_file":
        for address in look["path"] if look.get("multi") else [look["path"]]:
            yield from _flaws_of_file(address, own)


def _flaws_of_file(address: str, own: DesktopParams) -> Iterator[str]:
    try:
        if address.startswith("data:"):
            data_of_url(address)
        had = reachable(address, own)
    except (ResourceMissing, ValueError):
        had = False
    if not had:
        yield "a file that cannot be had (env.own.files, env.own.download)"


class StateVerifier:
    """For one event loop. `official`: None if no Python with OSWorld's metrics is configured."""

    def __init__(self, own: DesktopParams, official: OfficialMetrics | None) -> None:
        self._own, self._official = own, official

    async def score(self, evaluator: Evaluator, client: GuestClient, *, failed: bool) -> float:
        """From 0 to 1. `failed`: the agent has said that the task cannot be done. Raises NotScored, and MachineLost as
        the client does.
        """
        try:
            await set_up(evaluator.get("postconfig") or [], client, self._own)
            if evaluator["func"] == INFEASIBLE or failed:
                return float((evaluator["func"] == INFEASIBLE) is failed)
            return await self._parts(evaluator, client)
        except (SetupFailure, GuestRefusal, ResourceMissing, OfficialFailure) as error:
            raise NotScored(str(error)) from None
        except MALFORMED as error:
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
        if _measured_here(name, self._own):
            return metric_score(name, found, wanted, options, has_expected=bool(expected))
        if self._official is None:
            raise NotScored(f"metric {name!r} is OSWorld's; set env.own.osworld_python")
        return await self._official.score(name, found, wanted, options, has_expected=bool(expected))

    async def close(self) -> None:
        if self._official is not None:
            await self._official.close()
