"""How weights reach a node that does not see the run folder: their files go through Ray's object store.

Ray brings an object once to each node, where all processes read it in shared memory. The first engine of a node writes
the files below a private folder named by their digest, and the others find them there. A node that sees the model's own
folder with the same content reads that.
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
from rla.models.verifying import origin_record
from rla.store.digests import FILES
from rla_ray.engines.seats import weights_of

KEPT = 4  # models that a node keeps on its disk
OUTSIDE = "../"  # in a name: a file beside the model's folder, which records its content


def visible(model: str, digest: str) -> bool:
    """Whether this node sees the model with this content; a hub id is everybody's."""
    if "/" not in model.strip("/") or not os.path.isabs(model):
        return True
    try:
        return Path(model).is_dir() and weights_of(model) == digest
    except (OSError, UserError):
        return False


def travelling_files(model: Path) -> dict[str, Path]:
    """The files of a model folder by the name under which they travel, and the records of their content beside it."""
    found = {file.name: file for file in sorted(model.iterdir()) if file.is_file()}
    records = {name: model.parent / name for name in (MANIFEST, FILES)} if model.name == "model" else {}
    records |= {origin_record(Path("model")).name: origin_record(model)}
    return found | {OUTSIDE + name: file for name, file in records.items() if file.is_file()}


def put_files(ray: Any, model: Path, *, dtype: str) -> dict[str, Any]:
    """References to the content of each file, by name. An adapter and its base travel as one model, as `dtype`."""
    import numpy as np

    with merged_folder(model, dtype=dtype) as folder:
        files = travelling_files(Path(folder))
        return {name: ray.put(np.fromfile(file, dtype=np.uint8)) for name, file in files.items()}


async def model_from_files(files: Mapping[str, Any], digest: str) -> Path:
    """The model's folder on this node, written unless another engine of the node has done it."""
    place = weights_folder() / digest_name(digest)
    folder = place / "model"
    if folder.is_dir():
        os.utime(place)  # asked for: others go before it
    else:
        contents = dict(zip(files, await asyncio.gather(*files.values()), strict=True))
        await asyncio.to_thread(write_files, place, contents)
    return folder


def write_files(place: Path, contents: Mapping[str, Any]) -> None:
    """Beside its place and renamed: it is there whole or not at all. Models that were not asked for longest go."""
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
    """This user's own folder on the node's disk. Raises UserError where somebody else owns it."""
    place = Path(tempfile.gettempdir()) / f"rla-weights-{os.getuid()}"
    place.mkdir(mode=0o700, exist_ok=True)
    if place.is_symlink() or place.stat().st_uid != os.getuid():
        raise UserError(f"{place}: not yours; remove it on that node, or set TMPDIR for Ray to a folder of your own")
    return place


def digest_name(digest: str) -> str:
    """A digest as a folder's name."""
    return "".join(one if one.isalnum() else "-" for one in digest)[:80]
