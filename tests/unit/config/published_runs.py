"""What holds of the params file of every published run, whichever package brings it."""

from __future__ import annotations

import yaml

from rla.envs.registry import load_config
from rla.pipeline.plan import packaged_files

ON = ("token_tis", 3.0)  # old, dual_clip: against a sampler of another precision


def assert_published(name: str, *, reward: str, votes: int) -> None:
    """The paper's models and votes (section 3.1.1), and protection that the file itself states."""
    file = packaged_files()[name]
    config = load_config(file)
    assert (config.model.reward, config.adaptation.llm.model, config.judge.votes) == (reward, "Qwen/Qwen3-4B", votes)
    read = yaml.safe_load(file.read_text())
    for section in ("train_policy", "train_rm"):
        found = getattr(config, section)
        assert (found.old, found.dual_clip) == ON
        assert (read[section]["old"], read[section]["dual_clip"]) == ON
