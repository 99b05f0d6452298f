"""`rla collect`: real episodes of a teacher, or the best of what was played; and a warm start from them."""

from __future__ import annotations

import json
import shutil
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
import rla_programs.collecting.shard
from bridges_tests.engines.chat_completions import ChatCompletions, reply
from rla_programs.collecting.conversations import Conversation, read_conversations

from rla.cli.app import run
from rla.envs import registry
from rla.store.manifest import Origin, read_json
from rla.store.records import Judgement, Segment, Step, StepScore, StopReason, Trajectory
from rla.store.shards import ShardWriter

PARAMS = """
seed: 5
env: {name: sums, max_steps: 4}
tasks: {train_scenes: 5, test_scenes: 1}
model: {hidden_size: 32, layers: 1, heads: 2, intermediate_size: 32, context: 256}
launch: {threads: 1}
policy: {reply: text, history: full}
adaptation: {enabled: false}
judge: {enabled: false}
collect: {episodes: 4}
warm_start:
  conversations: collected
  policy: {steps: 0, epochs: 2, batch_size: 2, packing: true, lr: 1.0e-3}
"""


def played_by(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """`env.name: sums` means the class `name` of `programs_tests.integration.sums`."""
    entry = EntryPoint(name="sums", value=f"programs_tests.integration.sums:{name}", group=registry.GROUP)
    monkeypatch.setitem(registry.BUILTIN, "sums", entry)


@pytest.fixture(autouse=True)
def sums(monkeypatch: pytest.MonkeyPatch) -> None:
    played_by(monkeypatch, "Sums")


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("tasks")
    (made / "params.yaml").write_text(PARAMS)
    with pytest.MonkeyPatch.context() as patch:
        played_by(patch, "Sums")
        assert stage(made, "make-tasks") == 0
    return made


@pytest.fixture
def folder(tasks: Path, tmp_path: Path) -> Path:
    """A run that has its tasks."""
    shutil.copytree(tasks, tmp_path, dirs_exist_ok=True)
    return tmp_path


def stage(folder: Path, name: str, *options: str) -> int:
    return run([name, "--run", str(folder / "run"), "--params", str(folder / "params.yaml"), *options])


def collected(folder: Path, name: str = "run/0/conversations") -> list[Conversation]:
    return read_conversations(folder / name)


def said(one: Conversation) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in one.messages]


def test_a_solver_plays_the_real_environment_and_what_it_lost_is_left_out(folder: Path) -> None:
    assert stage(folder, "collect") == 0
    found = collected(folder)
    # Five tasks, of which two ask the same; of equal episodes one is kept.
    assert sorted(said(one)[0][1] for one in found) == [f"Add {place} and 5." for place in range(4)]
    assert said(found[0])[1:] == [
        ("assistant", "I ask. add"),
        ("tool", said(found[0])[3][1].removeprefix("It is ")),
        ("assistant", said(found[0])[3][1]),
    ]
    assert {(one.outcome, one.teacher) for one in found} == {(1, "solver")}
    assert json.loads(found[0].tools or "")[0]["function"]["name"] == "add"


def test_all_outcomes_and_several_of_a_question_may_be_kept(folder: Path) -> None:
    more = ["--set", "collect.outcome=all", "--set", "collect.keep=9", "--set", "collect.episodes=12"]
    assert stage(folder, "collect", *more) == 0
    found = collected(folder)
    assert sorted(one.outcome or 0 for one in found) == [-1] * 4 + [1] * 4
    assert {said(one)[1][1] for one in found if one.outcome == -1} == {"It is 0"}


