"""Run the commands of Slurm: sinfo, sbatch, squeue, scancel, scontrol. Knows nothing of matrices and launches."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from torchmatrix.core.errors import BadInput, EngineUnusable
from torchmatrix.core.settings import SlurmSettings
from torchmatrix_plugins.cluster import job_system
from torchmatrix_plugins.cluster.job_system import JobSystem, NodeState, NotNow, Submission, Task, Unanswered

# Slurm's words for the state of a node, and their meaning for a job that asks for this node.

_AT_ONCE = (
    "idle", "allocated", "alloc", "mixed", "mix", "completing", "comp", "planned", "plnd", "-", "blocked", "block", "cloud",
    "dynamic", "dynamic_norm", "dynamic_future", "resume", "resm", "undrain", "cancel_reboot", "canc_r",
)  # fmt: skip
"""States in which a job waits for other jobs at most."""
_LATER = {
    "it is powered down; Slurm starts it for a job": ("powered_down", "powered_dn", "~"),
    "it is being started": ("powering_up", "power_up", "pow_up", "#"),
    "it is being powered down; Slurm starts it again for a job": ("powering_down", "powring_dn", "%"),
    "it is about to be powered down; Slurm starts it again for a job": ("power_down", "pow_dn", "!"),
    "it is to be rebooted first": ("reboot_requested", "@"),
    "it is being rebooted": ("reboot_issued", "reboot", "boot", "^"),
}
"""Slurm brings the node up by itself; until then it need not answer. https://slurm.schedmd.com/power_save.html"""
_NEVER = {
    "it is down": ("down",),
    "it is drained: an administrator took it out of service": ("drained", "drain", "draining", "drng", "power_drain"),
    "it is expected to fail soon": ("fail", "failing", "failg"),
    "it is in an error state": ("error",),
    "it is not set up yet": ("future", "futr"),
    "it did not register as slurm.conf describes it": ("inval", "invalid_reg"),
    "it is reserved for maintenance": ("maint", "maintenance", "$"),
    "its network performance counters are in use": ("perfctrs", "npc"),
    "it is reserved": ("reserved", "resv"),
    "the controller does not know its state yet": ("unknown", "unk"),
}
"""States in which somebody has to do something first."""
_SILENT = ("not_responding", "no_respond", "*")
_MEANING = {word: meaning for table in (_LATER, _NEVER) for meaning, words in table.items() for word in words}
_KNOWN = {*_MEANING, *_AT_ONCE, *_SILENT}
_WORDS = re.compile(r"[a-z_]+|[^a-z_+]")


def node_state(state: str) -> NodeState:
    """Judge a state as `sinfo` prints it (idle~, drain) or `scontrol` (IDLE+CLOUD+POWERED_DOWN): base states, flags, suffixes.

    All of them stand in https://slurm.schedmd.com/sinfo.html#SECTION_NODE-STATE-CODES and under "show node" in
    https://slurm.schedmd.com/scontrol.html, short forms in Slurm's node_state_string_compact.
    """
    words = _WORDS.findall(state.lower())
    strange = [word for word in words if word not in _KNOWN]
    if strange or not words:
        return NodeState(is_usable=False, why=f"Slurm's word for its state isn't known here: \"{' '.join(strange)}\"")
    meanings = [_MEANING[word] for word in words if word in _MEANING]
    for meaning in meanings:
        if meaning in _NEVER:
            return NodeState(is_usable=False, why=meaning)
    if not meanings and set(words) & set(_SILENT):
        return NodeState(is_usable=False, why="it does not answer")
    return NodeState(is_usable=True, why="; ".join(dict.fromkeys(meanings)))


LAUNCHERS = {"docker": "docker", "podman": "podman", "apptainer": "apptainer", "pyxis": "pyxis", "bare": "local"}
"""The engine that each launcher means on a node."""
ANSWER_SECONDS = 60.0
"""The time in which a command must answer."""
WARNING_SECONDS = 30
"""The time before its time limit at which a job is asked to end."""
MOST_TASKS = 1000
"""The most tasks of one array, where Slurm doesn't state its limit."""
_LIMITS = ("submit limit", "temporarily unable to accept", "maximum number of jobs", "Resource temporarily")
"""Words in a refusal that is due to the number of jobs."""
_POLICY, _OF_JOBS = re.compile(r"\b(?:QOS|Assoc)\w+"), re.compile(r"(?:Max|Grp)(?:Submit)?Jobs?(?:Per\w+)?Limit")
"""The name of the limit that a job violates, and the names of those on the number of jobs; the sentence about any of them says
"submit limit". Slurm's job_reason_codes
"""
_UNANSWERED = ("Unable to contact", "timed out", "Zero Bytes", "Communication ", "standby mode", "Connection ")
"""Words of a command whose controller did not answer; it may have carried out what it was asked. Slurm's slurm_errno.c"""
_AGAIN = "is the controller up? scontrol ping tells; the same command then continues"
_NO_PARTITION = (
    "name one in the settings: [slurm] partition; nodes that are powered down may be hidden (PrivateData=cloud in slurm.conf)"
)


