"""The verb accept."""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from torchmatrix.cli import options
from torchmatrix.cli.console import in_json, list_runs, say, volume_of, write_new
from torchmatrix.cli.measured import as_typed
from torchmatrix.cli.options import Volume
from torchmatrix.core.errors import BadInput, NothingSelected
from torchmatrix.core.formatting import count

if TYPE_CHECKING:
    from torchmatrix.facts.store import Results, RunFolder
    from torchmatrix.matrix.matrix_file import Matrix
    from torchmatrix_plugins.accept.baselines import Baseline
    from torchmatrix_plugins.accept.checks import Acceptance, Check, Find

PAGE = Path("reports/accept.html")
_MOST_RUNS = 4
"""Runs that --until-decided makes at most."""


def accept(
    runs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN",
            help="Judge these runs and measure nothing; each machine apart.",
            autocompletion=options.complete_runs,
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Minutes instead of an hour.")] = False,
    burn_in: Annotated[
        float | None, typer.Option("--burn-in", metavar="HOURS", min=0.1, max=1000, help="Rounds of launches for so long.")
    ] = None,
    until_decided: Annotated[
        bool, typer.Option("--until-decided", help="Measure undecided checks again; with RUN: judge as it did.")
    ] = False,
    matrix: Annotated[
        Path | None,
        typer.Option("--matrix", metavar="FILE", help="Another matrix than the preset accept.", callback=options.a_matrix),
    ] = None,
    each: Annotated[bool, typer.Option("--each", help="Measure each device alone, too, not only the first.")] = False,
    pairs: Annotated[bool, typer.Option("--pairs", help="Measure the copies of each pair of GPUs, too.")] = False,
    baseline: Annotated[
        Path | None, typer.Option("--baseline", metavar="FILE", help="Hold it against other machines (--write-baseline).")
    ] = None,
    write_baseline: Annotated[
        Path | None, typer.Option("--write-baseline", metavar="FILE", help="Write what these machines reached, for others.")
    ] = None,
    of_limit: Annotated[
        float | None,
        typer.Option("--of-limit", metavar="SHARE", min=0.01, max=1, help="Pass at this share of what a device can do."),
    ] = None,
    published_decides: Annotated[
        bool, typer.Option("--published-decides", help="Let published figures decide where nothing else does.")
    ] = False,
    engine: options.EngineOption = "auto",
    results: options.ResultsOption = options.RESULTS,
    output: options.OutputOption = PAGE,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Write the verdicts as JUnit's XML.", callback=options.a_file)
    ] = None,
    nccl_tests: Annotated[
        Path | None,
        typer.Option(
            "--nccl-tests", metavar="FILE", help="Write the collectives as nccl-tests' JSON.", callback=options.a_file
        ),
    ] = None,
    redact: options.RedactOption = False,
    new: options.NewOption = False,
    anyway: options.AnywayOption = False,
    quiet: options.QuietOption = False,
    verbose: options.VerboseOption = False,
    as_json: options.JsonOption = False,
) -> None:
    """Check that each device of this machine is as fast as it should be.

    Measures products, memory, copies and collectives, and what you will run; judges, and names the cause.
    """
    from torchmatrix.facts.store import Results, select_each
    from torchmatrix.reporting import page
    from torchmatrix_plugins.accept import baselines, certificate

    volume = volume_of(quiet, verbose)
    held = baselines.read(baseline) if baseline else None
    if runs and (quick or burn_in or matrix or each or pairs or new or anyway or engine != "auto"):
        raise BadInput("RUN is judged as it is: nothing is measured", hint="leave out the run, or the options that measure")
    if matrix and (quick or each or pairs):
        raise BadInput("--matrix says itself what is measured", hint="leave out --quick, --each and --pairs, or --matrix")
    if write_baseline:  # before an hour of measuring
        _refuse_old(write_baseline)
    _refuse_one_name(output, junit, nccl_tests, write_baseline)
    looks = _MOST_RUNS if until_decided else 1
    rules = Rules(baseline=held, of_limit=of_limit, published_decides=published_decides, looks=looks)
    if runs:
        list_runs(store := Results(results))
        folders = select_each(store, runs)
    else:
        asked = [_matrix(quick, matrix, each), *([_of_pairs()] if pairs else [])]
        folders = _measured(asked, burn_in, until_decided, rules, engine, results, new, anyway, volume)
        store = Results(results)
    notes: list[str] = []
    machines, command = _by_machine(folders), as_typed()
    acceptance = _judge(machines, rules, notes)
    if write_baseline:
        _write_baseline(write_baseline, acceptance, notes)
    skipped, names = [*_skipped(folders)], [folder.id for folder in folders]
    if redact:
        with TemporaryDirectory(prefix="torchmatrix-") as folder:
            copies, sources, clean = _redacted(store, folders, Path(folder))
            hosts = {copy.path.parent.name: folder.path.parent.name for copy, folder in zip(copies, folders, strict=True)}
            acceptance, skipped = _shown(acceptance, _by_machine(copies), sources, hosts), [*_skipped(copies)]
            notes, command, names = [*map(clean, notes)], clean(command), [copy.id for copy in copies]
    unfinished = [name for name, folder in zip(names, folders, strict=True) if not folder.read_record().complete]
    acceptance = replace(acceptance, notes=[*notes, *skipped], unfinished=unfinished)
    page.save(certificate.render(acceptance, names, command), output)
    if junit:
        page.save(certificate.junit(acceptance, names[-1]), junit)
    if nccl_tests:
        page.save(in_json(certificate.nccl_tests(acceptance)), nccl_tests)
    for note in acceptance.notes:
        say(f"note: {note}", volume)
    print(in_json(certificate.as_record(acceptance, names[-1])) if as_json else "\n".join(certificate.in_words(acceptance)))
    say(f"\n{output}", volume)
    raise typer.Exit(certificate.exit_code(acceptance))


