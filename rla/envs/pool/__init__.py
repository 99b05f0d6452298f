"""Slow environments step in processes of their own, so that one that computes, hangs or dies stops no other.

    stage ──Popen──▶ nursery (imports the environment once) ──fork──▶ workers, one live environment each
      └────────────── one socket per worker ───────────────────────────┘

The nursery is a fresh interpreter: nothing is ever forked from a process that has imported torch or vLLM.
"""

from rla.envs.pool.episode import PooledEnvironment
from rla.envs.pool.nursery import Recipe
from rla.envs.pool.pool import EnvironmentPool

__all__ = ["EnvironmentPool", "PooledEnvironment", "Recipe"]
