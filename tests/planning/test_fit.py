"""Cells that can't run on a machine are skips before anything slow: their reason, and the nearest that would run."""

from dataclasses import replace

import pytest

from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.planning.fit import Disk, Prerequisites, Why
from torchmatrix.planning.plan import make_plan

GIB = 2**30
CONTAINERS = Prerequisites(containers=True)
GEFORCE = ("NVIDIA GeForce RTX 3090", "8.6")
A100 = ("NVIDIA A100-SXM4-80GB", "8.0")
RESNET = 'model = "resnet50"\nbatch = 1'


def machine(host: Host, gpu: tuple[str, str], driver: str = "580.65.06", memory_bytes: int = 80 * GIB) -> Host:
    name, capability = gpu
    fitted = replace(host.gpus[0], name=name, capability=capability, memory_bytes=memory_bytes)
    return replace(host, gpus=(fitted,), driver=driver)


def why(host: Host, stack: str, workload: str = RESNET, means: Prerequisites = CONTAINERS) -> Why | None:
    """Return why the only cell of this stack and workload is skipped, or None if it would run."""
    plan = make_plan(matrix_file.parse(f"[[stack]]\n{stack}\n[[workload]]\n{workload}\ncounts = [1]\n"), host, means)
    assert len(plan.cells) + len(plan.skips) == 1
    return plan.skips[0].why if plan.skips else None


def ngc(tag: str) -> str:
    return f'image = "nvcr.io/nvidia/pytorch:{tag}-py3"'


@pytest.mark.parametrize(
    ("gpu", "driver", "tag", "nearest"),
    [
        (GEFORCE, "570.133.7", "25.02", None),  # the driver that came with its CUDA
        (GEFORCE, "535.54.03", "25.02", None),  # older, of the same CUDA major: minor-version compatibility
        (GEFORCE, "470.57.02", "25.02", "22.12"),
        (GEFORCE, "570.133.7", "25.09", "25.06"),
        (GEFORCE, "580.65.06", "25.09", None),
        (A100, "470.57.02", "25.02", None),  # forward compatibility of data-centre GPUs
        (A100, "470.42.01", "25.02", "22.12"),  # the branch, but older than its first that will do
        (A100, "515.65.01", "25.02", "22.12"),  # a branch that NVIDIA doesn't name for it
        (A100, "515.65.01", "23.04", None),
        (A100, "535.86.10", "25.09", None),
        (("NVIDIA RTX A6000", "8.6"), "535.86.10", "25.09", "25.06"),
    ],
)
def test_an_ngc_image_needs_a_driver_of_its_cuda_or_forward_compatibility(
    nvidia_host: Host, gpu: tuple[str, str], driver: str, tag: str, nearest: str | None
) -> None:
    skip = why(machine(nvidia_host, gpu, driver), ngc(tag))
    if nearest is None:
        assert skip is None
    else:
        assert skip and "needs NVIDIA driver" in skip.reason and f"this machine has {driver}" in skip.reason
        assert "(data-centre GPUs also run it on recent drivers of R4" in skip.reason
        assert "update the driver" in skip.fix and f"pytorch:{nearest}-py3" in skip.fix
        tag_of_fix = skip.fix.split("pytorch:")[1].split("-py3")[0]
        assert why(machine(nvidia_host, gpu, driver), ngc(tag_of_fix)) is None, "the fix itself runs"


def test_wheels_have_no_forward_compatibility(nvidia_host: Host) -> None:
    skip = why(machine(nvidia_host, A100, "535.86.10"), 'torch = "2.9.1"\ncuda = "13.0"')
    assert skip and skip.reason == "CUDA 13 needs NVIDIA driver 580 or newer; this machine has 535.86.10"
    assert skip.fix == 'update the driver, or the nearest that it runs: torch = "2.9.1", cuda = "12.6"'


def test_an_image_that_no_table_lists_is_not_judged(nvidia_host: Host) -> None:
    assert why(machine(nvidia_host, GEFORCE, "450.80.02"), ngc("99.12")) is None


@pytest.mark.parametrize(
    ("gpu", "tag", "nearest"),
    [
        (("NVIDIA H100 80GB HBM3", "9.0"), "22.08", "26.05"),
        (("NVIDIA H100 80GB HBM3", "9.0"), "22.09", None),
        (("NVIDIA GeForce RTX 5090", "12.0"), "24.12", "26.05"),
        (("NVIDIA GeForce RTX 5090", "12.0"), "25.01", None),
        (("NVIDIA B300 SXM6 AC", "10.3"), "25.02", None),
        (("Tesla V100-SXM2-16GB", "7.0"), "24.12", None),
        (("Tesla V100-SXM2-16GB", "7.0"), "25.02", "24.12"),
        (("Tesla T4", "7.5"), "25.09", None),
        (("NVIDIA L4", "8.9"), "22.05", None),
    ],
)
def test_an_ngc_image_without_code_for_the_gpu_is_a_skip_with_the_newest_that_has(
    nvidia_host: Host, gpu: tuple[str, str], tag: str, nearest: str | None
) -> None:
    skip = why(machine(nvidia_host, gpu), ngc(tag))
    if nearest is None:
        assert skip is None
    else:
        assert skip and f"has no code for {gpu[0]} ({gpu[1]})" in skip.reason
        assert skip.fix == f'the nearest that has: image = "nvcr.io/nvidia/pytorch:{nearest}-py3"'


