"""The plan: cells, skips with reasons, baselines, order, selection."""

import itertools
from dataclasses import replace

import pytest

from torchmatrix.core.errors import BadInput
from torchmatrix.machine.host import Gpu, Host
from torchmatrix.matrix import matrix_file
from torchmatrix.matrix.method import Request
from torchmatrix.matrix.stacks import PYPI
from torchmatrix.planning import selection
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import Plan, make_plan
from torchmatrix.planning.selection import misses, select
from torchmatrix.running.launch_order import interleave

CONTAINERS = Prerequisites(containers=True)
TEXT = """
[[stack]]
torch = "2.5.1"
cuda = "12.4"
[[stack]]
torch = "1.13.1"
cuda = "11.7"
[[stack]]
torch = "2.5.1"
rocm = "6.2"
[[stack]]
torch = "2.5.1"
cpu = true
[[stack]]
image = "nvcr.io/nvidia/pytorch:25.02-py3"
[[workload]]
model = "resnet50"
precision = ["fp32", "tf32"]
compile = [false, true]
batch = 8
[[workload]]
device = "cpu"
model = "resnet50"
precision = ["fp32", "amp"]
batch = 2
"""


def plan_for(host: Host, text: str = TEXT, means: Prerequisites = CONTAINERS) -> Plan:
    return make_plan(matrix_file.parse(text), host, means)


def a100(host: Host) -> Host:
    """Return the same machine with GPUs for which torch 1.13 has code."""
    return replace(host, gpus=tuple(replace(g, name="NVIDIA A100-SXM4-80GB", capability="8.0") for g in host.gpus))


def reasons(plan: Plan, part: str) -> set[str]:
    return {skip.why.reason for skip in plan.skips if part in skip.cell.id}


def test_on_a_gpu_server_gpu_stacks_run_and_the_rest_is_skipped_with_a_reason(nvidia_host: Host) -> None:
    plan = plan_for(nvidia_host)
    assert "torch2.5.1-cu124/resnet50-train-fp32-b8-224px/gpu0+1+2+3" in {cell.id for cell in plan.cells}
    assert reasons(plan, "rocm") == {"needs an AMD GPU; this machine has 4 x NVIDIA H100"}
    assert reasons(plan, "-cpu/") == {"CPU stacks run only where there is no GPU"}
    assert "needs GPU 7 (counting from 0); this machine has 4 GPUs" in reasons(plan, "gpu0+1+2+3+4+5+6+7")
    on_a100 = plan_for(a100(nvidia_host))
    assert reasons(on_a100, "torch1.13.1-cu117/resnet50-train-fp32-b8-224px-compile/gpu0") >= {
        "torch 1.13.1 has no torch.compile (it came with 2.0)"
    }
    assert all(skip.why.fix for skip in plan.skips)


def test_without_a_gpu_only_cpu_cells_run_and_float16_is_refused(cpu_host: Host) -> None:
    plan = plan_for(cpu_host)
    assert [cell.id for cell in plan.cells] == [
        "torch2.5.1-cpu/resnet50-train-fp32-b2-224px/cpu0",
        "torch2.5.1-cpu/resnet50-train-fp32-b2-224px/cpu0+1",
    ]
    assert reasons(plan, "-cpu/resnet50-train-amp") == {"precision amp needs a GPU"}
    assert reasons(plan, "cu124") == {"needs an NVIDIA GPU; this machine has no GPU"}


def test_a_cpu_device_is_the_same_share_of_the_cores_whatever_n_is(cpu_host: Host) -> None:
    first, second = (cell.gpus for cell in plan_for(cpu_host).cells)
    assert (first.cpus, first.threads) == (("0,1",), 2)
    assert (second.cpus, second.threads) == (("0,1", "2,3"), 2)
    gpu_counts = plan_for(cpu_host, TEXT.replace("batch = 8", "batch = 8\ncounts = [8]"))
    assert [cell.gpus.cpus for cell in gpu_counts.cells] == [("0,1",), ("0,1", "2,3")]
    single = plan_for(replace(cpu_host, cores=(0,)))
    assert reasons(single, "cpu0+1") >= {"needs 2 CPU cores, one per process; this machine has 1"}


