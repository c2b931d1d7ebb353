"""A stand-in for the API server of Kubernetes: it checks what it is sent by the published schemas, and plays the pods.

A pod's command runs as a process of this machine, with the claim where the pod mounts it. A test may name a fault for each Job
that makes a launch, and for each request.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlsplit

import kubernetes_validate

TOKEN = "not-for-logs"
VERSIONS = ("1.27", "1.31", "1.37")
GARBLED = {
    "null": b"null", "a list": b"[]", "a text": b'"here"', "an empty object": b"{}",
    "no JSON": b"<html>\x1b[2J", "nothing": b"",
    "a list of null": b'{"kind": "JobList", "items": [null]}', "a deep list": b"[" * 100_000 + b"]" * 100_000,
    "an object of nulls": b'{"kind": "JobList", "items": [{"metadata": null, "status": null}], "gitVersion": null}',
}  # fmt: skip
"""Answers that no API server gives, by the name of the fault. Further faults of a request: see Cluster."""
_NOW = "2026-01-01T00:00:00Z"
_STATUS: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
    "unschedulable": lambda pod: {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes are available"}
        ],
    },
    "image": lambda pod: {
        "phase": "Pending",
        "containerStatuses": [_container({"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}})],
    },
    "oom": lambda pod: {"phase": "Failed", "containerStatuses": [_container(_ended(137, "OOMKilled"))]},
    "late": lambda pod: {"phase": "Failed", "reason": "DeadlineExceeded", "message": "active for too long"},
    "broken": lambda pod: {"phase": "Failed", "containerStatuses": [_container(_ended(127, "Error"))]},
    "evicted": lambda pod: {"phase": "Failed", "reason": "Evicted", "message": "the node was low on memory"},
}
"""The status of a pod by the fault of its Job. Further faults: lost (its node vanishes), deleted (by somebody else)."""


def _container(state: dict[str, Any]) -> dict[str, Any]:
    return {"name": "torchmatrix", "image": "i", "imageID": "i", "ready": False, "restartCount": 0, "state": state}


def _ended(code: int, reason: str) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, "reason": reason}}


def node(name: str, *, ready: bool = True, gpus: int = 0, **spec: Any) -> dict[str, Any]:
    offered = {"cpu": "2", "memory": "8Gi", **({"nvidia.com/gpu": str(gpus)} if gpus else {})}
    conditions = [{"type": "Ready", "status": str(ready)}]
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": offered, "conditions": conditions}}


class Cluster:
    """A cluster's state. `faults`: of the next Jobs that make launches, in their order. `created`: all Jobs that were sent.
    `most`: pods of a node at once, but those that have described it and are being ended. `on_launch`: is called after the start
    of each launch. `answer`: an error that every request gets: what the server says is its body, or the message in it.
    `no_pods`: the events of Jobs that get no pod; `admit` gives them theirs.

    `disturb`: is called with each request, such as "GET pods", and returns its fault or None: a name in GARBLED; a status code;
    "ended" (the connection, without an answer), "silent" (for `silence_seconds`), "cut" (the answer), "empty" (the list). A
    fault that begins with "after " comes after the request was carried out, the others instead.
    """

    def __init__(self, folder: Path) -> None:
        self.folder, self.nodes = folder, [node("node1"), node("node2")]
        self.faults: list[str] = []
        self.created: list[dict[str, Any]] = []
        self.jobs: dict[str, dict[str, Any]] = {}
        self.pods: dict[str, dict[str, Any]] = {}
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.invalid: list[str] = []
        self.no_pods: list[dict[str, Any]] = []
        self.most = 0
        self.on_launch: Callable[[int], object] = lambda number: None
        self.answer: tuple[int, str | dict[str, Any]] | None = None
        self.disturb: Callable[[str], str | None] = lambda request: None
        self.silence_seconds = 0.0
        self._lock = threading.RLock()

    def create(self, job: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        with self._lock:
            for version in VERSIONS:
                try:
                    kubernetes_validate.validate(job, version, strict=True)
                except kubernetes_validate.ValidationError as error:
                    self.invalid.append(str(error))
                    return 422, {"message": "invalid"}
            name = job["metadata"]["name"]
            if name in self.jobs:
                details = {"name": name, "group": "batch", "kind": "jobs"}
                text = f'jobs.batch "{name}" already exists'
                return 409, {"kind": "Status", "message": text, "reason": "AlreadyExists", "details": details}
            job["metadata"]["namespace"], job["status"] = "default", {"active": 1}
            self.created.append(job)
            self.jobs[name] = job
            self._begin(name, job)
            return 201, job

    def admit(self) -> None:
        """Give Jobs their pods that got none."""
        with self._lock:
            self.no_pods = []
            for name, job in self.jobs.items():
                if name not in self.pods:
                    self._begin(name, job)

    def _begin(self, name: str, job: dict[str, Any]) -> None:
        spec = job["spec"]["template"]["spec"]
        (term,) = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        (place,) = term["matchFields"][0]["values"]
        labels = {**job["spec"]["template"]["metadata"]["labels"], "job-name": name}
        pod = {"metadata": {"name": f"{name}-x", "labels": labels}, "spec": {**spec, "nodeName": place}}
        is_launch = "launch" in spec["containers"][0]["args"]
        fault = self.faults.pop(0) if is_launch and self.faults else ""
        if self.no_pods:
            return
        self.pods[name] = pod
        if fault in _STATUS:
            pod["status"] = _STATUS[fault](pod)
            if pod["status"]["phase"] == "Failed":
                self._end(name, "Failed")
        elif fault == "lost":
            del self.pods[name]
            self._end(name, "Failed")
        elif fault == "deleted":
            del self.pods[name], self.jobs[name]
        else:
            pod["status"] = {"phase": "Running"}
            self.processes[name] = self._started(spec["containers"][0], place)
            here = [other for other in self.running() if self.pods[other]["spec"]["nodeName"] == place]
            self.most = max(self.most, sum(not self._is_leaving(other) for other in here))
            if is_launch:
                self.on_launch(sum("launch" in str(created) for created in self.created))

    def _started(self, container: dict[str, Any], place: str) -> "subprocess.Popen[bytes]":
        scratch = self.folder.parent / "scratch"
        scratch.mkdir(exist_ok=True)
        variables = {
            variable["name"]: variable["value"].replace("/cache", str(scratch)) if "value" in variable else place
            for variable in container["env"]
        }
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("TORCHMATRIX", "KUBE"))}
        command, variables = [*container["command"], *container["args"]], {**kept, "PATH": path, **variables}
        return subprocess.Popen(command, cwd=scratch, env=variables, start_new_session=True)

    def running(self) -> list[str]:
        return [name for name, process in self.processes.items() if process.poll() is None and name in self.pods]

    def _is_leaving(self, name: str) -> bool:
        """Check whether a pod has described its node and is being ended: it may take a moment, and measures nothing."""
        ending = "deletionTimestamp" in self.jobs[name]["metadata"]
        return ending and "launch" not in self.pods[name]["spec"]["containers"][0]["args"]

    @property
    def left(self) -> list[str]:
        """Return the Jobs that nobody has ended; one that was ended stays a moment, until its process has gone."""
        return [name for name, job in self.jobs.items() if "deletionTimestamp" not in job["metadata"]]

    def _end(self, name: str, condition: str) -> None:
        self.jobs[name]["status"] = {"conditions": [{"type": condition, "status": "True"}]}

    @property
    def launched(self) -> list[str]:
        """Return the words of the Jobs that make launches, of each Job that was ever created."""
        words = [job["spec"]["template"]["spec"]["containers"][0]["args"] for job in self.created]
        return [" ".join(args) for args in words if "launch" in args]

    def listed(self, resource: str, label: str, field: str = "") -> list[dict[str, Any]]:
        with self._lock:
            for name, process in list(self.processes.items()):
                if name not in self.jobs or process.poll() is None:
                    continue
                if "deletionTimestamp" in self.jobs[name]["metadata"]:
                    del self.jobs[name], self.pods[name]
                    continue
                code = process.returncode
                phase, condition = ("Failed", "Failed") if code else ("Succeeded", "Complete")
                self.pods[name]["status"] = {"phase": phase, "containerStatuses": [_container(_ended(code, "Error"))]}
                self._end(name, condition)
            items = self.jobs.values() if resource == "jobs" else self.pods.values()
            key, _, value = label.partition("=")
            labelled = [item for item in items if not key or item["metadata"]["labels"].get(key) == value]
            return [item for item in labelled if field in ("", f"metadata.name={item['metadata']['name']}")]

    def delete_one(self, name: str, for_show: bool) -> tuple[int, dict[str, Any]]:
        with self._lock:
            if name not in self.jobs:
                details = {"name": name, "group": "batch", "kind": "jobs"}
                text = f'jobs.batch "{name}" not found'
                return 404, {"kind": "Status", "message": text, "reason": "NotFound", "details": details}
            self.delete([] if for_show else [name])
            return 200, {"kind": "Status", "apiVersion": "v1"}

    def delete(self, names: list[str]) -> None:
        with self._lock:
            for name in names:
                if name in self.processes and self.processes[name].poll() is None:
                    self.jobs[name]["metadata"]["deletionTimestamp"] = _NOW
                    os.killpg(self.processes[name].pid, signal.SIGTERM)
                else:
                    self.jobs.pop(name, None)
                    self.pods.pop(name, None)

    def answer_to(self, method: str, where: SplitResult, body: bytes) -> tuple[int, dict[str, Any]]:
        """Carry out a request; return the status and the object of the answer."""
        options = parse_qs(where.query)
        label = options.get("labelSelector", [""])[0]
        if self.answer:
            status, answer = self.answer
            return status, {"message": answer} if isinstance(answer, str) else answer
        jobs = "/apis/batch/v1/namespaces/default/jobs"
        if method == "DELETE" and where.path == jobs:
            self.delete([job["metadata"]["name"] for job in self.listed("jobs", label)])
            return 200, {"kind": "Status", "apiVersion": "v1"}
        if method == "DELETE" and where.path.startswith(jobs):
            return self.delete_one(where.path.rpartition("/")[2], options.get("dryRun") == ["All"])
        if method == "POST" and where.path == jobs:
            return self.create(json.loads(body))
        build = {name: "x" for name in ("buildDate", "compiler", "gitCommit", "gitTreeState", "goVersion", "platform")}
        gets: dict[str, Callable[[], dict[str, Any]]] = {
            "/version/": lambda: {"major": "1", "minor": "34", "gitVersion": "v1.34.1", **build},
            "/api/v1/nodes": lambda: {"kind": "NodeList", "apiVersion": "v1", "items": self.nodes},
            "/api/v1/namespaces/default/pods": lambda: {"kind": "PodList", "items": self.listed("pods", label)},
            "/api/v1/namespaces/default/events": lambda: {"kind": "EventList", "items": self.no_pods},
            jobs: lambda: {"kind": "JobList", "items": self.listed("jobs", label, options.get("fieldSelector", [""])[0])},
        }
        return (200, gets[where.path]()) if where.path in gets else (404, {"message": f"no {where.path}"})


def _disturbed(what: str, status: int, answer: dict[str, Any]) -> tuple[int, bytes]:
    """Return the status and the body of an answer with a fault; as they are without one."""
    if what.isdecimal():
        return int(what), b'{"kind": "Status", "message": "disturbed"}'
    if what in GARBLED:
        return 200, GARBLED[what]
    return status, json.dumps(answer | ({"items": []} if what == "empty" and "items" in answer else {})).encode()


def _handler(cluster: Cluster) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answered(self, body: bytes) -> tuple[int, dict[str, Any]]:
            if self.headers.get("Authorization") != f"Bearer {TOKEN}":
                return 401, {"message": "Unauthorized"}
            return cluster.answer_to(self.command, urlsplit(self.path), body)

        def do_GET(self) -> None:
            resource = next(name for name in ("jobs", "pods", "nodes", "version", "events") if f"/{name}" in self.path)
            fault = cluster.disturb(f"{self.command} {resource}") or ""
            what = fault.removeprefix("after ")
            is_instead = fault == what != "" and what not in ("cut", "empty")
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, answer = (500, {}) if is_instead else self._answered(body)
            if what == "silent":
                time.sleep(cluster.silence_seconds)
            if what in ("ended", "silent"):
                self.close_connection = True
                return
            self._send(*_disturbed(what, status, answer), is_cut=what == "cut")

        def _send(self, status: int, content: bytes, is_cut: bool) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if is_cut else content)
            self.close_connection |= is_cut

        do_POST = do_DELETE = do_GET

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


_AS_USER = """
import os, sys
os.getuid = lambda: 1000
from torchmatrix import cli
from torchmatrix_plugins.cluster import job_system
job_system.POLL_SECONDS = 0.05
sys.exit(cli.invoke(sys.argv[1:]))
"""


def begun(folder: Path, kubeconfig: Path, settings: Path, *words: str) -> "subprocess.Popen[str]":
    """Start a command in a process of its own, as if the user weren't root; it polls often."""
    variables = {"KUBECONFIG": str(kubeconfig), "TORCHMATRIX_SETTINGS": str(settings)}
    return subprocess.Popen(
        [sys.executable, "-c", _AS_USER, *words],
        cwd=folder, env=os.environ | variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@contextmanager
def started(folder: Path, kubeconfig: Path) -> Iterator[Cluster]:
    """Start two nodes that share `folder`; how to reach them is written to `kubeconfig`."""
    cluster = Cluster(folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(cluster))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    address = f"http://127.0.0.1:{server.server_address[1]}"
    content = {
        "apiVersion": "v1", "kind": "Config", "current-context": "c",
        "clusters": [{"name": "c", "cluster": {"server": address}}],
        "users": [{"name": "u", "user": {"token": TOKEN}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }  # fmt: skip
    kubeconfig.write_text(json.dumps(content), encoding="utf-8")
    try:
        yield cluster
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        for process in cluster.processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