def test_a_stack_for_the_other_vendor_names_this_vendors_wheels_of_the_release(nvidia_host: Host, amd_host: Host) -> None:
    amd = replace(amd_host, gpus=amd_host.gpus[:1])
    on_amd = why(amd, 'torch = "2.5.1"\ncuda = "12.4"')
    assert on_amd and on_amd.fix.endswith('; for this machine: torch = "2.5.1", rocm = "6.2"')
    image_on_amd = why(amd, ngc("24.10"))
    assert image_on_amd and image_on_amd.fix.endswith('; for this machine: torch = "2.5.0", rocm = "6.2"')
    on_nvidia = why(machine(nvidia_host, A100), 'torch = "2.5.1"\nrocm = "6.2"')
    assert on_nvidia and on_nvidia.fix.endswith('; for this machine: torch = "2.5.1", cuda = "11.8"')


@pytest.mark.parametrize(
    ("devices", "reason"),
    [
        (("gfx950",), None),
        (("gfx942", "gfx950"), None),
        ((), None),  # the build tells
        (("gfx942",), "torch 2.12.0+rocm7.14.0 with code for gfx942 has no code for AMD Instinct MI355X (gfx950)"),
        (("gfx1151", "gfx942"), "torch 2.12.0+rocm7.14.0 with code for gfx1151 and gfx942 has no code for AMD Instinct MI355X"),
    ],
)
def test_packages_with_code_for_other_gpus_are_a_skip(amd_host: Host, devices: tuple[str, ...], reason: str | None) -> None:
    packages = ", ".join(f'"torch[device-{device}]"' for device in devices)
    stack = f'torch = "2.12.0"\nrocm = "7.14.0"\nindex = "https://repo.amd.com/rocm/whl-multi-arch/"\npackages = [{packages}]'
    no = why(machine(amd_host, ("AMD Instinct MI355X", "gfx950")), stack)
    assert (no.reason if no else "").startswith(reason or "") and (no is None) == (reason is None)
    assert no is None or no.fix == 'add its code: packages = ["torch[device-gfx950]", "torchvision[device-gfx950]"]'


V100, H100 = ("Tesla V100-SXM2-16GB", "7.0"), ("NVIDIA H100 80GB HBM3", "9.0")
DISPLAY = ("NVIDIA Quadro K620", "5.0")
RX7900, RAPHAEL = ("AMD Radeon RX 7900 XTX", "gfx1100"), ("AMD Raphael", "gfx1036")
CU128, ROCM62 = 'torch = "2.7.1"\ncuda = "12.8"', 'torch = "2.5.1"\nrocm = "6.2"'


def several(host: Host, *models: tuple[str, str], driver: str = "580.65.06") -> Host:
    """Return `host` with GPUs of these names and capabilities."""
    gpus = [replace(host.gpus[0], index=i, uuid=f"GPU-{i}", name=n, capability=c) for i, (n, c) in enumerate(models)]
    return replace(host, gpus=tuple(gpus), driver=driver)


def by_set(host: Host, stack: str, gpus: str, workload: str = RESNET) -> dict[str, str]:
    """Return why each device set of one stack and workload is skipped, by its label; "" if it runs."""
    text = f"[gpus]\n{gpus}\n[[stack]]\n{stack}\n[[workload]]\n{workload}\n"
    plan = make_plan(matrix_file.parse(text), host, CONTAINERS)
    ran = {cell.gpus.label: "" for cell in plan.cells}
    return ran | {skip.cell.gpus.label: f"{skip.why.reason}; {skip.why.fix}" for skip in plan.skips}


@pytest.mark.parametrize(
    ("models", "stack", "lists", "runs", "reason"),
    [
        ((H100, H100, DISPLAY), CU128, [[0], [0, 1], [2], [0, 2]], ["gpu0", "gpu0+1"], "no code for NVIDIA Quadro K620 (5.0)"),
        ((DISPLAY, H100, H100), CU128, [[1, 2], [0]], ["gpu1", "gpu1+2"], "no code for NVIDIA Quadro K620 (5.0)"),
        ((V100, H100), 'torch = "2.15.0"\ncuda = "13.0"', [[0], [1]], ["gpu1"], "has no code for Tesla V100-SXM2-16GB (7.0)"),
        # An NGC image on an older driver: forward compatibility is for data-centre GPUs
        ((A100, GEFORCE), ngc("25.02"), [[0], [1]], ["gpu0"], "CUDA 12 needs NVIDIA driver 525"),
    ],
)  # fmt: skip
def test_a_gpu_that_a_stack_doesnt_run_on_skips_the_sets_that_hold_it_and_no_others(
    nvidia_host: Host, models: tuple[tuple[str, str], ...], stack: str, lists: list[list[int]], runs: list[str], reason: str
) -> None:
    host = several(nvidia_host, *models, driver="470.57.02" if stack == ngc("25.02") else "580.65.06")
    reasons = by_set(host, stack, f"counts = []\nlists = {lists}")
    assert [label for label, why in reasons.items() if not why] == runs
    skipped = [why for why in reasons.values() if why]
    assert skipped and all(reason in why for why in skipped)
    if "no code" in reason:
        assert all("or leave this GPU out: [gpus] lists" in why for why in skipped)


