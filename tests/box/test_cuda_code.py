"""The workload's code for CUDA, executed: real torch on invented devices (device_stand_in/), whole launches, failures."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

from support import PATIENCE_SECONDS
from support.boxes import bench, only
from torchmatrix.core import assets
from torchmatrix.engines import recipes
from torchmatrix.engines.choose import choose
from torchmatrix.facts.launch import Launch
from torchmatrix.facts.store import Results
from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.method import Method
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import make_plan
from torchmatrix.running import launch_cell

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.xdist_group("invented devices"),  # equal launches are made only once
]

STAND_IN = Path(__file__).parent / "device_stand_in"
SMALL = ["--model", "resnet18", "--image-size", "32", "--batch", "2", "--device", "cuda"]
OWN_CPUS = [min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))]
UNTIL_THE_SCALE_FITS = ("--batch", "4", "--warmup-steps", "6", "--warmup-cap", "6")
IN_HALF_PRECISION = (
    "--precision",
    "amp",
    "--all-reduce-probe",
    "--cpus",
    f"{OWN_CPUS[0]}:{OWN_CPUS[1]}",
    *UNTIL_THE_SCALE_FITS,
)
KNOBS = ("--accumulate", "2", "--checkpointing")
INFERENCE_IN_TF32 = ("--mode", "infer", "--precision", "tf32", "--requests", "12", "--request-seconds", "60")
BELOW = str(assets.WORKLOAD)
"""The stand-in notes which lines of files below this folder are executed."""
PARAMETERS = 11_689_512


@dataclass(frozen=True, kw_only=True)
class Done:
    """A launch on invented devices: what it said, and what it asked of the devices' API."""

    code: int
    events: list[dict[str, Any]]
    stderr: str
    folder: Path

    def calls(self, name: str, rank: int = 0) -> list[dict[str, Any]]:
        """Return the calls of a function by one rank, in order."""
        lines = (line for path in self.folder.glob("calls-*.jsonl") for line in path.read_text().splitlines())
        return [call for line in lines if (call := json.loads(line))["call"] == name and call["rank"] == rank]

    @property
    def lines(self) -> set[str]:
        """Return the lines of the workload that were executed, as FILE:NUMBER."""
        return {line for path in self.folder.glob("lines-*.txt") for line in path.read_text().splitlines()}


@pytest.fixture(scope="module")
def on_cuda(real_python: str, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Done]:
    """Return what runs bench.py on invented devices by its flags, `processes` and the stand-in's script.

    Equal launches are made only once.
    """

    @cache
    def launch(words: tuple[str, ...], processes: int, script: str) -> Done:
        folder = tmp_path_factory.mktemp("devices")
        given = json.dumps({"folder": str(folder), **json.loads(script)})
        variables = {"PYTHONPATH": str(STAND_IN), "STAND_IN": given}
        code, events, stderr = bench(real_python, *SMALL, *words, processes=processes, **variables)
        return Done(code=code, events=events, stderr=stderr, folder=folder)

    return lambda *words, processes=1, **script: launch(words, processes, json.dumps(script))


