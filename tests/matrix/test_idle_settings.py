"""Settings without effect are reported with their place, and those that may have one are not."""

from pathlib import Path

import pytest

from support import Command
from torchmatrix.core import assets
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.method import Request

STACK = '[[stack]]\ntorch = "2.5.1"\ncuda = "12.4"\n'
CPU = '[[stack]]\ntorch = "2.5.1"\ncpu = true\n'


def notes(workload: str, head: str = STACK, request: Request | None = None, tail: str = "") -> tuple[str, ...]:
    text = f"{head}[[workload]]\nbatch = 8\n{workload}\n{tail}"
    return matrix_file.under(matrix_file.parse(text), request or Request()).notes


@pytest.mark.parametrize(
    ("workload", "note"),
    [
        ('model = "resnet50"\ngrad = "none"', "line 7, [[workload]] 1, grad: has no effect: it is for mode = infer"),
        ('model = "resnet50"\nrequests = 5', "line 7, [[workload]] 1, requests: has no effect: it is for mode = infer"),
        ('model = "resnet50"\nattention = "sdpa"', "attention: has no effect: it means nothing to resnet50"),
        (
            'model = ["bert-base-cased", "gpt2"]\nimage_size = 64',
            "image_size: has no effect: it means nothing to bert-base-cased, gpt2",
        ),
        (
            'model = "resnet50"\ncompile_mode = ["default", "max-autotune"]',
            "compile_mode: has no effect: it needs compile = true",
        ),
        ('model = "resnet50"\ncompile_shapes = "dynamic"', "compile_shapes: has no effect: it needs compile = true"),
        (
            'model = "bert-base-cased"\nchannels_last = true',
            "channels_last: has no effect: it can't change the speed of bert-base-cased",
        ),
        ('model = "gpt2"\ncudnn_benchmark = [false]', "cudnn_benchmark: has no effect: it can't change the speed of gpt2"),
        ('model = "resnet50"\nmode = "infer"\noptimizer = "adamw"', "optimizer: has no effect: it is for mode = train"),
        ('model = "resnet50"\nfraction = "1/2"', "fraction: has no effect: no list has two values"),
        ('model = "resnet50"\ncounts = [1, 2]\ncompile = [true, false]\nfraction = "1/2"', "only the first value of compile"),
        ('model = "resnet50"\nmode = "infer"\nexplain = true', "explain: has no effect: only training by ddp is explained"),
        ('model = "resnet50"\nmode = "infer"\nrequests = 1', "a single request has no median"),
        ('model = "resnet50"\nmode = "infer"\nrequests = 0\nrequest_seconds = 5', "request_seconds: has no effect: no request"),
        ('model = "resnet50"\ncounts = [1]\nexplain = true', "explain: has no effect: it needs more devices than one"),
        ('model = "resnet50"\ndata = "disk"\nworkers = 0\nprefetch = [2, 4]', "prefetch: has no effect: no worker loads"),
        ('model = "gpt2"\ndata = "disk"\ndecoder = "pillow"', "decoder: has no effect: only images are decoded"),
        ('model = "resnet50"\nseconds = 1800', "no such launch can give a figure"),
        ('model = "resnet50"\ndevice = "cpu"', "no [[stack]] of this matrix runs it: its device is cpu"),
    ],
)
def test_a_setting_without_effect_is_reported_with_its_place_and_why(workload: str, note: str) -> None:
    assert any(line.endswith(note) or note in line for line in notes(workload)), notes(workload)


def test_what_an_empty_list_leaves_out_is_told() -> None:
    workload = 'model = "resnet50"\ndevice = "cpu"'
    assert any("[cpus], counts: is empty" in line for line in notes(workload, CPU, tail="[cpus]\ncounts = []\n"))
    assert any("its stacks are none" in line for line in notes(f"{workload}\nstacks = []", CPU))
    assert not any("empty" in line for line in notes('model = "resnet50"', tail="[gpus]\ncounts = []\nlists = [[0, 1]]\n"))


def test_a_setting_without_effect_on_a_cpu_is_reported() -> None:
    pageable = 'model = "resnet50"\ndevice = "cpu"\ndata = "disk"\npin_memory = [true, false]'
    assert any("pin_memory: has no effect: it is for device = gpu" in line for line in notes(pageable, CPU))
    workload = 'model = "resnet50"\ndevice = "cpu"\ncudnn_benchmark = false'
    assert [line.partition(", cudnn")[2] for line in notes(workload, CPU)] == [
        "_benchmark: has no effect: it is for device = gpu"
    ]
    text = f'{CPU}[[workload]]\nmodel = "resnet50"\ndevice = "cpu"\nbatch = {{ default = 8, "80GB" = 64 }}\n'
    (note,) = matrix_file.parse(text).notes
    assert note == "line 7, [[workload]] 1, batch: only its default has an effect: this workload runs on CPUs"