@pytest.mark.parametrize(("models", "card"), [((RX7900, RAPHAEL), "gpu0"), ((RAPHAEL, RX7900), "gpu1")])
def test_an_integrated_gpu_beside_a_card_skips_no_set_of_the_card(
    amd_host: Host, models: tuple[tuple[str, str], ...], card: str
) -> None:
    host = several(amd_host, *models)
    reasons = by_set(host, ROCM62, "counts = []\nlists = [[0], [1]]")
    assert [label for label, why in reasons.items() if not why] == [card]
    for_the_other_vendor = by_set(host, 'torch = "2.5.1"\ncuda = "12.4"', "counts = [1]")
    assert for_the_other_vendor["gpu0"].endswith('; for this machine: torch = "2.5.1", rocm = "6.2"'), "for the card"


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (RESNET + '\nprecision = "tf32"', "tf32 needs an NVIDIA GPU of compute capability 8.0 or newer"),
        ('model = "resnet18"\nmode = "infer"\nbatch = 1\nruntime = "torchao-float8"\nprecision = "bf16-weights"',
         "compute capability 8.9 or newer"),
    ],
)  # fmt: skip
def test_a_workload_s_demands_are_checked_against_the_gpus_of_the_set(nvidia_host: Host, workload: str, reason: str) -> None:
    reasons = by_set(several(nvidia_host, H100, ("NVIDIA T400", "7.5")), CU128, "counts = []\nlists = [[0], [1]]", workload)
    assert reasons["gpu0"] == "" and reason in reasons["gpu1"]


@pytest.mark.parametrize(
    ("workload", "gib"),
    [
        ('model = "bert-large-cased"', 332_531_714 * 16 / GIB),  # AdamW: weights, gradients, two moments
        ('model = "bert-large-cased"\noptimizer = "sgd"', 332_531_714 * 12 / GIB),
        ('model = "bert-large-cased"\nmode = "infer"', 332_531_714 * 4 / GIB),
        ('model = "resnet50"\nprecision = "amp"', 25_557_032 * 12 / GIB),  # autocast keeps fp32 weights
        ('model = "gemm"\nshape = "8192x4096x16384"', (8192 * 16384 + 16384 * 4096 + 8192 * 4096) * 4 / GIB),
        ('model = "gemm"\nprecision = "half"\nshape = "8192x8192x8192"', 3 * 8192**2 * 2 / GIB),
        ('model = "triad"\nbytes = 268435456', 0.75),
        ('model = "host-copy"\nbytes = 268435456', 0.25),
    ],
)
def test_a_gpu_that_cannot_hold_the_models_own_bytes_is_a_skip(nvidia_host: Host, workload: str, gib: float) -> None:
    stack = 'torch = "2.5.1"\ncuda = "12.4"'
    small = machine(nvidia_host, A100, memory_bytes=int((gib - 0.01) * GIB))
    skip = why(small, stack, f"{workload}\nbatch = 1")
    assert skip and f"needs more than {gib:.1f} GiB of GPU memory" in skip.reason and "more memory" in skip.fix
    assert why(machine(nvidia_host, A100, memory_bytes=int((gib + 0.01) * GIB)), stack, f"{workload}\nbatch = 1") is None


GPT_OSS = (
    'model = "gpt-oss-20b-shape"\nmode = "generate"\nprecision = "bf16-weights"\nsequence_length = 8192\noutput_length = 1024\n'
)


def test_a_cache_is_no_longer_than_the_windows_of_its_layers_and_the_batch_that_it_is_of_is_told(nvidia_host: Host) -> None:
    """Half of the 24 layers keep 128 tokens; 2,048 bytes of keys and values for each token and layer."""
    gib = (20_914_757_184 * 2 + 16 * 2048 * 12 * (9216 + 128)) / GIB
    stack = 'torch = "2.9.1"\ncuda = "12.8"'
    assert why(machine(nvidia_host, A100, memory_bytes=int((gib + 0.01) * GIB)), stack, f"{GPT_OSS}batch = 16") is None
    small = why(machine(nvidia_host, A100, memory_bytes=int((gib - 0.01) * GIB)), stack, f"{GPT_OSS}batch = 16")
    told = f"needs more than {gib:.1f} GiB of GPU memory at batch 16 (weights and the cache of keys and values)"
    assert small and told in small.reason


@pytest.mark.parametrize(
    ("model", "most"), [("roberta-base", 512), ("longformer-base-4096", 4096), ("opt-125m", 2048), ("gpt2", 1024)]
)
def test_a_table_of_positions_holds_what_the_padding_leaves(nvidia_host: Host, model: str, most: int) -> None:
    stack, text = 'torch = "2.5.1"\ncuda = "12.4"', f'model = "{model}"\nbatch = 1\nsequence_length = '
    assert why(nvidia_host, stack, f"{text}{most}") is None
    longer = why(nvidia_host, stack, f"{text}{most + 1}")
    assert longer and f"more than the {most} positions of {model}" in longer.reason


LLAMA = 'model = "llama-3.1-8b-shape"\nprecision = "bf16-weights"\nbatch = 1\n'


@pytest.mark.parametrize(
    ("parallel", "gib"), [("ddp", 8_030_261_248 * 8 / GIB), ("fsdp", 8_030_261_248 * 2 / GIB), ("tp", 8_030_261_248 * 2 / GIB)]
)
def test_ranks_that_share_a_model_need_less_each_but_all_weights_at_first(nvidia_host: Host, parallel: str, gib: float) -> None:
    matrix = matrix_file.parse(
        '[gpus]\nlists = [[0, 1, 2, 3]]\n[[stack]]\ntorch = "2.7.1"\ncuda = "12.8"\n'
        f'[[workload]]\n{LLAMA}parallel = "{parallel}"\n'
    )
    for change, fits in ((-0.01, False), (0.01, True)):
        memory = int((gib + change) * GIB)
        host = replace(nvidia_host, gpus=tuple(replace(gpu, memory_bytes=memory) for gpu in nvidia_host.gpus))
        assert bool(make_plan(matrix, host, CONTAINERS).cells) is fits


