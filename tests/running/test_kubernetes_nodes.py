"""Nodes and pods as the API server of Kubernetes describes them, in the odd cases: one that can't be read spoils no other."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support import kube_cluster
from support.kube_cluster import Cluster, node
from torchmatrix.core.settings import KubernetesSettings
from torchmatrix_plugins.cluster import job_system
from torchmatrix_plugins.cluster.job_system import Node
from torchmatrix_plugins.cluster.kubernetes import RUN, Kubernetes, _deleted


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    for module in ("kubernetes.config", "kubernetes.config.kube_config"):
        monkeypatch.setattr(f"{module}.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr("os.getuid", lambda: 1000)
    monkeypatch.setattr(job_system, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(job_system, "PATIENCE_POLLS", 5)
    with kube_cluster.started(tmp_path / "share", tmp_path / "kubeconfig") as started:
        yield started


@pytest.fixture
def kubernetes(cluster: Cluster, tmp_path: Path) -> Kubernetes:
    site = KubernetesSettings(image="i", claim="c", folder=str(tmp_path))
    return Kubernetes(site, lambda text: None)


def described(cluster: Cluster, kubernetes: Kubernetes, **offered: object) -> Node:
    """Return a node that offers this, beside one that is as usual."""
    odd = node("odd")
    odd["status"]["allocatable"] |= {name.replace("gpu", "nvidia.com/gpu"): value for name, value in offered.items()}
    cluster.nodes = [node("good", gpus=2), odd]
    good, read = kubernetes.nodes()
    assert (good.name, good.gpus, good.cpus, good.memory_mb, good.standing.is_usable) == ("good", 2, 2, 8192, True)
    return read


@pytest.mark.parametrize(
    "resource",
    ["nvidia.com/mig-1g.10gb", "nvidia.com/gpu.shared", "gpu.intel.com/i915", "habana.ai/gaudi", "amd.com/cpx_nps4",
     "aws.amazon.com/neuroncore", "google.com/tpu", "huawei.com/Ascend910"],
)  # fmt: skip
def test_a_node_whose_devices_nobody_asks_for_is_left_out_not_measured_on_its_cpu(
    cluster: Cluster, kubernetes: Kubernetes, resource: str
) -> None:
    odd, plain = node("odd"), node("plain")
    odd["status"]["allocatable"] |= {resource: "4"}
    plain["status"]["allocatable"] |= {resource: "0", "rdma/hca": "8", "hugepages-2Mi": "4", "attachable-volumes-csi": "25"}
    cluster.nodes = [odd, plain]
    found = {node.name: node for node in kubernetes.nodes()}
    assert not found["odd"].standing.is_usable and found["plain"].standing.is_usable
    assert found["odd"].in_words.startswith(f"Offers {resource}: no launch asks for that")


@pytest.mark.parametrize(
    ("quantity", "cpus"),
    [
        ("4", 4), ("1930m", 1), ("0.5", 0), (".5", 0), ("5.", 5), ("1k", 1000), ("2e1", 20), ("2E1", 20), ("1Ki", 1024),
        ("+3", 3), ("900000n", 0), ("3500000u", 3), (7, 7), (2.5, 2), ("1E", 10**18), ("1Ei", 2**60),
    ],
)  # fmt: skip
def test_a_quantity_is_read_by_the_grammar_of_kubernetes(
    cluster: Cluster, kubernetes: Kubernetes, quantity: object, cpus: int
) -> None:
    assert described(cluster, kubernetes, cpu=quantity).cpus == cpus


@pytest.mark.parametrize(
    "quantity",
    [
        "Infinity", "-inf", "NaN", "1e999", "1e-999", "9" * 400, "-1", "", " 1", "1 Gi", "1GiB", "0x10", "1_000", "1e",
        "\u0663", "1\n", None, True, [], {}, 1e999, "many\x1b[2J",
    ],
)  # fmt: skip
@pytest.mark.parametrize("resource", ["cpu", "memory", "gpu"])
def test_a_node_whose_quantities_cant_be_read_is_left_out_and_told(
    cluster: Cluster, kubernetes: Kubernetes, resource: str, quantity: object
) -> None:
    odd = described(cluster, kubernetes, **{resource: quantity})
    assert not odd.standing.is_usable and odd.in_words.startswith("Unreadable: what the server says of it can't be read")
    assert (odd.name, odd.gpus, odd.cpus, odd.memory_mb) == ("odd", 0, 0, 0)


@pytest.mark.parametrize(
    "odd",
    [
        {"spec": None}, {"status": None}, {"spec": {"taints": [{"key": "k"}]}}, {"spec": {"taints": None}}, {"status": [1]},
        {"metadata": {"name": "odd", "labels": None}},
    ],
)  # fmt: skip
def test_a_node_that_is_described_as_none_spoils_no_other(
    cluster: Cluster, kubernetes: Kubernetes, odd: dict[str, Any]
) -> None:
    cluster.nodes = [node("good"), node("odd") | odd]
    assert [(read.name, read.standing.is_usable) for read in kubernetes.nodes()] == [("good", True), ("odd", False)]


@pytest.mark.parametrize("name", ["../../../evil", "a/b", "n" * 253, "", ".", "..", "a\x1b[2J", "-o"])
def test_a_node_whose_name_is_none_is_left_out(cluster: Cluster, kubernetes: Kubernetes, name: str) -> None:
    cluster.nodes = [node("good"), node(name)]
    (odd,) = (read for read in kubernetes.nodes() if read.name != "good")
    assert not odd.standing.is_usable and odd.name.isprintable()


@pytest.mark.parametrize("reason", ["Strange", "Evicted", "DeadlineExceeded"])
def test_what_ended_a_pod_is_said_in_few_printable_words(cluster: Cluster, kubernetes: Kubernetes, reason: str) -> None:
    named = {"metadata": {"name": "j", "labels": {RUN: "run", "job-name": "j"}}}
    failed = {"conditions": [{"type": "Failed", "status": "True"}]}
    cluster.jobs["j"] = {**named, "status": failed}
    said = "the \x1b[2Jnode " + "x" * 300_000
    cluster.pods["j"] = {**named, "status": {"phase": "Failed", "reason": reason, "message": said}}
    (task,) = kubernetes.tasks("run")
    assert task.why.startswith(f"{reason}: the ") and len(task.why) <= 330 and task.why.isprintable()


def test_a_list_in_which_no_node_can_be_read_is_asked_for_again(
    cluster: Cluster, kubernetes: Kubernetes, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.nodes = [node("good", gpus=2)]
    read, answers = (
        kubernetes._listed,
        [[Node(name="good", state="Unreadable", gres="(null)", features="", cpus=0, memory_mb=0)]],
    )
    monkeypatch.setattr(kubernetes, "_listed", lambda *arguments: answers.pop() if answers else read(*arguments))
    assert [(node.name, node.gpus) for node in kubernetes.nodes()] == [("good", 2)] and not answers


@pytest.mark.parametrize("answer", [{"kind": "PodList", "items": []}, {"kind": "Job"}, {}, {"items": []}])
def test_an_answer_to_a_removal_that_is_another_object_is_no_removal(answer: dict[str, Any]) -> None:
    with pytest.raises((ValueError, LookupError)):
        _deleted(answer)
    assert _deleted({"kind": "Status", "status": "Success"}) == []
    assert _deleted({"kind": "JobList", "items": [{"metadata": {"name": "a"}}]}) == ["a"]
