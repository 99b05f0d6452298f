"""Scenes of a warm start that their environment breaks: each costs its own episode, and many cost the stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rla.envs.observation import EnvironmentFailure
from rla.errors import UserError

MOST_FAILED = 0.1  # the share of scenes that may fail
Answer = TypeVar("Answer")


@dataclass(slots=True)
class FailedScenes:
    """Of `asked` scenes those that failed while they were demonstrated or labelled: `count`."""

    what: str  # "demonstrations of the policy", say
    asked: int
    count: int = 0

    @property
    def whole(self) -> int:
        """How many did not fail, once all were tried."""
        return self.asked - self.count

    def tried(self, scene: Callable[[], Answer]) -> Answer | None:
        """What `scene` gives, and None where its environment fails. Raises UserError at the first failure that is one
        too many: an environment that is gone fails in every scene, and each failure may cost a minute.
        """
        try:
            return scene()
        except EnvironmentFailure as failure:
            self.count += 1
            if self.count > MOST_FAILED * self.asked:
                raise UserError(
                    f"warm-start: {self.count} of {self.asked} {self.what} failed with their environment, more than "
                    f"{MOST_FAILED:.0%}; the last one: {failure}. Mend the cause (`rla check-env` plays the "
                    "environment) and call the stage again, or set warm_start.enabled: false"
                ) from failure
            return None
