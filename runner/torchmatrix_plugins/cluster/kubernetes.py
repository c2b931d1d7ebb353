"""Run jobs on a Kubernetes cluster through its official client: a Job per launch, one at a time on a node, with a shared claim.

A pod runs torchmatrix in its own image, as the user who submits, with the claim where it is mounted here, too. What it prints
goes to a file on the claim, which outlives the pod.
"""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from kubernetes import client, config
from kubernetes.utils import parse_quantity
from urllib3.exceptions import HTTPError

from torchmatrix.core.errors import BadInput, EngineUnusable, ToolError, is_interruption
from torchmatrix.core.formatting import clipped, printable
from torchmatrix.core.settings import KubernetesSettings
from torchmatrix.running.kubernetes import GPUS, pod
from torchmatrix_plugins.cluster import job_system
from torchmatrix_plugins.cluster.job_system import JobSystem, NodeState, NotNow, Submission, Task, Unanswered

RUN = "app.kubernetes.io/instance"
"""The label of all Jobs and pods of a run."""
KEPT_SECONDS = 3600
"""How long the cluster keeps a Job that is over; its launch is on the claim."""
ANSWER_SECONDS = 60.0
"""The time in which the API server must answer."""
_PASSING = (404, 408, 409, 425, 429)
"""Status codes that soon may be others: of a server or proxy that is starting, busy, or changing the same object."""
_AGAIN = "kubectl cluster-info tells whether it answers; the same command then continues"
_CONFIGURED = "KUBECONFIG names the file; kubectl cluster-info tries it"
_SETTINGS = "docs/kubernetes.md explains [kubernetes] in the settings"
_HOPELESS = {
    "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName", "CreateContainerConfigError", "CreateContainerError",
    "RunContainerError",
}  # fmt: skip
"""Reasons for which a container waits in vain."""
_STARTING = ("ContainerCreating", "PodInitializing")
_OF_NODE = {
    "Evicted",
    "NodeLost",
    "NodeShutdown",
    "Shutdown",
    "Terminated",
    "Preempting",
    "NodeAffinity",
    "UnexpectedAdmissionError",
}
"""Reasons of a failed pod that lie with its node; so do OutOfcpu and the like, by which a kubelet refuses a pod."""
_DRIVERS = ("nvidia.com/gpu.product", "amd.com/gpu.product-name", "node.kubernetes.io/instance-type", "kubernetes.io/arch")
"""Labels by which nodes differ."""
_QUANTITY = re.compile(r"\+?(\d{1,20}(\.\d{0,20})?|\.\d{1,20})([KMGTPE]i|[numkMGTPE]|[eE][+-]?\d{1,2})?", re.ASCII)
"""https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/, without what no node offers"""
_ACCELERATOR = re.compile(r"(?i)(nvidia\.com|amd\.com|gpu\.intel\.com|habana\.ai)/.+|[^/]+/.*([gntvx]pu|neuron|ascend).*")
"""The resources of device plugins: slices, shares and other makers' devices."""
_NODE_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,199}")
"""A DNS subdomain; it becomes the name of files."""
Made = TypeVar("Made")


class _AlreadyThere(EngineUnusable):
    """The error when the name of an object is taken."""


class _NotThere(EngineUnusable):
    """The error when a named object is not there."""


def _kind(answer: Mapping[str, Any]) -> str:
    return str(answer["kind"])


def _deleted(answer: Mapping[str, Any]) -> list[str]:
    """Return the names of deleted Jobs, where the answer lists them; it may be a Status. Raises errors of several kinds."""
    if _kind(answer) not in ("Status", "JobList"):
        raise ValueError
    return [_name(item) for item in answer.get("items") or []]


def _name(item: Mapping[str, Any]) -> str:
    return str(item["metadata"]["name"])


def _name_and_run(item: Mapping[str, Any]) -> tuple[str, str]:
    return _name(item), str(item["metadata"].get("labels", {}).get(RUN))


class Node(job_system.Node):
    """A node as Kubernetes describes it, its GPUs in Slurm's words: gpu:nvidia:8."""

    __slots__ = ()

    @property
    def standing(self) -> NodeState:
        return NodeState(is_usable=self.state == "Ready", why=_WHY_NOT.get(self.state.partition(" ")[0], ""))


_WHY_NOT = {
    "NotReady": "its kubelet does not answer, or it has no room",
    "SchedulingDisabled": "an administrator took it out of service",
    "Unreadable": "what the server says of it can't be read, such as its quantities",
    "Tainted": "it takes only pods that tolerate its taints",
    "Offers": "no launch asks for that, only for nvidia.com/gpu or amd.com/gpu, and its CPU alone isn't what it is for",
}


