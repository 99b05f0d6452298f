"""Data files of a data set on the Hub: `hub:owner/name[@revision][:folder or file]`.

Only the files of the split (see `rows.py`) below the folder are downloaded, into the Hub's own cache, and read like
local ones: no loading script runs. A file that is named explicitly is also found in the cache without a network.
Examples: `hub:google-research-datasets/mbpp:sanitized`, `hub:livecodebench/code_generation_lite:test6.jsonl`.
"""

from __future__ import annotations

import re
from pathlib import Path

from rla.errors import UserError
from rla_programs.coding.importing.rows import SUFFIXES, of_split

PREFIX = "hub:"
NAME = re.compile(r"hub:(?P<repo>[\w.-]+/[\w.-]+)(@(?P<revision>[\w./-]+))?(:(?P<inside>[^:]+))?")


def fetched(source: str, split: str) -> list[Path]:
    """Local copies of the data set's files. Raises `UserError` without the data set, its files or the network."""
    named = NAME.fullmatch(source)
    if named is None:
        raise UserError(f"{source}: not of the form hub:owner/name[@revision][:folder or file]")
    from huggingface_hub import hf_hub_download, list_repo_files
    from huggingface_hub.errors import HFValidationError, HTTPError

    repo, revision = named["repo"], named["revision"]

    def listed() -> list[str]:
        try:
            return list(list_repo_files(repo, repo_type="dataset", revision=revision))
        except (HTTPError, OSError):
            if not _is_data_file(named["inside"]):
                raise
            return [named["inside"]]  # it may be in the Hub's cache

    try:
        names = _chosen_files(listed(), named["inside"], split)
        if not names:
            raise UserError(f"{source}: has no data file of the split {split!r}; name a file of it behind a colon")
        return [Path(hf_hub_download(repo, name, repo_type="dataset", revision=revision)) for name in names]
    except (HTTPError, HFValidationError, OSError) as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise UserError(
            f"{source}: cannot be fetched ({reason}); check the name and the network, or give the folder of a copy"
        ) from error


def _chosen_files(names: list[str], inside: str | None, split: str) -> list[str]:
    """The file `inside`, or the files of the split below the folder `inside`, in name order."""
    if inside in names and _is_data_file(inside):
        return [inside]
    below = [name for name in names if inside is None or name.startswith(f"{inside.rstrip('/')}/")]
    return sorted(of_split(below, split))


def _is_data_file(inside: str | None) -> bool:
    """Whether the name behind the colon is a file and not a folder."""
    return inside is not None and Path(inside).suffix in SUFFIXES
