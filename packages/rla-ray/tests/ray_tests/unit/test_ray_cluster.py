"""How many engines a cluster is to have, and that a run goes on with or without it."""

from __future__ import annotations

import pytest
from rla_ray.engines.cluster import wanted_count

from rla.config.load import resolved
from rla.errors import UserError
from rla.pipeline.plan import run_differences
from tests.unit.builders import configured

HEAD, CPUS, FOUR, EIGHT = {"CPU": 8.0}, {"CPU": 64.0}, {"CPU": 32.0, "GPU": 4.0}, {"CPU": 64.0, "GPU": 8.0}


@pytest.mark.parametrize(
    ("nodes", "values", "count"),
    [
        ([HEAD, EIGHT, EIGHT], [], 16),
        ([HEAD, EIGHT, EIGHT], ["tensor_parallel=8"], 2),
        ([FOUR, FOUR, EIGHT], ["tensor_parallel=8"], 1),  # a model does not stand on two nodes
        ([EIGHT], ["own.replicas=3"], 3),
        ([HEAD, CPUS, CPUS], [], 3),
        ([CPUS], ["own.replicas=5"], 5),
    ],
)
def test_the_gpus_of_each_node_count(nodes: list[dict[str, float]], values: list[str], count: int) -> None:
    config = configured("generator.backend=ray", *(f"generator.{value}" for value in values)).generator
    assert wanted_count(nodes, config) == count


def test_what_no_node_holds_is_refused() -> None:
    config = configured("generator.backend=ray", "generator.tensor_parallel=8").generator
    with pytest.raises(UserError, match=r"8 GPUs of one node hold one model, and the nodes .* have 0, 4, 4"):
        wanted_count([HEAD, FOUR, FOUR], config)
    config = configured("generator.backend=ray", "generator.own.replicas=9").generator
    with pytest.raises(UserError, match=r"9 engines of 1 GPU each, and the cluster has room for 8; lower it to 8"):
        wanted_count([EIGHT], config)


def test_no_output_depends_on_whether_engines_stand_on_a_cluster() -> None:
    here, there = configured(), configured("generator.backend=ray", "generator.own.engine=transformers")
    assert run_differences(resolved(here), there, ["generator"]) == {}
    assert run_differences(resolved(there), here, ["generator"]) == {}