def test_training_on_two_devices_reads_their_clock_their_memory_and_computes_in_half_precision(
    on_cuda: Callable[..., Done],
) -> None:
    """The devices' clock runs a thousand times as fast as the host's: nothing but an event can show it."""
    done = on_cuda(*IN_HALF_PRECISION, processes=2, clock=1000.0, below=BELOW)
    assert done.code == 0, done.stderr
    assert only(done.events, "setup")["backend"] == "nccl"
    for rank in range(2):
        (chosen,), (joined,) = done.calls("set_device", rank), done.calls("init_process_group", rank)
        assert chosen["device"] == joined["device"] == rank and chosen["monotonic_seconds"] <= joined["monotonic_seconds"]
        assert (joined["backend"], joined["timeout_seconds"]) == ("nccl", 600)
        assert {call["device_type"] for call in done.calls("autocast", rank)} == {"cuda"}
    (window,) = (e for e in done.events if e["event"] == "sample" and e["phase"] == "measure")
    for wall, steps in zip(window["seconds"], window["step_seconds"], strict=True):
        assert sum(steps) == pytest.approx(1000 * wall, rel=0.05)
    cold, warm = (e for e in done.events if e["event"] == "memory")
    for memory in (cold, warm):
        for peak, reserved in zip(memory["peak_bytes"], memory["peak_reserved_bytes"], strict=True):
            assert 12 * PARAMETERS < peak <= reserved, "weights, gradients and momentum in float32 at least"
    assert len(done.calls("reset_peak_memory_stats")) == 1, "the warm peak is that of the timed windows"
    assert min(only(done.events, "enqueue")["step_seconds"]) > 0
    assert window["skipped_steps"] == [0, 0] and min(window["scale"]) >= 1
    assert [values["matmul"] for values in only(done.events, "precision")["effective"]] == ["fp16", "fp16"]
    assert [values["uuid"][:8] for values in only(done.events, "setup")["devices"]] == ["00000000", "00000001"]
    assert [values["cpus"] for values in only(done.events, "setup")["devices"]] == [[cpu] for cpu in OWN_CPUS]
    assert only(done.events, "all-reduce")["gradient_bytes"] == 4 * PARAMETERS
    assert only(done.events, "reference")["agrees"]


@pytest.mark.sweep
def test_inference_in_tf32_is_measured_on_one_device_and_refused_where_the_device_ignores_the_setting(
    on_cuda: Callable[..., Done],
) -> None:
    done = on_cuda(*INFERENCE_IN_TF32, below=BELOW)
    assert done.code == 0, done.stderr
    assert only(done.events, "setup")["backend"] is None
    assert [(e["kind"], len(e["seconds"])) for e in done.events if e["event"] == "requests"] == [
        ("latency", 12),
        ("end-to-end", 12),
    ]
    assert done.calls("pin_memory"), "a request's inputs begin in pinned memory"
    assert only(done.events, "precision")["effective"][0]["matmul"] == "tf32"
    (enqueued,) = only(done.events, "enqueue")["step_seconds"]
    assert enqueued > 0
    assert only(on_cuda(*INFERENCE_IN_TF32, no_tf32=True).events, "failure")["kind"] == "numerics"
    old = only(on_cuda(*INFERENCE_IN_TF32, capability=[7, 5]).events, "failure")
    assert old["kind"] == "unsupported" and "compute capability 8.0" in old["message"]


GENERATE = (
    "--model", "lm-1m", "--mode", "generate", "--precision", "bf16-weights", "--sequence-length", "16", "--output-length", "8",
    "--requests", "4",
)  # fmt: skip


def test_a_generation_in_bfloat16_is_timed_by_pieces_and_held_against_what_is_free_of_the_device(
    on_cuda: Callable[..., Done],
) -> None:
    done = on_cuda(*GENERATE, memory_bytes=8 << 20, below=BELOW)
    assert done.code == 0, done.stderr
    roof = only(done.events, "roof")
    assert roof["product_type"] == "bfloat16" and 2**20 < roof["array_bytes"] < 8 << 19, "half of what is free, not 1 GiB"
    assert min(value for name, value in roof.items() if name.endswith("per_second")) > 0
    assert [event["phase"] for event in done.events if event["event"] == "stream"] == ["prefill", "decode"]
    cold, warm = (event["peak_bytes"][0] for event in done.events if event["event"] == "memory")
    assert 2 * 918_656 < max(cold, warm) < 4 * 918_656, "the weights were never on the device in float32"
    assert only(done.events, "reference")["agrees"]


def test_weights_in_bfloat16_have_copies_in_float32_on_the_device(on_cuda: Callable[..., Done]) -> None:
    done = on_cuda("--model", "lm-1m", "--precision", "bf16-master", "--sequence-length", "16", "--optimizer", "adamw")
    assert done.code == 0 and only(done.events, "reference")["agrees"], done.stderr
    _, warm = (event["peak_bytes"][0] for event in done.events if event["event"] == "memory")
    assert warm > (2 + 4 + 8) * 918_656, "weights, copies, and two moments of each in float32"


INTEL = {"kind": "xpu", "name": "Intel(R) Data Center GPU Max 1550"}


