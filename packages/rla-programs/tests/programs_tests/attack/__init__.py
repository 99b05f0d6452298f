"""What `make attack` tries of this package."""

from programs_tests.attack.hostile_programs import Programs
from programs_tests.attack.hostile_texts import ProgramEdits, ProgramReplies

AREAS = {ProgramEdits: 0.1, ProgramReplies: 0.05, Programs: 0.02}