def test_a_generation_needs_the_memory_of_its_weights_and_of_its_cache(nvidia_host: Host) -> None:
    """In 16 bits llama-3.1-8b has 15.0 GiB of weights, and a token of the cache takes 128 KiB: 8 · 4096 tokens take 4 GiB."""
    asked = LLAMA.replace("batch = 1", 'batch = 8\nmode = "generate"\nsequence_length = 4000\noutput_length = 96')
    matrix = matrix_file.parse(f'[[stack]]\ntorch = "2.14.1"\ncuda = "12.6"\n[[workload]]\n{asked}')
    needed = 8_030_261_248 * 2 / GIB + 4
    for change, fits in ((-0.01, False), (0.01, True)):
        memory = int((needed + change) * GIB)
        host = replace(nvidia_host, gpus=tuple(replace(gpu, memory_bytes=memory) for gpu in nvidia_host.gpus))
        assert bool(make_plan(matrix, host, CONTAINERS).cells) is fits


@pytest.mark.parametrize(("ranks", "limit_gib", "fits"), [(1, None, True), (2, None, False), (1, 7, False)])
def test_processes_of_a_cpu_share_the_machines_memory(cpu_host: Host, ranks: int, limit_gib: int | None, fits: bool) -> None:
    """tinyllama-1.1b needs 16 bytes per parameter in training with AdamW: 16.4 GiB."""
    host = replace(cpu_host, memory_bytes=20 * GIB, memory_limit_bytes=limit_gib and limit_gib * GIB)
    matrix = matrix_file.parse(
        f'[cpus]\ncounts = [{ranks}]\n[[stack]]\ntorch = "2.7.1"\ncpu = true\n'
        '[[workload]]\ndevice = "cpu"\nmodel = "tinyllama-1.1b"\nbatch = 1\n'
    )
    plan = make_plan(matrix, host, CONTAINERS)
    cells = [cell for cell in plan.cells if cell.gpus.count == ranks]
    assert bool(cells) is fits
    if not fits:
        assert f"this machine has {limit_gib or 20}.0 GiB" in plan.skips[0].why.reason


def test_nodes_of_a_cluster_have_a_memory_each(cpu_host: Host) -> None:
    matrix = matrix_file.parse(
        '[cpus]\ncounts = [2]\nnodes = [2]\n[[stack]]\ntorch = "2.7.1"\ncpu = true\n'
        '[[workload]]\ndevice = "cpu"\nmodel = "tinyllama-1.1b"\nbatch = 1\n'
    )
    plan = make_plan(matrix, replace(cpu_host, memory_bytes=40 * GIB), replace(CONTAINERS, nodes=2))
    assert [cell.gpus.count for cell in plan.cells if cell.gpus.nodes == 2] == [4]


@pytest.mark.parametrize(
    ("torch", "workload", "reason"),
    [
        ("2.7.1", 'model = "gpt2-124m-shape"\nsequence_length = 1025', "sequence_length 1025 is more than the 1024 positions"),
        ("2.7.1", 'model = "gpt2-124m-shape"\nsequence_length = 1024', None),
        ("2.0.1", 'model = "qwen3-0.6b-shape"', "qwen3-0.6b-shape needs transformers 4.51, and torch 2.0.1 has 4.30.2"),
        ("2.0.1", 'model = "lm-10m"', None),
        ("2.0.1", 'model = "lm-10m"\nmode = "generate"', "lm-10m in mode generate needs transformers 4.57, and torch 2.0.1"),
        ("2.7.1", 'model = "lm-10m"\nmode = "generate"', None),
        (
            "2.7.1",
            'model = "lm-10m"\nmode = "generate"\nprecision = "amp-bf16"',
            "precision amp-bf16 would give keys and values",
        ),
        (
            "2.7.1",
            'model = "gpt2-124m-shape"\nsequence_length = 1000\nmode = "generate"',
            "sequence_length 1000 and output_length 32 are",
        ),
        ("2.7.1", 'model = "bert-tiny"\nmode = "generate"', "bert-tiny can't generate"),
    ],
)
def test_a_model_that_cant_be_built_is_a_skip(cpu_host: Host, torch: str, workload: str, reason: str | None) -> None:
    skip = why(
        replace(cpu_host, memory_bytes=64 * GIB), f'torch = "{torch}"\ncpu = true', f'device = "cpu"\nbatch = 1\n{workload}'
    )
    assert (skip and skip.reason[: len(reason or "")]) == reason


def test_unknown_memory_is_not_judged(amd_host: Host) -> None:
    host = replace(amd_host, gpus=amd_host.gpus[:1])
    assert host.gpus[0].memory_bytes is None
    assert why(host, 'torch = "2.5.1"\nrocm = "6.2"', 'model = "bert-large-cased"\nbatch = 1') is None


@pytest.mark.parametrize(
    ("stack", "gib"), [('torch = "2.5.1"\ncuda = "12.4"', 5), (ngc("25.02"), 18), ('image = "pytorch/pytorch:2.5.1"', 6)]
)
def test_a_stack_that_does_not_fit_on_the_disk_is_a_skip_unless_it_is_stored_already(
    nvidia_host: Host, stack: str, gib: int
) -> None:
    def with_free(free: float, **more: frozenset[str]) -> Why | None:
        disk = Disk(place="/data", free_bytes=int(free * GIB), larger="move the data root")
        return why(machine(nvidia_host, A100), stack, means=Prerequisites(containers=True, disk=disk, **more))

    skip = with_free(gib - 0.1)
    assert skip and skip.reason == f"takes at least {gib} GiB on disk; /data has {gib - 0.1:.1f} GiB free"
    assert "torchmatrix clean" in skip.fix and skip.fix.endswith("or move the data root")
    assert with_free(gib + 0.1) is None
    name = matrix_file.parse(f"[[stack]]\n{stack}\n[[workload]]\n{RESNET}\n").stacks[0].name
    assert with_free(0.1, stored=frozenset({name})) is None
    assert why(machine(nvidia_host, A100), stack) is None, "unknown free space is not judged"