def test_two_devices_of_intel_are_measured_by_their_own_clock_memory_and_collectives(on_cuda: Callable[..., Done]) -> None:
    done = on_cuda("--device", "xpu", *IN_HALF_PRECISION, processes=2, clock=1000.0, **INTEL)
    assert done.code == 0, done.stderr
    setup = only(done.events, "setup")
    assert setup["backend"] == "xccl"
    assert [(device["name"], device["uuid"][:8]) for device in setup["devices"]] == [
        (INTEL["name"], f"0000000{rank}") for rank in (0, 1)
    ]
    assert {call["device_type"] for call in done.calls("autocast")} == {"xpu"}
    (window,) = (e for e in done.events if e["event"] == "sample" and e["phase"] == "measure")
    assert sum(window["step_seconds"][0]) == pytest.approx(1000 * window["seconds"][0], rel=0.05)
    memory = [e for e in done.events if e["event"] == "memory"][-1]
    assert min(memory["peak_reserved_bytes"]) >= min(memory["peak_bytes"]) > 12 * PARAMETERS
    assert [device["matmul"] for device in only(done.events, "precision")["effective"]] == ["fp16", "fp16"]
    assert only(done.events, "reference")["agrees"]


@pytest.mark.sweep
def test_intel_s_devices_refuse_tf32_and_a_torch_without_their_collectives(on_cuda: Callable[..., Done]) -> None:
    for words, more, reason in (
        (("--precision", "tf32"), {}, "tf32 needs an NVIDIA GPU"),
        ((), {"no_xccl": True, "processes": 2}, "no XCCL"),
    ):
        events = on_cuda("--device", "xpu", *words, **more, **INTEL).events
        failures = [event for event in events if event["event"] == "failure"]
        assert {failure["kind"] for failure in failures} == {"unsupported"} and reason in failures[0]["message"]


def test_a_model_that_does_not_fit_is_out_of_memory(on_cuda: Callable[..., Done]) -> None:
    """Weights fit, gradients and the optimizer's state do not."""
    done = on_cuda(memory_bytes=9 * PARAMETERS)
    failure = only(done.events, "failure")
    assert done.code != 0 and failure["kind"] == "oom" and "CUDA out of memory. Tried to allocate" in failure["message"]
    assert not any(event["event"] in ("sample", "done") for event in done.events)


def launched(
    real_python: str, host: Host, folder: Path, ranks: int, seconds: float, words: str, script: dict[str, Any]
) -> Launch:
    """Make one launch by the tool itself, with the local engine, recorded and read back."""
    python = folder / "python"
    given = json.dumps({"folder": str(folder), **script})
    python.write_text(
        f"#!/bin/sh\nexport PYTHONPATH='{STAND_IN}' STAND_IN='{given}' GLOO_SOCKET_IFNAME=lo\n"
        f'case "$*" in *bench.py*) exec {real_python} "$@" {words};; *) exec {real_python} "$@";; esac\n'
    )
    python.chmod(0o755)
    matrix = folder / "matrix.toml"
    matrix.write_text(
        f'[gpus]\ncounts = [{ranks}]\n[[stack]]\nname = "invented"\npython = "{python}"\naccelerator = "cuda"\n'
        '[[workload]]\nmodel = "resnet18"\nimage_size = 32\nbatch = 2\nsteps = 3\nwarmup_steps = 2\n'
    )
    gpus = tuple(replace(gpu, uuid=f"GPU-{gpu.index:08d}-0000-0000-0000-000000000000") for gpu in host.gpus)
    host, results = replace(host, gpus=gpus), Results(folder / "results")
    cells = make_plan(matrix_file.load(matrix), host, Prerequisites(containers=False)).cells
    (cell,) = (cell for cell in cells if len(cell.gpus.indices) == ranks)
    local = choose("local", results.owner).local
    job = launch_cell.Job(
        folder=results.new_run(host.name), host=host, owner=results.owner, timeout_seconds=seconds, seed=0, method=Method(),
        engine_for=lambda stack: local, recipe_for=lambda stack: recipes.recipes(stack)[0],
    )  # fmt: skip
    image = local.build(job.recipe_for(cell.stack), lambda line: None)
    list(launch_cell.launch(job, launch_cell.Attempt(cell=cell, number=1, batch=2), image))
    (launch,) = job.folder.launches()
    return launch


