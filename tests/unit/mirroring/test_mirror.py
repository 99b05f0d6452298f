"""Mirrors on a store in memory: what is fetched, sent, removed, noticed and refused."""

from pathlib import Path

import pytest

from rla.errors import UserError
from rla.mirroring.keys import belongs, checked_key, is_loose, is_record, is_weight
from rla.mirroring.object_store import ObjectStore
from rla.mirroring.sender import Sender, kept_on_store
from rla.mirroring.sending import send_changed
from rla.mirroring.urls import mirror_folder, refuse_urls, url_of
from tests.unit.mirroring.machines import MANIFEST, OTHER, PART, URL, machine, made, read, write


def test_a_url_survives_being_a_path() -> None:
    assert url_of(Path("s3://bucket/runs/first/")) == "s3://bucket/runs/first"
    assert url_of(Path("runs/first")) is None and url_of(None) is None
    for wrong in ("s3://bucket", "s3://bucket/a/../b", "file:///tmp/run"):
        with pytest.raises(UserError, match="folder"):
            url_of(Path(wrong))
    with pytest.raises(UserError, match="--policy: a URL"):
        refuse_urls([("out", Path("x")), ("policy", Path(URL))])


def test_mirrors_of_two_urls_are_two_folders() -> None:
    first, second = mirror_folder("s3://a/runs/x"), mirror_folder("s3://b/runs/x")
    assert first != second and first.parent == Path("runs") and first.name.startswith("x-")


def test_the_mirror_of_another_url_is_refused() -> None:
    mirror = machine("a")
    (mirror.folder / ".store/url").write_text("s3://other/run\n")
    with pytest.raises(UserError, match="the mirror of s3://other/run"):
        machine("a")


@pytest.mark.parametrize(
    "name", ["/bucket/run/../x", "/bucket/run/a/../../x", "/bucket/run//x", "/etc/passwd", "/bucket/run/a\\b"]
)
def test_an_object_that_leads_out_of_the_run_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="no path below"):
        checked_key(name, "/bucket/run")


def test_which_files_are_which() -> None:
    assert all(map(belongs, [PART, "config.yaml", "1/policy.partial/update-000002/stage.json"]))
    others = ["1/policy.partial/lock", "1/policy.partial/last/weights.safetensors", "1/.policy.old/checkpoint.json"]
    assert not any(map(belongs, [*others, "1/policy.partial/update-000002.tmp/stage.json", "notes.txt", "inspect/log"]))
    assert all(map(is_record, [MANIFEST, "1/policy/checkpoint.json", "init/rm/config.json"])) and not is_record(PART)
    assert is_weight("1/policy/model/model.safetensors") and is_weight("init/rm/model.safetensors")
    assert not is_weight("1/policy/checkpoint.json") and not is_weight("1/rewards/policy/part-00000.parquet")
    assert is_loose("1/metrics.json") and is_loose("timings/1-rollout.json")
    assert not is_loose("1/policy/files.json") and not is_loose("1/policy/checkpoint.json")


def test_records_are_sent_last_and_removed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    mirror = machine("a")
    order: list[str] = []
    send, remove = ObjectStore.send, ObjectStore.remove
    monkeypatch.setattr(ObjectStore, "send", lambda *a: (order.append(f"+{a[2][-12:]}"), send(*a))[1])
    monkeypatch.setattr(ObjectStore, "remove", lambda *a: (order.append(f"-{a[1][-12:]}"), remove(*a))[1])
    made(mirror, part="one")
    assert order == ["+0000.parquet", "+fest.parquet"]
    order.clear()
    made(mirror, part="two")
    assert order == ["-fest.parquet", "+0000.parquet", "+fest.parquet"]


def test_another_machine_gets_the_same_and_only_what_changed() -> None:
    first, second = machine("a"), machine("b")
    made(first, part="one", other="two")
    assert sorted(second.fetch()) == sorted([PART, OTHER, MANIFEST]) and second.fetch() == []
    with kept_on_store(first, []):
        write(first, OTHER, "three")
        write(first, MANIFEST, "one+three")
    assert set(second.fetch()) == {OTHER, MANIFEST}
    assert read(second, MANIFEST) == "one+three"