def test_the_one_gpu_baseline_is_added_whatever_is_asked_for(nvidia_host: Host) -> None:
    text = TEXT + "[gpus]\ncounts = [4]\nlists = [[2, 3]]\n"
    labels = {cell.gpus.label for cell in plan_for(nvidia_host, text).cells}
    assert labels == {"gpu0", "gpu0+1+2+3", "gpu2", "gpu2+3"}
    each = plan_for(nvidia_host, TEXT + "[gpus]\ncounts = [2]\neach = true\n")
    assert {cell.gpus.label for cell in each.cells} == {"gpu0", "gpu1", "gpu2", "gpu3", "gpu0+1"}


def test_an_old_driver_a_mixed_set_and_an_old_gpu_are_reasons(nvidia_host: Host) -> None:
    old = plan_for(replace(nvidia_host, driver="470.57.02"))
    assert reasons(old, "cu124") == {"CUDA 12 needs NVIDIA driver 525.60.13 or newer; this machine has 470.57.02"}
    old = plan_for(replace(a100(nvidia_host), driver="470.57.02"))
    assert "torch1.13.1-cu117/resnet50-train-fp32-b8-224px/gpu0" in {cell.id for cell in old.cells}
    v100 = Gpu(index=1, uuid="GPU-v", name="Tesla V100", vendor="nvidia", capability="7.0")
    mixed = plan_for(replace(nvidia_host, gpus=(nvidia_host.gpus[0], v100)))
    assert "mixes GPU models (NVIDIA H100, Tesla V100): a scale factor over them is meaningless" in reasons(mixed, "gpu0+1")
    assert "tf32 needs an NVIDIA GPU of compute capability 8.0 or newer" in reasons(mixed, "tf32")


def test_without_containers_vendor_images_are_skipped(nvidia_host: Host) -> None:
    skipped = reasons(plan_for(nvidia_host, means=Prerequisites(containers=False)), "nvidia-pytorch")
    assert skipped == {"nvcr.io/nvidia/pytorch:25.02-py3 is a container image, and no container engine is in use"}


def test_a_stack_without_any_index_that_answers_is_left_out_unless_it_is_built(cpu_host: Host) -> None:
    urls = {"https://download.pytorch.org/whl/cpu", PYPI}
    lost = Prerequisites(containers=True, unreachable=urls)
    (reason,) = reasons(plan_for(cpu_host, means=lost), "-cpu/resnet50-train-fp32")
    assert "no answer from" in reason
    assert not plan_for(cpu_host, means=lost).cells
    built = Prerequisites(containers=True, unreachable=urls, built={"torch2.5.1-cpu"})
    assert plan_for(cpu_host, means=built).cells
    one_unreachable = Prerequisites(containers=True, unreachable={"https://download.pytorch.org/whl/cpu"})
    assert plan_for(cpu_host, means=one_unreachable).cells


def test_compile_is_refused_on_a_python_that_torch_cannot_compile_on(nvidia_host: Host) -> None:
    text = TEXT.replace('torch = "1.13.1"\ncuda = "11.7"', 'torch = "2.0.1"\ncuda = "11.8"\npython = "3.11"')
    assert reasons(plan_for(nvidia_host, text), "torch2.0.1-cu118/resnet50-train-fp32-b8-224px-compile/gpu0") >= {
        "torch.compile of torch 2.0.1 needs Python 3.10 or older, not 3.11"
    }


def test_an_interpreter_uses_what_the_machine_has(cpu_host: Host, nvidia_host: Host) -> None:
    text = TEXT + '[[stack]]\nname = "mine"\npython = "/opt/bin/python"\n'
    assert {c.gpus.label for c in plan_for(cpu_host, text).cells if c.stack.name == "mine"} == {"cpu0", "cpu0+1"}
    assert "gpu0" in {c.gpus.label for c in plan_for(nvidia_host, text).cells if c.stack.name == "mine"}


def test_selection_by_glob_and_field(nvidia_host: Host) -> None:
    plan = plan_for(nvidia_host)
    chosen = select(plan, ["torch2.5.1-cu124/*"], ["precision=fp32", "compile=false", "count=2"])
    ids = ["torch2.5.1-cu124/resnet50-train-fp32-b8-224px/gpu0", "torch2.5.1-cu124/resnet50-train-fp32-b8-224px/gpu0+1"]
    assert [cell.id for cell in chosen.cells] == ids  # the baseline comes along
    with pytest.raises(BadInput) as caught:
        select(plan, [], ["precison=fp32"])
    assert 'did you mean "precision"?' in caught.value.hint


