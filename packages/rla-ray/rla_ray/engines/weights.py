"""Weights for nodes that do not see the run folder: the files travel through Ray's object store.

Ray copies an object once to each node, and all processes there read it from shared memory. The first engine on a node
writes the files to a private folder named by their digest, and the others find them there. A node that sees the model's
own folder with the same content reads that folder instead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rla.errors import UserError
from rla.models.checkpoint import MANIFEST
from rla.models.load import merged_folder
from rla.store.digests import FILES
from rla_ray.engines.seats import weights_of

KEPT = 4  # models that a node keeps on disk
OUTSIDE = "../"  # a prefix in names: the file lies next to the model's folder and records its content


def visible(model: str, digest: str) -> bool:
    """Whether this node sees the model with this content; a hub id is visible everywhere."""
    if "/" not in model.strip("/") or not os.path.isabs(model):
        return True
    try:
        return Path(model).is_dir() and weights_of(model) == digest
    except (OSError, UserError):
        return False


def travelling_files(model: Path) -> dict[str, Path]:
    """The files of a model folder and the records next to it, by the name under which they travel."""
    found = {file.name: file for file in sorted(model.iterdir()) if file.is_file()}
    records = {name: model.parent / name for name in (MANIFEST, FILES)} if model.name == "model" else {}
    return found | {OUTSIDE + name: file for name, file in records.items() if file.is_file()}


def put_files(ray: Any, model: Path, *, dtype: str) -> dict[str, Any]:
    """Put each file into the object store; returns the references by name. An adapter and its base travel as one model
    in precision `dtype`.
    """
    import numpy as np

    with merged_folder(model, dtype=dtype) as folder:
        files = travelling_files(Path(folder))
        return {name: ray.put(np.fromfile(file, dtype=np.uint8)) for name, file in files.items()}


async def model_from_files(files: Mapping[str, Any], digest: str) -> Path:
    """The model's folder on this node. It is written unless another engine of the node has done so."""
    place = weights_folder() / _digest_name(digest)
    folder = place / "model"
    if folder.is_dir():
        os.utime(place)  # recently used, so that older models are removed first
    else:
        contents = dict(zip(files, await asyncio.gather(*files.values()), strict=True))
        await asyncio.to_thread(write_files, place, contents)
    return folder


def write_files(place: Path, contents: Mapping[str, Any]) -> None:
    """Write the folder under a temporary name and rename it, so that it is complete or absent. The least recently used
    models are removed.
    """
    partial = Path(tempfile.mkdtemp(dir=place.parent, prefix=".partial-"))
    (partial / "model").mkdir()
    try:
        for name, content in contents.items():
            outside = name.startswith(OUTSIDE)
            content.tofile(partial / name.removeprefix(OUTSIDE) if outside else partial / "model" / name)
        with contextlib.suppress(OSError):  # another engine was faster
            partial.rename(place)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    kept = sorted((one for one in place.parent.iterdir() if not one.name.startswith(".")), key=os.path.getmtime)
    for old in kept[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)


def weights_folder() -> Path:
    """This user's own folder on the node's disk. Raises UserError if it belongs to another user."""
    place = Path(tempfile.gettempdir()) / f"rla-weights-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    if place.is_symlink() or place.stat().st_uid != os.getuid():
        raise UserError(f"{place}: not yours; remove it on that node, or set TMPDIR for Ray to a folder of your own")
    return place


def _digest_name(digest: str) -> str:
    """A digest in the form of a folder name."""
    return "".join(one if one.isalnum() else "-" for one in digest)[:80]