class _Configuration(client.Configuration):
    """The client's options. It takes the file of a token with its line break, which no header can hold; kubectl doesn't."""

    def get_api_key_with_prefix(self, identifier: str, alias: str | None = None) -> str | None:
        key = super().get_api_key_with_prefix(identifier, alias)
        return key.strip() if isinstance(key, str) else None


class Kubernetes(JobSystem):
    """The cluster that the user's kubeconfig names, or in which this process runs."""

    name, title, look = "kubernetes", "Kubernetes", "kubectl describe nodes"
    gone, queues = "CANCELLED", False

    def __init__(self, site: KubernetesSettings, tell: Callable[[str], None]) -> None:
        super().__init__(tell)
        missing = [key for key in ("image", "claim", "folder") if not getattr(site, key)]
        if missing:
            raise BadInput(f"[kubernetes] in the settings has no {' and no '.join(missing)}", hint=_SETTINGS)
        if not os.getuid():
            hint = f"run torchmatrix as the user who owns {site.folder}"
            raise BadInput("pods don't run as root, and can't write what root owns", hint=hint)
        try:
            options = _Configuration()
            config.load_config(client_configuration=options)
            options.retries = False  # the tool asks again by itself
            self._api = api = client.ApiClient(options)
        except Exception as error:  # of many kinds, some of which quote the file, where tokens are
            if is_interruption(error):
                raise
            text = f"no cluster of Kubernetes is configured ({type(error).__name__})"
            raise EngineUnusable(text, hint=_CONFIGURED) from None
        self._site, self._folder, self.nodes_used = site, Path(str(site.folder)), site.nodes
        self.shared = self._folder
        self._core, self._batch = client.CoreV1Api(api), client.BatchV1Api(api)
        self._vendors: dict[str, str] = {}
        self._waiting: dict[str, float] = {}
        self._given_up: dict[str, dict[str, Task]] = {}

    def version(self) -> str:
        return self._asked(client.VersionApi(self._api).get_code, lambda answer: str(answer["gitVersion"])).removeprefix("v")

    def nodes(self) -> Sequence[Node]:
        nodes: list[Node] = []
        for _ in range(job_system.SETTLING_POLLS):
            nodes = self._listed(partial(self._core.list_node, label_selector=self._site.selector or ""), self._node)
            if any(node.state != "Unreadable" for node in nodes):
                break
            time.sleep(job_system.POLL_SECONDS)
        if nodes:
            return sorted(nodes, key=lambda node: node.name)
        raise BadInput("no node has the labels of [kubernetes] selector", hint=f"{self.look} shows the labels")

    def _node(self, item: dict[str, Any]) -> Node:
        try:
            return self._readable_node(item)
        except (AttributeError, LookupError, TypeError, ValueError):
            name = printable(clipped(_name(item), 300))
            return Node(name=name, state="Unreadable", gres="(null)", features="", cpus=0, memory_mb=0)

    def _readable_node(self, item: dict[str, Any]) -> Node:
        spec, status, labels = item.get("spec", {}), item.get("status", {}), item["metadata"].get("labels", {})
        conditions = {condition["type"]: condition["status"] for condition in status.get("conditions", [])}
        offered = status.get("allocatable", {})
        strict = [taint for taint in spec.get("taints", []) if taint["effect"] != "PreferNoSchedule"]
        is_ready, is_taken = conditions.get("Ready") == "True", any(taint["key"] not in GPUS.values() for taint in strict)
        state = "NotReady" if not is_ready else "SchedulingDisabled" if spec.get("unschedulable") else "Ready"
        vendor = next((vendor for vendor, resource in GPUS.items() if _quantity(offered, resource)), "")
        others = [name for name in sorted(offered) if _ACCELERATOR.fullmatch(name) and _quantity(offered, name)]
        if state == "Ready" and not vendor and others:
            state = f"Offers {printable(clipped(', '.join(others), 200))}"
        if not _NODE_NAME.fullmatch(name := _name(item)):
            raise ValueError(f"{name} is no name of a node")
        self._vendors[name] = vendor
        return Node(
            name=name,
            state="Tainted" if state == "Ready" and is_taken else state,
            gres=f"gpu:{vendor}:{_quantity(offered, GPUS[vendor])}" if vendor else "(null)",
            features=",".join(labels[label] for label in _DRIVERS if label in labels),
            cpus=_quantity(offered, "cpu"),
            memory_mb=_quantity(offered, "memory") // 2**30 * 1024,
        )

    def most_tasks(self) -> int:
        return 1

    def submit(self, submission: Submission) -> str:
        job = self.job_of(submission.name, submission.key)
        try:
            create: Callable[..., Any] = self._batch.create_namespaced_job
            self._asked(partial(create, self._site.namespace, self._job(job, submission)), _name)
        except (_AlreadyThere, BadInput, NotNow) as refusal:
            # It may have been created before, but no answer came; a quota, or another rule, is asked before the name.
            if not isinstance(refusal, _AlreadyThere) and not self.has(job):
                raise
            # A list may leave it out, but shows it as another's only if it is.
            of_name = partial(self._batch.list_namespaced_job, self._site.namespace, field_selector=f"metadata.name={job}")
            found = self._listed(of_name, _name_and_run)
            if dict(found).get(job, of_run := _label(submission.name)) != of_run:
                hint = f"kubectl get job {job} --namespace {self._site.namespace} shows it; the same command then continues"
                raise BadInput(f"Kubernetes has a Job {job} that is not of this run", hint=hint) from None
        return job

    def job_of(self, name: str, key: str) -> str:
        return f"{_label(name)}-{key}" if key else ""

    def has(self, job: str) -> bool:
        """Check whether a Job exists, also if a list leaves it out: to delete it for show needs no right that isn't needed."""
        try:
            name, _ = job_system.array_index(job)
            self._asked(partial(self._batch.delete_namespaced_job, name, self._site.namespace, dry_run="All"), _kind)
        except (_NotThere, BadInput):  # with some webhooks no change can be tried: then only lists tell
            return False
        return True

    def _of(self, name: str) -> dict[str, Any]:
        """Return where and by which label the server finds the Jobs of this name and their pods."""
        return {"namespace": self._site.namespace, "label_selector": f"{RUN}={_label(name)}"}

    def _job(self, name: str, submission: Submission) -> dict[str, Any]:
        site, (node,) = self._site, submission.nodes
        if (vendor := self._vendors.get(node)) is None:
            hint = f"{self.look} shows it; the same command then continues"
            raise EngineUnusable(f"what the server says of {node}, on which this run goes on, can't be read", hint=hint)
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
        pods = dict(self._listed(partial(self._core.list_namespaced_pod, **self._of(name)), _of_job))
        list_jobs = partial(self._batch.list_namespaced_job, **self._of(name))
        given_up, tasks = self._given_up.setdefault(name, {}), []
        for task in self._listed(list_jobs, lambda job: _task(job, pods.get(_name(job)))):
            job, _ = job_system.array_index(task.id)
            if job in given_up:
                continue
            if task.state == "PENDING" and job not in pods:
                task = replace(task, reason=self._why_no_pod(job))
            if self._is_in_vain(job, task):
                given_up[job] = replace(task, state="FAILED", why=task.reason or "no pod was started")
                self._remove(job)
            else:
                tasks.append(task)
        return [*tasks, *given_up.values()]

    def _why_no_pod(self, job: str) -> str:
        """Return the last warning about a Job that has no pod, as of a quota; empty if there is none, or it may not be read."""
        fields = f"involvedObject.kind=Job,involvedObject.name={job}"
        try:
            ask = partial(self._core.list_namespaced_event, self._site.namespace, field_selector=fields)
            return max((warning for warning in self._listed(ask, _warning, polls=0) if warning[1]), default=("", ""))[1]
        except ToolError:
            return ""

    def _is_in_vain(self, job: str, task: Task) -> bool:
        """Check whether a pod can't be started, by its reason or since it has waited for too long."""
        if task.state != "PENDING":
            self._waiting.pop(job, None)
            return False
        since = self._waiting.setdefault(job, time.monotonic())
        return task.reason.partition(":")[0] in _HOPELESS or time.monotonic() - since > 60 * self._site.wait_minutes

    def forget(self, jobs: Collection[str]) -> None:
        for job in {job_system.array_index(task)[0] for task in jobs}:
            self._remove(job)

    def _remove(self, job: str) -> None:
        with suppress(_NotThere):
            delete = partial(self._batch.delete_namespaced_job, job, self._site.namespace)
            self._asked(partial(delete, propagation_policy="Background"), _kind)

    def cancel(self, name: str) -> None:
        delete = partial(self._batch.delete_collection_namespaced_job, propagation_policy="Foreground", **self._of(name))
        self._asked(delete, _deleted, job_system.REMOVAL_POLLS)

    def how_to_cancel(self, name: str) -> str:
        return f"kubectl delete jobs --namespace {self._site.namespace} --selector {RUN}={_label(name)} ends them"

    def _listed(self, call: Callable[..., Any], make: Callable[[dict[str, Any]], Made], polls: int | None = None) -> list[Made]:
        """Return what `make` makes of each item of a list, as `_asked` does."""

        def read(answer: dict[str, Any]) -> list[Made]:
            if not _kind(answer).endswith("List"):
                raise ValueError
            return [make(item) for item in answer.get("items") or []]

        return self._asked(call, read, polls)

    def _asked(self, call: Callable[..., Any], read: Callable[[dict[str, Any]], Made], polls: int | None = None) -> Made:
        """Return what `read` makes of the server's answer, which is waited for.

        Raises BadInput and EngineUnusable in the server's words, NotNow where a quota is used up, Unanswered after `polls`.
        """
        return job_system.answered(partial(_answer, call, read), self.tell, polls)


