"""Tasks and parameters of environments that an OpenEnv server runs."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from rla_bridges.adapters.openenv import GOAL, HELD_OUT, OpenEnv

from bridges_tests.adapters.openenv_fake import TEXT_ACTION
from rla.envs.chat_prompts import ChatJudge, PlainJudge
from rla.envs.protocols import Checks, Env, Judged, Shares
from rla.errors import UserError
from rla.store.records import Task
from tests.unit.builders import configured

COUNTS = ("tasks.train_scenes=20", "tasks.test_scenes=10", "tasks.tasks_per_scene=1")


@contextmanager
def site(routes: dict[str, Any]) -> Iterator[str]:
    """An HTTP server of its own thread: `tasks` runs an event loop of its own. Routes may be functions of the body."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(None)

        def do_POST(self) -> None:
            self.answer(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

        def answer(self, body: Any) -> None:
            found = routes.get(self.path)
            data = json.dumps(found(body) if callable(found) else found).encode()
            self.send_response(200 if found is not None else 404)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None:
            """Tests are quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def routes_of(**more: Any) -> dict[str, Any]:
    common = {"/schema": {"action": TEXT_ACTION}, "/metadata": {"name": "Echo", "description": "Say\n it."}}
    return common | {f"/{name.replace('__', '/')}": route for name, route in more.items()}


def made(routes: dict[str, Any], split: str, *overrides: str, seed: int = 0) -> list[Task]:
    with site(routes) as url:
        config = configured(f"env.own.id={url}", *COUNTS, *overrides, env="openenv")
        return OpenEnv().tasks(config, split=split, seed=seed)


def test_it_has_what_its_stages_need() -> None:
    assert isinstance(OpenEnv(), Env)
    for ability in (Checks, Judged, Shares):
        assert isinstance(OpenEnv(), ability)


def test_tasks_are_seeds_that_follow_each_other_and_no_split_shares_one() -> None:
    train, test = made(routes_of(), "train"), made(routes_of(), "test")
    seeds = {
        split: [json.loads(task.payload)["reset"]["seed"] for task in tasks]
        for split, tasks in (("a", train), ("b", test))
    }
    assert seeds["a"] == list(range(seeds["a"][0], seeds["a"][0] + 20))
    assert max(seeds["a"]) < HELD_OUT <= min(seeds["b"])
    assert len({task.task_id for task in train + test}) == 30
    assert {task.slot == task.task_id for task in train} == {True}
    assert train[0].instruction == "Say it."
    assert (train[0].env, train[0].split, train[0].scene) == ("openenv", "train", "Echo")


def test_equal_arguments_give_equal_tasks_wherever_the_server_is() -> None:
    assert made(routes_of(), "train") == made(routes_of(), "train")
    assert made(routes_of(), "train", seed=1) != made(routes_of(), "train")


def test_the_instruction_is_the_parameters_or_the_servers_or_a_general_one() -> None:
    assert made(routes_of(), "train", "env.own.instruction=Win")[0].instruction == "Win"
    assert made(routes_of(metadata=[]), "train")[0].instruction == GOAL


def listed(count: Any = 50, card: Any = None) -> dict[str, Any]:
    def task(body: dict[str, Any]) -> Any:
        shown = {"id": f"{body['split']}-{body['index']}", "instruction": f"Task {body['index']}."}
        return {"task": shown if card is None else card}

    return routes_of(list_environments=["Echo"], Echo__num_tasks=lambda body: {"num_tasks": count}, Echo__task=task)


def test_listed_tasks_are_drawn_from_the_servers_own() -> None:
    tasks = made(listed(), "test", "env.own.select=listed")
    resets = [json.loads(task.payload)["reset"] for task in tasks]
    assert len(tasks) == 10
    assert all(reset["task_id"] == f"test-{reset['index']}" for reset in resets)
    assert [task.instruction for task in tasks] == [f"Task {reset['index']}." for reset in resets]
    assert len(made(listed(3), "test", "env.own.select=listed")) == 3


@pytest.mark.parametrize("card", [5, {}, {"id": 3, "instruction": [1]}, "x"])
def test_a_listed_task_without_a_card_has_its_index(card: Any) -> None:
    task = made(listed(1, card), "train", "env.own.select=listed")[0]
    assert json.loads(task.payload)["reset"] == {"split": "train", "index": 0}
    assert task.instruction == "Say it."


@pytest.mark.parametrize(
    "routes", [routes_of(), routes_of(list_environments=[]), listed("many"), listed(0), listed(True)]
)
def test_a_server_that_lists_nothing_is_named(routes: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="lists no tasks of split 'train'; set it to seed"):
        made(routes, "train", "env.own.select=listed")


@pytest.mark.parametrize(
    "schema", [None, [], {"action": 3}, {"action": {"properties": []}}, {"action": {"properties": {}}}]
)
def test_a_server_without_actions_is_refused(schema: Any) -> None:
    with pytest.raises(UserError, match=r"env\.own\.id"):
        made(routes_of(schema=schema), "train")


def test_a_missing_server_is_the_users_to_mend() -> None:
    with pytest.raises(UserError, match="start the OpenEnv server or correct the address"):
        OpenEnv().tasks(configured("env.own.id=http://127.0.0.1:9", env="openenv"), split="train", seed=0)
    with pytest.raises(UserError, match=r"env\.own\.id is ''"):
        OpenEnv().tasks(configured(env="openenv"), split="train", seed=0)


@pytest.mark.parametrize(
    "override", ["env.own.id=localhost", "env.own.reset='[1]'", "env.own.timeout=0", "env.own.connections=0"]
)
def test_impossible_parameters_are_refused(override: str) -> None:
    with pytest.raises(UserError, match=override.partition("=")[0].replace(".", r"\.")):
        configured(override, env="openenv")


def test_prompts_are_those_of_any_environment() -> None:
    assert isinstance(OpenEnv().judge_prompt(configured(env="openenv")), PlainJudge)
    assert isinstance(OpenEnv().judge_prompt(configured("judge.prompt=published", env="openenv")), ChatJudge)
    chat = OpenEnv().policy_prompt(configured("policy.reply=tagged", "env.own.rules=You dig.", env="openenv"))
    assert chat.opening("Dark.", ())[0]["content"].startswith("You dig. Think")
