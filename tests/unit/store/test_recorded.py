"""Files that are compared with what was recorded of them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from rla.errors import UserError
from rla.store.manifest import below, joint_digest, read_records, record_files, verify_recorded, write_records


def two_files(folder: Path) -> Path:
    (folder / "model").mkdir(parents=True)
    (folder / "model/config.json").write_bytes(b"abc")
    (folder / "weights").write_bytes(b"12345")
    return folder


def test_a_record_holds_sizes_and_digests(tmp_path: Path) -> None:
    records = record_files(two_files(tmp_path))
    assert records["model/config.json"] == {
        "bytes": 3,
        "sha256": "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",  # of FIPS 180-2, B.1
    }
    write_records(tmp_path, records)
    assert read_records(tmp_path / "files.json") == records


def test_the_digest_of_all_is_that_of_names_and_digests(tmp_path: Path) -> None:
    one = below(record_files(two_files(tmp_path)), "model")
    line = f"config.json\0{hashlib.sha256(b'abc').hexdigest()}\n"
    assert joint_digest(one) == hashlib.sha256(line.encode()).hexdigest()


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda folder: (folder / "weights").write_bytes(b"12745"), "weights: changed since .*SHA-256"),
        (lambda folder: (folder / "weights").write_bytes(b"1234"), "weights: changed since .*size"),
        (lambda folder: (folder / "weights").unlink(), "weights: missing; make it again"),
        (lambda folder: (folder / "model/added_tokens.json").write_text("{}"), "added_tokens.json: not of the files"),
    ],
)
def test_what_differs_is_refused(harm, said: str, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    records = record_files(two_files(tmp_path))
    (tmp_path / ".DS_Store").write_text("of a system")
    verify_recorded(tmp_path, records, remedy="make it again")
    harm(tmp_path)
    with pytest.raises(UserError, match=said):
        verify_recorded(tmp_path, records, remedy="make it again")
    verify_recorded(tmp_path, records, remedy="", wanted=lambda name: name == "model/config.json")


def test_a_changed_record_is_refused(tmp_path: Path) -> None:
    write_records(two_files(tmp_path), record_files(tmp_path))
    text = (tmp_path / "files.json").read_text()
    (tmp_path / "files.json").write_text(text.replace('"bytes": 5', '"bytes": 4'))
    with pytest.raises(UserError, match=r"files\.json: changed since it was written"):
        read_records(tmp_path / "files.json")