_NODE = re.compile(r"(\w[\w.-]*)\|([^|]+)\|([^|]+)\|([^|]*)\|([^|]*)\|(\d{1,9})\+?\|(\d{1,12})\+?")
"""A line of `nodes`; what else is printed, such as a site's own words, is none."""


class Node(job_system.Node):
    """A node as Slurm describes it: `gres` such as gpu:a100:8, `state` such as idle or idle~."""

    __slots__ = ()

    @property
    def standing(self) -> NodeState:
        return node_state(self.state)


def _is_of_their_number(message: str) -> bool:
    """Check whether a refusal is due to the number of jobs, so that it ends as jobs end."""
    if named := _POLICY.findall(message):
        return any(_OF_JOBS.search(name) for name in named)
    return any(word in message for word in _LIMITS)


class Slurm(JobSystem):
    """The cluster that this machine's commands reach."""

    name, title, look = "slurm", "Slurm", "sinfo"

    def __init__(self, site: SlurmSettings, tell: Callable[[str], None] = lambda text: None) -> None:
        super().__init__(tell)
        self._site = site
        self.engine, self.nodes_used = LAUNCHERS.get(site.launcher, "auto"), site.nodes

    def version(self) -> str:
        """Return a version such as 22.05.8. Raises EngineUnusable where there is no Slurm."""
        return self._output_of(["sinfo", "--version"]).strip().removeprefix("slurm ").removeprefix("slurm-wlm ")

    def nodes(self) -> Sequence[Node]:
        """Return the nodes of the settings' partition, or of the default one, by name. Raises EngineUnusable, BadInput."""
        lines = self._output_of(["sinfo", "-h", "-N", "-o", "%N|%P|%T|%G|%f|%c|%m"]).splitlines()
        rows = [row.groups() for row in map(_NODE.fullmatch, lines) if row]
        wanted = self._site.partition
        matching = [row for row in rows if (row[1].rstrip("*") == wanted if wanted else row[1].endswith("*"))]
        if not matching:
            partitions = ", ".join(sorted({row[1].rstrip("*") for row in rows})) or "none"
            which = f'no partition "{wanted}" with nodes' if wanted else "no default partition with nodes"
            raise BadInput(f"Slurm has {which}; it has: {partitions}", hint=_NO_PARTITION)
        nodes = [
            Node(name=name, state=state.lower(), gres=gres, features=features, cpus=int(cpus), memory_mb=int(memory))
            for name, _, state, gres, features, cpus, memory in matching
        ]
        return sorted(nodes, key=lambda node: _natural_key(node.name))

    def submit(self, submission: Submission) -> str:
        """Submit an array and return the job's id. Raises BadInput with Slurm's own words if it refuses, NotNow at a limit.

        Slurm takes the same job twice: before it is asked again, or a refusal is believed, the job is looked for.
        """
        sent = False

        def submit_once() -> str:
            nonlocal sent
            job = self._job_now(submission.name, submission.key) if sent else ""
            sent = True
            try:
                return job or self._submit(submission)
            except (BadInput, NotNow):  # which a site's own wrapper or plugin may cause after Slurm took the job
                if job := self._job_now(submission.name, submission.key):
                    return job
                raise

        return job_system.answered(submit_once, self.tell)

    def _submit(self, submission: Submission) -> str:
        script = f"#!/bin/sh\nexec {shlex.join([sys.executable, '-m', 'torchmatrix', *submission.words])}\n"
        done = self._run(["sbatch", "--parsable", *self._options(submission)], script)
        job = done.stdout.strip().partition(";")[0]
        if done.returncode:
            message = done.stderr.strip().removeprefix("sbatch: error: ") or f"sbatch ended with {done.returncode}"
            if _is_of_their_number(message):
                raise NotNow(
                    f"Slurm takes no more jobs: {message}", hint="wait until some have ended; the same command continues"
                )
            if done.returncode < 0 or any(word in message for word in _UNANSWERED):
                raise Unanswered(f"sbatch failed: {message}", hint=_AGAIN)
            raise BadInput(f"Slurm refused the job: {message}", hint="fix [slurm] in the settings; sinfo shows the partitions")
        if not job.isdecimal():
            raise Unanswered("sbatch printed no job's id", hint=_AGAIN)
        return job

    def job_of(self, name: str, key: str) -> str:
        """Return the id of the job of this name with the key as its comment, or ""."""
        return job_system.answered(partial(self._job_now, name, key), self.tell)

    def _job_now(self, name: str, key: str) -> str:
        lines = self._output_now(["squeue", "-h", "-t", "all", "-n", name, "-o", "%i|%k"]).splitlines() if key else []
        return next((job_system.array_index(line)[0].partition("|")[0] for line in lines if line.endswith(f"|{key}")), "")

    def has(self, job: str) -> bool:
        """Check whether a job is there that isn't over; squeue may print nothing though there are jobs."""
        return job_system.answered(partial(self._has_now, job), self.tell)

    def _has_now(self, job: str) -> bool:
        done = self._run(["scontrol", "show", "job", "--oneliner", job])
        states = re.findall(r"\bJobState=(\w+)", done.stdout)
        words = done.stdout + done.stderr
        if not states and "Invalid job id" not in words and f"{job} not found" not in words:
            raise Unanswered(f"scontrol didn't say whether there is a job {job}", hint=_AGAIN)
        return not job_system.OVER.issuperset(states)

    def most_tasks(self) -> int:
        """Return how many tasks an array may have: the setting MaxArraySize."""
        match = re.search(r"\bMaxArraySize\s*=\s*(\d{1,9})\b", self._output_of(["scontrol", "show", "config"]))
        return max(1, int(match[1]) - 1) if match else MOST_TASKS

    def tasks(self, name: str) -> list[Task]:
        """Return the tasks of all jobs of this name that Slurm still knows, also those that are over. Raises EngineUnusable."""
        lines = self._output_of(["squeue", "-h", "-r", "-t", "all", "-n", name, "-o", "%i|%T|%N|%r"]).splitlines()
        rows = [line.split("|", 3) for line in lines if line.count("|") >= 3]
        return [Task(id=row[0], state=row[1], node=row[2], reason=row[3]) for row in rows]

    def cancel(self, name: str) -> None:
        """End all jobs of this name, waiting or running."""
        words = ["scancel", f"--name={name}", f"--user={os.getuid()}"]
        job_system.answered(partial(self._output_now, words), self.tell, job_system.REMOVAL_POLLS)

    def how_to_cancel(self, name: str) -> str:
        return f"scancel --name={name} ends them"

    def seconds_left(self, job: str) -> float | None:
        """Return the seconds until a job's time limit; None if it has none, or is over."""
        text = self._run(["squeue", "-h", "-j", job, "-o", "%L"]).stdout.strip()
        if not re.fullmatch(r"(\d{1,9}-)?\d{1,9}(:\d{1,9}){1,2}", text):
            return None
        days, _, clock = text.rpartition("-")
        seconds = 0
        for part in clock.split(":"):
            seconds = 60 * seconds + int(part)
        return 86_400.0 * int(days or 0) + seconds

    def nodes_of_job(self, listed: str) -> list[str]:
        """Return the names in a list such as node[1-2], as in SLURM_JOB_NODELIST; the job's script runs on the first."""
        return self._output_of(["scontrol", "show", "hostnames", listed]).split()

    def address(self, node: str) -> str:
        """Return the address under which the other nodes reach a node."""
        match = re.search(r"\bNodeAddr=(\S+)", self._output_of(["scontrol", "show", "node", node, "--oneliner"]))
        return match[1] if match else node

    def _options(self, submission: Submission) -> list[str]:
        site = self._site
        named = {
            "job-name": submission.name,
            "comment": submission.key,
            "array": f"{','.join(map(str, submission.tasks))}%1",
            "nodelist": ",".join(submission.nodes),
            "nodes": str(len(submission.nodes)),
            "output": submission.output,
            "open-mode": "append",
            "signal": f"B:TERM@{WARNING_SECONDS}",
            "gres": f"gpu:{submission.gpus}" if submission.gpus else "",
            "dependency": ":".join(("afterany", *submission.after)) if submission.after else "",
            "time": str(site.minutes) if site.minutes else "",
            **{key: getattr(site, key) for key in ("partition", "account", "qos", "constraint")},
        }
        kept = [f"--{key}={value}" for key, value in named.items() if value]
        return [*kept, "--requeue", "--kill-on-invalid-dep=yes", *(["--exclusive"] if site.exclusive else [])]

    def _output_of(self, words: Sequence[str]) -> str:
        """Return what a command prints, repeated while it fails. Raises EngineUnusable."""
        return job_system.answered(partial(self._output_now, words), self.tell)

    def _output_now(self, words: Sequence[str]) -> str:
        done = self._run(words)
        if done.returncode:
            lines = done.stderr.strip().splitlines()
            raise Unanswered(f"{words[0]} failed: {lines[-1] if lines else done.returncode}", hint=_AGAIN)
        return done.stdout

    @staticmethod
    def _run(words: Sequence[str], text: str = "") -> subprocess.CompletedProcess[str]:
        if not shutil.which(words[0]):
            raise EngineUnusable(
                f"there is no {words[0]} here",
                hint="run torchmatrix where Slurm's commands are: on a login node of the cluster",
            )
        try:
            return subprocess.run(
                words, input=text, capture_output=True, encoding="utf-8", errors="replace", timeout=ANSWER_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise Unanswered(f"{words[0]} gave no answer in {ANSWER_SECONDS:g} s", hint=_AGAIN) from None


def _natural_key(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts node2 before node10."""
    parts: Iterable[str] = re.findall(r"\d{1,18}|\D+", name)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]
