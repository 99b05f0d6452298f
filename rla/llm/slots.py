"""Cache slots: which sequence's keys and values each slot holds, and who may use it next.

A slot is live (a completion is being sampled), held (a session waits for its next turn) or free. What a free
slot still holds can be the prefix of another prompt. Correctness never rests on that: a slot's `valid` first
ids are those whose keys and values it holds, and a prompt uses the part that it shares with them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
MIN_COPY = 16  # tokens; a shorter shared prefix is computed again rather than copied
MIN_WAIT = 32  # tokens; a prompt waits a pass for a prefix that another sequence is about to compute


class SlotTable:
    """The bookkeeping of `slots` slots of `context` tokens (host side, no tensors)."""

    def __init__(self, *, slots: int, context: int) -> None:
        self.ids = np.zeros((slots, context), dtype=np.int32)
        self.valid: Ints = np.zeros(slots, dtype=np.int64)  # leading ids whose keys and values are held
        self.length: Ints = np.zeros(slots, dtype=np.int64)  # ids known, those yet to be computed included
        self._sessions: dict[str, int] = {}
        self._holder: list[str | None] = [None] * slots
        self._live = np.zeros(slots, dtype=np.bool_)
        self._used = np.zeros(slots, dtype=np.float64)  # when it was last live

    def slot_of(self, session: str | None) -> int | None:
        """The slot that a session holds."""
        return None if session is None else self._sessions.get(session)

    def has_room(self, *, idle_before: float) -> bool:
        """Whether `claim` would find a slot for a sequence that holds none."""
        return any(
            not live and (holder is None or used < idle_before)
            for live, holder, used in zip(self._live.tolist(), self._holder, self._used.tolist(), strict=True)
        )

    def worth_waiting(self, prompt: Ints) -> bool:
        """Whether a live slot is about to compute much more of this prompt than any slot holds now."""
        live = np.flatnonzero(self._live)
        if not len(live):
            return False
        _, coming = self._best(live, prompt, known=self.length)
        if coming < MIN_WAIT:
            return False
        _, present = self._best(np.arange(len(self.valid)), prompt, known=self.valid)
        return coming >= present + MIN_WAIT

    def claim(self, session: str | None, prompt: Ints, *, idle_before: float) -> tuple[int, int, int] | None:
        """Make a slot live for `prompt`: (slot, source slot, shared ids), or None while all are taken.

        Taken in this order: the session's own, a free one, that of the session idle for longest if its last
        use was before `idle_before`. The caller copies the shared ids' keys and values where source differs
        from slot.
        """
        own = self.slot_of(session)
        if own is not None and self._live[own]:  # a second request of the session at the same time
            own = session = None
        slot = self._choose(prompt, idle_before) if own is None else own
        if slot is None:
            return None
        if own is None:
            self._drop_holder(slot)
            if session is not None:
                self._sessions[session] = slot
                self._holder[slot] = session
        source, shared = self._source(slot, prompt)
        self.ids[slot, : len(prompt)] = prompt
        self.length[slot] = len(prompt)
        self.valid[slot] = shared
        self._live[slot] = True
        return slot, source, shared

    def append(self, slot: int, tokens: Sequence[int]) -> None:
        """Ids sampled or forced, whose keys and values are yet to be computed."""
        start = int(self.length[slot])
        self.ids[slot, start : start + len(tokens)] = tokens
        self.length[slot] = start + len(tokens)

    def finish(self, slot: int, *, now: float) -> None:
        """The completion is done: the slot is held by its session, or free."""
        self._live[slot] = False
        self._used[slot] = now

    def release(self, session: str) -> None:
        """Forget a session; its slot is free as soon as it is not live."""
        slot = self._sessions.pop(session, None)
        if slot is not None:
            self._holder[slot] = None

    def _drop_holder(self, slot: int) -> None:
        holder = self._holder[slot]
        if holder is not None:
            self.release(holder)

    def _choose(self, prompt: Ints, idle_before: float) -> int | None:
        idle = np.flatnonzero(~self._live)
        free = [int(slot) for slot in idle if self._holder[slot] is None]
        if free:
            best, shared = self._best(np.asarray(free), prompt, known=self.valid)
            return best if shared >= MIN_COPY else min(free, key=lambda slot: (self._used[slot], slot))
        if not len(idle):
            return None
        oldest = int(idle[np.argmin(self._used[idle])])
        return oldest if self._used[oldest] < idle_before else None

    def _source(self, slot: int, prompt: Ints) -> tuple[int, int]:
        _, own = self._best(np.asarray([slot]), prompt, known=self.valid)
        if own >= len(prompt) - MIN_COPY:
            return slot, own
        best, shared = self._best(np.arange(len(self.valid)), prompt, known=self.valid)
        return (best, shared) if shared >= own + MIN_COPY else (slot, own)

    def _best(self, slots: Ints, prompt: Ints, *, known: Ints) -> tuple[int, int]:
        """The slot with the longest prefix of the prompt among its `known` ids. The last id never counts."""
        differs = self.ids[slots, : len(prompt)] != prompt
        same = np.where(differs.any(axis=1), differs.argmax(axis=1), len(prompt))
        shared = np.minimum(np.minimum(same, known[slots]), len(prompt) - 1)
        index = int(shared.argmax())
        return int(slots[index]), int(shared[index])
