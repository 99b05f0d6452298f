"""The files of a model folder that somebody brings: regular ones, and of a size that such a file has."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

from rla.store.regular import MIB, refuse_irregular

LARGEST = (  # of files that are read whole, by the first pattern that fits; the greatest vocabularies take 35 MiB
    ("*.index.json", 64 * MIB),
    ("tokenizer.json", 64 * MIB),
    ("vocab.*", 64 * MIB),
    ("merges.txt", 64 * MIB),
    ("*.model", 64 * MIB),
    ("*.json", 16 * MIB),
    ("*.jinja", MIB),
    ("*.txt", 64 * MIB),
)


def check_model_folder(folder: Path) -> None:
    """UserError for a pipe or a device among the files of a model, and for one that is too large to be what it says."""
    for path in sorted(folder.iterdir()):
        if path.exists():  # a link may lead nowhere
            refuse_irregular(path, next((most for name, most in LARGEST if fnmatch(path.name, name)), None))
