"""Run jobs on a Kubernetes cluster through its official client: a Job per launch, one at a time on a node, with a shared claim.

A pod runs torchmatrix in its own image, as the user who submits, with the claim where it is mounted here, too. What it prints
goes to a file on the claim, which outlives the pod.
"""

import hashlib
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from kubernetes import client, config
from kubernetes.utils import parse_quantity
from urllib3.exceptions import HTTPError

from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.formatting import clipped, printable
from torchmatrix.core.settings import KubernetesSettings
from torchmatrix.running.cluster import job_system
from torchmatrix.running.cluster.job_system import JobSystem, NodeState, NotNow, Submission, Task
from torchmatrix.running.kubernetes import GPUS, pod

RUN = "app.kubernetes.io/instance"
"""The label of all Jobs and pods of a run."""
KEPT_SECONDS = 3600
"""How long the cluster keeps a Job that is over; its launch is on the claim."""
ANSWER_SECONDS = 60.0
"""The time in which the API server must answer."""
_AGAIN = "kubectl cluster-info tells whether it answers; the same command then continues"
_SETTINGS = "docs/kubernetes.md explains [kubernetes] in the settings"
_HOPELESS = {
    "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError",
    "RunContainerError",
}  # fmt: skip
"""Reasons for which a container waits in vain."""
_STARTING = ("ContainerCreating", "PodInitializing")
_OF_NODE = {"Evicted", "NodeLost", "NodeShutdown", "Shutdown", "Terminated", "Preempting", "NodeAffinity"}
"""Reasons of a failed pod that lie with its node."""
_DRIVERS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "node.kubernetes.io/instance-type", "kubernetes.io/arch")
"""Labels by which nodes differ."""


class Node(job_system.Node):
    """A node as Kubernetes describes it, its GPUs in Slurm's words: gpu:nvidia:8."""

    __slots__ = ()

    @property
    def standing(self) -> NodeState:
        return NodeState(is_usable=self.state == "Ready", why=_WHY_NOT.get(self.state, ""))


_WHY_NOT = {
    "NotReady": "its kubelet does not answer, or it has no room",
    "SchedulingDisabled": "an administrator took it out of service",
    "Tainted": "it takes only pods that tolerate its taints",
}