def test_a_part_that_a_stage_removed_goes_everywhere() -> None:
    first, second = machine("a"), machine("b")
    made(first, part="one", other="two")
    second.fetch()
    with kept_on_store(first, ["1/scores"]):
        (first.folder / OTHER).unlink()
        write(first, MANIFEST, "one")
    assert set(first.store.listed()) == {PART, MANIFEST}
    second.fetch()
    assert not (second.folder / OTHER).exists() and read(second, MANIFEST) == "one"


def test_what_nobody_sent_is_never_removed(store: ObjectStore) -> None:
    store.files.pipe_file("/bucket/run/notes.txt", b"mine")
    store.files.pipe_file("/bucket/run/1/scores/notes.txt", b"mine")
    first = machine("a")
    with kept_on_store(first, ["1/scores"]):
        write(first, PART, "one")
        write(first, MANIFEST, "one")
    with kept_on_store(first, ["1/scores"]):
        (first.folder / PART).unlink()
    assert set(store.listed()) == {"notes.txt", "1/scores/notes.txt", MANIFEST}


def test_what_was_removed_here_by_hand_is_fetched_again() -> None:
    first = machine("a")
    made(first, part="one")
    (first.folder / PART).unlink()
    with kept_on_store(machine("a"), []):
        pass
    assert machine("a").fetch() == [PART]


def test_a_store_that_lost_everything_is_filled_again() -> None:
    first = machine("a")
    made(first, part="one")
    first.store.files.store.clear()
    first.fetch()
    send_changed(first, set(), [])
    assert set(first.store.listed()) == {PART, MANIFEST}


def test_two_machines_that_make_the_same_differently_are_noticed() -> None:
    first, second = machine("a"), machine("b")
    made(first, part="one")
    with pytest.raises(UserError, match="another machine has made this"):
        made(second, part="two")
    assert first.store.files.cat_file("/bucket/run/" + PART) == b"one"
    second.fetch()  # what the store has stands
    assert (read(second, PART), read(second, MANIFEST)) == ("one", "one")


def test_a_fetch_that_is_killed_leaves_no_manifest_beside_other_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = machine("a"), machine("b")
    made(first, part="one")
    second.fetch()
    made(first, part="two")

    def killed(self: ObjectStore, key: str, path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ObjectStore, "bring", killed)
        with pytest.raises(KeyboardInterrupt):
            second.fetch()
    assert not (second.folder / MANIFEST).exists()
    second.fetch()
    assert read(second, MANIFEST) == "two"


def test_finished_parts_and_saved_updates_are_sent_while_a_stage_works() -> None:
    mirror = machine("a")
    sender = Sender(mirror, ["1/policy", "1/policy.partial", "1/scores"])
    for key in (PART, MANIFEST, "1/policy.partial/update-000002/stage.json", "1/policy.partial/update-000004.tmp/x"):
        write(mirror, key, "x")
    sender.look()
    assert set(mirror.store.listed()) == {PART, "1/policy.partial/update-000002/stage.json"}
    write(mirror, "1/policy.partial/update-000004/stage.json", "x")
    (mirror.folder / "1/policy.partial/update-000002/stage.json").unlink()
    sender.look()
    assert set(mirror.store.listed()) == {PART, "1/policy.partial/update-000004/stage.json"}


def test_a_stage_that_fails_has_sent_what_it_finished() -> None:
    mirror = machine("a")
    with pytest.raises(ZeroDivisionError), kept_on_store(mirror, []):
        write(mirror, PART, "x")
        raise ZeroDivisionError
    assert set(mirror.store.listed()) == {PART}


def test_a_half_line_of_a_killed_call_is_passed_over() -> None:
    mirror = machine("a")
    made(mirror, part="one")
    with (mirror.folder / ".store/journal.jsonl").open("a") as file:
        file.write('["1/scores/part-0')
    made(machine("a"), part="one", other="two")
    assert set(machine("a").journal.known) == {PART, OTHER, MANIFEST}


def test_a_store_that_does_not_answer_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    store, calls = ObjectStore(URL, pauses=(0.0, 0.0)), 0

    def find(*_: object, **__: object) -> dict[str, object]:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise ConnectionResetError("gone")
        return {}

    monkeypatch.setattr(store.files, "find", find, raising=False)
    assert store.listed() == {} and calls == 3
    calls = -1
    with pytest.raises(UserError, match=r"does not answer \(gone\); what is finished is kept in"):
        store.listed()


def test_a_missing_package_and_an_unknown_kind_are_named() -> None:
    with pytest.raises(UserError, match="no kind of store"):
        ObjectStore("nosuch://bucket/run")