def _refuse_old(path: Path) -> None:
    if path.exists() or not path.absolute().parent.is_dir():
        why = "exists" if path.exists() else "lies in a folder that isn't there"
        raise BadInput(f"{path} {why}", hint="name a new file: --write-baseline FILE")


def _refuse_one_name(*files: Path | None) -> None:
    named = [path.absolute() for path in files if path]
    if len({*named}) < len(named):
        raise BadInput("two files would have one name", hint="name each once: --output, --junit, --nccl-tests")


def _write_baseline(path: Path, acceptance: "Acceptance", notes: list[str]) -> None:
    from torchmatrix_plugins.accept import baselines

    made, left_out = baselines.of_checks(acceptance.checks)
    write_new(path, baselines.written(made))
    if left_out:
        notes.append(f"not in {path}: {count(left_out, 'check')} that failed, or without a sound figure")


@dataclass(frozen=True, kw_only=True, slots=True)
class Rules:
    """What decides a verdict besides siblings: a baseline, a share of the device's limit, published figures; and how many times
    launches are judged, until they are decided.
    """

    baseline: "Baseline | None" = None
    of_limit: float | None = None
    published_decides: bool = False
    looks: int = 1


def _matrix(quick: bool, path: Path | None, each: bool) -> "Matrix":
    """Return the matrix of an acceptance, on all devices of this machine."""
    from torchmatrix.machine.host import detect
    from torchmatrix.matrix import matrix_file, variants

    if path:
        return matrix_file.load(path)
    name = "accept-quick" if quick else "accept"
    host, text = detect(), variants.preset_text(name)
    for table, number in (("gpus", len(host.gpus)), ("cpus", min(2, len(host.cores)))):
        alone = "\neach = true" if each and table == "gpus" else ""
        text = re.sub(rf"(?m)^(\[{table}\]\ncounts = )\[.*\]$", rf"\g<1>[{max(1, number)}]{alone}", text)
    return matrix_file.parse(text, name=f"preset {name}")


