"""A Ray cluster on loopback: a head that computes nothing, and nodes of one CPU."""

import os
from contextlib import contextmanager
from pathlib import Path

import pytest

SMALL = {"object_store_memory": 80 * 2**20, "node_ip_address": "127.0.0.2"}


@contextmanager
def ray_cluster(nodes=2):
    """The cluster, whose processes can import the functions of tests, until the block ends."""
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        here = [str(Path(__file__).parent), *os.environ.get("PYTHONPATH", "").split(":")]
        patch.setenv("PYTHONPATH", ":".join(here))
        cluster = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 0, "include_dashboard": False, **SMALL},
        )
        try:
            for _ in range(nodes):
                cluster.add_node(num_cpus=1, **SMALL)
            yield cluster
        finally:
            cluster.shutdown()