def test_the_fix_for_a_full_disk_is_the_engines_own(cpu_host: Host) -> None:
    means = Prerequisites(containers=False, disk=Disk(place="/home", free_bytes=0, larger="set a variable"))
    plan = make_plan(
        matrix_file.parse(f'[[stack]]\ntorch = "2.5.1"\ncpu = true\n[[workload]]\ndevice = "cpu"\n{RESNET}\n'), cpu_host, means
    )
    assert {skip.why.fix.split(", or ")[1] for skip in plan.skips} == {"set a variable"}


def test_a_python_that_is_neither_here_nor_to_be_had_is_a_skip(nvidia_host: Host) -> None:
    lacking = Prerequisites(containers=False, pythonless={"torch2.5.1-cu124"})
    skip = why(machine(nvidia_host, A100), 'torch = "2.5.1"\ncuda = "12.4"', means=lacking)
    assert skip and skip.reason == "this machine has no Python 3.11 (or >=3.9,<3.13), and uv can't download it"
    assert "install Python 3.11" in skip.fix and "container engine" in skip.fix
    exact = why(machine(nvidia_host, A100), 'torch = "2.5.1"\ncuda = "12.4"\npython = "3.10"', means=lacking)
    assert exact and exact.reason == "this machine has no Python 3.10, and uv can't download it"


@pytest.mark.parametrize(
    ("torch", "on_gpu", "on_cpu"),
    [
        ("1.13.1", "can't shard a model and keep its parameters apart", "can't shard a model"),
        ("2.0.1", None, "torch 2.0.1 shards on GPUs only"),
        ("2.5.1", None, "torch 2.5.1 shards on GPUs only"),
        ("2.6.0", None, None),
    ],
)
def test_sharding_on_a_torch_that_cannot_shard_on_the_device_is_a_skip(
    nvidia_host: Host, cpu_host: Host, torch: str, on_gpu: str | None, on_cpu: str | None
) -> None:
    sharded = TRAIN + 'parallel = "fsdp"\n'
    cuda = why(machine(nvidia_host, A100), f'torch = "{torch}"\ncuda = "{CUDA_OF[torch]}"', sharded)
    cpu = why(cpu_host, f'torch = "{torch}"\ncpu = true', sharded + 'device = "cpu"')
    for skip, reason in ((cuda, on_gpu), (cpu, on_cpu)):
        assert skip is None if reason is None else skip and reason in skip.reason and skip.fix


@pytest.mark.parametrize(("torch", "on_cpu"), [("2.0.1", "torch 2.0.1 has no fused AdamW on a CPU"), ("2.5.1", None)])
def test_a_fused_optimizer_that_torch_lacks_on_the_device_is_a_skip(
    nvidia_host: Host, cpu_host: Host, torch: str, on_cpu: str | None
) -> None:
    fused = TRAIN + 'optimizer = "adamw-fused"\n'
    assert why(machine(nvidia_host, A100), f'torch = "{torch}"\ncuda = "{CUDA_OF[torch]}"', fused) is None
    skip = why(cpu_host, f'torch = "{torch}"\ncpu = true', fused + 'device = "cpu"')
    assert skip is None if on_cpu is None else skip and skip.reason == on_cpu and "torch 2.4 or newer" in skip.fix


SPLIT = 'model = "lm-1m"\nparallel = "tp"\nbatch = 1\n'


@pytest.mark.parametrize(
    ("torch", "workload", "reason"),
    [
        ("2.5.1", SPLIT, None),
        ("2.4.1", SPLIT, "torch 2.4.1 can't split matrices as is done here (that came with 2.5)"),
        ("2.7.1", SPLIT + 'mode = "infer"', "parallel tp is for training: in mode infer each process has the whole model"),
        ("2.7.1", SPLIT + 'mode = "generate"', "parallel tp is for training: in mode generate"),
        ("2.7.1", SPLIT.replace("lm-1m", "gpt2-124m-shape"), "gpt2-124m-shape is none"),
        ("2.7.1", SPLIT.replace("lm-1m", "lm-10m-moe"), "lm-10m-moe is none"),
        ("2.7.1", SPLIT.replace("lm-1m", "transformers.llama"), "transformers.llama is none"),
        ("2.7.1", SPLIT.replace("lm-1m", "resnet18"), "resnet18 is none"),
        ("2.7.1", SPLIT + 'precision = "amp"', "GradScaler, which can't look at parameters that are split"),
        ("2.7.1", SPLIT + 'precision = "amp-bf16"', None),
    ],
)
def test_what_can_not_be_split_by_tensor_parallelism_is_a_skip(
    nvidia_host: Host, torch: str, workload: str, reason: str | None
) -> None:
    cuda = {"2.4.1": "12.4", "2.5.1": "12.4", "2.7.1": "12.8"}[torch]
    skip = why(machine(nvidia_host, A100), f'torch = "{torch}"\ncuda = "{cuda}"', workload)
    assert skip is None if reason is None else skip and reason in skip.reason and skip.fix


