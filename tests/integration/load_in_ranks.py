"""What each rank of the memory test runs: `load_in_ranks.py TINY LARGE OUT`.

It opens both models as a stage does. Of the large one it writes the peak of the process's own memory (RssAnon: file
mappings do not count), in bytes.
"""

import json
import sys
import threading
import time
from pathlib import Path

from rla.config.training import TrainConfig
from rla.models.checkpoint import Checkpoint
from rla.processes import leave, rank
from rla.training.loop import PreparedStage, prepare
from rla.training.sequences import StoredSequences, write_sequences
from rla.training.shared import Compute, Ranks
from tests.unit.training.builders import random_sequences

CONFIG = TrainConfig(kl_coef=0.0)


def make_model(folder: Path) -> None:
    """Sixteen layers of 8 MiB in fp32, saved in bf16."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=127,
        hidden_size=512,
        intermediate_size=683,
        num_hidden_layers=16,
        num_attention_heads=8,
        num_key_value_heads=8,
    )
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)


def own_memory() -> int:
    """Bytes of this process that no file backs."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon"))
    return 1024 * int(line.split()[1])


def opened(model: Path, out: Path, ranks: Ranks) -> PreparedStage:
    file = out / f"sequences-{rank()}-{model.name}"
    stored = StoredSequences(file, write_sequences(file, random_sequences(2), max_tokens=99, budget=99))
    compute = Compute.choose(CONFIG, ranks)
    return prepare(Checkpoint(model=model), stored, config=CONFIG, temperature=1.0, seed=0, compute=compute)


def peak_of_opening(model: Path, out: Path, ranks: Ranks) -> dict[str, int]:
    """The most memory in use while the stage opens the model, beyond what was there before."""
    before, peak, done = own_memory(), 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            peak = max(peak, own_memory() - before)
            time.sleep(0.001)

    watching = threading.Thread(target=watch)
    watching.start()
    stage = opened(model, out, ranks)
    done.set()
    watching.join()
    weights = sum(4 * parameter.numel() for parameter in stage.scorer.parameters())
    return {"peak": max(peak, own_memory() - before), "model": weights}


if __name__ == "__main__":
    tiny, large, out = map(Path, sys.argv[1:])
    ranks = Ranks.join()
    opened(tiny, out, ranks)  # everything that is imported on the way is there
    (out / f"rank-{rank()}.json").write_text(json.dumps(peak_of_opening(large, out, ranks)))
    ranks.barrier()
    leave(0)