def test_a_stack_selects_its_cells_and_no_others(nvidia_host: Host) -> None:
    plan = plan_for(nvidia_host)
    chosen = select(plan, ["torch2.5.1-cu124"], [])
    assert chosen.cells == select(plan, ["torch2.5.1-cu124/*"], []).cells != ()
    assert not select(plan, ["torch2.5.1"], []).cells, "a name, not its beginning"
    assert misses(plan.cells, ["torch2.5.1-cu124"], []) == {} != misses(plan.cells, ["torch2.5.1"], [])


def test_launches_are_interleaved_in_rounds_in_an_order_that_the_seed_repeats(nvidia_host: Host) -> None:
    cells = [cell for cell in plan_for(nvidia_host).cells if cell.gpus.label in ("gpu0", "gpu0+1")]
    order = list(interleave(cells, 3, seed=7))
    assert order == list(interleave(cells, 3, seed=7)) != list(interleave(cells, 3, seed=8))
    assert len(order) == 3 * len(cells)
    rounds = [number for _, number in order]
    assert rounds == sorted(rounds), "the sets share gpu0, so that they are one block"


def test_devices_that_share_nothing_are_blocks_one_after_the_other(nvidia_host: Host) -> None:
    every = plan_for(nvidia_host, TEXT + "[gpus]\ncounts = [1]\nlists = [[2], [2, 3]]\n").cells
    labels = [cell.gpus.label for cell, _ in interleave(every, 3, seed=7)]
    changes = sum((a == "gpu0") != (b == "gpu0") for a, b in itertools.pairwise(labels))
    assert set(labels) == {"gpu0", "gpu2", "gpu2+3"} and changes == 1


def test_two_workloads_that_become_the_same_here_are_refused(nvidia_host: Host) -> None:
    twins = '[[stack]]\ntorch = "2.5.1"\ncuda = "12.4"\n'
    twins += '[[workload]]\nmodel = "resnet50"\nbatch = 64\n'
    twins += '[[workload]]\nmodel = "resnet50"\nbatch = { default = 32, "80GB" = 64 }\n'
    with pytest.raises(BadInput, match="measured twice on this machine"):
        plan_for(nvidia_host, twins)


def test_a_plan_knows_which_key_of_a_batch_table_gave_the_batch(nvidia_host: Host, cpu_host: Host) -> None:
    text = '[[stack]]\ntorch = "2.5.1"\ncuda = "12.4"\n[gpus]\nmixed = true\ncounts = [1, 4]\n'
    text += '[[workload]]\nmodel = "resnet50"\nbatch = { default = 8, "A10" = 16, "A100" = 64, "80GB" = 32 }\n'
    gpus = nvidia_host.gpus
    for names, key, batch in (
        (["NVIDIA A100-SXM4-80GB"] * 4, "A100", 64),
        (["NVIDIA A100-SXM4-80GB"] * 3 + ["NVIDIA H100 80GB HBM3"], "80GB", 32),  # the smallest of all that are used
    ):
        host = replace(nvidia_host, gpus=tuple(replace(gpu, name=name) for gpu, name in zip(gpus, names, strict=True)))
        assert {(cell.workload.batch_key, cell.workload.batch) for cell in plan_for(host, text).cells} == {(key, batch)}
    same = {(cell.workload.batch_key, cell.workload.batch) for cell in plan_for(nvidia_host).cells}
    assert same == {("", 8)}, "no table"


def test_to_explain_a_cell_adds_every_device_alone_and_the_cells_without_all_reduce_and_without_ddp(nvidia_host: Host) -> None:
    text = '[[stack]]\ntorch = "2.5.1"\ncuda = "12.4"\n[gpus]\ncounts = [2]\n'
    text += '[[workload]]\nmodel = "resnet50"\nbatch = 64\nexplain = true\n[[workload]]\nmodel = "resnet18"\nbatch = 64\n'
    chosen = select(plan_for(nvidia_host, text), ["*resnet50*gpu0+1"], [])
    name = "torch2.5.1-cu124/resnet50-train-fp32-b64-224px"
    assert {cell.id for cell in chosen.cells} == {
        f"{name}/gpu0", f"{name}/gpu1", f"{name}/gpu0+1", f"{name}-no-sync/gpu0+1", f"{name}-independent/gpu0+1",
    }  # fmt: skip