def test_layers_in_float8_are_not_split(nvidia_host: Host) -> None:
    skip = why(
        machine(nvidia_host, ("NVIDIA H100 80GB HBM3", "9.0")), 'torch = "2.7.1"\ncuda = "12.8"', SPLIT + 'precision = "fp8"'
    )
    assert skip and skip.reason == "layers in float8 are not split here"


@pytest.mark.parametrize(
    ("model", "count", "reason"),
    [
        ("lm-1m", 2, None),
        ("lm-1m", 4, "lm-1m has 2 key-value heads, which 4 devices can't share alike"),
        (
            "lm-10m",
            3,
            "lm-10m has 4 attention heads and 4 key-value heads and 896 inner features, which 3 devices can't share alike",
        ),
        ("lm-100m", 4, None),
        ("llama-3.1-8b-shape", 8, None),
    ],
)
def test_a_count_of_devices_that_does_not_divide_the_heads_is_a_skip(
    nvidia_host: Host, model: str, count: int, reason: str | None
) -> None:
    lists = [list(range(count))]
    matrix = matrix_file.parse(
        f'[gpus]\nlists = {lists}\n[[stack]]\ntorch = "2.7.1"\ncuda = "12.8"\n'
        f'[[workload]]\nmodel = "{model}"\nparallel = ["ddp", "tp"]\nbatch = 1\n'
    )
    gpus = tuple(replace(nvidia_host.gpus[0], index=index, uuid=f"GPU-{index}") for index in range(count))
    plan = make_plan(matrix, replace(nvidia_host, gpus=gpus), CONTAINERS)
    reasons = [skip.why.reason for skip in plan.skips if "share alike" in skip.why.reason]
    assert reasons == ([] if reason is None else [reason])


CUDA_OF = {"1.13.1": "11.7", "2.0.1": "11.8", "2.5.1": "12.4", "2.6.0": "12.4"}
CPU = 'torch = "2.7.1"\ncpu = true'
CUDA = 'torch = "2.7.1"\ncuda = "12.8"'
INFER = 'model = "resnet18"\nmode = "infer"\nbatch = 1\n'
TRAIN = 'model = "resnet18"\nbatch = 1\n'


@pytest.mark.parametrize(
    ("workload", "reason"),
    [
        (TRAIN + 'precision = "half"', "training in half precision needs a GPU"),
        (TRAIN + 'precision = "bf16-weights"', None),
        (TRAIN + 'precision = "bf16-master"', None),
        (INFER + 'precision = "bf16-master"', "it keeps weights for an optimizer"),
        (INFER + 'precision = "half"', None),  # the workload process tells whether this CPU and torch can
        (TRAIN + 'compile = true\ncompile_mode = "reduce-overhead"', "records CUDA graphs, which need a GPU"),
        (TRAIN + 'compile_mode = "reduce-overhead"', None),  # of no meaning where nothing is compiled
        (TRAIN + 'compile = true\ncompile_mode = "max-autotune"', None),
        (INFER + 'runtime = "onnxruntime"', None),
        (INFER + 'runtime = "onnxruntime"\nprecision = "amp-bf16"', "onnxruntime doesn't compute in amp-bf16 on a CPU"),
        (INFER + 'runtime = "onnxruntime"\ncompile = true', "compiles by itself, without torch.compile"),
        (INFER + 'runtime = "onnxruntime"\neval = false', "runs models in eval mode only"),
        (INFER + 'runtime = "torchscript"\ngrad = "inference_mode"', "never records gradients, whatever grad says"),
        (INFER + 'runtime = "openvino"\nprecision = "amp-bf16"', None),
        (INFER + 'runtime = "torchao-int8"\ncompile = true', None),
        (INFER + 'runtime = "torchao-int4"', "runtime torchao-int4 needs a CUDA stack"),
        (INFER + 'runtime = "tensorrt"', "runtime tensorrt needs a CUDA stack"),
        (TRAIN + 'precision = "fp8"', "precision fp8 needs a GPU"),
        (INFER + 'precision = "fp8-rowwise"', "precision fp8-rowwise is for training"),
    ],
)
def test_settings_that_make_no_sense_on_a_cpu_are_skips(cpu_host: Host, workload: str, reason: str | None) -> None:
    skip = why(cpu_host, CPU, workload + '\ndevice = "cpu"')
    assert skip is None if reason is None else skip and reason in skip.reason and skip.fix


@pytest.mark.parametrize(
    ("stack", "workload", "reason"),
    [
        (CUDA, TRAIN + 'precision = "half"', None),
        (CUDA, 'model = "bert-tiny"\nbatch = 1\nprecision = "half"', "AdamW can't train float16 weights"),
        (CUDA, 'model = "bert-tiny"\nbatch = 1\nprecision = "half"\noptimizer = "sgd"', None),
        (CUDA, TRAIN + 'compile = true\ncompile_mode = "reduce-overhead"', None),
        (CUDA, INFER + 'runtime = "openvino"', "runtime openvino needs a CPU stack"),
        (CUDA, INFER + 'runtime = "onnxruntime"\nprecision = "half"', None),
        (CUDA, INFER + 'runtime = "tensorrt"', "needs TensorRT, whose libraries are no wheels of a package index"),
        (ngc("25.02"), INFER + 'runtime = "tensorrt"', None),
        (ngc("25.02"), INFER + 'runtime = "onnxruntime-tensorrt"', "doesn't compute in fp32 on a GPU"),
        (CUDA, INFER + 'runtime = "torchao-float8"\nprecision = "bf16-weights"', "compute capability 8.9 or newer"),
        (CUDA, INFER + 'runtime = "torchao-int4"\nprecision = "bf16-weights"', None),
        (
            'torch = "2.12.1"\ncuda = "13.0"',
            INFER + 'runtime = "torchao-int8"',
            "no packages of torchao are known for torch 2.12.1",
        ),
    ],
)
def test_settings_that_make_no_sense_on_a_gpu_are_skips(
    nvidia_host: Host, stack: str, workload: str, reason: str | None
) -> None:
    skip = why(machine(nvidia_host, A100), stack, workload)
    assert skip is None if reason is None else skip and reason in skip.reason and skip.fix


