"""Measures how busy a run keeps a large cluster's nodes: real slurmctld, a slurmd per node on this machine, sleeping launches.

    cd tests && python bench/slurm_busy.py [LAUNCHES [NODES [SECONDS]]]

The tool plans, submits, watches and collects as always; only what a job does is a stand-in, which sleeps for SECONDS and
writes a launch file. Prints how busy the nodes were between the first launch and the last: the seconds slept over the seconds
that there were, since a node makes one launch at a time; the same with each node counted until its own last launch, so that it
doesn't matter that some nodes have more to do; the seconds from the end of one launch to the next; the requests.
"""

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from support import FAKE_PYTHON, slurm_cluster
from torchmatrix.facts.store import Results
from torchmatrix.matrix import catalog

MODELS = list(catalog.models())[:32]
MODES, BATCHES = ("train", "infer"), (2, 4)
MATRIX = f"""
[run]
launches = {{rounds}}
{slurm_cluster.FAKE_STACK}
model = {{models}}
mode = ["train", "infer"]
batch = [2, 4]
steps = 1
"""
STAND_IN = """\
#!/bin/sh
line=$(sed -n "$((SLURM_ARRAY_TASK_ID + 1))p" {launches})
file=${{line%% *}} text=${{line#* }}
begin=$(date +%s.%N)
sleep {seconds}
mkdir -p "${{file%/*}}"
sed "$text" {template} >"$file.part" && mv "$file.part" "$file"
echo "$SLURMD_NODENAME $begin $(date +%s.%N)" >>{told}/$SLURMD_NODENAME
"""