def test_the_batch_of_mixed_sets_is_that_of_the_gpus_in_them_and_of_no_others(nvidia_host: Host) -> None:
    h100, small = nvidia_host.gpus[0], replace(nvidia_host.gpus[3], name="NVIDIA L4", memory_bytes=24 << 30, capability="8.9")
    host = replace(nvidia_host, gpus=(h100, replace(h100, index=1, uuid="GPU-1"), small))
    table = 'batch = { default = 64, "80GB" = 256 }'
    for lists, batch in (("[[0, 1]]", 256), ("[[0, 2]]", 64), ("[[0, 1], [1, 2]]", 64)):
        text = f'[gpus]\ncounts = []\nlists = {lists}\nmixed = true\n[[stack]]\ntorch = "2.5.1"\ncuda = "12.4"\n'
        plan = plan_for(host, f'{text}[[workload]]\nmodel = "resnet50"\n{table}\n')
        assert {cell.workload.batch for cell in plan.cells} == {batch} and not plan.skips


@pytest.mark.parametrize(
    ("gpu", "capability", "stack", "nearest"),
    [
        ("NVIDIA H100", "9.0", ("1.12.1", "11.6"), 'torch = "2.0.0", cuda = "11.8"'),
        ("NVIDIA H100", "9.0", ("1.13.1", "11.7"), 'torch = "2.0.0", cuda = "11.8"'),
        ("NVIDIA B200", "10.0", ("2.7.0", "12.6"), 'torch = "2.7.0", cuda = "12.8"'),
        ("Tesla V100-SXM2-16GB", "7.0", ("2.11.0", "12.8"), 'torch = "2.11.0", cuda = "12.6"'),
        ("NVIDIA GeForce RTX 5090", "12.0", ("2.7.0", "11.8"), 'torch = "2.7.0", cuda = "12.8"'),
        ("NVIDIA GeForce RTX 5090", "12.0", ("2.5.1", "12.4"), 'torch = "2.7.0", cuda = "12.8"'),
        ("Tesla V100-SXM2-16GB", "7.0", ("2.7.1", "12.8"), 'torch = "2.7.1", cuda = "11.8"'),
        ("Tesla V100-SXM2-16GB", "7.0", ("2.15.0", "13.0"), 'torch = "2.14.1", cuda = "12.6"'),
        ("NVIDIA GeForce RTX 4090", "8.9", ("1.13.1", "11.7"), None),
        ("NVIDIA A100-SXM4-40GB", "8.0", ("1.12.1", "11.3"), None),
        ("NVIDIA B300", "10.3", ("2.7.0", "12.8"), None),
    ],
)
def test_a_gpu_that_a_wheel_has_no_code_for_is_a_skip_with_the_nearest_stack_that_has(
    nvidia_host: Host, gpu: str, capability: str, stack: tuple[str, str], nearest: str | None
) -> None:
    gpus = tuple(replace(g, name=gpu, capability=capability) for g in nvidia_host.gpus)
    host = replace(nvidia_host, gpus=gpus, driver="580.65.06")
    text = f'[[stack]]\ntorch = "{stack[0]}"\ncuda = "{stack[1]}"\n[[workload]]\nmodel = "resnet50"\nbatch = 1\ncounts = [1]\n'
    plan = plan_for(host, text)
    if nearest is None:
        assert plan.cells and not plan.skips
    else:
        assert not plan.cells and f"has no code for {gpu} ({capability})" in plan.skips[0].why.reason
        assert plan.skips[0].why.fix == f"the nearest that has: {nearest}"


def test_an_ab_runs_what_both_stacks_can_do_and_says_why_the_rest_is_skipped(nvidia_host: Host) -> None:
    ab = ("torch2.5.1-cu124", "torch1.13.1-cu117")
    both = selection.matrix_of_two(matrix_file.parse(TEXT), Request(), ab)
    assert {stack.name for stack in both.stacks} == set(ab)
    whole = make_plan(both, a100(nvidia_host), CONTAINERS)
    shared = selection.shared_cells(whole, ab)
    jobs = [{cell.id.partition("/")[2] for cell in shared.cells if cell.stack.name == name} for name in ab]
    assert jobs[0] == jobs[1] != set() and len(shared.entries) == len(whole.entries)
    left = [skip for skip in shared.skips if skip.cell.stack.name == ab[0] and skip not in whole.skips]
    (why,) = {skip.why.reason for skip in left}
    assert why.startswith("torch1.13.1-cu117 can't do the same: ") and "no torch.compile" in why


NODES = TEXT.replace("[[stack]]", "[gpus]\ncounts = [8]\nnodes = [2]\n[[stack]]", 1)