@pytest.mark.parametrize(
    ("capability", "precision", "reason"),
    [
        ("8.6", "fp8", "compute capability 8.9 or newer"),
        ("8.9", "fp8", None),
        ("8.9", "fp8-rowwise", "compute capability 9.0 or newer"),
        ("9.0", "fp8-rowwise", None),
        ("12.0", "fp8-rowwise", None),
        ("9.0", "mxfp8", "compute capability 10.0 or newer"),
        ("10.0", "mxfp8", None),
    ],
)
def test_float8_needs_a_gpu_that_has_it_and_a_stack_with_torchao(
    nvidia_host: Host, capability: str, precision: str, reason: str | None
) -> None:
    text = f'model = "bert-tiny"\nbatch = 1\nprecision = "{precision}"'
    host = machine(nvidia_host, ("NVIDIA H100 80GB HBM3", capability))
    skip = why(host, CUDA, text)
    assert skip is None if reason is None else skip and reason in skip.reason and skip.fix
    skip = why(host, CUDA, text + '\nmode = "infer"')
    runtime = "torchao-mxfp8" if precision == "mxfp8" else "torchao-float8"
    assert skip and skip.reason == f"precision {precision} is for training" and runtime in skip.fix
    skip = why(host, 'torch = "2.12.1"\ncuda = "13.0"', text)
    assert skip and (reason or "no packages of torchao are known for torch 2.12.1") in skip.reason


NGC = 'image = "nvcr.io/nvidia/pytorch:26.05-py3"'
BERT_TE = 'model = "bert-tiny"\nbatch = 1\nprecision = "fp8-te"\n'


@pytest.mark.parametrize(
    ("stack", "workload", "reason"),
    [
        (NGC, BERT_TE, None),
        (CUDA, BERT_TE, "needs Transformer Engine"),
        (NGC, BERT_TE + "checkpointing = true", "not made for parallel fsdp and checkpointing"),
        (NGC, BERT_TE + 'parallel = "fsdp"', "not made for parallel fsdp and checkpointing"),
        (NGC, BERT_TE + "sequence_length = 40", "multiples of 16: batch × sequence_length is 40"),
        (NGC, BERT_TE.replace("fp8-te", "mxfp8") + "sequence_length = 16", "multiples of 32: batch × sequence_length is 16"),
        (NGC, BERT_TE.replace("fp8-te", "mxfp8").replace("batch = 1", "batch = 2") + "sequence_length = 16", None),
    ],
)
def test_recipes_of_float8_say_what_they_need(nvidia_host: Host, stack: str, workload: str, reason: str | None) -> None:
    skip = why(machine(nvidia_host, ("NVIDIA B200", "10.0")), stack, workload)
    assert skip is None if reason is None else skip and reason in skip.reason and skip.fix


@pytest.mark.parametrize(("capability", "fits"), [("9.0", False), ("10.0", True), ("10.3", True), ("12.0", False)])
def test_mxfp4_is_for_data_centre_blackwell_alone(nvidia_host: Host, capability: str, fits: bool) -> None:
    text = 'model = "llama-3.2-1b-shape"\nmode = "generate"\nbatch = 1\nprecision = "bf16-weights"\nruntime = "torchao-{}"'
    host = machine(nvidia_host, ("NVIDIA B200", capability))
    skip = why(host, 'torch = "2.15.0"\ncuda = "13.2"', text.format("mxfp4"))
    assert skip is None if fits else skip and "compute capability 10.0 and before 11.0" in skip.reason
    assert (why(host, 'torch = "2.15.0"\ncuda = "13.2"', text.format("nvfp4")) is None) == (capability != "9.0")


@pytest.mark.parametrize(("capability", "fits"), [("9.0", False), ("10.0", True), ("12.0", True)])
def test_a_product_in_float4_is_for_blackwell_and_a_model_has_none(nvidia_host: Host, capability: str, fits: bool) -> None:
    host, product = machine(nvidia_host, ("NVIDIA B200", capability)), 'model = "gemm"\nprecision = "nvfp4"'
    skip = why(host, CUDA, product)
    assert skip is None if fits else skip and "compute capability 10.0 or newer" in skip.reason
    skip = why(host, CUDA, 'model = "resnet18"\nbatch = 1\nprecision = "nvfp4"')
    assert skip and "of a product alone" in skip.reason and "torchao-nvfp4" in skip.fix


def test_products_in_float8_are_tried_on_gpus_of_amd(amd_host: Host) -> None:
    for precision, fits in (("fp8", True), ("nvfp4", False)):
        skip = why(amd_host, 'torch = "2.5.1"\nrocm = "6.2"', f'model = "gemm"\nprecision = "{precision}"')
        assert (skip is None) == fits


def test_float8_is_refused_on_gpus_of_amd(amd_host: Host) -> None:
    skip = why(amd_host, 'torch = "2.5.1"\nrocm = "6.2"', 'model = "bert-tiny"\nbatch = 1\nprecision = "fp8"')
    assert skip and "needs a GPU of NVIDIA" in skip.reason


