"""Packages for a machine without a network that takes only so many bytes at a time.

    python -m study_tests.gpu_check.parcel pack WHEELS TO [--mib 50]   a folder of wheels as TO/1, TO/2, ...
    python -m study_tests.gpu_check.parcel take TO/1                   there, once for each part, in any order

The last part that arrives puts them together and installs the wheels into runs/gpu-check/site-packages, where
`study_tests.gpu_check` looks for them. SHA-256 of every part, and of the whole, are compared.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

HOME = Path("runs/gpu-check")
# dill, with which `datasets` makes digests, takes modules below a folder of this name by their name, others by content.
SITE = HOME / "site-packages"
INDEX, CONTENT = "parcel.json", "content"


def pack(wheels: Path, to: Path, *, size: int) -> list[Path]:
    """Parts of about equal size, each at most `size` bytes and with the index of all. SystemExit without wheels."""
    files = sorted(wheels.glob("*.whl"))
    if not files:
        raise SystemExit(f"{wheels}: no wheels; download them into this folder")
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for file in files:
            archive.writestr(zipfile.ZipInfo(file.name), file.read_bytes())  # stored as it is: a wheel is compressed
    whole = packed.getvalue()
    count = -(-len(whole) // size)
    length = -(-len(whole) // count)
    parts = [whole[low : low + length] for low in range(0, len(whole), length)]
    index = {"parts": [digest(part) for part in parts], "whole": digest(whole)}
    folders = [to / str(number) for number in range(1, len(parts) + 1)]
    for folder, part in zip(folders, parts, strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONTENT).write_bytes(part)
        (folder / INDEX).write_text(json.dumps(index) + "\n")
    return folders


def take(folder: Path, home: Path) -> list[int]:
    """Keep a part; the numbers of those that are missing. SystemExit for a part that is damaged."""
    index = json.loads((folder / INDEX).read_text())
    content = (folder / CONTENT).read_bytes()
    if digest(content) not in index["parts"]:
        raise SystemExit(f"{folder}: {len(content)} bytes that are not those that were packed; send it again")
    kept = home / "parcels" / index["whole"][:16]
    kept.mkdir(parents=True, exist_ok=True)
    (kept / digest(content)).write_bytes(content)
    return [number for number, part in enumerate(index["parts"], start=1) if not (kept / part).exists()]


def unpack(folder: Path, home: Path) -> Path:
    """Put the parts together; the folder of the wheels. SystemExit if together they are not what was packed."""
    index = json.loads((folder / INDEX).read_text())
    kept = home / "parcels" / index["whole"][:16]
    whole = b"".join((kept / part).read_bytes() for part in index["parts"])
    if digest(whole) != index["whole"]:
        raise SystemExit(f"{folder}: the parts together are not what was packed; pack and send them again")
    wheels = home / "wheels"
    shutil.rmtree(wheels, ignore_errors=True)
    with zipfile.ZipFile(io.BytesIO(whole)) as archive:
        archive.extractall(wheels)
    return wheels


def install(wheels: Path, site: Path) -> None:
    options = [
        "--quiet",
        "--no-index",
        "--no-deps",
        "--no-compile",
        "--no-cache-dir",
        "--upgrade",
        "--target",
        str(site),
    ]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, *map(str, sorted(wheels.glob("*.whl")))], check=True
    )


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    packing, taking = commands.add_parser("pack"), commands.add_parser("take")
    packing.add_argument("wheels", type=Path)
    packing.add_argument("to", type=Path)
    packing.add_argument("--mib", type=float, default=50, help="of a part at most")
    taking.add_argument("part", type=Path)
    given = parser.parse_args()
    if given.command == "pack":
        for folder in pack(given.wheels, given.to, size=int(given.mib * 2**20)):
            print(f"{folder}: {(folder / CONTENT).stat().st_size / 2**20:.1f} MiB")
    elif missing := take(given.part, HOME):
        print(f"{given.part} has arrived; missing: {', '.join(map(str, missing))}")
    else:
        install(unpack(given.part, HOME), SITE)
        shutil.rmtree(HOME / "parcels")
        print(f"all parts have arrived; installed in {SITE}")


if __name__ == "__main__":
    main()