@pytest.mark.parametrize(
    ("kind", "ranks", "seconds", "outcome", "message"),
    [
        ("oom", 1, PATIENCE_SECONDS, "oom", "OutOfMemoryError: CUDA out of memory. Tried to allocate"),
        ("oom", 2, PATIENCE_SECONDS, "oom", "OutOfMemoryError: CUDA out of memory. Tried to allocate"),
        ("ecc", 1, PATIENCE_SECONDS, "crashed", "RuntimeError: CUDA error: uncorrectable ECC error encountered"),
        ("late rank", 2, PATIENCE_SECONDS, "crashed", "Watchdog caught collective operation timeout"),
        ("stubborn hang", 1, 30, "timeout", "ended after the time-out of 30 s"),
    ],
)
def test_a_failure_in_the_middle_has_its_outcome_and_no_number(
    real_python: str, nvidia_host: Host, tmp_path: Path, kind: str, ranks: int, seconds: float, outcome: str, message: str
) -> None:
    """It begins in the fourth forward pass, in the last rank; the others wait for it in an all-reduce."""
    script = {"fail": {"kind": kind, "step": 4, "rank": ranks - 1}}
    words = "--collective-timeout 20 --threads 1 --proof none"
    launch = launched(real_python, nvidia_host, tmp_path, ranks, seconds, words, script)
    assert launch.outcome == outcome and message in str(launch.error)
    assert not launch.windows or outcome != "ok"
    assert not [pid for pid in Path("/proc").glob("[0-9]*") if _is_of(pid, str(tmp_path))], "nothing is left over"


def _is_of(process: Path, word: str) -> bool:
    try:
        return word.encode() in (process / "environ").read_bytes()
    except OSError:
        return False


def test_the_stand_in_refuses_what_a_device_refuses(real_python: str, tmp_path: Path) -> None:
    code = """
import torch
def said(action):
    try:
        action()
    except (RuntimeError, TypeError) as error:
        return str(error)
here, there = torch.ones(3), torch.ones(3, device="cuda:1")
print(said(lambda: here + there))
print(said(lambda: there.to("cuda:0") + there))
print(said(lambda: there.numpy()))
first, second = (torch.cuda.Event(enable_timing=True) for _ in range(2))
first.record(), second.record()
print(said(lambda: first.elapsed_time(second)))
torch.cuda.synchronize()
print(said(lambda: first.elapsed_time(second)), (2 * there).device, there.cpu().device, torch.cuda.memory_allocated(1))
print(said(lambda: torch.cuda.set_device(7)))
"""
    variables = {"PYTHONPATH": str(STAND_IN), "STAND_IN": json.dumps({"folder": str(tmp_path)})}
    done = subprocess.run(
        [real_python, "-c", code], capture_output=True, text=True, timeout=PATIENCE_SECONDS, env={**os.environ, **variables}
    )
    assert done.returncode == 0, done.stderr
    mixed, crossed, converted, early, fine, absent = done.stdout.splitlines()
    assert "at least two devices, cuda:1 and cpu" in mixed and "at least two devices, cuda:0 and cuda:1" in crossed
    assert "can't convert cuda" in converted and "must be completed" in early
    assert fine == "None cuda:1 cpu 12" and "invalid device ordinal" in absent


def executable_lines(path: Path) -> dict[int, str]:
    """Return the numbers and texts of a file's lines that hold code of a function."""
    texts, numbers, waiting = (
        path.read_text(encoding="utf-8").splitlines(),
        set[int](),
        [compile(path.read_text(encoding="utf-8"), str(path), "exec")],
    )
    while waiting:
        code = waiting.pop()
        waiting += [constant for constant in code.co_consts if isinstance(constant, CodeType)]
        if code.co_name != "<module>":
            numbers |= {line for _, _, line in code.co_lines() if line and line != code.co_firstlineno}
    return {number: texts[number - 1].strip() for number in sorted(numbers)}