def test_a_smaller_gpu_holds_weights_in_half_precision(nvidia_host: Host) -> None:
    half = 'model = "bert-large-cased"\nbatch = 1\nprecision = "bf16-weights"'
    small = machine(nvidia_host, A100, memory_bytes=332_531_714 * 8 + 1)
    assert why(small, CUDA, half) is None
    for larger in ("amp-bf16", "bf16-master"):
        assert why(small, CUDA, half.replace("bf16-weights", larger)) is not None


@pytest.mark.parametrize(
    "image", ["nvcr.io/nvidia/pytorch:24.05-py3-igpu", f"nvcr.io/nvidia/tensorrt:24.08-py3-igpu@sha256:{'0' * 64}"]
)
def test_an_image_for_integrated_gpus_is_a_skip_on_x86_with_the_one_beside_it(nvidia_host: Host, image: str) -> None:
    host = machine(nvidia_host, A100)
    skip = why(host, f'image = "{image}"')
    assert skip and skip.reason == f"{image} is for integrated GPUs (Jetson, IGX Orin: aarch64); this machine is x86_64"
    assert skip.fix == f'use the image for other GPUs: image = "{image.partition("-igpu")[0]}"'
    assert why(replace(host, architecture="aarch64"), f'image = "{image}"') is None
    assert why(host, 'image = "example.org/own:1-igpu"\naccelerator = "cuda"') is None, "whoever made it knows what it means"


def test_wheels_that_are_pinned_for_another_architecture_are_a_skip(nvidia_host: Host) -> None:
    host, address = machine(nvidia_host, A100), "https://wheels.example"
    names = [
        f"{name}%2Bcu126-cp312-cp312-linux_aarch64.whl#sha256={'0' * 64}" for name in ("torch-2.9.dev1", "torchvision-1.dev1")
    ]
    stack = f"wheels = {[f'{address}/{name}' for name in names]}"
    skip = why(host, stack)
    assert skip and skip.reason == "its wheels are for aarch64; this machine is x86_64" and "pin those" in skip.fix
    assert why(replace(host, architecture="aarch64"), stack) is None


def test_an_interpreter_of_this_machine_is_not_measured_as_if_it_were_on_the_engines(cpu_host: Host) -> None:
    stack, workload = 'python = "/usr/bin/python3"\naccelerator = "cpu"', f'device = "cpu"\n{RESNET}'
    assert why(cpu_host, stack, workload) is None
    skip = why(cpu_host, stack, workload, Prerequisites(containers=True, elsewhere=True))
    assert skip and "the container engine runs on another" in skip.reason and "--engine local" in skip.fix
    assert why(cpu_host, 'torch = "2.5.1"\ncpu = true', workload, Prerequisites(containers=True, elsewhere=True)) is None


GH200, ARM_A100, THOR = ("NVIDIA GH200 480GB", "9.0"), ("NVIDIA A100", "8.0"), ("NVIDIA Thor", "11.0")


@pytest.mark.parametrize(
    ("gpu", "torch", "cuda", "reason", "nearest"),
    [
        (GH200, "2.5.1", "12.1", "torch 2.5.1 has no cu121 wheels for aarch64", 'torch = "2.6.0", cuda = "12.6"'),
        (GH200, "2.5.1", "12.4", "torch 2.5.1 has no cu124 wheels for aarch64", 'torch = "2.6.0", cuda = "12.6"'),
        (GH200, "2.7.1", "12.6", "torch 2.7.1 has no cu126 wheels for aarch64", 'torch = "2.7.1", cuda = "12.8"'),
        (GH200, "2.7.1", "12.8", "", ""),
        (GH200, "2.15.0", "13.0", "", ""),
        (ARM_A100, "2.6.0", "12.6", "torch 2.6.0+cu126 has no code for NVIDIA A100 (8.0)", 'torch = "2.9.0", cuda = "12.6"'),
        (ARM_A100, "2.9.1", "12.6", "", ""),
        (THOR, "2.9.1", "12.8", "torch 2.9.1+cu128 has no code for NVIDIA Thor (11.0)", 'torch = "2.9.1", cuda = "13.0"'),
        (THOR, "2.15.0", "13.0", "", ""),
        (("NVIDIA GB10", "12.1"), "2.9.1", "12.8", "", ""),
        (("NVIDIA L40S", "8.9"), "2.15.0", "13.0", "", ""),
        (("Tesla T4", "7.5"), "2.15.0", "13.0", "torch 2.15.0+cu130 has no code for Tesla T4 (7.5)", None),
    ],
)  # fmt: skip
def test_an_arm_machine_runs_the_wheels_that_are_made_for_it(
    nvidia_host: Host, gpu: tuple[str, str], torch: str, cuda: str, reason: str, nearest: str | None
) -> None:
    arm = replace(machine(nvidia_host, gpu), architecture="aarch64")
    skip = why(arm, f'torch = "{torch}"\ncuda = "{cuda}"')
    assert (skip.reason if skip else "") == reason
    if skip and nearest:
        assert skip.fix == f"the nearest that has: {nearest}"
        keys = nearest.replace(", ", "\n")
        assert why(arm, keys) is None, "the fix itself runs"


def test_the_wheels_of_another_index_may_be_for_any_machine(nvidia_host: Host) -> None:
    arm = replace(machine(nvidia_host, GH200), architecture="aarch64")
    assert why(arm, 'torch = "2.5.1"\ncuda = "12.4"\nindex = "https://wheels.example.org/jetson"') is None