def _of_pairs() -> "Matrix":
    """Return the matrix of the copies between each pair of this machine's GPUs."""
    from itertools import combinations

    from torchmatrix.machine.host import detect
    from torchmatrix.matrix import matrix_file, variants
    from torchmatrix_plugins.accept import judging

    number = len(detect().gpus)
    if number <= judging.FEWEST_SIBLINGS:
        raise BadInput(f"--pairs needs three GPUs: this machine has {number}", hint="leave --pairs out")
    every = [list(pair) for pair in combinations(range(number), 2)]
    text = re.sub(r"(?m)^lists = \[.*\]$", f"lists = {every}", variants.preset_text("accept-pairs"))
    return matrix_file.parse(text, name="preset accept-pairs")


def _measured(
    matrices: "Sequence[Matrix]", burn_in: float | None, until_decided: bool, rules: Rules, engine: str, results: Path,
    new: bool, anyway: bool, volume: Volume,
) -> "list[RunFolder]":  # fmt: skip
    """Measure the matrices of an acceptance, the first for as long as a burn-in takes, and with `until_decided` what of them is
    undecided again. Raises ToolError.
    """
    from torchmatrix.cli.measured import measure_here, refuse_nothing
    from torchmatrix.machine.host import detect
    from torchmatrix.matrix import matrix_file
    from torchmatrix.matrix.method import Request
    from torchmatrix.planning import plan
    from torchmatrix.running import session
    from torchmatrix_plugins.accept import baselines

    if rules.baseline:  # before anything runs
        host = detect()
        baselines.refuse_others(rules.baseline, {gpu.name for gpu in host.gpus} or {host.cpu or "unknown CPU"})
    folders: list[RunFolder] = []
    undecided: set[str] | None = None
    for turn in range(_MOST_RUNS if until_decided else 1):
        for number, matrix in enumerate(matrices):
            again = {workload.id for workload in matrix.workloads} & (undecided or set())
            if turn and not again:
                continue
            globs = sorted(f"*/{operation}/*" for operation in again)
            s = session.without_locks(session.assemble(matrix, {}, results, engine, globs, []))
            if not turn:
                refuse_nothing(s)
            if burn_in and not number:
                once = plan.total_seconds([(cell, 1) for cell in s.plan.cells], [], {})
                rounds = max(matrix.method.launches, int(burn_in * 3600 / once))
                long = matrix_file.under(matrix, Request(launches=rounds))
                s = session.without_locks(session.assemble(long, {}, results, engine, globs, []))
            done = measure_here(s, options.REPORT, new=new or turn > 0, beside=anyway, volume=volume)
            folders.append(done.folder)
            if done.stopped_by:
                raise done.stopped_by
        if until_decided:
            undecided = {check.operation for check in _judge(_by_machine(folders), rules, []).checks if check.judged.more}
            if not undecided:
                break
            say(f"{count(len(undecided), 'operation')} undecided", volume)
    return folders


def _by_machine(folders: "Sequence[RunFolder]") -> "dict[str, list[Check]]":
    """Return the checks of each machine, of all its runs together: a launch that is repeated joins its group."""
    from torchmatrix.analysis.machines import grouped
    from torchmatrix.facts.launch import Launch
    from torchmatrix.facts.reading import launches_below
    from torchmatrix_plugins.accept.checks import checks_of, not_launched

    groups = grouped(folders)
    machines, several = {}, len(groups) > 1
    for machine, runs in groups:
        found = [launch for run in runs for launch in launches_below(run.path) if isinstance(launch, Launch)]
        planned = list({cell.cell: cell for run in runs for cell in run.read_record().planned}.values())
        checks = [
            *checks_of(found, machine.label, several),
            *not_launched(planned, {launch.cell for launch in found}, machine.label, several),
        ]
        names = tuple(dict.fromkeys(run.path.parent.name for run in runs))
        machines[machine.label] = [
            replace(check, identity=machine.id, verified=machine.verified, folders=names) for check in checks
        ]
    return machines


