"""The manifest of a RayJob for Kubernetes."""

from __future__ import annotations

import shlex
from pathlib import Path

import rla_ray
import yaml

from tests.unit.pipeline.test_cluster_files import assert_volumes_exist, images

MANIFEST = (Path(rla_ray.__file__).with_name("pipelines") / "kubernetes/rayjob.yaml").read_text()


def test_its_pods_wait_for_an_image_and_their_volumes_exist() -> None:
    assert images(list(yaml.safe_load_all(MANIFEST))) == ["SET-YOUR-IMAGE"] * 3
    assert_volumes_exist(MANIFEST)


def test_it_calls_the_loop_on_a_cluster_with_a_token() -> None:
    _, job = yaml.safe_load_all(MANIFEST)
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    assert "exec rla run --iterations" in shlex.split(job["spec"]["entrypoint"])[2]
    assert job["spec"]["rayClusterSpec"]["authOptions"] == {"mode": "token"}
