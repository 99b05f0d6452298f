"""What is withdrawn from the store, what stays there, and what two machines that work at once do to each other."""

import logging
from pathlib import Path
from typing import Any

import fsspec
import pytest

from rla.errors import UserError
from rla.mirroring.mirror import Mirror
from rla.mirroring.object_store import ObjectStore, Stored
from rla.mirroring.sender import Sender, kept_on_store
from rla.mirroring.sending import MadeElsewhere
from tests.unit.mirroring.machines import MANIFEST, OTHER, PART, URL, machine, made, read, write

SHARD = ["1/scores"]
CHECKPOINT, WEIGHTS = "1/policy/checkpoint.json", "1/policy/model/model.safetensors"
UPDATE, RECORD = "1/policy.partial/update-{}/weights.safetensors", "1/policy.partial/update-{}/stage.json"


def stored(key: str) -> str:
    return str(fsspec.filesystem("memory").cat_file(f"/bucket/run/{key}").decode())


def others_put(key: str, text: str) -> None:
    fsspec.filesystem("memory").pipe_file(f"/bucket/run/{key}", text.encode())


def checkpoint(mirror: Mirror, *, weights: str) -> None:
    with kept_on_store(mirror, ["1/policy"]):
        write(mirror, WEIGHTS, weights)
        write(mirror, "1/policy/state/weights.safetensors", weights)
        write(mirror, CHECKPOINT, weights)


def test_a_replaced_shard_shows_no_old_manifest_beside_new_parts() -> None:
    mirror = machine("a")
    made(mirror, part="one", other="two")
    (mirror.folder / MANIFEST).unlink()  # what a call with --overwrite does first
    Sender(mirror, SHARD).look()
    assert set(mirror.store.listed()) == {PART, OTHER}
    write(mirror, PART, "three")
    Sender(mirror, SHARD).look()
    assert stored(PART) == "three" and MANIFEST not in mirror.store.listed()


