"""URLs of runs, and where the mirror of each lies.

Options for runs are paths, and a path knows no double slash: `s3://bucket/run` arrives as `s3:/bucket/run`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable
from pathlib import Path

from rla.errors import UserError

MIRRORS = "RLA_MIRRORS"  # the folder below which mirrors lie
BELOW = Path("runs")  # without it: inside the project, where DVC follows them
WRITTEN = re.compile(r"([a-z][a-z0-9+.-]+):/+(.*)", re.DOTALL)
UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")
LONGEST_NAME = 60  # characters of a mirror's readable part
LOCAL = ("file", "local")


def url_of(place: Path | None) -> str | None:
    """The URL that a path was given as, without a slash at its end; None for an ordinary path.

    Raises UserError for one that names no folder inside a bucket.
    """
    found = WRITTEN.fullmatch(str(place)) if place is not None else None
    if found is None:
        return None
    scheme, parts = found[1], [part for part in found[2].split("/") if part]
    url = f"{scheme}://{'/'.join(parts)}"
    if scheme in LOCAL:
        raise UserError(f"{url}: a folder of this machine; give its path")
    if len(parts) < 2 or {".", ".."}.intersection(parts) or not found[2].isprintable():
        raise UserError(f"{url}: expected a folder in a bucket, such as s3://bucket/runs/first")
    return url


def refuse_urls(options: Iterable[tuple[str, object]]) -> None:
    """UserError where an option that has to be a path of this machine is a URL."""
    for name, value in options:
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, Path) and WRITTEN.fullmatch(str(one)):
                raise UserError(f"--{name}: a URL; only --run takes one, and the run's folders follow it")


def mirror_folder(url: str) -> Path:
    """`<mirrors>/<last part of the URL>-<8 digits of its digest>`: the same below every project, on every machine."""
    name = UNSAFE.sub("-", url.rpartition("/")[2]).strip("-.")[:LONGEST_NAME] or "run"
    return Path(os.environ.get(MIRRORS) or BELOW) / f"{name}-{hashlib.sha256(url.encode()).hexdigest()[:8]}"
