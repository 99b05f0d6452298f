"""What a server must show before training data is made with it, and which of its models is asked."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import pytest
from rla_bridges.engines import completions
from rla_bridges.engines.completions import ServerGenerator

from bridges_tests.engines.completions_server import CompletionsServer, Report
from bridges_tests.engines.test_server_engine import CHAT
from rla.config.sections import GeneratorConfig
from rla.errors import UserError
from rla.llm.base import Completion, Request
from rla.llm.factory import ScriptedGenerator

VOCABULARY = 64


def connect(server: CompletionsServer, *, model: Path | str, training: bool = True, name: str = "") -> ServerGenerator:
    config = GeneratorConfig(backend="server", context=64)
    return completions.connect(server.url, name, config, model=model, chat=CHAT, training=training)


def connected(server: CompletionsServer, *, training: bool = True) -> ServerGenerator:
    return connect(server, model="org/tiny", training=training)


def reporting(*, restricts: bool, heats: bool) -> Report:
    """The log-probabilities of logits 0.7 * id: over the allowed tokens or all, at the request's temperature or 1."""

    def report(request: Request, completion: Completion) -> list[float]:
        ids = list(request.allowed.root) if request.allowed and restricts else list(range(VOCABULARY))
        heat = request.temperature if heats else 1.0
        total = math.log(sum(math.exp(0.7 * token / heat) for token in ids))
        return [0.7 * token / heat - total for token in completion.token_ids]

    return report


def test_a_server_that_reports_what_it_samples_from_is_taken() -> None:
    with CompletionsServer(ScriptedGenerator(), report=reporting(restricts=True, heats=True)) as server:
        connected(server)
    assert {body["temperature"] for body in server.requests} == {1.0, 2.0}


def test_log_probabilities_of_the_model_itself_are_refused() -> None:
    with (
        CompletionsServer(ScriptedGenerator(), report=reporting(restricts=False, heats=False)) as server,
        pytest.raises(UserError, match=f"{server.url}.*of the model, not.*--logprobs-mode processed_logprobs"),
    ):
        connected(server)


def test_log_probabilities_at_another_temperature_are_refused() -> None:
    with (
        CompletionsServer(ScriptedGenerator(), report=reporting(restricts=True, heats=False)) as server,
        pytest.raises(UserError, match=r"not at the sampling temperature.*processed_logprobs"),
    ):
        connected(server)


@pytest.mark.parametrize("omit", ["token_ids", "logprobs"])
def test_what_training_data_needs_evaluation_does_not(omit: str) -> None:
    with CompletionsServer(ScriptedGenerator(), omit=[omit]) as server:
        with pytest.raises(UserError, match="which training data needs"):
            connected(server)
        connected(server, training=False)


def test_a_prompt_comes_back_as_it_was_sent() -> None:
    def with_start_token(request: Request, completion: Completion) -> list[float]:
        request.prompt_ids.insert(0, 1)  # type: ignore[attr-defined]
        return completion.logprobs

    with (
        CompletionsServer(ScriptedGenerator(), report=with_start_token) as server,
        pytest.raises(UserError, match="changes a prompt of token ids"),
    ):
        connected(server)


def test_the_context_of_the_server_is_the_limit() -> None:
    with (
        CompletionsServer(ScriptedGenerator(), models=[{"id": "tiny", "max_model_len": 32}]) as server,
        pytest.raises(UserError, match=r"holds 32 tokens and generator\.context is 64; .*--max-model-len 64"),
    ):
        connected(server)


@pytest.fixture
def folder(tmp_path: Path) -> Callable[[str, str], Path]:
    def make(name: str, weights: str) -> Path:
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "model.safetensors").write_text(weights)
        return tmp_path / name

    return make


def test_a_model_is_known_by_its_name_where_the_server_reports_no_folder() -> None:
    cards = [{"id": "Qwen/Qwen3-4B"}, {"id": "other"}]
    with CompletionsServer(ScriptedGenerator(), models=cards) as server:
        connect(server, model="Qwen/Qwen3-4B", training=True)
        assert {body["model"] for body in server.requests} == {"Qwen/Qwen3-4B"}


def test_the_model_that_was_loaded_from_the_checkpoint_is_asked(folder: Callable[[str, str], Path]) -> None:
    policy, judge = folder("policy", "p"), folder("rm", "r")
    cards = [{"id": "a", "root": str(policy)}, {"id": "b", "root": str(judge)}]
    with CompletionsServer(ScriptedGenerator(), models=cards) as server:
        connect(server, model=judge, training=True)
        assert {body["model"] for body in server.requests} == {"b"}
        with pytest.raises(UserError, match=r"serves a, b, and none .*set generator\.own\.model to the name of"):
            connect(server, model=folder("other", "o"), training=True)
        with pytest.raises(UserError, match=r"serves a, b, not c; set generator\.own\.model"):
            connect(server, model=policy, training=True, name="c")


def test_other_weights_than_the_checkpoints_are_refused(folder: Callable[[str, str], Path]) -> None:
    first, copy, second = folder("1", "one"), folder("copy", "one"), folder("2", "two")
    with CompletionsServer(ScriptedGenerator(), models=[{"id": "tiny", "root": str(first)}]) as server:
        connect(server, model=copy, training=False)
        with pytest.raises(UserError, match=f"serves {first}, not this stage's checkpoint {second}"):
            connect(server, model=second, training=False)


def test_the_adapter_of_the_checkpoint_is_asked_and_no_other(
    folder: Callable[[str, str], Path], tmp_path: Path
) -> None:
    base, merged = folder("base", "one"), folder("merged", "two")
    for name in "12":
        folder(name, "")
        (tmp_path / name / "adapter").mkdir()
        (tmp_path / name / "adapter/adapter_config.json").write_text("{}")
        (tmp_path / name / "model").mkdir()
        (tmp_path / name / "model/config.json").write_text("{}")
        files = {"model.safetensors": {"bytes": 3, "sha256": "a"}}
        (tmp_path / name / "model/base.json").write_text(json.dumps({"base": "../../base", "files": files}))
    cards = [{"id": name, "root": str(root)} for name, root in (("base", base), ("a", tmp_path / "1/adapter"))]
    with CompletionsServer(ScriptedGenerator(), models=cards) as server:
        connect(server, model=tmp_path / "1/model", training=True)
        assert {body["model"] for body in server.requests} == {"a"}
        for name, other in (("base", "1"), ("a", "2")):
            with pytest.raises(UserError, match="not this stage's checkpoint"):
                connect(server, model=tmp_path / other / "model", training=False, name=name)
    with CompletionsServer(ScriptedGenerator(), models=[{"id": "tiny", "root": str(merged)}]) as server:
        connect(server, model=tmp_path / "1/model", training=False)
