"""Shard folders in any order of calls, kills and damage, against a model of what must be there.

The model knows whose shard the folder holds, which of its parts are intact, and what others have put there. It demands:

    a reader       gets all rows of one origin, each once and in order, or one error
    a call         keeps every intact part of its origin; a folder that nothing has damaged is never refused to it
    a refusal      leaves every file that was intact
    a replacement  leaves every file that was intact until it has a part
    anybody's own  file stays, whatever is called
    in the end     one call with --overwrite mends it all: the bytes are those of an undisturbed call
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from unittest import mock

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from rla.errors import UserError
from rla.store.atomic import WHOLE, Slice, slices
from rla.store.manifest import MANIFEST, STARTED
from rla.store.reading import read_rows
from rla.store.shards import Origin, ShardWriter
from tests.unit.store.shard_damage import GROUPS, OTHER, OURS, contents_of, flip, grow, names_of, rows_of

ORIGINS = st.sampled_from([OURS, OTHER])
GROUP = st.integers(0, GROUPS - 1)
ANYWHERE = st.integers(0, 10**6)
OWN = "thesis.md"


class ShardMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.quick = mock.patch("os.fsync")  # no machine dies here
        self.quick.start()
        self.top = Path(tempfile.mkdtemp(prefix="shard-machine-"))
        self.folder = self.top / "x"
        for origin in (OURS, OTHER):
            grow(self.top / origin.config, origin)
        self.calm = {origin.config: contents_of(self.top / origin.config) for origin in (OURS, OTHER)}
        self.owner: Origin | None = None
        self.intact: dict[str, bytes] = {}  # parts of the owner, by name
        self.clean = True  # nobody has damaged it
        self.flips = 0  # of bits of a record

    def teardown(self) -> None:
        if hasattr(self, "top"):
            try:
                self.mended()
            finally:
                self.quick.stop()
                shutil.rmtree(self.top)

    def mended(self) -> None:
        (self.folder / OWN).unlink(missing_ok=True)
        owner = self.owner or OURS
        grow(self.folder, owner, overwrite=True)
        found = {name: content for name, content in contents_of(self.folder).items() if "-of-" not in name}
        assert found.keys() == self.calm[owner.config].keys()
        assert [row["task_id"] for row in read_rows(self.folder, "tasks")] == names_of(owner)
        grow(self.folder, OTHER if owner == OURS else OURS, overwrite=True)  # nothing of the first is in its way

    # Calls. One that is killed ends after `written` parts, without a manifest.

    @rule(origin=ORIGINS, overwrite=st.booleans(), written=st.integers(0, GROUPS), killed=st.booleans())
    def call(self, origin: Origin, overwrite: bool, written: int, killed: bool) -> None:
        self.called(origin, WHOLE, overwrite=overwrite, written=written, killed=killed)

    @rule(
        origin=ORIGINS,
        index=st.integers(1, 2),
        overwrite=st.booleans(),
        written=st.integers(0, 2),
        killed=st.booleans(),
    )
    def call_of_a_slice(self, origin: Origin, index: int, overwrite: bool, written: int, killed: bool) -> None:
        self.called(
            origin, Slice(index=index, count=2, started=True), overwrite=overwrite, written=written, killed=killed
        )

    @rule(origin=ORIGINS, overwrite=st.booleans())
    def call_that_starts_slices(self, origin: Origin, overwrite: bool) -> None:
        self.called(origin, Slice(index=0, count=2), overwrite=overwrite, written=0, killed=True)

    def called(self, origin: Origin, part: Slice, *, overwrite: bool, written: int, killed: bool) -> None:
        mine = [group for group in range(GROUPS) if part.count == 1 or part.takes(group)]
        free = self.owner is None or (self.clean and self.owner == origin)
        before = contents_of(self.folder) if self.folder.exists() else {}
        try:
            writer = ShardWriter(self.folder, "tasks", origin, overwrite=overwrite, part=part)
        except UserError:
            assert not free
            self.all_intact()
            return
        assert overwrite or self.owner in (None, origin)
        self.all_intact()
        if writer.complete:
            self.taken_by(origin)
            return
        assert (contents_of(self.folder) if self.folder.exists() else {}) == before  # nothing is begun yet
        if part.index > 0 and self.owner == origin:
            assert {writer.part(group).name for group in mine} & self.intact.keys() <= {
                path.name for path in writer.parts()
            }
        for group in [group for group in mine if group not in writer.done][:written]:
            writer.write(group, rows_of(origin, group))
            self.taken_by(origin)
            self.intact[writer.part(group).name] = writer.part(group).read_bytes()
        if killed:
            self.folder.mkdir(exist_ok=True)
            (self.folder / ".part-00001.parquet.tmp").write_bytes(b"half")
        elif part.index > 0 and set(mine) == set(writer.done):
            try:
                writer.finish({"tasks": 2 * len(mine)})
            except UserError:  # another slice was damaged after it had ended
                assert not self.clean and part.count == 2
            self.taken_by(origin)
            self.all_intact()

    def taken_by(self, origin: Origin) -> None:
        """The folder is of this origin from here on."""
        if self.owner != origin:
            self.owner, self.intact, self.clean = origin, {}, True

    # What others do to the folder.

    @precondition(lambda self: self.intact)
    @rule(group=GROUP, kept=st.integers(0, 3000))
    def truncate(self, group: int, kept: int) -> None:
        if path := self.touched(group):
            path.write_bytes(path.read_bytes()[:kept])

    @precondition(lambda self: self.intact)
    @rule(group=GROUP, position=ANYWHERE, bit=st.integers(0, 7))
    def flip_a_bit(self, group: int, position: int, bit: int) -> None:
        if path := self.touched(group):
            flip(path, position, bit)

    @precondition(lambda self: self.intact)
    @rule(group=GROUP)
    def remove(self, group: int) -> None:
        if path := self.touched(group):
            path.unlink()

    @precondition(lambda self: self.owner)
    @rule(origin=ORIGINS, group=GROUP, onto=st.integers(0, GROUPS))
    def copy_a_part(self, origin: Origin, group: int, onto: int) -> None:
        """Of either shard over a part, or beside them."""
        if origin == self.owner and group == onto:
            return
        self.touched(onto)
        shutil.copy(self.top / origin.config / f"part-{group:05d}.parquet", self.folder / f"part-{onto:05d}.parquet")
        self.clean = False

    @precondition(lambda self: self.owner and self.flips < 2)  # of more a record may be unknown even as ours
    @rule(position=ANYWHERE, bit=st.integers(0, 7))
    def flip_a_bit_of_a_record(self, position: int, bit: int) -> None:
        self.flips += 1
        for name in (MANIFEST, STARTED):
            if (self.folder / name).exists():
                flip(self.folder / name, position, bit)
                self.clean = False

    @precondition(lambda self: self.owner)
    @rule()
    def leave_something_of_ones_own(self) -> None:
        (self.folder / OWN).write_text("years of work")

    def touched(self, group: int) -> Path | None:
        """The part, which is intact no more; None where it is not there."""
        name = f"part-{group:05d}.parquet"
        if self.intact.pop(name, None) is None:
            return None
        self.clean = False
        return self.folder / name

    # What holds at any time.

    def all_intact(self) -> None:
        found = contents_of(self.folder) if self.folder.exists() else {}
        assert {name: found.get(name) for name in self.intact} == self.intact

    @invariant()
    def a_reader_gets_all_of_one_origin_or_an_error(self) -> None:
        try:
            found = [row["task_id"] for row in read_rows(self.folder, "tasks")]
        except UserError:
            return
        assert self.owner is not None and found == names_of(self.owner)

    @invariant()
    def own_files_stay(self) -> None:
        if (self.folder / OWN).exists():
            self.own = True
        assert not getattr(self, "own", False) or (self.folder / OWN).read_text() == "years of work"


ShardMachine.TestCase.settings = settings(
    max_examples=25, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
TestShardMachine = ShardMachine.TestCase


def test_the_model_divides_as_slices_do() -> None:
    assert [[group for group in range(GROUPS) if part.takes(group)] for part in slices(2)] == [[0, 2], [1, 3]]