def test_parts_follow_what_says_to_which_call_they_belong(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that is killed in between leaves no part that another machine knows nothing of."""
    mirror, sent = machine("a"), list[str]()
    for number in range(20):
        write(mirror, f"1/scores/part-{number:05}.parquet", "votes")
    write(mirror, "1/scores/_started.parquet", "digests")
    send = ObjectStore.send
    monkeypatch.setattr(
        ObjectStore, "send", lambda store, *given: (sent.extend(mirror.store.listed()), send(store, *given))[1]
    )
    Sender(mirror, SHARD).look()
    assert len(mirror.store.listed()) == 21 and sent[0] == "1/scores/_started.parquet"


def test_a_replaced_checkpoint_shows_no_old_record_beside_new_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = machine("a")
    checkpoint(mirror, weights="one")
    beside: list[bool] = []
    send = ObjectStore.send
    monkeypatch.setattr(
        ObjectStore, "send", lambda *a: (beside.append(CHECKPOINT in mirror.store.listed()), send(*a))[1]
    )
    for key in (WEIGHTS, CHECKPOINT):  # it takes its place whole, record and all
        write(mirror, key, "two")
    Sender(mirror, ["1/policy"]).look()
    assert beside == [False] and stored(WEIGHTS) == "two"


def test_only_what_the_call_writes_is_removed() -> None:
    mirror = machine("a")
    made(mirror, part="one", other="two")
    checkpoint(mirror, weights="x")
    with kept_on_store(mirror, ["2/scores"]):
        (mirror.folder / PART).unlink()  # somebody tidies up
        (mirror.folder / WEIGHTS).unlink()
        (mirror.folder / MANIFEST).unlink()
    assert {PART, WEIGHTS, MANIFEST} <= set(mirror.store.listed())


def test_pruned_weights_go_and_come_back() -> None:
    mirror = machine("a")
    checkpoint(mirror, weights="x")
    marker = "1/policy/pruned.json"
    with kept_on_store(mirror, ()):
        write(mirror, marker, '{"parts": ["model"]}')
        for key in (WEIGHTS, "1/policy/state/weights.safetensors"):
            (mirror.folder / key).unlink()
    assert set(mirror.store.listed()) == {CHECKPOINT, marker, "1/policy/state/weights.safetensors"}
    with kept_on_store(mirror, ()):
        (mirror.folder / marker).unlink()  # nothing came back: it was lost
    assert marker in mirror.store.listed()
    mirror.fetch()
    with kept_on_store(mirror, ()):
        write(mirror, WEIGHTS, "x")
        (mirror.folder / marker).unlink()
    assert WEIGHTS in mirror.store.listed() and marker not in mirror.store.listed()


def test_what_a_reader_is_about_to_bring_again_stays_on_the_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stage ends while another command on the same mirror has removed a record to bring it anew."""
    mirror, other = machine("a"), machine("b")
    made(mirror, part="one")
    other.fetch()
    made(other, part="two")
    bring, held = ObjectStore.bring, []

    def while_fetching(store: ObjectStore, key: str, path: Path) -> None:
        import fcntl
        import os

        descriptor = os.open(mirror.journal.folder, os.O_RDONLY)
        try:
            with pytest.raises(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(descriptor)
        held.append(key)
        bring(store, key, path)

    monkeypatch.setattr(ObjectStore, "bring", while_fetching)
    mirror.fetch()
    assert held
    order: list[str] = []
    alone, send = type(mirror.journal).alone, ObjectStore.send
    monkeypatch.setattr(type(mirror.journal), "alone", lambda journal: (order.append("alone"), alone(journal))[1])
    monkeypatch.setattr(ObjectStore, "send", lambda *a: (order.append("send"), send(*a))[1])
    made(mirror, part="three")
    assert order == ["alone", "send", "send"]


def test_equal_content_is_no_conflict_where_stamps_say_nothing_of_it() -> None:
    first, second = machine("a"), machine("b")
    made(first, part="one")
    version = first.store.version(PART)
    made(second, part="one")
    assert second.store.version(PART) == version and second.fetch() == []


def test_stamps_that_only_look_like_an_md5_are_found_out(tmp_path: Path) -> None:
    store, path = ObjectStore(URL, pauses=()), tmp_path / "x"
    path.write_bytes(bytes(100_000))
    store.send(path, "0/x")
    encrypted = Stored(size=100_000, stamp="0" * 32)
    assert store.holds("0/x", path, encrypted) and not store.digests
    path.write_bytes(bytes(99_999) + b"x")
    assert not store.holds("0/x", path, encrypted)
    assert store.holds("0/x", path, encrypted, surely=False)  # nothing is read again after each upload


@pytest.mark.parametrize("late", [False, True])
def test_what_another_machine_puts_in_the_moment_of_sending_is_not_taken_for_ours(
    late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror, send = machine("a"), ObjectStore.send

    def raced(store: ObjectStore, path: Path, key: str, *more: Any) -> bool:
        if late:
            done = send(store, path, key, *more)
            others_put(key, "other")
            return done
        others_put(key, "other")
        return send(store, path, key, *more)

    monkeypatch.setattr(ObjectStore, "send", raced)
    with pytest.raises(MadeElsewhere, match="another machine has made this"):
        made(mirror, part="one")
    assert stored(PART) == "other" and PART not in mirror.journal.known


def test_a_conflict_of_parts_leaves_the_record(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = machine("a")
    made(mirror, part="one")
    others_put(PART, "other")
    with pytest.raises(MadeElsewhere):
        made(mirror, part="two")
    assert stored(MANIFEST) == "one" and stored(PART) == "other"


def test_a_conflict_is_said_once_and_others_are_sent(caplog: pytest.LogCaptureFixture) -> None:
    mirror = machine("a")
    others_put(PART, "other")
    others_put("1/scores/part-00002.parquet", "other")
    for key in (PART, "1/scores/part-00002.parquet", OTHER):
        write(mirror, key, "mine")
    sender = Sender(mirror, SHARD)
    with caplog.at_level(logging.WARNING):
        sender.look()
        sender.look()
    assert stored(OTHER) == "mine" and stored(PART) == "other"
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "made this" in caplog.text


@pytest.mark.parametrize("there", ["1/policy/checkpoint.json", RECORD.format("000004")])
def test_saved_updates_that_training_elsewhere_has_left_behind_are_not_sent_again(there: str) -> None:
    first, second = machine("a"), machine("b")
    with kept_on_store(first, ["1/policy", "1/policy.partial"]):
        write(first, UPDATE.format("000002"), "x")
        write(first, RECORD.format("000002"), "x")
    second.fetch()
    with kept_on_store(second, ["1/policy", "1/policy.partial"]):
        for name in (UPDATE, RECORD):
            (second.folder / name.format("000002")).unlink()
        write(second, there, "y")
    with kept_on_store(first, []):
        first.fetch()
    assert set(first.store.listed()) == {there} == set(first.present())
    assert read(first, there) == "y"


def test_the_last_saved_update_stays_until_the_checkpoint_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = machine("a")
    with kept_on_store(mirror, ["1/policy", "1/policy.partial"]):
        write(mirror, UPDATE.format("000002"), "x")
        write(mirror, RECORD.format("000002"), "x")

    def refused(store: ObjectStore, path: Path, key: str, *more: Any) -> bool:
        raise UserError("the store does not answer")

    with monkeypatch.context() as patch, pytest.raises(UserError, match="does not answer"):
        patch.setattr(ObjectStore, "send", refused)
        with kept_on_store(mirror, ["1/policy", "1/policy.partial"]):
            for name in (UPDATE, RECORD):
                (mirror.folder / name.format("000002")).unlink()
            write(mirror, CHECKPOINT, "y")
    assert set(mirror.store.listed()) == {UPDATE.format("000002"), RECORD.format("000002")}
