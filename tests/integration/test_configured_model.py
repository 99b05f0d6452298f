"""`model.policy` names the model that a run starts from: a folder is linked, nonsense is named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rla.store.manifest import digest
from tests.integration.pipelines import PARAMS

RunRla = Callable[..., int]


@pytest.fixture
def rla(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunRla:
    from rla.cli.app import run

    (tmp_path / "params.yaml").write_text(PARAMS)
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: run([*arguments])


def test_a_configured_folder_is_what_acts(rla: RunRla, tmp_path: Path) -> None:
    assert rla("init-model", "--run", "maker") == 0
    model = tmp_path / "maker/init/policy"
    assert rla("rollout", "--run", "r", "--set", f"model.policy={model}") == 0
    assert (tmp_path / "r/init/policy/model.safetensors").resolve() == (model / "model.safetensors").resolve()
    assert digest(tmp_path / "r/init/policy") == digest(model)
    assert digest(tmp_path / "r/init/rm") == digest(model)  # the reward model starts where the policy does


def test_no_warm_start_is_recommended_for_a_model_that_exists(
    rla: RunRla, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert rla("init-model", "--run", "maker") == 0
    start = ("rollout", "--set", f"model.policy={tmp_path / 'maker/init/policy'}", "--set", "warm_start.enabled=")
    for answer, recommended in (("null", False), ("true", True)):
        assert rla(*start[:-1], f"{start[-1]}{answer}", "--run", answer) == 0
        assert ("`rla warm-start` trains it first" in capfd.readouterr().err) is recommended


def test_the_reward_model_may_be_another_one(rla: RunRla, tmp_path: Path) -> None:
    assert rla("init-model", "--run", "maker") == 0
    model = tmp_path / "maker/init/policy"
    assert rla("init-model", "--run", "r", "--set", f"model.policy={model}", "--set", "model.reward=init") == 0
    assert digest(tmp_path / "r/init/rm") not in (digest(model), digest(tmp_path / "r/init/policy"))


def test_another_model_of_the_same_shape_is_another_model(rla: RunRla, tmp_path: Path) -> None:
    assert rla("init-model", "--run", "a") == 0
    assert rla("init-model", "--run", "b", "--seed", "4") == 0
    assert digest(tmp_path / "a/init/policy") != digest(tmp_path / "b/init/policy")


def test_other_settings_do_not_keep_the_old_model(
    rla: RunRla, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert rla("init-model", "--run", "r") == 0
    before = digest(tmp_path / "r/init/policy")
    assert rla("init-model", "--run", "r", "--set", "model.hidden_size=64") == 2
    assert "made with model.hidden_size 32, this call has 64" in capfd.readouterr().err
    assert digest(tmp_path / "r/init/policy") == before
    assert rla("init-model", "--run", "r", "--set", "model.hidden_size=64", "--overwrite") == 0
    assert digest(tmp_path / "r/init/policy") != before


def test_a_model_that_is_nowhere_is_named(
    rla: RunRla, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert rla("init-model", "--run", "r", "--set", "model.policy=nobody/nothing") == 2
    assert "model.policy: nobody/nothing is neither a folder nor a hub model" in capfd.readouterr().err