def test_a_call_that_was_killed_is_carried_on(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Killed(BaseException):
        """Stands for a kill."""

    written: list[int] = []
    real = ShardWriter.write

    def write(self: ShardWriter, index: int, rows: list[dict[str, Any]]) -> None:
        if len(written) == 2:
            raise Killed
        written.append(index)
        real(self, index, rows)

    with monkeypatch.context() as patched, pytest.raises(BaseException) as error:
        patched.setattr(ShardWriter, "write", write)
        stage(folder, "collect")
    assert error.group_contains(Killed) if isinstance(error.value, BaseExceptionGroup) else error.type is Killed
    played: list[str] = []
    real_taught = rla_programs.collecting.shard.taught

    async def taught(task: Any, episode: int, shared: Any) -> Any:
        played.append(task.instruction)
        return await real_taught(task, episode, shared)

    monkeypatch.setattr(rla_programs.collecting.shard, "taught", taught)
    assert stage(folder, "collect") == 0
    assert len(set(played)) == 2
    assert len(collected(folder)) == 4


def test_slices_make_the_same_shard(folder: Path) -> None:
    assert stage(folder, "collect") == 0
    for part in ("1/2", "2/2"):
        assert stage(folder, "collect", "--slice", part, "--out", str(folder / "sliced")) == 0
    assert collected(folder, "sliced") == collected(folder)


def test_an_environment_that_fails_stops_the_stage(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage(folder, "collect", "--set", "env.own.broken=true") == 2
    assert "failed, more than rollout.max_failed_share" in capsys.readouterr().err
    assert not (folder / "run/0/conversations/_manifest.parquet").exists()
    assert stage(folder, "collect", "--set", "env.own.broken=true", "--set", "rollout.max_failed_share=1.0") == 0


def test_a_server_is_told_the_tools_and_calls_them(folder: Path) -> None:
    def answer(number: int, body: dict[str, Any]) -> Any:
        last = body["messages"][-1]
        if last["role"] == "tool":
            return reply(f"It is {last['content']}")
        made = reply("I compute.", "tool_calls")
        call = {"id": "x", "type": "function", "function": {"name": "add", "arguments": "{}"}}
        made["choices"][0]["message"]["tool_calls"] = [call]
        return made

    with ChatCompletions(answer) as server:
        section = f"{{url: '{server.url}', model: big}}"
        assert stage(
            folder, "collect", "--set", "collect.teacher=server", "--set", f"collect.server={section}",
            "--set", "collect.episodes=1",
        ) == 0  # fmt: skip
    found = collected(folder)
    assert [role for role, _ in said(found[0])] == ["user", "assistant", "tool", "assistant"]
    assert {said(one)[1][1] for one in found} == {"I compute. add"}  # as the environment has read it
    assert {one.teacher for one in found} == {"big"}
    assert server.bodies[0]["tools"][0]["function"]["name"] == "add"
    later = next(body for body in server.bodies if len(body["messages"]) == 3)
    assert later["messages"][1]["tool_calls"][0]["id"] == later["messages"][2]["tool_call_id"]


def test_a_server_that_answers_in_text_is_told_no_tools(folder: Path) -> None:
    def answer(number: int, body: dict[str, Any]) -> Any:
        last = body["messages"][-1]["content"]
        return reply(f"It is {last}" if last.isdigit() else "add")

    with ChatCompletions(answer) as server:
        section = f"{{url: '{server.url}', model: big}}"
        assert stage(
            folder, "collect", "--set", "collect.teacher=server", "--set", f"collect.server={section}",
            "--set", "env.own.role=user",
        ) == 0  # fmt: skip
    assert "tools" not in server.bodies[0]
    assert [role for role, _ in said(collected(folder)[0])] == ["user", "assistant", "user", "assistant"]
    assert collected(folder)[0].tools is None


def played_shards(folder: Path) -> None:
    """Two won episodes and a lost one of one task, with scores that prefer the second."""
    own = Origin(config="c", inputs={}, seed=0)
    step = {"commands": (), "valid": True, "truncated": False, "segment": 0, "start": 0, "end": 1}
    segment = Segment(token_ids=[1], sampled=[True], logprobs=[0.0], allowed=[[]])
    rows, scores = [], []
    for number, (thought, outcome) in enumerate((("Hm.", 1), ("I ask.", 1), ("No.", -1))):
        steps = [
            Step(observation="Add 1 and 5.", reply=f"{thought} add", action=f"{thought} add", **step),
            Step(observation="6", reply=f"{thought} It is 6", action=f"{thought} It is 6", **step),
        ]
        rows.append(
            Trajectory(
                trajectory_id=f"t{number}", task_id="a", slot="a", status="active", iteration=1, rollout=number,
                seed=0, outcome=outcome, stop_reason=StopReason.WON.value, instruction="Add 1 and 5.", kind="odd",
                policy="p", steps=steps, segments=[segment], final_observation="Taken.",
                calls=[{"step": 0, "status": "ok"}],
            ).row()
        )  # fmt: skip
        judged = [Judgement(score=1, text="", truncated=False, token_ids=[], logprobs=[], allowed=[])]
        scores += [
            StepScore(
                trajectory_id=f"t{number}", task_id="a", step=place, prompt_ids=[], mean_score=mean, judgements=judged
            ).row()
            for place, mean in enumerate((1.0, number - 1.0))
        ]
    for kind, content in (("trajectories", rows), ("scores", scores)):
        writer = ShardWriter(folder / kind, kind, own)
        writer.write(0, content)
        writer.finish({})


def test_the_best_of_what_was_played_is_chosen_by_the_judge(folder: Path) -> None:
    played_shards(folder)
    options = ["--trajectories", str(folder / "trajectories"), "--scores", str(folder / "scores")]
    assert stage(folder, "collect", *options) == 0
    (best,) = collected(folder)
    assert said(best) == [
        ("user", "Add 1 and 5."),
        ("assistant", "I ask. add"),
        ("tool", "6"),
        ("assistant", "I ask. It is 6"),
    ]
    assert (best.quality, best.source, best.teacher, best.task_id) == (0.5, "odd", "p", "a")


def test_conversations_of_a_file_are_chosen_from_too(folder: Path) -> None:
    rows = [
        {"messages": [{"role": "user", "content": asked}, {"role": "assistant", "content": answer}]}
        for asked, answer in (("a", "one two three"), ("a ", "one two  three"), ("b", "four"))
    ]
    (folder / "own.jsonl").write_text("\n".join(map(json.dumps, rows)))
    assert stage(folder, "collect", "--conversations", str(folder / "own.jsonl")) == 0
    assert len(collected(folder)) == 2


def test_options_that_do_not_go_together_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage(folder, "collect", "--scores", str(folder / "scores")) == 2
    assert "--scores ranks the episodes of --trajectories" in capsys.readouterr().err
    assert stage(folder, "collect", "--set", "collect.variant=stitched") == 2
    assert "sums does not implement Stitches" in capsys.readouterr().err


def test_stitched_conversations_are_not_played(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played_by(monkeypatch, "Stitched")
    options = ["--set", "collect.variant=stitched", "--set", "env.own.broken=true"]
    assert stage(folder, "collect", *options) == 0
    found = collected(folder)
    assert len(found) == 4
    assert said(found[0])[1:] == [
        ("assistant", "By hand it is 99. add"), ("tool", "99"), ("assistant", "It is 99")
    ]  # fmt: skip


def test_an_environment_without_a_solver_says_what_to_do(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    played_by(monkeypatch, "Unsolved")
    assert stage(folder, "collect") == 2
    assert "set collect.teacher: server, or give --trajectories" in capsys.readouterr().err


def test_a_warm_start_collects_what_it_learns_from(folder: Path) -> None:
    assert stage(folder, "warm-start") == 0
    assert len(collected(folder)) == 4
    metrics = read_json(folder / "run/0/policy/metrics.json")
    assert (metrics["steps"], metrics["examples"]) == (4, 4)  # twice over four, two in each update
    assert read_json(folder / "run/0/rm/metrics.json")["examples"] == 0  # nobody judges
    before = (folder / "run/0/policy/checkpoint.json").read_text()
    assert stage(folder, "warm-start") == 0
    assert (folder / "run/0/policy/checkpoint.json").read_text() == before


def test_a_warm_start_takes_what_somebody_has_chosen_and_refuses_what_was_played_otherwise(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage(folder, "collect", "--set", "collect.keep=2") == 0
    assert stage(folder, "warm-start") == 2
    assert "collect.keep" in capsys.readouterr().err
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    (folder / "own.jsonl").write_text(json.dumps({"messages": messages}))
    assert stage(folder, "collect", "--overwrite", "--conversations", str(folder / "own.jsonl")) == 0
    assert stage(folder, "warm-start") == 0
    assert read_json(folder / "run/0/policy/metrics.json")["examples"] == 1


def test_a_warm_start_learns_from_a_file(folder: Path) -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    (folder / "own.jsonl").write_text(json.dumps({"messages": messages}))
    options = ["--set", f"warm_start.conversations={folder / 'own.jsonl'}"]
    assert stage(folder, "warm-start", *options) == 0
    assert read_json(folder / "run/0/policy/metrics.json")["examples"] == 1
    assert not (folder / "run/0/conversations").exists()


def test_and_from_a_data_set_of_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is named itself needs no list of files: the Hub's cache may have it where there is no network."""
    messages = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    (folder / "own.jsonl").write_text(json.dumps({"messages": messages}))

    def unlisted(*_: Any, **__: Any) -> list[str]:
        raise ConnectionError("no network")

    monkeypatch.setattr("huggingface_hub.list_repo_files", unlisted)
    monkeypatch.setattr("huggingface_hub.hf_hub_download", lambda repo, name, **_: str(folder / name))
    assert stage(folder, "collect", "--conversations", "hub:owner/set:own.jsonl") == 0
    (chosen,) = collected(folder)
    assert [one.content for one in chosen.messages] == ["a", "b"]
    assert stage(folder, "warm-start", "--set", "warm_start.conversations=hub:owner/set:own.jsonl") == 0
    assert read_json(folder / "run/0/policy/metrics.json")["examples"] == 1


def test_conversations_that_are_nowhere_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert stage(folder, "collect", "--conversations", "nowhere") == 2
    assert "--conversations: nowhere: no such file or folder" in capsys.readouterr().err
