"""Run the trials of a study on the nodes of a cluster.

Each replicate stays on one node with all its arms, since only what took turns on the same hardware is compared;
replicates spread over nodes that are alike.
"""

from __future__ import annotations

from hotlap.records import TrialCluster, Workload
from hotlap.trial.executor import MakeExecutor


def cluster_executor(cluster: TrialCluster, workload: Workload) -> MakeExecutor:
    """The executor for trials of ``workload`` on that cluster.

    Making it raises :class:`hotlap.errors.MissingPackageError` without the package that reaches the cluster, and
    :class:`hotlap.errors.ClusterError` if no node is free.
    """
    if cluster.kind == "ray":
        from hotlap.cluster.ray_nodes import ray_executor

        return lambda directory, isolation: ray_executor(cluster, workload, directory, isolation)
    from hotlap.cluster.slurm_jobs import slurm_executor

    return lambda directory, isolation: slurm_executor(cluster, workload, directory, isolation)