def _skipped(folders: "Sequence[RunFolder]") -> Iterator[str]:
    """Yield what the plans skipped, in one sentence with the reasons, the most frequent first."""
    from torchmatrix.reporting import words

    measured = {(folder.path.parent, path.relative_to(folder.path).as_posix()) for folder in folders
                for path in folder.path.glob("*/*/*") if path.is_dir()}  # fmt: skip
    skipped = {(folder.path.parent, skip.cell): skip for folder in folders for skip in folder.read_record().skips}
    skipped = {key: skip for key, skip in skipped.items() if key not in measured}
    reasons = Counter(skip.reason.partition(";")[0] for skip in skipped.values())
    if reasons:
        why = words.enumerated(reason for reason, _ in reasons.most_common())
        yield f"not measured here: {count(reasons.total(), 'cell')} ({why})"


def _judge(machines: "Mapping[str, Sequence[Check]]", rules: Rules, notes: list[str]) -> "Acceptance":
    """Judge all checks of all machines; each by the others where there are several and no baseline is given."""
    from torchmatrix_plugins.accept import baselines, checks, judging, published

    every = [check for found in machines.values() for check in found]
    if not every:
        raise NothingSelected("nothing was launched that could be judged", hint="torchmatrix accept measures")
    limit = partial(checks.limit_of, share=rules.of_limit or judging.SHARE)
    beside: list[Find] = [partial(checks.limit_of, share=1.0), published.find]
    decides: list[Find] = []
    if rules.baseline:
        notes += baselines.doubts(rules.baseline, every)
        decides.append(baselines.finder(rules.baseline))
    elif len(machines) > 1:
        others = baselines.of_checks(every)[0]
        notes += baselines.alone(others, machines)
        decides.append(baselines.finder(others))
    last: list[Find] = [*([limit] if rules.of_limit else []), *([published.bound] if rules.published_decides else [])]
    return checks.judged(every, decides, last, beside, rules.looks)


def _shown(
    acceptance: "Acceptance",
    machines: "Mapping[str, Sequence[Check]]",
    sources: "Mapping[Path, Path]",
    hosts: Mapping[str, str],
) -> "Acceptance":
    """Return the acceptance with what redacted copies of its launches say, and its own verdicts: names decide some. Other names
    sort otherwise: a check is that of the same launches. `sources`, `hosts`: see _by_launches.
    """
    copies = _by_launches((check for found in machines.values() for check in found), sources, hosts)
    checks = [_shown_as(copies[key], check) for key, check in _by_launches(acceptance.checks, {}, {}).items()]
    return replace(acceptance, checks=checks)


def _by_launches(
    checks: "Iterable[Check]", sources: "Mapping[Path, Path]", hosts: Mapping[str, str]
) -> "dict[tuple[Hashable, ...], Check]":
    """Return checks by the files of their launches and the place of their device; of a cell that wasn't launched, by its
    machine's folders and its number. `sources`, `hosts`: of what a file and a folder are copies.
    """
    found: dict[tuple[Hashable, ...], Check] = {}
    for check in checks:
        files = frozenset(sources.get(launch.path, launch.path) for launch in check.launches)
        where = files or tuple(sorted(hosts.get(name, name) for name in check.folders))
        number = next(number for number in itertools.count() if (where, check.place, number) not in found)
        found[where, check.place, number] = check
    return found


def _shown_as(copy: "Check", check: "Check") -> "Check":
    """Return the redacted copy of a check with its verdict, but what launches say as the copy has it."""
    kept = {name: getattr(check, name) for name in ("reference", "beside", "names_stack")}
    return replace(copy, judged=replace(check.judged, why=copy.said or check.judged.why), **kept)


def _redacted(
    store: "Results", folders: "Sequence[RunFolder]", root: Path
) -> "tuple[list[RunFolder], Mapping[Path, Path], Callable[[str], str]]":
    """Return copies of the runs, in which hosts, serial numbers and addresses are pseudonyms, the file of which each is a copy,
    and what makes such texts.
    """
    from torchmatrix.reporting import redaction

    with redaction.redacting(store, say) as cleaner:
        copies = redaction.staged_together(folders, cleaner, root)
        return copies, cleaner.sources, redaction.of_texts(folders, cleaner)