def main(launches: int = 10_000, nodes: int = 64, seconds: float = 30.0) -> None:
    """Make one real launch, whose file is the pattern of all others; then run them all."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        for place in ("slurm", "told", "bin"):
            (folder / place).mkdir()
        models = MODELS[: max(1, nodes // len(MODES))]
        rounds = launches // (len(models) * len(MODES) * len(BATCHES))
        (folder / "settings.toml").write_text('[slurm]\nlauncher = "bare"\n')
        with slurm_cluster.started(folder / "slurm", nodes, more="MaxJobCount=50000\nMaxArraySize=20001\n") as cluster:
            changes = {"TORCHMATRIX_SETTINGS": str(folder / "settings.toml"), "TORCHMATRIX_CACHE": str(folder / "cache")}
            environment = os.environ | cluster.variables | changes
            _write(folder, 1, ["resnet18"])
            _run(folder, environment, "*/resnet18-*", "--where", "batch=2", "--where", "mode=train")
            _keep_pattern(folder)
            _write(folder, rounds, models)
            _wrap(folder, seconds)
            begin = time.monotonic()
            done = _command(folder, environment | {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}"})
            took = time.monotonic() - begin
        _tell(folder, nodes, seconds, took)
        if done.returncode:
            _tell_failures(folder)
            sys.exit(done.stderr[-1000:])


def _tell_failures(folder: Path) -> None:
    """Print what did not end ok, and what its job printed: a stand-in writes a whole file, or none."""
    (run,) = Results(folder / "results").runs()
    for launch in run.launches():
        if launch.outcome != "ok":
            print(f"{launch.outcome}: {launch.cell} round {launch.round} on {launch.host['name']}: {launch.error}")
    for path in (folder / "results" / ".slurm").glob("*/jobs/*.out"):
        if text := path.read_text().strip():
            print(f"{path.name}: {text[-500:]}")


def _write(folder: Path, rounds: int, models: list[str]) -> None:
    (folder / "matrix.toml").write_text(MATRIX.format(rounds=rounds, models=models, python=FAKE_PYTHON).replace("'", '"'))


def _command(folder: Path, environment: dict[str, str], *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "torchmatrix", "run", "--engine", "slurm", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def _run(folder: Path, environment: dict[str, str], *words: str) -> None:
    done = _command(folder, environment, *words)
    if done.returncode:
        sys.exit(done.stderr[-3000:])


def _keep_pattern(folder: Path) -> None:
    """Keep the launch's file without checksums, which a stand-in can't write."""
    (run,) = Results(folder / "results").runs()
    (launch,) = run.launches()
    lines = [line.rpartition(', "crc"')[0] + "}" for line in launch.path.read_text().splitlines()]
    text = "\n".join(lines).replace(launch.cell, "@CELL@").replace(f'"round": {launch.round}', '"round": @ROUND@')
    text = text.replace(launch.workload.id, "@WORKLOAD@").replace('"model": "resnet18"', '"model": "@MODEL@"')
    (folder / "template").write_text(text.replace(launch.run, "@RUN@") + "\n")
    subprocess.run(["rm", "-r", str(folder / "results")], check=True)


def _wrap(folder: Path, seconds: float) -> None:
    """Write commands of Slurm that count themselves; what sbatch submits becomes a stand-in."""
    for command in ("sbatch", "squeue"):
        path = folder / "bin" / command
        into = f"{sys.executable} {__file__} --replace {folder} {seconds} | " if command == "sbatch" else "exec "
        path.write_text(f'#!/bin/sh\necho {command} >>{folder}/asked\n{into}/usr/bin/{command} "$@"\n')
        path.chmod(0o755)


def _replace(folder: Path, seconds: str) -> None:
    """Read a batch script of the tool's, write one that sleeps."""
    import json

    words = sys.stdin.read().split()
    if "describe" in words:
        print("#!/bin/sh\n" + " ".join(words[1:]))
        return
    place, number = Path(words[-2]), words[-1]
    job = json.loads((place / "jobs" / f"{number}.json").read_text())
    lines = []
    for cell, its in job["launches"]:
        workload = cell.split("/")[1]
        fields = {"CELL": cell, "ROUND": its, "RUN": place.name, "WORKLOAD": workload, "MODEL": workload.split("-")[0]}
        file = f"{folder}/results/{job['home']}/{place.name}/{cell}/round{its}-try1.jsonl"
        lines.append(f"{file} {';'.join(f's#@{name}@#{value}#g' for name, value in fields.items())}")
    (folder / f"launches{number}").write_text("\n".join(lines) + "\n")
    print(
        STAND_IN.format(
            launches=folder / f"launches{number}", seconds=seconds, template=folder / "template", told=folder / "told"
        )
    )


def _tell(folder: Path, nodes: int, seconds: float, took: float) -> None:
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for path in (folder / "told").iterdir():
        spans[path.name] = sorted((float(row.split()[1]), float(row.split()[2])) for row in path.read_text().splitlines())
    every = [span for its in spans.values() for span in its]
    begin, end = min(span[0] for span in every), max(span[1] for span in every)
    used = sum(its[-1][1] - begin for its in spans.values())
    gaps = sorted(later[0] - before[1] for its in spans.values() for before, later in pairwise(its))
    requests = (folder / "asked").read_text().split()
    (run,) = Results(folder / "results").runs()
    slept = seconds * len(every)
    print(
        f"{len(every)} launches of {seconds:g} s on {len(spans)} of {nodes} nodes in {took:.0f} s; {len(run.launches())} kept"
    )
    print(f"busy: {slept / (nodes * (end - begin)):.1%} of all nodes, {slept / used:.1%} of each until its last launch")
    print(f"between launches: median {gaps[len(gaps) // 2]:.2f} s, 99 % below {gaps[int(len(gaps) * 0.99)]:.2f} s")
    print(f"{requests.count('sbatch')} calls of sbatch, {60 * requests.count('squeue') / took:.0f} of squeue per minute")
    print(f"largest memory of a process: {resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--replace"]:
        _replace(Path(sys.argv[2]), sys.argv[3])
    else:
        main(*(kind(word) for kind, word in zip((int, int, float), sys.argv[1:], strict=False)))