def _quantity(offered: Mapping[str, Any], resource: str) -> int:
    """Return how much of a resource a node offers, rounded down; 0 where it isn't listed. Raises ValueError."""
    text = str(offered.get(resource, 0))
    if not _QUANTITY.fullmatch(text):
        raise ValueError(f"{text} is no quantity")
    return int(parse_quantity(text))


def _answer(call: Callable[..., Any], read: Callable[[dict[str, Any]], Made]) -> Made:
    """Send a request; return what `read` makes of the answer. Raises ToolError."""
    try:
        response = call(_preload_content=False, _request_timeout=ANSWER_SECONDS)
        status, reason, content = response.status, response.reason, response.data
    except client.ApiException as error:  # which some versions of the client raise themselves
        status, reason, content = error.status or 0, error.reason, error.body or ""
    except HTTPError as error:
        reason = printable(clipped(str(getattr(error, "reason", None) or error), 300))
        raise Unanswered(f"the API server of Kubernetes gave no answer: {reason}", hint=_AGAIN) from None
    except (ValueError, TypeError) as error:  # whose text quotes a header, and so the credentials
        text = f"the API server of Kubernetes can't be asked with these credentials ({type(error).__name__})"
        raise EngineUnusable(text, hint=_CONFIGURED) from None
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        answer = None
    if not 200 <= status < 300:
        raise _refusal(status, answer if isinstance(answer, dict) else {"message": reason})
    try:
        return read(answer)
    except (AttributeError, LookupError, TypeError, ValueError):
        text = printable(clipped(content.decode(errors="replace"), 100))
        raise Unanswered(f"the API server of Kubernetes gave an answer that is not its own: {text}", hint=_AGAIN) from None