@pytest.mark.parametrize(
    "workload",
    [
        'model = "resnet50"',
        'model = ["resnet50", "bert-base-cased"]\nattention = ["eager", "sdpa"]\nimage_size = 64\nsequence_length = 64',
        'model = "resnet50"\nmode = ["train", "infer"]\ngrad = "none"\noptimizer = "adamw"\nrequests = 10',
        'model = "bert-base-cased"\nchannels_last = [false, true]',
        'model = "resnet50"\ncompile = [false, true]\nchannels_last = [false, true]\ncompile_mode = "max-autotune"',
        'model = "resnet50"\nexplain = true',
    ],
)
def test_a_setting_that_may_have_an_effect_is_not_reported(workload: str) -> None:
    assert notes(workload) == ()


@pytest.mark.parametrize(
    ("workload", "idle"),
    [
        ('model = "gemm"\nbatch = 8\nparallel = "fsdp"', {"batch", "parallel"}),
        ('model = ["triad", "all-reduce"]\nmode = "train"\nprecision = "half"', {"mode", "precision"}),
        ('model = ["gemm", "triad"]\nmode = "micro"\nprecision = "half"', set()),
        ('model = ["gemm", "resnet50"]\nbatch = 8\nparallel = "ddp"', set()),
    ],
)
def test_what_means_nothing_to_operations_is_reported(workload: str, idle: set[str]) -> None:
    lines = matrix_file.parse(f"{STACK}[[workload]]\n{workload}\n").notes
    assert {line.partition(": has no effect: it means nothing to")[0].rpartition(", ")[2] for line in lines} == idle


def test_tables_that_apply_to_nothing_are_reported() -> None:
    lines = notes('model = "resnet50"', STACK + CPU, tail="[cpus]\ncounts = [1]\n")
    assert lines == (
        "line 4, [[stack]] 2: no [[workload]] of this matrix runs on torch2.5.1-cpu",
        "line 10, [cpus]: has no effect: no [[workload]] has device = cpu",
    )
    globbed = notes('model = "resnet50"\nstacks = ["*-cpu"]', STACK + CPU)
    assert "line 7, [[workload]] 1: no [[stack]] of this matrix runs it: its device is gpu" in globbed


def test_settings_that_the_method_in_use_overrides_are_reported() -> None:
    workload = 'model = "resnet50"\nsteps = 80\nwindows = 3\nwarmup_cap_seconds = 9'
    assert notes(workload) == ()
    assert notes(workload, request=Request(method="aime")) == (
        "no effect of steps, windows, warmup_cap_seconds in [[workload]]: the method aime has its own",
    )
    run = "[run]\ncold_compiles = 2\ncool_down_minutes = 3\n"
    assert notes('model = "resnet50"', run + STACK) == (
        "no effect of cold_compiles: no workload compiles",
        "no effect of cool_down_minutes: the method steady waits for no temperature",
    )
    assert notes('model = "resnet50"\ncompile = true', run + STACK, Request(method="cold")) == ()


def test_a_long_list_of_notes_is_cut_and_says_so() -> None:
    many = "".join(f'[[workload]]\nname = "w{i}"\nmodel = "resnet50"\nbatch = 1\ngrad = "none"\n' for i in range(99))
    lines = matrix_file.parse(STACK + many).notes
    assert len(lines) < 60 and lines[-1] == "and more settings without effect"


def test_no_preset_has_a_setting_without_effect() -> None:
    assert {
        path.name: matrix_file.load(path).notes for path in assets.PRESETS.glob("*.toml") if matrix_file.load(path).notes
    } == {}


def test_plan_prints_a_note_once(torchmatrix: Command, tmp_path: Path) -> None:
    (tmp_path / "matrix.toml").write_text(f'{CPU}[[workload]]\nmodel = "resnet18"\ndevice = "cpu"\nbatch = 4\ngrad = "none"\n')
    done = torchmatrix("plan")
    assert done.stderr.count("note: line 8, [[workload]] 1, grad: has no effect: it is for mode = infer") == 1


def test_a_key_of_an_earlier_version_has_no_effect_and_a_note() -> None:
    (note,) = matrix_file.parse(f"[run]\nparallel_percent = 2\n{STACK}[[workload]]\nmodel = 'resnet50'\nbatch = 8\n").notes
    assert note.endswith("parallel_percent: has no effect: cells are measured one after the other"), note
