"""What integration tests share, those of packages included: the command line itself."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

Rla = Callable[..., tuple[int, str, str]]


@pytest.fixture
def rla(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Rla:
    """Calls the command line in a folder with params.yaml; returns the exit code, stdout and stderr."""
    from rla.cli.app import run
    from tests.integration.pipelines import PARAMS

    (tmp_path / "params.yaml").write_text(PARAMS)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run([*arguments])
        return code, *capfd.readouterr()

    return call


@contextmanager
def rla_in(folder: Path, params: str) -> Iterator[Rla]:
    """The same in a folder that a module's tests copy from. What it prints is left to pytest."""
    from rla.cli.app import run

    (folder / "params.yaml").write_text(params)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield lambda *arguments: (run([*arguments]), "", "")


def stages(rla: Rla, *names: str, **options: str) -> None:
    """Calls one stage after the other on the run `r`; `options` are those of every call."""
    for name in names:
        code, _, error = rla(name, "--run", "r", *(text for item in options.items() for text in item))
        assert code == 0, (name, error)