def _refusal(status: int, answer: Mapping[str, Any]) -> ToolError:
    """Return the error that the server's Status object means. https://kubernetes.io/docs/reference/using-api/api-concepts/"""
    message = printable(clipped(f"{answer.get('message')}", 500))
    text, details = f"Kubernetes refused: {message}", answer.get("details")
    kind = details.get("kind") if isinstance(details, dict) and details.get("name") else ""
    if "exceeded quota" in message:
        hint = "wait until some have ended; the same command continues"
        return NotNow(f"Kubernetes takes no more jobs: {message}", hint=hint)
    if status == 409 and answer.get("reason") == "AlreadyExists":
        return _AlreadyThere(text, hint=_AGAIN)
    if status in (400, 422) or (status == 404 and kind == "namespaces"):
        return BadInput(text, hint=_SETTINGS)
    if status == 404 and kind:
        return _NotThere(text, hint=_AGAIN)
    if status >= 500 or status in _PASSING or (not status and "CERTIFICATE" not in message):
        return Unanswered(text, hint=_AGAIN)
    return EngineUnusable(text, hint="kubectl auth can-i tells your rights" if status in (401, 403) else _AGAIN)


def _label(name: str) -> str:
    """Return a name for jobs as Kubernetes writes names; different names stay different."""
    label = re.sub(r"[^a-z0-9-]", "-", name.lower())
    digest = hashlib.sha256(name.encode()).hexdigest()
    return label if label == name.lower() and len(label) <= 52 else f"{label[:43]}-{digest[:8]}"


def _of_job(pod: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name of a pod's Job, and the pod."""
    return str(pod["metadata"].get("labels", {}).get("job-name")), pod


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
        why = printable(clipped(why, 300))
    elif {"FailureTarget", "SuccessCriteriaMet"} & conditions:  # its pods are being ended, for ever where a node is lost
        state = "COMPLETING"
    elif pod is None or pod.get("status", {}).get("phase", "Pending") == "Pending":
        state, reason = "PENDING", _waiting_reason(pod)
    node = (pod or {}).get("spec", {}).get("nodeName", "")
    return Task(id=f"{job['metadata']['name']}_0", state=state, node=node, reason=reason, why=why)


def _warning(event: Mapping[str, Any]) -> tuple[str, str]:
    """Return when an event was last seen, and it in words: FailedCreate of a quota or an admission policy; empty for one that
    is no warning.
    """
    seen = str(event.get("lastTimestamp") or event.get("eventTime") or "")
    words = filter(None, (event.get("reason"), event.get("message")))
    return seen, printable(clipped(": ".join(map(str, words)), 300)) if event.get("type") == "Warning" else ""


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
    if disruption or reason in _OF_NODE or reason.startswith("OutOf") or "deletionTimestamp" in pod["metadata"]:
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