def test_sets_on_several_nodes_have_their_baselines_on_one(nvidia_host: Host) -> None:
    many = replace(nvidia_host, gpus=tuple(replace(nvidia_host.gpus[0], index=i, uuid=f"GPU-{i}") for i in range(8)))
    plan = plan_for(many, NODES, replace(CONTAINERS, nodes=2))
    eight = "gpu0+1+2+3+4+5+6+7"
    assert {(c.gpus.label, c.gpus.count) for c in plan.cells if c.workload.device == "gpu"} == {
        ("gpu0", 1), (eight, 8), (f"{eight}@2nodes", 16),
    }  # fmt: skip
    (kept,) = {frozenset(c.gpus.label for c in select(plan, [f"*fp32*/{eight}@2nodes"], ["compile=false"]).cells)}
    assert kept == {"gpu0", eight, f"{eight}@2nodes"}
    assert {c.gpus.nodes for c in select(plan, [], ["nodes=1"]).cells} == {1}


@pytest.mark.parametrize(("there", "reason"), [(1, "needs 2 nodes of a cluster"), (3, "needs 4 nodes; the cluster has 3")])
def test_more_nodes_than_there_are_is_a_skip_with_a_fix(nvidia_host: Host, there: int, reason: str) -> None:
    text = NODES.replace("nodes = [2]", f"nodes = [1, {2 if there == 1 else 4}]").replace("counts = [8]", "counts = [1]")
    plan = plan_for(nvidia_host, text, replace(CONTAINERS, nodes=there))
    assert any(why.startswith(reason) for why in reasons(plan, "nodes"))
    assert {cell.gpus.nodes for cell in plan.cells} == {1}


def test_what_may_surprise_is_noted(nvidia_host: Host) -> None:
    text = (
        '[[stack]]\ntorch = "2.5.1"\ncuda = "12.4"\n[[workload]]\nbatch = 8\nprecision = ["fp32", "amp-bf16"]\n'
        'model = ["resnet50", "timm.resnet26d", "transformers.llama"]\n'
    )
    turing = replace(nvidia_host, gpus=tuple(replace(g, name="Tesla T4", capability="7.5") for g in nvidia_host.gpus))
    unknown = "whether the memory is enough isn't known of timm.resnet26d, transformers.llama: no parameters are listed"
    slow = "Tesla T4 has no units for bfloat16: amp-bf16 runs there, slowly"
    for host, notes in ((turing, (slow, unknown)), (nvidia_host, (unknown,))):
        assert make_plan(matrix_file.parse(text), host, CONTAINERS).notes == notes


@pytest.mark.parametrize(
    ("gpu", "capability", "stack", "told"),
    [
        ("NVIDIA B300 SXM6 AC", "10.3", ("2.7.1", "12.8"), True),
        ("NVIDIA GB10", "12.1", ("2.9.1", "12.8"), True),
        ("NVIDIA B300 SXM6 AC", "10.3", ("2.9.1", "13.0"), False),
        ("NVIDIA B300 SXM6 AC", "10.3", ("2.10.0", "12.8"), False),
        ("NVIDIA B200", "10.0", ("2.7.1", "12.8"), False),
    ],
)
def test_a_gpu_that_tritons_assembler_does_not_know_is_noted_if_something_is_compiled(
    nvidia_host: Host, gpu: str, capability: str, stack: tuple[str, str], told: bool
) -> None:
    host = replace(nvidia_host, gpus=tuple(replace(g, name=gpu, capability=capability) for g in nvidia_host.gpus))
    for compiled in ("true", "false"):
        text = f'[[stack]]\ntorch = "{stack[0]}"\ncuda = "{stack[1]}"\n[[workload]]\nbatch = 8\nmodel = "resnet50"\n'
        notes = make_plan(matrix_file.parse(f"{text}compile = {compiled}\n"), host, CONTAINERS).notes
        assert any(f"Triton's assembler doesn't know {gpu} ({capability})" in note for note in notes) == (
            told and compiled == "true"
        )


def test_a_jetson_is_told_what_pytorchs_wheels_are_made_for(nvidia_host: Host) -> None:
    orin = replace(nvidia_host.gpus[0], name="Orin (nvgpu)", capability="8.7")
    host = replace(nvidia_host, gpus=(orin,), architecture="aarch64", driver="580.65.06")
    text = '[[stack]]\ntorch = "2.15.0"\ncuda = "13.0"\n[[workload]]\nbatch = 8\nmodel = "resnet50"\ncounts = [1]\n'
    plan = make_plan(matrix_file.parse(text), host, CONTAINERS)
    assert plan.cells and any("on Jetson they need JetPack 7.2 or newer" in note for note in plan.notes)
