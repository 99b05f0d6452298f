"""The resident engine: the shards of an engine of one's own, and what is left when a stage or the server is killed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import pytest

from rla.cli.app import run
from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.llm import resident_client as client
from rla.llm import resident_control as control
from rla.llm import resident_messages as protocol
from rla.llm.base import Completion, Generator, Request
from rla.llm.factory import make_generator
from rla.llm.refusals import ContextOverflow
from rla.llm.resident_client import ResidentGenerator, ask_engine
from rla.llm.trie import TokenTrie
from tests.integration.pipelines import PARAMS, until
from tests.unit.training.builders import tiny_model

DEADLINE = 60.0
SETTINGS = GeneratorConfig(context=128, threads=1, max_sequences=8)
STAGES = ("rollout", "score-steps", "validate-tasks", "compute-rewards", "train-policy", "train-rm", "adapt-env")
PLAYED = ("trajectories", "scores")


class Server:
    """A server of the test's own, on a socket in a private folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        self.path = folder / "socket"
        self.pid = int(control.start_engine(self.path, parent=os.getpid()).split()[-2])

    def log(self) -> str:
        return (self.path.parent / control.LOG).read_text()

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("engine") / "s")
    yield server
    control.stop_engine(server.path)


@pytest.fixture
def resident(running: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    monkeypatch.setenv(protocol.VARIABLE, str(running.path))
    return running


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("models")
    return [tiny_model(folder / str(seed), seed=seed) for seed in range(2)]


def generator(model: Path) -> Generator:
    return make_generator(SETTINGS, model=model, seed=0)[0]


def requests() -> list[Request]:
    """Free and restricted ones, with shared prompts and sessions that grow."""
    trie = TokenTrie([[9, 10, 0], [9, 11, 12, 0], [13, 0]])
    return [
        Request(
            prompt_ids=[5, 6, 7, 8 + index % 3] * 4,
            max_tokens=10,
            temperature=1.0,
            seed=index,
            samples=1 + index % 3,
            session=f"s{index}",
            allowed=trie if index % 2 else None,
        )
        for index in range(6)
    ]


def answers(engine: Generator) -> list[list[Completion]]:
    """All at once, and once more as the sessions' next turns."""

    async def main() -> list[list[Completion]]:
        first = await asyncio.gather(*map(engine.generate, requests()))
        turns = [
            Request(
                prompt_ids=[*request.prompt_ids, *replies[0].token_ids, 3],
                max_tokens=5,
                temperature=0.7,
                seed=request.seed,
                session=request.session,
            )
            for request, replies in zip(requests(), first, strict=True)
        ]
        second = await asyncio.gather(*map(engine.generate, turns))
        for request in turns:
            engine.release(str(request.session))
        return [*first, *second]

    try:
        return asyncio.run(main())
    finally:
        engine.close()


def stage(name: str, folder: Path, iteration: int, *more: str) -> None:
    words = ["--params", str(folder / "params.yaml"), "--run", str(folder / "run"), "--iteration", str(iteration)]
    assert run([name, *words, *more]) == 0


def parts(folder: Path) -> list[str]:
    return [sha256(part.read_bytes()).hexdigest() for part in sorted(folder.glob("part-*.parquet"))]


def test_two_iterations_of_changing_weights_give_the_same_shards(
    tmp_path: Path, running: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(protocol.VARIABLE, raising=False)
    params = PARAMS.replace("backend: scripted", "backend: transformers")
    (tmp_path / "params.yaml").write_text(params)
    for iteration in (1, 2):
        for name in STAGES:
            stage(name, tmp_path, iteration)
    monkeypatch.setenv(protocol.VARIABLE, str(running.path))
    for iteration in (1, 2):
        again = [tmp_path / f"again-{iteration}" / name for name in PLAYED]
        for name, folder in zip(("rollout", "score-steps"), again, strict=True):
            stage(name, tmp_path, iteration, "--out", str(folder))
        for name, folder in zip(PLAYED, again, strict=True):
            assert parts(folder) == parts(tmp_path / "run" / str(iteration) / name) != []
    log = running.log()
    assert log.count(str(tmp_path)) >= 4
    assert log.count("engine started") <= 2  # one for each of two shapes, the other models' included


def test_completions_are_those_of_an_engine_of_ones_own(
    models: list[Path], resident: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = [answers(generator(model)) for model in (models[0], models[1], models[0])]
    monkeypatch.delenv(protocol.VARIABLE)
    own = [answers(generator(model)) for model in models]
    assert served == [own[0], own[1], own[0]]
    assert own[0] != own[1]


def test_what_a_generator_refuses_is_refused_alike(models: list[Path], resident: Server) -> None:
    engine = generator(models[0])
    assert isinstance(engine, ResidentGenerator)
    assert engine.context == SETTINGS.context
    with pytest.raises(ContextOverflow):
        asyncio.run(engine.generate(Request(prompt_ids=[1] * 120, max_tokens=9, temperature=1.0, seed=0)))
    engine.close()
    with pytest.raises(UserError, match="exceeds the model's 128 positions"):
        make_generator(GeneratorConfig(context=129, threads=1), model=models[0], seed=0)


KILLED = """
import asyncio, os, sys
from pathlib import Path
from rla.llm.base import Request
from tests.integration.test_resident import generator

async def main():
    engine = generator(Path(sys.argv[1]))
    asks = [
        asyncio.create_task(engine.generate(Request(prompt_ids=[5, 6, 7], max_tokens=120, temperature=1.0, seed=seed)))
        for seed in range(40)
    ]
    await asyncio.wait(asks, return_when=asyncio.FIRST_COMPLETED)
    os.kill(os.getpid(), 9)

asyncio.run(main())
"""


def test_a_killed_stage_leaves_nothing_behind(models: list[Path], resident: Server) -> None:
    undisturbed = answers(generator(models[1]))
    done = subprocess.run([sys.executable, "-c", KILLED, str(models[0])], timeout=DEADLINE, check=False)
    assert done.returncode == -signal.SIGKILL
    started = time.monotonic()
    assert answers(generator(models[1])) == undisturbed  # other weights: the killed stage's lease is over
    assert time.monotonic() - started < 5.0


def test_a_stage_that_does_not_read_its_replies_holds_nobody_up(models: list[Path], resident: Server) -> None:
    stop_ids = sorted(make_stop_ids(models[0]))
    silent = ask_engine(
        resident.path, protocol.OPEN, model=str(models[0]), config=asdict(SETTINGS), stop_ids=stop_ids, seed=0
    )
    assert silent is not None
    assert protocol.receive_message(silent)["context"] == SETTINGS.context
    call = {"id": 0, **protocol.request_data(requests()[0])}
    silent.sendall(protocol.pack_message({"turn": None, "calls": [call]}))
    started = time.monotonic()
    answers(generator(models[0]))
    assert time.monotonic() - started < 10.0
    silent.close()


def make_stop_ids(model: Path) -> frozenset[int]:
    from rla.llm.chat import ChatFormat
    from rla.models.load import load_tokenizer

    return ChatFormat(load_tokenizer(model)).stop_ids


def test_a_killed_server_is_one_clear_error_and_the_stage_goes_on_when_called_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(protocol.VARIABLE, raising=False)
    params = PARAMS.replace("backend: scripted", "backend: transformers").replace(
        "rollouts_per_task: 4}", "rollouts_per_task: 4, concurrency: 1}"
    )
    (tmp_path / "params.yaml").write_text(params)
    stage("rollout", tmp_path, 1)
    server = Server(tmp_path / "s")
    out = tmp_path / "again"
    words = ["rollout", "--params", "params.yaml", "--run", "run", "--out", str(out)]
    process = subprocess.Popen(
        [sys.executable, "-m", "rla", *words],
        cwd=tmp_path,
        env=os.environ | {protocol.VARIABLE: str(server.path), "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
    )
    until(lambda: any(out.glob("part-*.parquet")) or process.poll() is not None, seconds=DEADLINE)
    server.kill()
    _, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 2, errors
    assert "the resident engine ended while the stage ran" in errors
    assert "Traceback" not in errors
    before = {part.name: part.stat().st_mtime_ns for part in out.glob("part-*.parquet")}
    assert 0 < len(before) < len(parts(tmp_path / "run/1/trajectories"))
    monkeypatch.setenv(protocol.VARIABLE, str(server.path))  # a dead server's: an engine of the stage's own
    stage("rollout", tmp_path, 1, "--out", str(out))
    assert parts(out) == parts(tmp_path / "run/1/trajectories")
    assert {part.name: part.stat().st_mtime_ns for part in out.glob("part-*.parquet")}.items() >= before.items()


def test_without_a_server_or_with_one_of_other_code_the_stage_has_an_engine_of_its_own(
    tmp_path: Path, models: list[Path], resident: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "code", lambda: "another")
    assert not isinstance(generator(models[0]), ResidentGenerator)
    assert "other code" in control.engine_status(resident.path)
    monkeypatch.setenv(protocol.VARIABLE, str(tmp_path / "nothing"))
    assert not isinstance(generator(models[0]), ResidentGenerator)


def test_a_socket_of_something_else_is_refused(
    tmp_path: Path, models: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "socket"
    monkeypatch.setenv(protocol.VARIABLE, str(path))
    tmp_path.chmod(0o700)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        listener.bind(str(path))
        listener.listen()

        def answer() -> None:
            connection, _ = listener.accept()
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            connection.close()

        other = threading.Thread(target=answer)
        other.start()
        with pytest.raises(UserError, match="no resident engine answers there"):
            generator(models[0])
        other.join()
        tmp_path.chmod(0o777)
        with pytest.raises(UserError, match="not yours alone"):
            generator(models[0])
        tmp_path.chmod(0o700)


def test_what_is_not_the_protocol_is_hung_up_on(resident: Server, models: list[Path]) -> None:
    for data in (b"GET / HTTP/1.1\r\n\r\n", protocol.pack_message({"magic": "another"}), b"\x00\x00\x00\x03{}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.settimeout(DEADLINE)
            stranger.connect(str(resident.path))
            stranger.sendall(data)
            stranger.shutdown(socket.SHUT_WR)
            assert stranger.recv(1) == b""
    assert control.engine_status(resident.path).endswith("ready")