NEVER_ON_A_GPU: dict[str, list[str]] = {
    "collectives.py": [  # what a library lacks; averages, which only NCCL makes of this torch
        "except (RuntimeError, ValueError, AttributeError) as error:  # on all ranks alike: a library may lack it",
        'yield operation, [], str(error).split("\\n")[0][:200]',
        'return _all_reduce(world, elements, averages=world.backend == "nccl")',
        "return _numbers(count, device) * ranks + of_all",
    ],
    # The CPU; refusals; streams, which need a driver; peer access, of which doctor --deep asks; Intel's GPUs: tests above.
    "devices.py": [
        "return None",
        'return "gloo"',
        "return perf_counter_ns()",
        "return (end - begin) / 1e9",
        'return {"peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}',
        "return None",
        "return tensor",
        'if precision in ("tf32", "amp"):',
        'return "precision %s needs a GPU; on a CPU use fp32 or amp-bf16" % precision',
        "return _lack_of_nvidia(precision)",
        'short = {"bfloat16": "bf16", "float16": "fp16"}.get(name)',
        "try:",
        'return short is None or getattr(torch.ops.mkldnn, "_is_mkldnn_%s_supported" % short)()',
        "except (AttributeError, RuntimeError):",
        "return True",
        'return {"name": "cpu", "threads": torch.get_num_threads(), "isa": _cpu_capability()}',
        "return None",
        'raise Unsupported("torch %s sees no GPU in this box" % torch.__version__)',
        "api = self._api()",
        'main, self._other = api.current_stream(), getattr(self, "_other", None) or api.Stream()',
        "self._other.wait_stream(main)",
        "first()",
        "with api.stream(self._other):",
        "second()",
        "main.wait_stream(self._other)",
        "raise NotImplementedError",
        'gfx = getattr(torch.cuda.get_device_properties(self.torch), "gcnArchName", "") if torch.version.hip else ""',
        'return "float8_e4m3fnuz" if gfx.startswith("gfx94") else "float8_e4m3fn"',
        'return _TF32 if precision == "tf32" else _lack_of_nvidia(precision)',
        "ids = range(count)",
        "return [[row == column or torch.cuda.can_device_access_peer(row, column) for column in ids] for row in ids]",
        'if not getattr(dist, "is_xccl_available", lambda: False)():',
        "raise Unsupported(",
        '"torch %s has no XCCL, by which ranks on Intel GPUs talk: 2.8 and newer have it" % torch.__version__',
        'return "xccl"',
        'return _TF32 if precision == "tf32" else _lack_of_nvidia(precision)',
        'return super().free_bytes() if hasattr(torch.xpu, "mem_get_info") else None',
        'capability, units = (getattr(properties, name, None) for name in ("version", "max_compute_units"))',
        'return {"capability": capability, "multiprocessors": units, "gfx": None}',
        'text = "precision %s needs a GPU of NVIDIA, of compute capability %d.%d or newer"',
        "return text % (precision, *_OLDEST[precision]) if precision in _OLDEST else None",
        "try:",
        "return torch.backends.cpu.get_cpu_capability()",
        "except AttributeError:",
        "return None",
    ],
    "measurements/infer.py": [],
    "measurements/requests.py": ["return []"],  # no requests were asked for
    "measurements/train.py": [  # fused AdamW, which torch has not on invented devices: tests/box/test_kernels.py
        'return lambda: max((int(state["step"]) for state in optimizer.state.values()), default=0)',
        "try:",
        "return torch.optim.AdamW(groups, lr=1e-5, fused=True)",
        "except (TypeError, RuntimeError) as error:  # torch 1.12 has no such word; others lack it on some devices",
        'raise Unsupported("torch %s has no fused AdamW here: %s" % (torch.__version__, error)) from error',
    ],
    "measure.py": [  # a warm-up in seconds
        "size = max(1, math.ceil(seconds / begun.pace))",
        "if args.warmup_cap and done + size > args.warmup_cap:",
        "return None",
        "done += size",
        "return go_on(size)",
    ],
    "phases.py": [  # a CPU; what is only profiled; failures; modes without windows
        "profiling.prepare(args)",
        "begun = _begin(channel, args, world)",
        "feed = _feed(channel, args, world, begun)",
        "profiling.run(channel, args, world, feed.wrap(begun.step) if feed else begun.step)",
        "record.refuse_native_kernels()",
        'channel.emit("unseen", error=new.problem)',
        'channel.emit("memory", phase="warm", **_peaks(world))',
        "ranks = world.gather(compiling.look(lambda: measure.run_steps(world, begun.step, 1, 0), begun.fallbacks))",
        'fewest = min(ranks, key=lambda rank: rank["graphs"] if rank["run"] is None else rank["run"])',
        'channel.emit("compile", **fewest)',
        "compiling.refuse(fewest)",
        "return compiling.remarks(fewest)",
        "raise Numerics(wrong)",
        'raise Numerics(record["problems"][0])',
        "return [], warm.pace, windows.NOTHING",
        "return None",
    ],
    "precision.py": [  # refusals and Transformer Engine, which other tests cause; newer and older versions of torch
        "raise Unsupported(lack)",
        "_set_by_operation(mode)",
        "backends = torch.backends",
        'backends.fp32_precision = "ieee"',
        "for operation in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):",
        "operation.fp32_precision = mode",
        "for operation in (backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn):",
        'operation.fp32_precision = "ieee"',
        "except (AttributeError, AssertionError):",
        "return",
        "tensors = [thing] if torch.is_tensor(thing) else [*thing.parameters(), *thing.buffers()]",
        "if any(tensor.is_complex() for tensor in tensors):",
        'raise Unsupported("precision %s keeps all in %s, which has no complex numbers" % (name, _WEIGHTS[name]))',
        "return in_type(thing, _WEIGHTS[name])",
        "engine = importlib.import_module(TRANSFORMER_ENGINE)",
        'recipes = importlib.import_module("transformer_engine.common.recipe")',
        "if not hasattr(recipes, FLOAT8[name].name):",
        'raise Unsupported("this Transformer Engine has no recipe %s" % FLOAT8[name].name)',
        "recipe = getattr(recipes, FLOAT8[name].name)()",
        'with half, engine.autocast(recipe=recipe) if hasattr(engine, "autocast") else engine.fp8_autocast(fp8_recipe=recipe):',
        "yield",
        'on = {"cpu": torch.is_autocast_cpu_enabled, "cuda": torch.is_autocast_enabled}',
        'dtypes = {"cpu": torch.get_autocast_cpu_dtype, "cuda": torch.get_autocast_gpu_dtype}',
        "is_on, dtype = on[kind](), dtypes[kind]()",
        "return torch.cuda.amp.GradScaler(enabled=enabled)",
    ],
    "proofs/reference.py": [  # weights in half precision; what can't be proven or watched; draws of compiled code
        "self._keep_in(torch.float32)",
        "return self.answer()[0], self.answer()[0]",
        "losses, seed = [], self._args.seed",
        "for number in range(1, DRAWS + 1):",
        "self._args = argparse.Namespace(**dict(vars(self._args), seed=seed + number))",
        "losses.append(self.answer()[0])",
        "self._args = argparse.Namespace(**dict(vars(self._args), seed=seed))",
        "return losses",
        "except Exception as error:  # of any class: what is counted is beside the work",
        'if failures.kind_of(error) == "oom":',
        "raise",
        "return self.answer(), None, failures.describe(error), 0",
        "self.batch = {name: precision.in_type(tensor, torch.float32) for name, tensor in self.batch.items()}",
        "return math.inf",
    ],
    "record.py": [  # what a stack lacks
        "except (AttributeError, RuntimeError, TypeError):",
        "return None",
        "pairs = [(name, library) for library in native.available_dsls for name in native.get_dsl_operations(library)]",
        'replaced = ["%s by %s" % pair for pair in pairs if not native.is_operation_disabled(pair[0])]',
        'return ", ".join(sorted(replaced + _compiled_in())) or "none"',
        'if not getattr(torch._C, "_get_native_aot_enabled", lambda: False)():',
        "return []",
        'every = {schema.name.partition("::")[2] for schema in torch._C._jit_get_all_schemas()}',
        'architectures = {name: getattr(torch.ops._native_aot, name)() for name in every if name.startswith("archs_")}',
        "return [",
        '"%s compiled in for %s" % (name[len("archs_") :], " ".join("sm_%d" % number for number in sorted(numbers)))',
        "for name, numbers in architectures.items()",
        "found = native_kernels()",
        'if found != "none":',
        'text = "torch %s can\'t leave native kernels out: " % torch.__version__',
        'raise Unsupported(text + ("it has none, or doesn\'t say so" if found is None else "it still has " + found))',
        "except metadata.PackageNotFoundError:",
        "pass",
        "try:",
        "import triton",
        "except ImportError:",
        "return None",
        'return getattr(triton, "__version__", None)',
        "except OSError:",
        "return platform.platform()",
        "except (OSError, subprocess.TimeoutExpired):",
        "return None",
    ],
    "samples.py": [  # windows of very many steps, a loss that is not finite: tests/box/test_samples.py
        "for first in range(0, count, at_once):",
        "part = {name: [row[first : first + at_once] for row in rows] for name, rows in steps.items()}",
        'channel.emit("steps", phase=phase, window=window, first=first, **part)',
        "steps = {}",
        'raise Numerics("GradScaler skipped all %d steps of window %d: nothing was trained" % (count, window))',
        'raise Numerics("the loss of rank %d is not finite in step %d of %s window %d" % (rank, step, phase, window))',
    ],
    "world.py": [  # FSDP, tensor parallelism, types that gloo lacks, parameters without a gradient, which other tests prove
        'raise Unsupported("tensor parallelism is for training: in mode %s each rank has the whole model" % args.mode)',
        "return sharded.shard(model, self.device)",
        "return tensor_parallel.split(args, model, self.device)",
        'raise Unsupported("gloo, by which ranks on CPUs talk, has no complex numbers: such a model trains on one CPU slot")',
        "except RuntimeError as error:",
        'if "scalar type" not in str(error):',
        "raise",
        'text = "%s of torch %s can\'t add up numbers of type %s over ranks: %s"',
        "raise Unsupported(text % (self.backend, torch.__version__, str(dtype)[6:], error)) from error",
        "except RuntimeError as error:",
        "match = _WITHOUT_GRADIENT.search(str(error))",
        "if not match:",
        "raise",
        "names = [self._reduced[int(index)] for index in match.group(1).split()]",
        'raise Unsupported(_UNUSED % (", ".join(names[:5]), ", …" if len(names) > 5 else "")) from error',
    ],
}
"""What no launch on invented GPUs reaches, in the files that treat GPUs and CPUs differently, with this version of torch."""