class Kubernetes(JobSystem):
    """The cluster that the user's kubeconfig names, or in which this process runs."""

    name, title, look = "kubernetes", "Kubernetes", "kubectl describe nodes"
    gone, queues = "CANCELLED", False

    def __init__(self, site: KubernetesSettings) -> None:
        missing = [key for key in ("image", "claim", "folder") if not getattr(site, key)]
        if missing:
            raise BadInput(f"[kubernetes] in the settings has no {' and no '.join(missing)}", hint=_SETTINGS)
        if not os.getuid():
            hint = f"run torchmatrix as the user who owns {site.folder}"
            raise BadInput("pods don't run as root, and can't write what root owns", hint=hint)
        try:
            config.load_config()
        except Exception as error:  # of many kinds, some of which quote the file, where tokens are
            text = f"no cluster of Kubernetes is configured ({type(error).__name__})"
            raise EngineUnusable(text, hint="KUBECONFIG names the file; kubectl cluster-info tries it") from None
        self._site, self._folder, self.nodes_used = site, Path(str(site.folder)), site.nodes
        self.shared = self._folder
        options = client.Configuration.get_default_copy()
        options.retries = False  # the tool asks again by itself
        self._api = api = client.ApiClient(options)
        self._core, self._batch = client.CoreV1Api(api), client.BatchV1Api(api)
        self._vendors: dict[str, str] = {}
        self._waiting: dict[str, float] = {}
        self._given_up: dict[str, dict[str, Task]] = {}

    def version(self) -> str:
        return str(self._asked(client.VersionApi(self._api).get_code)["gitVersion"]).removeprefix("v")

    def nodes(self) -> Sequence[Node]:
        items = self._asked(self._core.list_node, label_selector=self._site.selector or "").get("items", [])
        nodes = sorted((self._node(item) for item in items), key=lambda node: node.name)
        if not nodes:
            raise BadInput("no node has the labels of [kubernetes] selector", hint=f"{self.look} shows the labels")
        return nodes

    def _node(self, item: dict[str, Any]) -> Node:
        spec, status, labels = item.get("spec", {}), item.get("status", {}), item["metadata"].get("labels", {})
        conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", [])}
        offered = status.get("allocatable", {})
        strict = [taint for taint in spec.get("taints", []) if taint["effect"] != "PreferNoSchedule"]
        is_ready, is_taken = conditions.get("Ready") == "True", any(taint["key"] not in GPUS.values() for taint in strict)
        state = "NotReady" if not is_ready else "SchedulingDisabled" if spec.get("unschedulable") else "Ready"
        vendor = next((vendor for vendor, resource in GPUS.items() if int(offered.get(resource, 0))), "")
        name = item["metadata"]["name"]
        self._vendors[name] = vendor
        return Node(
            name=name,
            state="Tainted" if state == "Ready" and is_taken else state,
            gres=f"gpu:{vendor}:{offered[GPUS[vendor]]}" if vendor else "(null)",
            features=",".join(labels[label] for label in _DRIVERS if label in labels),
            cpus=int(parse_quantity(offered.get("cpu", "0"))),
            memory_mb=int(parse_quantity(offered.get("memory", "0")) / 2**30) * 1024,
        )

    def most_tasks(self) -> int:
        return 1

    def submit(self, submission: Submission) -> str:
        job = f"{_label(submission.name)}-{uuid.uuid4().hex[:8]}"
        self._asked(self._batch.create_namespaced_job, self._site.namespace, self._job(job, submission))
        return job

    def _job(self, name: str, submission: Submission) -> dict[str, Any]:
        site, vendor, (node,) = self._site, self._vendors[submission.nodes[0]], submission.nodes
        labels = {"app.kubernetes.io/name": "torchmatrix", RUN: _label(submission.name)}
        of_node = {"valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
        variables = {
            "HOME": "/cache",
            "TORCHMATRIX_CACHE": str(self._folder / ".torchmatrix"),
            "TORCHMATRIX_POD_GPUS": str(submission.gpus),
        }
        settings = Path(os.environ.get("TORCHMATRIX_SETTINGS", "")).absolute()
        variables |= {"TORCHMATRIX_SETTINGS": str(settings)} if settings.is_relative_to(self._folder) else {}
        container = {
            "name": "torchmatrix",
            "image": site.image,
            "command": ["/bin/sh", "-c", 'exec torchmatrix "$@" >>"$0" 2>&1', submission.output.replace("%a", "0")],
            "args": list(submission.words),
            "workingDir": "/cache",
            "env": [
                *({"name": key, "value": value} for key, value in variables.items()),
                *({"name": key, **of_node} for key in ("TORCHMATRIX_MACHINE", "TORCHMATRIX_NODE")),
            ],
            "limits": {GPUS[vendor]: str(submission.gpus)} if submission.gpus else {},
            "volumeMounts": [{"name": "results", "mountPath": str(self._folder)}],
        }
        on_node = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        only = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [on_node]}}
        spec = pod(container, str(site.claim), os.getuid(), {"nodeAffinity": only})
        spec |= {"tolerations": [{"key": key, "operator": "Exists"} for key in GPUS.values()]}
        spec |= {"activeDeadlineSeconds": 60 * site.minutes} if site.minutes else {}
        spec |= {"imagePullSecrets": [{"name": site.pull_secret}]} if site.pull_secret else {}
        return {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "labels": labels},
            "spec": {
                "backoffLimit": 0,
                "ttlSecondsAfterFinished": KEPT_SECONDS,
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
        }

    def tasks(self, name: str) -> list[Task]:
        label = _label(name)
        wanted = {"namespace": self._site.namespace, "label_selector": f"{RUN}={label}"}
        pods = self._asked(self._core.list_namespaced_pod, **wanted).get("items", [])
        by_job = {item["metadata"].get("labels", {}).get("job-name"): item for item in pods}
        given_up, tasks = self._given_up.setdefault(label, {}), []
        for job in self._asked(self._batch.list_namespaced_job, **wanted).get("items", []):
            job_name = job["metadata"]["name"]
            if job_name in given_up:
                continue
            task = _task(job, by_job.get(job_name))
            if self._is_in_vain(job_name, task):
                given_up[job_name] = replace(task, state="FAILED", why=task.reason or "no pod was started")
                self._asked(self._batch.delete_namespaced_job, job_name, self._site.namespace, propagation_policy="Background")
            else:
                tasks.append(task)
        return [*tasks, *given_up.values()]

    def _is_in_vain(self, job: str, task: Task) -> bool:
        """Check whether a pod can't be started, by its reason or since it has waited for too long."""
        if task.state != "PENDING":
            return False
        since = self._waiting.setdefault(job, time.monotonic())
        return task.reason.partition(":")[0] in _HOPELESS or time.monotonic() - since > 60 * self._site.wait_minutes

    def cancel(self, name: str) -> None:
        wanted = {"label_selector": f"{RUN}={_label(name)}", "propagation_policy": "Foreground"}
        self._asked(self._batch.delete_collection_namespaced_job, self._site.namespace, **wanted)

    def _asked(self, call: Callable[..., Any], *words: Any, **options: Any) -> dict[str, Any]:
        """Return the server's answer. Raises BadInput and EngineUnusable in its words, NotNow where a quota is used up."""
        try:
            answer = self._api.sanitize_for_serialization(call(*words, **options, _request_timeout=ANSWER_SECONDS))
        except client.ApiException as error:
            message = _message(error)
            if "exceeded quota" in message or error.status == 429:
                hint = "wait until some have ended; the same command continues"
                raise NotNow(f"Kubernetes takes no more jobs: {message}", hint=hint) from None
            if error.status in (400, 404, 422):
                raise BadInput(f"Kubernetes refused: {message}", hint=_SETTINGS) from None
            hint = "kubectl auth can-i tells your rights" if error.status in (401, 403) else _AGAIN
            raise EngineUnusable(f"Kubernetes refused: {message}", hint=hint) from None
        except (HTTPError, ValueError) as error:
            reason = printable(clipped(str(getattr(error, "reason", None) or error), 300))
            raise EngineUnusable(f"the API server of Kubernetes gave no answer: {reason}", hint=_AGAIN) from None
        return dict(answer)


