"""Who gets which slot, and how much of its prompt a slot is said to hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rla.llm.slots import Ints, SlotTable, zeros
from tests.bench.resident import resident

LONG_AGO = -1.0


def prompt(*parts: range) -> Ints:
    return np.concatenate([np.asarray(part) for part in parts])


def start(table: SlotTable, ids: Ints, *, session: str | None = None, idle_before: float = LONG_AGO) -> int:
    """Claim, and say that everything but the last id has been computed."""
    claimed = table.claim(session, ids, idle_before=idle_before)
    assert claimed is not None
    table.valid[claimed[0]] = len(ids)
    return claimed[0]


def test_next_turn_of_a_session_reuses_its_slot_and_what_it_holds() -> None:
    table = SlotTable(slots=2, context=256)
    slot = start(table, prompt(range(50)), session="a")
    table.append(slot, [90, 91])
    table.finish(slot, now=1.0)
    turn = np.concatenate([np.arange(50), [90, 91], np.arange(20)])
    # 90 and 91 are known but were never computed, so 50 ids are shared.
    assert table.claim("a", turn, idle_before=LONG_AGO) == (slot, slot, 50)


def test_a_prompt_that_departs_from_the_session_keeps_the_common_part() -> None:
    table = SlotTable(slots=1, context=256)
    slot = start(table, prompt(range(50)), session="a")
    table.finish(slot, now=1.0)
    assert table.claim("a", prompt(range(30), range(100, 120)), idle_before=LONG_AGO) == (slot, slot, 30)


def test_the_same_prompt_again_leaves_its_last_id_to_compute() -> None:
    table = SlotTable(slots=2, context=256)
    first = start(table, prompt(range(40)))
    claimed = table.claim(None, prompt(range(40)), idle_before=LONG_AGO)
    assert claimed == (1 - first, first, 39)


def test_short_shared_prefixes_are_not_copied() -> None:
    table = SlotTable(slots=2, context=256)
    first = start(table, prompt(range(40)))
    claimed = table.claim(None, prompt(range(15), range(100, 130)), idle_before=LONG_AGO)
    assert claimed == (1 - first, 1 - first, 0)


def test_a_held_slot_is_taken_only_when_idle_for_long_and_the_oldest_first() -> None:
    table = SlotTable(slots=2, context=256)
    for session, now in (("old", 1.0), ("new", 2.0)):
        table.finish(start(table, prompt(range(40)), session=session), now=now)
    old = table.slot_of("old")
    assert not table.has_room(idle_before=1.0)
    assert table.claim(None, prompt(range(5)), idle_before=1.0) is None
    assert table.has_room(idle_before=3.0)
    claimed = table.claim(None, prompt(range(100, 105)), idle_before=3.0)
    assert claimed is not None and claimed[0] == old
    assert table.slot_of("old") is None
    assert table.slot_of("new") is not None


def test_live_slots_are_never_taken() -> None:
    table = SlotTable(slots=1, context=256)
    start(table, prompt(range(40)))
    assert table.claim(None, prompt(range(5)), idle_before=9.0) is None


def test_a_second_request_of_a_live_session_gets_a_slot_of_its_own() -> None:
    table = SlotTable(slots=2, context=256)
    first = start(table, prompt(range(40)), session="a")
    claimed = table.claim("a", prompt(range(40)), idle_before=LONG_AGO)
    assert claimed == (1 - first, first, 39)
    assert table.slot_of("a") == first


def test_release_frees_the_slot() -> None:
    table = SlotTable(slots=1, context=256)
    table.finish(start(table, prompt(range(40)), session="a"), now=5.0)
    table.release("a")
    assert table.claim(None, prompt(range(5)), idle_before=LONG_AGO) is not None


@pytest.mark.parametrize(("shared", "waits"), [(31, False), (32, True)])
def test_waiting_pays_where_a_long_prefix_is_about_to_be_computed(shared: int, waits: bool) -> None:
    table = SlotTable(slots=2, context=256)
    slot = table.claim(None, prompt(range(60)), idle_before=LONG_AGO)
    other = prompt(range(shared), range(100, 110))
    assert table.worth_waiting(other) is waits
    assert slot is not None
    table.valid[slot[0]] = 60
    assert not table.worth_waiting(other)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_slots_that_nothing_was_written_to_take_no_memory(dtype: torch.dtype) -> None:
    """A GiB: `torch.zeros` would take it at once."""
    before = resident()
    slots = zeros((2, 64, (1 << 30) // (2 * 64 * 16 * dtype.itemsize), 16), dtype=dtype, device=torch.device("cpu"))
    assert slots.nbytes == 1 << 30 and slots.data_ptr() % 64 == 0
    assert resident() - before < 1 << 26
    slots[1, 63] = 1.0
    assert 0 < resident() - before < 1 << 26
    assert slots[1, 63].all() and not slots[0, 0].any()
