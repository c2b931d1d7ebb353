"""`run --engine kubernetes` on a stand-in for the API server: each launch is a Job, whatever becomes of its pod."""

import _thread
import json
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import pytest

from support import FAKE_PYTHON, invoke, kube_cluster, until
from support.kube_cluster import GARBLED, TOKEN, Cluster, node
from support.slurm_cluster import FAKE_STACK
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results
from torchmatrix_plugins.cluster import job_system

SETTINGS = '[kubernetes]\nimage = "registry.example/torchmatrix:1"\nclaim = "results"\nfolder = "{}"\n'
Run = Callable[..., "CompletedProcess[str]"]


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """Make the folder where the claim is mounted."""
    (tmp_path / "share").mkdir()
    return tmp_path / "share"


@pytest.fixture
def cluster(tmp_path: Path, share: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setattr(job_system, "POLL_SECONDS", 0.05)
    monkeypatch.setattr(job_system, "STALE_POLLS", 100)
    with kube_cluster.started(share, tmp_path / "kubeconfig") as started:
        yield started
        assert not started.invalid, "the schemas of Kubernetes refuse what was sent"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask again for half a second only."""
    monkeypatch.setattr(job_system, "PATIENCE_POLLS", 10)
    monkeypatch.setattr(job_system, "REMOVAL_POLLS", 10)


@pytest.fixture
def run(tmp_path: Path, share: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr("os.getuid", lambda: 1000)
    for module in ("kubernetes.config", "kubernetes.config.kube_config"):  # which read KUBECONFIG once, when they are imported
        monkeypatch.setattr(f"{module}.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    (tmp_path / "settings.toml").write_text(SETTINGS.format(share))
    matrix(share, 'model = ["resnet18", "resnet50"]\nbatch = 2')
    return partial(invoke, share, "run", "--engine", "kubernetes", TORCHMATRIX_SETTINGS=str(tmp_path / "settings.toml"))


def matrix(share: Path, workload: str) -> None:
    text = f"[run]\nlaunches = 1\n{FAKE_STACK}steps = 5\nwindows = 2\n{workload}\n"
    (share / "matrix.toml").write_text(text.format(python=FAKE_PYTHON))


def launches(share: Path) -> list[Launch]:
    return [launch for run_folder in Results(share / "results").runs() for launch in run_folder.launches()]


def test_each_launch_is_a_job_without_privileges_and_a_model_stays_on_one_node(share: Path, cluster: Cluster, run: Run) -> None:
    cluster.nodes += [node("node3", ready=False), node("node4", unschedulable=True)]
    cluster.nodes.append(node("node5", taints=[{"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}]))
    done = run()
    assert done.returncode == 0 and done.stdout.endswith("index.html\n"), done.stderr
    for name, why in (("node3", "NotReady"), ("node4", "SchedulingDisabled"), ("node5", "Tainted")):
        assert f"note: {name} is left out: {why}: " in done.stderr
    assert "kubernetes 1.34.1\n" in done.stderr and "nodes: node1, node2\n" in done.stderr
    assert Counter((launch.workload.model, launch.host["name"], launch.outcome) for launch in launches(share)) == {
        ("resnet18", "node1", "ok"): 1, ("resnet50", "node2", "ok"): 1,
    }  # fmt: skip
    assert len({launch.machine for launch in launches(share)}) == 2, "a node is a machine of its own"
    assert len(cluster.created) == 3, "one asks a node what it has, two make launches"
    for job in cluster.created:
        spec, pod = job["spec"], job["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        assert (spec["backoffLimit"], pod["restartPolicy"], pod["automountServiceAccountToken"]) == (0, "Never", False)
        assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 1000
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert container["image"] == "registry.example/torchmatrix:1"
        assert {"name": "results", "mountPath": str(share)} in container["volumeMounts"]
    (record,) = (folder.read_record() for folder in Results(share / "results").runs())
    assert record.complete
    assert "node1, node2 (kubernetes 1.34.1)" in (share / "reports" / "index.html").read_text()
    written = b"".join(path.read_bytes() for path in share.rglob("*") if path.is_file())
    assert TOKEN not in done.stdout + done.stderr and TOKEN.encode() not in written


def test_whatever_becomes_of_a_pod_is_the_outcome_of_its_launch(
    share: Path, cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchmatrix_plugins.cluster import kubernetes

    del cluster.nodes[1]
    matrix(share, 'model = "resnet18"\nbatch = [1, 2, 3, 4, 5, 6, 7]')
    hours = iter(range(0, 10**9, 3600))
    monkeypatch.setattr(kubernetes, "time", SimpleNamespace(monotonic=lambda: next(hours)))
    cluster.faults = ["unschedulable", "image", "oom", "late", "deleted", "lost", "broken", "evicted"]
    done = run()
    assert done.returncode == 6 and "1 launch cancelled by somebody else" in done.stderr, done.stderr
    assert Counter(launch.outcome for launch in launches(share)) == {"crashed": 3, "oom": 1, "timeout": 1, "ok": 1}
    assert len([job for job in cluster.created if "launch" in str(job)]) == 9, "what a node lost is made again, twice at most"
    assert cluster.most == 1, "a node makes one launch at a time"
    errors = "\n".join(launch.error or "" for launch in launches(share))
    for why in (
        "Kubernetes's job on node1 ended as FAILED (Unschedulable: 0/2 nodes are available) without a launch",
        "FAILED (ImagePullBackOff: no such image)",
        "OUT_OF_MEMORY (OOMKilled)",
        "TIMEOUT (DeadlineExceeded: active for too long)",
        "FAILED (Error, exit code 127)",
    ):
        assert why in errors, errors
    done = run()
    assert done.returncode == 1 and "1 launch to do" in done.stderr, done.stderr
    assert Counter(launch.outcome for launch in launches(share)) == {"crashed": 3, "oom": 1, "timeout": 1, "ok": 2}


def test_ctrl_c_deletes_the_jobs_of_this_run_alone_and_the_same_command_continues(
    share: Path, cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "60")
    foreign = {"metadata": {"name": "foreign", "labels": {"app.kubernetes.io/instance": "another"}}, "spec": {}}
    cluster.jobs["foreign"] = foreign

    def interrupt() -> None:
        until(lambda: list(share.glob("results/*/*/*/*/*/round1-try1.jsonl")))
        _thread.interrupt_main()

    cluster.on_launch = lambda number: threading.Thread(target=interrupt).start() if number == 1 else None
    done = run("*resnet18*")
    assert done.returncode == 130 and "ending the jobs" in done.stderr, done.stderr
    assert cluster.left == ["foreign"]
    until(lambda: not cluster.running())
    monkeypatch.delenv("FAKE_SECONDS")
    cluster.on_launch = lambda number: None
    done = run("*resnet18*")
    assert done.returncode == 0, done.stderr
    counted = Counter((launch.cell, launch.round) for launch in launches(share) if launch.outcome == "ok")
    assert len(counted) == 1 and set(counted.values()) == {1} and len(Results(share / "results").runs()) == 1


def test_a_job_that_is_still_ending_when_the_command_continues_was_ended_by_nobody_else(
    share: Path, cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "60")
    begin = cluster._started

    def slow_to_end(container: dict[str, Any], place: str) -> Any:
        script = """trap 'kill $child; sleep 4; exit 143' TERM; "$@" & child=$!; wait $child; wait"""
        waits = ["/bin/bash", "-c", script, "x", *container["command"]]
        return begin(dict(container, command=waits) if "launch" in container["args"] else container, place)

    monkeypatch.setattr(cluster, "_started", slow_to_end)

    def interrupt_twice() -> None:
        until(lambda: list(share.glob("results/*/*/*/*/*/round1-try1.jsonl")))
        _thread.interrupt_main()
        until(lambda: not cluster.left)
        time.sleep(0.5)
        _thread.interrupt_main()

    cluster.on_launch = lambda number: threading.Thread(target=interrupt_twice).start() if number == 1 else None
    assert run("*resnet18*").returncode == 130 and cluster.running()
    monkeypatch.delenv("FAKE_SECONDS")
    cluster.on_launch = lambda number: None
    done = run("*resnet18*")
    assert done.returncode == 0 and "cancelled by somebody" not in done.stderr, done.stderr
    assert [launch.outcome for launch in launches(share)].count("ok") == 1 and len(Results(share / "results").runs()) == 1


def test_ctrl_c_between_two_submissions_leaves_no_job(
    share: Path, cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchmatrix_plugins.cluster.kubernetes import Kubernetes

    monkeypatch.setenv("FAKE_SECONDS", "60")
    submit, launched = Kubernetes.submit, []

    def interrupted(system: Kubernetes, submission: job_system.Submission) -> str:
        if launched:
            raise KeyboardInterrupt
        job = submit(system, submission)
        launched.extend([job] if "launch" in submission.words else [])
        return job

    monkeypatch.setattr(Kubernetes, "submit", interrupted)
    done = run()
    assert done.returncode == 130 and len(launched) == 1, done.stderr
    assert not cluster.left
    until(lambda: not cluster.running())


SHORT = ("500", "429", "404", "409", "503", "ended", "cut", "empty", *GARBLED)
"""Faults that the next request may not meet, by their names in the stand-in."""


def in_turn(fault: str) -> Callable[[str], str | None]:
    """Return what disturbs every first, third … request of a kind."""
    seen: Counter[str] = Counter()

    def disturb(request: str) -> str | None:
        seen[request] += 1
        return fault if seen[request] % 2 else None

    return disturb


@pytest.mark.representative
@pytest.mark.parametrize(
    "fault", ["after ended", *SHORT, *(f"after {fault}" for fault in SHORT if fault not in ("ended", "empty"))]
)
def test_no_launch_is_lost_or_made_twice_if_each_request_meets_a_fault_once(
    share: Path, cluster: Cluster, run: Run, fault: str
) -> None:
    cluster.disturb = in_turn(fault)
    done = run("*resnet18*")
    assert done.returncode == 0, done.stderr
    assert [launch.outcome for launch in launches(share)] == ["ok"] and len(cluster.launched) == 1
    assert len(cluster.created) == 2 and cluster.most == 1, "a node was asked twice"
    assert ["launch" in str(job) for job in cluster.jobs.values()] == [True], "the Job that described the node is left"


@pytest.mark.representative
@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("begin", ["POST jobs 2", "GET version", "POST jobs 1", "GET pods 1", "GET jobs 9"])
@pytest.mark.parametrize("fault", ["after ended", "500"])
def test_a_fault_that_lasts_ends_the_command_which_says_what_is_left_and_can_be_repeated(
    share: Path, cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, fault: str, begin: str
) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "2")
    seen: Counter[str] = Counter()

    def disturb(request: str) -> str | None:
        seen[request] += 1
        seen["begun"] |= begin in (request, f"{request} {seen[request]}")
        return fault if seen["begun"] and (is_away or "DELETE" not in request) else None

    for is_away in (False, True):
        cluster.disturb, words = disturb, ("--new", "*resnet18*")
        seen.clear()
        done = run(*words)
        errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
        assert done.returncode == 4 and len(errors) == 1 and "hint: " in done.stderr, done.stderr
        if is_away and cluster.running():
            assert "kubectl delete jobs --namespace default --selector app.kubernetes.io/instance=torchmatrix-" in done.stderr
        elif not is_away:
            assert not cluster.left
            until(lambda: not cluster.running())
    cluster.disturb = lambda request: None
    done = run("*resnet18*")
    assert done.returncode == 0, done.stderr
    assert len(set(cluster.launched)) == len(cluster.launched) and cluster.most == 1, cluster.launched


@pytest.mark.parametrize("kinds", [["Warning"], ["Normal"], ["Warning", "Normal"], ["Normal", "Warning", "Warning", "Normal"]])
def test_a_job_that_gets_no_pod_says_why_while_it_waits(share: Path, cluster: Cluster, run: Run, kinds: list[str]) -> None:
    words = {"reason": "FailedCreate", "message": 'pods "x" is forbidden: exceeded quota: \x1b[2Jgpus'}
    older = {"type": "Warning", "reason": "Older", "lastTimestamp": "2026-11-28T10:00:00Z"}
    newer = [{"type": kind, **words, "lastTimestamp": f"2026-11-28T11:00:0{number}Z"} for number, kind in enumerate(kinds)]
    cluster.no_pods = [*newer, older] if "Warning" in kinds else newer
    seen: Counter[str] = Counter()

    def disturb(request: str) -> str | None:
        seen[request] += 1
        if seen["GET events"] == 4:
            cluster.admit()
        return "403" if request == "GET events" and seen[request] == 2 else None

    cluster.disturb = disturb
    done = run("*resnet18*")
    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert ("FailedCreate: pods" in said) == ("Warning" in kinds) and "\x1b" not in said and "Older" not in said
    assert [launch.outcome for launch in launches(share)] == ["ok"]


@pytest.mark.parametrize("number", [1, 2])
def test_a_job_whose_answer_was_lost_is_of_this_run_also_if_the_next_list_leaves_it_out(
    share: Path, cluster: Cluster, run: Run, number: int
) -> None:
    seen: Counter[str] = Counter()

    def disturb(request: str) -> str | None:
        seen[request] += 1
        if seen["POST jobs"] < number or request not in ("POST jobs", "GET jobs"):
            return None
        seen["since"] += 1
        return {1: "after ended", 3: "empty"}.get(seen["since"])

    cluster.disturb = disturb
    done = run("*resnet18*")
    assert done.returncode == 0, done.stderr
    assert [launch.outcome for launch in launches(share)] == ["ok"] and len(cluster.created) == 2


QUOTA = "is forbidden: exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=1, limited: count/jobs.batch=1"


@pytest.mark.parametrize("answer", [(403, "Forbidden", QUOTA), (422, "Invalid", "denied the request: no further Job")])
def test_a_refusal_is_not_believed_if_the_job_is_there(
    share: Path, cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, answer: tuple[int, str, str]
) -> None:
    """The server asks quotas and webhooks before it compares names: what it created before fills the quota itself."""
    status, reason, message = answer
    create, disturb = cluster.create, in_turn("after ended")

    def refuse_again(job: dict[str, Any]) -> Any:
        if job["metadata"]["name"] in cluster.jobs:
            return status, {"kind": "Status", "reason": reason, "message": message}
        return create(job)

    monkeypatch.setattr(cluster, "create", refuse_again)
    cluster.disturb = lambda request: disturb(request) if request == "POST jobs" else None
    done = run("*resnet18*")
    assert done.returncode == 0, done.stderr
    assert [launch.outcome for launch in launches(share)] == ["ok"] and len(cluster.launched) == 1


@pytest.mark.representative
@pytest.mark.parametrize("lists", ["GET jobs, GET pods", "GET jobs", "GET pods"])
def test_lists_that_leave_everything_out_end_nothing(
    share: Path, cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, lists: str
) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "2")
    cluster.disturb = lambda request: "empty" if request in lists else None
    done = run("*resnet18*")
    assert done.returncode == 0, done.stderr
    assert [launch.outcome for launch in launches(share)] == ["ok"] and len(cluster.launched) == 1


@pytest.mark.representative
@pytest.mark.parametrize("post", [2, 1])
@pytest.mark.parametrize("fault", ["after ended", "ended"])
@pytest.mark.parametrize("lists", ["GET jobs, GET pods", ""])
def test_a_command_that_is_killed_while_it_sends_a_job_is_continued_without_a_second_one(
    tmp_path: Path, share: Path, cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch, post: int, fault: str, lists: str
) -> None:
    """Kill it before or after the server created the Job; the command that continues may then see empty lists at first."""
    monkeypatch.setenv("FAKE_SECONDS", "1")
    killed, posts = [], iter(range(1, 9))

    def disturb(request: str) -> str | None:
        if killed or request != "POST jobs" or next(posts) != post:
            return "empty" if killed and request in lists and not cluster.launched[1:] else None
        process.kill()
        killed.append(process.wait())
        return fault

    cluster.disturb = disturb
    words = ("run", "--engine", "kubernetes", "*resnet18*")
    process = kube_cluster.begun(share, tmp_path / "kubeconfig", tmp_path / "settings.toml", *words)
    process.communicate()
    assert killed
    done = run("*resnet18*")
    assert done.returncode == 0, done.stderr
    assert [launch.outcome for launch in launches(share)] == ["ok"] and len(cluster.launched) == 1
    assert len(Results(share / "results").runs()) == 1


def test_a_server_that_is_silent_after_it_created_a_job_is_asked_again(
    share: Path, cluster: Cluster, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torchmatrix_plugins.cluster import kubernetes

    monkeypatch.setattr(kubernetes, "ANSWER_SECONDS", 5.0)
    disturb = in_turn("after silent")
    cluster.disturb = lambda request: disturb(request) if request == "POST jobs" else None
    cluster.silence_seconds = 8.0
    done = run("*resnet18*")
    assert done.returncode == 0, done.stderr
    assert [launch.outcome for launch in launches(share)] == ["ok"] and len(cluster.launched) == 1


def ending(job: dict[str, Any]) -> None:
    job["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"


def unlabelled(job: dict[str, Any]) -> None:
    job["metadata"]["labels"] = {}


@pytest.mark.parametrize(
    ("happens", "told"), [(ending, "was ended, but is still there"), (unlabelled, "Kubernetes has its job torchmatrix-")]
)
def test_what_an_end_is_waited_for_is_told(
    share: Path,
    cluster: Cluster,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    happens: Callable[[dict[str, Any]], None],
    told: str,
) -> None:
    monkeypatch.setenv("FAKE_SECONDS", "4")
    monkeypatch.setattr(job_system, "STALE_POLLS", 10)
    cluster.on_launch = lambda number: happens(cluster.created[-1])
    done = run("*resnet18*")
    assert done.returncode == 0 and len([line for line in done.stderr.splitlines() if told in line]) == 1, done.stderr
    assert [launch.outcome for launch in launches(share)] == ["ok"] and len(cluster.launched) == 1


@pytest.mark.parametrize("happens", ["other GPUs", "another machine", "another home"])
def test_a_kind_of_node_that_drops_out_of_a_continued_run_is_named(
    share: Path, cluster: Cluster, run: Run, happens: str
) -> None:
    cluster.nodes[1]["status"]["allocatable"]["memory"] = "16Gi"
    cluster.faults = ["", "deleted"]
    done = run("*resnet18*")
    assert done.returncode == 6, done.stderr
    before = [launch.outcome for launch in launches(share)]
    (order,) = share.glob("results/.kubernetes/*")
    facts, (array, *_) = order / "nodes" / "node2.json", order.glob("jobs/*.json")
    if happens == "other GPUs":
        facts.unlink()
        cluster.nodes[1]["status"]["allocatable"]["nvidia.com/gpu"] = "2"
    elif happens == "another machine":
        facts.write_text(re.sub('"machine": "[^"]*', '"machine": "reimaged', facts.read_text()))
    else:
        array.write_text(re.sub('"home": "[^"]*', r'"home": "../evil\\u001b', array.read_text()))
    done = run("*resnet18*")
    assert done.returncode == 4 and "which no node of this run measures any more: " in done.stderr, done.stderr
    assert "node2" in done.stderr and "--new begins" in done.stderr and "\x1b" not in done.stderr
    assert [launch.outcome for launch in launches(share)] == before


def test_a_foreign_job_of_the_same_name_is_an_error_and_stays(cluster: Cluster, run: Run) -> None:
    create = cluster.create

    def taken(job: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        name = job["metadata"]["name"]
        cluster.jobs[name] = {"metadata": {"name": name, "labels": {"app.kubernetes.io/instance": "another"}}, "spec": {}}
        return create(job)

    cluster.create = taken  # type: ignore[method-assign]
    done = run("*resnet18*")
    assert done.returncode == 2 and "that is not of this run" in done.stderr and "hint: kubectl get job" in done.stderr
    assert len(cluster.jobs) == 1 and not cluster.created
    cluster.create = create  # type: ignore[method-assign]
    assert run("*resnet18*").returncode == 0


def test_a_pod_gets_all_gpus_of_its_node_and_a_node_that_shows_others_is_left_out(
    tmp_path: Path, cluster: Cluster, run: Run
) -> None:
    with (tmp_path / "settings.toml").open("a") as file:
        file.write('minutes = 3\npull_secret = "registry"\n')
    cluster.nodes = [node("node1", gpus=4, taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])]
    done = run()
    assert done.returncode == 4 and "Kubernetes gave 4 GPUs, but no GPU can be seen" in done.stderr, done.stderr
    (job,) = cluster.created
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"]["limits"] == {"nvidia.com/gpu": "4"}
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in pod["tolerations"]
    assert (pod["activeDeadlineSeconds"], pod["imagePullSecrets"]) == (180, [{"name": "registry"}])


@pytest.mark.usefixtures("impatient")
def test_a_refusal_by_the_server_is_an_error_with_a_hint(cluster: Cluster, run: Run) -> None:
    for answer, code, message in (
        ((403, 'nodes is forbidden: User "u" cannot list'), 4, "Kubernetes refused: nodes is forbidden"),
        ((401, "Unauthorized"), 4, "Kubernetes refused: Unauthorized"),
        ((400, "no such thing"), 2, "Kubernetes refused: no such thing"),
        ((404, {"message": "no such namespace", "details": {"name": "x", "kind": "namespaces"}}), 2, "no such namespace"),
        ((404, "no such thing"), 4, "Kubernetes refused: no such thing"),
        ((500, "etcd is away"), 4, "Kubernetes refused: etcd is away"),
    ):
        cluster.answer = answer
        done = run()
        assert done.returncode == code and message in done.stderr and "hint: " in done.stderr, done.stderr
        assert TOKEN not in done.stderr
    cluster.answer, cluster.nodes = None, []
    done = run()
    assert done.returncode == 2 and "no node has the labels" in done.stderr


@pytest.mark.usefixtures("impatient")
def test_a_mistake_is_an_error_with_a_hint(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    kubeconfig, settings = tmp_path / "kubeconfig", tmp_path / "settings.toml"
    for words, message in (
        (("--detach",), "--detach works only with --engine slurm"),
        (("--results", str(tmp_path / "elsewhere")), "elsewhere is not below"),
    ):
        kubeconfig.write_text('{"clusters": [], "users": [], "contexts": [], "current-context": ""}')
        if "--results" in words:
            with kube_cluster.started(tmp_path / "share", kubeconfig):
                done = run(*words)
        else:
            done = run(*words)
        assert done.returncode == 2 and message in done.stderr and "hint: " in done.stderr, done.stderr
    done = run()  # the server of the kubeconfig has gone
    assert done.returncode == 4 and "the API server of Kubernetes gave no answer" in done.stderr, done.stderr
    kubeconfig.write_text(f"users: [ {TOKEN}")
    done = run()
    assert done.returncode == 4 and "no cluster of Kubernetes is configured" in done.stderr and TOKEN not in done.stderr
    monkeypatch.setattr("os.getuid", lambda: 0)
    done = run()
    assert done.returncode == 2 and "pods don't run as root" in done.stderr, done.stderr
    settings.write_text('[kubernetes]\nclaim = "results"\n')
    done = run()
    assert done.returncode == 2 and "has no image and no folder" in done.stderr, done.stderr
    monkeypatch.setitem(sys.modules, "torchmatrix_plugins.cluster.kubernetes", None)
    done = run()
    assert done.returncode == 4 and "pip install 'torchmatrix[kubernetes]'" in done.stderr, done.stderr


SECRET = "hunter2secret"


def _configured(part: str, changes: dict[str, Any]) -> Callable[[dict[str, Any]], None]:
    return lambda config: config[f"{part}s"][0][part].update(changes)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (_configured("user", {"token": f"{SECRET}\u20ac"}), "can't be asked with these credentials"),
        (_configured("user", {"token": f"{SECRET}\nb"}), "can't be asked with these credentials"),
        (
            _configured("cluster", {"proxy-url": f"http://user:{SECRET}@127.0.0.1:99999"}),
            "no cluster of Kubernetes is configured",
        ),
        (_configured("cluster", {"proxy-url": 5}), "no cluster of Kubernetes is configured"),
        (_configured("cluster", {"server": f"http://user:{SECRET}@127.0.0.1:99999"}), "gave no answer"),
    ],
)
def test_credentials_that_cannot_be_sent_are_told_without_them(
    cluster: Cluster, run: Run, impatient: None, tmp_path: Path, change: Callable[[dict[str, Any]], None], why: str
) -> None:
    config = json.loads((tmp_path / "kubeconfig").read_text())
    change(config)
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    done = run()
    assert done.returncode == 4 and why in done.stderr and SECRET not in done.stderr + done.stdout, done.stderr


@pytest.mark.parametrize("end", ["\n", "\r\n", " \n"])
def test_a_file_with_a_token_may_end_with_a_line_break(
    share: Path, cluster: Cluster, run: Run, tmp_path: Path, end: str
) -> None:
    config = json.loads((tmp_path / "kubeconfig").read_text())
    (tmp_path / "token").write_text(f"{TOKEN}{end}", newline="")
    config["users"][0]["user"] = {"tokenFile": str(tmp_path / "token")}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    assert run().returncode == 0 and {launch.outcome for launch in launches(share)} == {"ok"}


def test_what_a_server_says_is_told_without_credentials(cluster: Cluster, run: Run, impatient: None) -> None:
    cluster.answer = (503, f"no backend: http://user:{SECRET}@10.0.0.1/hook said no, token=ghp_{'a' * 36}")
    done = run()
    assert done.returncode == 4 and "note: Kubernetes refused: no backend" in done.stderr
    assert SECRET not in done.stderr and "ghp_aaa" not in done.stderr