def _message(error: client.ApiException) -> str:
    """Return what the server says of an error, without the headers of its answer."""
    try:
        message = json.loads(error.body or "")["message"]
    except (ValueError, KeyError, TypeError):
        message = error.reason
    return printable(clipped(f"{message}", 500))


def _label(name: str) -> str:
    """Return a name for jobs as Kubernetes writes names; different names stay different."""
    label = re.sub(r"[^a-z0-9-]", "-", name.lower())
    digest = hashlib.sha256(name.encode()).hexdigest()
    return label if label == name.lower() and len(label) <= 52 else f"{label[:43]}-{digest[:8]}"


def _task(job: Mapping[str, Any], pod: Mapping[str, Any] | None) -> Task:
    """Return a Job and its pod, if there is one, as a task in Slurm's words."""
    conditions = {condition["type"] for condition in _true(job)}
    state, reason, why = "RUNNING", "", ""
    if "deletionTimestamp" in job["metadata"]:
        state = "COMPLETING"
    elif "Complete" in conditions:
        state = "COMPLETED"
    elif "Failed" in conditions:
        state, why = _failure(pod)
    elif pod is None or pod.get("status", {}).get("phase", "Pending") == "Pending":
        state, reason = "PENDING", _waiting_reason(pod)
    node = (pod or {}).get("spec", {}).get("nodeName", "")
    return Task(id=f"{job['metadata']['name']}_0", state=state, node=node, reason=reason, why=why)


def _true(item: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [condition for condition in item.get("status", {}).get("conditions", []) if condition["status"] == "True"]


def _failure(pod: Mapping[str, Any] | None) -> tuple[str, str]:
    """Return how a failed Job ended, in Slurm's word, and why."""
    if pod is None:
        return "NODE_FAIL", "its pod is gone"
    status = pod.get("status", {})
    disruption = next((condition for condition in _true(pod) if condition["type"] == "DisruptionTarget"), {})
    reason = disruption.get("reason") or status.get("reason", "")
    words = ": ".join(filter(None, (reason, disruption.get("message") or status.get("message"))))
    if disruption or reason in _OF_NODE or "deletionTimestamp" in pod["metadata"]:
        return "NODE_FAIL", words or "its pod is being removed"
    if reason == "DeadlineExceeded":
        return "TIMEOUT", words
    ends = [container["state"]["terminated"] for container in _containers(pod) if "terminated" in container.get("state", {})]
    if any(end.get("reason") == "OOMKilled" for end in ends):
        return "OUT_OF_MEMORY", "OOMKilled"
    return "FAILED", words or "; ".join(f"{end.get('reason', 'Error')}, exit code {end.get('exitCode')}" for end in ends)


def _waiting_reason(pod: Mapping[str, Any] | None) -> str:
    """Return why a pod isn't running; empty while it is only being started."""
    if pod is None:
        return ""
    waits = [container["state"]["waiting"] for container in _containers(pod) if "waiting" in container.get("state", {})]
    refusals = [
        condition
        for condition in pod.get("status", {}).get("conditions", [])
        if condition["type"] == "PodScheduled" and condition["status"] == "False"
    ]
    causes = [cause for cause in (*waits, *refusals) if cause.get("reason") not in (*_STARTING, None)]
    words = [text for cause in causes[:1] for text in (cause["reason"], cause.get("message")) if text]
    return printable(clipped(": ".join(words), 300))


def _containers(pod: Mapping[str, Any]) -> list[dict[str, Any]]:
    return list(pod.get("status", {}).get("containerStatuses", []))