def test_every_line_that_a_gpu_reaches_is_executed(on_cuda: Callable[..., Done]) -> None:
    launches = [
        on_cuda(*IN_HALF_PRECISION, processes=2, clock=1000.0, below=BELOW),
        on_cuda(*INFERENCE_IN_TF32, below=BELOW),
        on_cuda("--optimizer", "adamw", *KNOBS, "--warmup-cap", "2", capability=[7, 5], below=BELOW),
        on_cuda("--data", "disk", "--workers", "0", below=BELOW),
    ]
    launches += [
        on_cuda("--model", name, "--mode", "micro", *words, processes=processes, below=BELOW)
        for name, words, processes in (
            ("gemm", ("--shape", "64x64x64"), 1),
            ("host-copy", ("--bytes", "4096"), 1),
            *(
                (name, ("--bytes", "4096"), 2)
                for name in ("peer-copy", "all-gather", "reduce-scatter", "all-to-all", "send-receive")
            ),
        )
    ]
    assert {done.code for done in launches} == {0}, [done.stderr for done in launches if done.code]
    executed = set().union(*(done.lines for done in launches))
    never = {
        name: [text for number, text in executable_lines(assets.WORKLOAD / name).items() if f"{name}:{number}" not in executed]
        for name in NEVER_ON_A_GPU
    }
    never["phases.py"] = [text for text in never["phases.py"] if "texts=missing" not in text]  # a remark of a busy machine
    assert never == NEVER_ON_A_GPU
