"""Tables as they are published: Lambda's wide ones, timm's, a column per number of GPUs; names of GPUs; unreadable lines."""

from pathlib import Path

import pytest

from torchmatrix.analysis import gpu_specs
from torchmatrix.analysis.published import audit, figure_files
from torchmatrix.analysis.published.figure_files import Unparsed
from torchmatrix.core.errors import BadInput

LAMBDA = """name_gpu,num_gpu,watt,price,ssd,bert_base_squad,ncf,resnet50
A100 80GB SXM4,1.0,400.0,16250.0,400.0,440.0,50000000.0,1500.0
LambdaCloud 8x A100 80GB SXM4,8.0,3200.0,130000.0,0.0,4400.0,395000000.0,11700.0
LambdaCloud 4xV100 16GB,4,1200,39750.0,,637,,3107
"""
"""Rows in Lambda's form; the figures are invented."""
TIMM = """model,train_samples_per_sec,train_step_time,train_batch_size,train_img_size,param_count,train_gmacs
resnet50,1200.5,419.528,512,224,25.56,4.1
vit_huge,9000.1,56.9,512.0,224,630.0,160.0
resnet18,n/a,1.0,512,224,11.69,1.8
"""


def write(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text)
    return folder / name


@pytest.mark.parametrize(
    ("text", "count", "gpu", "rest", "name"),
    [
        ("8x A100 80GB SXM4", 8, "A100 80GB SXM4", "", "A100 80GB SXM4"),
        ("LambdaCloud 8x A100 80GB SXM4", 8, "A100 80GB SXM4", "LambdaCloud", "A100 80GB SXM4"),
        ("LambdaCloud 4xV100 16GB", 4, "V100 16GB", "LambdaCloud", ""),  # SXM2 or PCIe: not said
        ("1CC 2x H100 80GB SXM5", 2, "H100 80GB SXM5", "1CC", "H100 SXM5 80GB"),
        ("H100 80GB PCIe Gen5", None, "H100 80GB PCIe Gen5", "", "H100 PCIe 80GB"),
        (
            "LambdaOD_2x_Texas_H100_80GB_SXM5_10-1-2-3_v2",
            None,
            "H100 80GB SXM5",
            "LambdaOD 2x Texas 10 1 2 3 v2",
            "H100 SXM5 80GB",
        ),
        ("A100 80GB SXM4 (DGX A100)", None, "A100 80GB SXM4", "(DGX A100)", "A100 80GB SXM4"),
        ("NVIDIA A100-SXM4-80GB", None, "NVIDIA A100-SXM4-80GB", "", "A100 80GB SXM4"),
        ("2x2080Ti_trt", 2, "2080Ti", "trt", "GeForce RTX 2080 Ti"),
        ("rtx3090", None, "rtx3090", "", "GeForce RTX 3090"),
        ("RTX 4090 24GB", None, "RTX 4090 24GB", "", "GeForce RTX 4090"),
        ("2x RTX 6000 Ada", 2, "RTX 6000 Ada", "", "RTX 6000 Ada"),
        ("Quadro RTX 6000", None, "Quadro RTX 6000", "", ""),
        ("A100", None, "A100", "", ""),  # four cards are called so
        ("RTX 3090 12GB", None, "RTX 3090 12GB", "", ""),
        ("4x Accelerator of ours", 4, "Accelerator of ours", "", ""),
        ("CPU i9_10940x", None, "CPU i9_10940x", "", ""),
        # counts
        ("8x NVIDIA H100 80GB HBM3", 8, "NVIDIA H100 80GB HBM3", "", "H100 SXM5 80GB"),
        ("2 × RTX 4090", 2, "RTX 4090", "", "GeForce RTX 4090"),
        ("4*L40S", 4, "L40S", "", "L40S"),
        ("H100 x8", 8, "H100", "", ""),
        ("NVIDIA H100 80GB HBM3 x8", 8, "NVIDIA H100 80GB HBM3", "", "H100 SXM5 80GB"),
        ("RTX4090x2", 2, "RTX4090", "", "GeForce RTX 4090"),
        ("A100X x4", 4, "A100X", "", ""),
        ("H100 PCIe (8 GPUs)", 8, "H100 PCIe", "", "H100 PCIe 80GB"),
        ("8 GPUs: A100 80GB PCIe", 8, "A100 80GB PCIe", "", "A100 80GB PCIe"),
        ("8 NVIDIA L4", 8, "NVIDIA L4", "", "L4"),
        ("4x NVIDIA A100-SXM4-80GB on one node", 4, "NVIDIA A100 SXM4 80GB", "on one node", "A100 80GB SXM4"),
        ("2x 8x H100 PCIe", None, "H100 PCIe", "2x", "H100 PCIe 80GB"),  # 8, 10 or 16
        ("4x L4 x2", None, "L4", "", "L4"),
        ("2 nodes x 8 H100 PCIe", None, "H100 PCIe", "2 nodes", "H100 PCIe 80GB"),  # 16; of "8x L4 (2 nodes)" nobody knows
        ("8x L4 (2 nodes)", None, "L4", "(2 nodes)", "L4"),
        ("8x L4 (1 node)", 8, "L4", "(1 node)", "L4"),
        # drivers' names
        ("8x AMD Instinct MI300X OAM", 8, "AMD Instinct MI300X OAM", "", "Instinct MI300X"),
        ("2x NVIDIA RTX 6000 Ada Generation", 2, "NVIDIA RTX 6000 Ada Generation", "", "RTX 6000 Ada"),
        ("Tesla V100-SXM2-32GB x16", 16, "Tesla V100 SXM2 32GB", "", "V100 SXM2 32GB"),
        ("RTX 4090 24GB GDDR6X", None, "RTX 4090 24GB GDDR6X", "", "GeForce RTX 4090"),
        ("8x H100 SXM", 8, "H100 SXM", "", "H100 SXM5 80GB"),
        ("H200 141GB", None, "H200 141GB", "", "H200 SXM"),  # as drivers call it; the other is the H200 NVL
        ("B200 180GB", None, "B200 180GB", "", "B200 SXM"),
        ("8x B300", 8, "B300", "", "B300 SXM"),
        ("MI325X OAM", None, "MI325X OAM", "", "Instinct MI325X"),
        ("H100 80GB", None, "H100 80GB", "", ""),
        ("V100 SXM", None, "V100 SXM", "", ""),
        ("B200 192GB", None, "B200 192GB", "", ""),
        # other products
        ("RTX 4090 Laptop GPU", None, "RTX 4090 Laptop GPU", "", ""),
        ("4x GeForce RTX 4090 (Laptop)", 4, "GeForce RTX 4090 laptop", "(Laptop)", ""),
        ("Mobile RTX 3090", None, "RTX 3090 mobile", "Mobile", ""),
        ("rtx_4090_d", None, "rtx 4090 d", "d", ""),
        ("RTX 3090 Max-Q", None, "RTX 3090 Max Q", "", ""),
        ("RTX 4090 D", None, "RTX 4090 D", "", ""),
        ("2x RTX 4090D", 2, "RTX 4090D", "", ""),
        ("RTX 4090 SUPER", None, "RTX 4090 SUPER", "", ""),
        ("RTX 3090 Ti", None, "RTX 3090 Ti", "", "GeForce RTX 3090 Ti"),
        ("RTX 3090 WX", None, "RTX 3090 WX", "", ""),  # a word that nobody knows
        ("H100 80GB HBM2e", None, "H100 80GB HBM2e", "", ""),
        ("NVIDIA A100-SXM4-80GB MIG 3g.40gb", None, "NVIDIA A100 SXM4 80GB MIG 3g.40gb", "", ""),
        ("RTX A5000-8Q", None, "RTX A5000 8Q", "", ""),
        ("RTX 3090 + RTX 4090", None, "RTX 3090 + RTX 4090", "", ""),
        ("RTX 3090/4090", None, "RTX 3090/4090", "", ""),
        # parts of one
        ("H200 (1g.18gb)", None, "H200 1g.18gb", "(1g.18gb)", ""),
        ("1/7 H200", None, "H200 1/7", "1/7", ""),
        ("MI300X (CPX/NPS4)", None, "MI300X cpx", "(CPX/NPS4)", ""),
        ("MI250X (1 GCD)", None, "MI250X gcd", "(1 GCD)", ""),
        ("L40S (vGPU 24Q)", None, "L40S vgpu 24q", "(vGPU 24Q)", ""),
        # numbers that are cut off, or the lanes of a link
        ("1,024x H200", None, "H200", "1,024x", "H200 SXM"),
        ("RTX 3090 Gen4 x8", None, "RTX 3090 Gen4", "x8", "GeForce RTX 3090"),
        ("A100 80GB PCIe x16", None, "A100 80GB PCIe", "x16", "A100 80GB PCIe"),
        ("A100 80GB PCIe x8", 8, "A100 80GB PCIe", "", "A100 80GB PCIe"),
    ],
)
def test_a_gpu_is_found_in_what_people_write_and_never_guessed(
    text: str, count: int | None, gpu: str, rest: str, name: str
) -> None:
    name_parts = gpu_specs.split_name(text)
    assert (name_parts.gpu, name_parts.count, name_parts.rest) == (gpu, count, rest)
    facts = gpu_specs.find_published(name_parts.gpu)
    assert (facts.name if facts else "") == name


def test_lambdas_table_has_a_figure_per_column(tmp_path: Path) -> None:
    taken = figure_files.take(write(tmp_path, "pytorch-train-throughput-fp16.csv", LAMBDA))
    assert [(f.row, f.column, f.throughput) for f in taken.figures] == [
        (2, "ssd", 400.0), (2, "bert_base_squad", 440.0), (2, "ncf", 50e6), (2, "resnet50", 1500.0),
        (3, "bert_base_squad", 4400.0), (3, "ncf", 395e6), (3, "resnet50", 11700.0),
        (4, "bert_base_squad", 637.0), (4, "resnet50", 3107.0),
    ]  # fmt: skip
    assert taken.unparsed == (
        Unparsed(row=3, column="ssd", text="0.0", why="is not a number above 0"),
        Unparsed(row=4, column="ssd", text="", why="no throughput"),
        Unparsed(row=4, column="ncf", text="", why="no throughput"),
    )
    eight = taken.figures[6]
    assert (eight.gpu, eight.gpus, eight.machine) == ("A100 80GB SXM4", 8, "LambdaCloud")
    assert (eight.model, eight.mode, eight.precision, eight.published_precision) == ("resnet50", "train", "amp", "fp16")
    assert (eight.unit, eight.image_size, eight.batch_per_gpu, eight.rounding) == ("images/s", 224, None, 0.5)
    bert = taken.figures[4]
    assert (bert.model, bert.unit, bert.sequence_length) == ("bert-base-cased", "sequences/s", 384)
    assert taken.figures[2].unit == "" and taken.figures[2].published_model == "ncf"
    assert (taken.figures[8].gpu, taken.figures[8].published_gpu, taken.figures[8].machine) == ("", "V100 16GB", "LambdaCloud")


def test_a_row_of_lambdas_that_says_two_numbers_of_gpus_is_not_one_gpu(tmp_path: Path) -> None:
    names = ("2x 8x L4", "L4 on 4 nodes", "Dual L4", "L4 (8)", "2/8x L4", "2x L4", "Dual EPYC 2x L4", "L4")
    table = "".join(("name_gpu,resnet50\n", *(f"{name},1500\n" for name in names)))
    taken = figure_files.take(write(tmp_path, "pytorch-train-throughput-fp16.csv", table))
    assert [figure.gpus for figure in taken.figures] == [None, None, None, None, None, 2, 2, 1]


def test_lambdas_batches_beside_are_read_and_its_fp32_is_tf32_where_there_is_one(tmp_path: Path) -> None:
    write(
        tmp_path,
        "pytorch-train-bs-fp32.csv",
        LAMBDA.split("\n")[0] + "\nLambdaCloud 8x A100 80GB SXM4,8,1,1,1,2560,1,10240.0\n",
    )
    figures = figure_files.take(write(tmp_path, "pytorch-train-throughput-fp32.csv", LAMBDA)).figures
    assert [(f.column, f.batch_per_gpu) for f in figures if f.row == 3] == [
        ("bert_base_squad", 320), ("ncf", None), ("resnet50", 1280),
    ]  # fmt: skip
    assert {(f.published_gpu, f.precision) for f in figures} == {("A100 80GB SXM4", "tf32"), ("V100 16GB", "fp32")}


def test_lambdas_impossible_figure_is_found_with_its_column(tmp_path: Path) -> None:
    figures = figure_files.take(write(tmp_path, "pytorch-train-throughput-fp16.csv", LAMBDA)).figures
    (finding,) = [finding for finding in audit.check(figures) if finding.level == "impossible"]
    assert (finding.row, finding.column, finding.value, finding.unit) == (3, "bert_base_squad", "4400", "sequences/s")
    assert "8 GPUs at an efficiency of 1.250 over row 2, bert_base_squad (440 on one GPU)" in finding.reason


def test_lambdas_file_of_batches_is_no_table_of_throughputs(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="batch sizes") as error:
        figure_files.take(write(tmp_path, "pytorch-train-bs-fp16.csv", LAMBDA))
    assert "pytorch-train-throughput-fp16.csv" in error.value.hint


def test_timms_results_say_most_by_the_files_name(tmp_path: Path) -> None:
    taken = figure_files.take(write(tmp_path, "benchmark-train-amp-nhwc-pt210-cu121-rtx3090.csv", TIMM))
    resnet, vit = taken.figures
    assert (resnet.vendor, resnet.model, resnet.mode, resnet.throughput, resnet.unit) == (
        "timm", "resnet50", "train", 1200.5, "images/s",
    )  # fmt: skip
    assert (resnet.gpu, resnet.gpus, resnet.precision, resnet.memory_format) == ("GeForce RTX 3090", 1, "amp", "nhwc")
    assert (resnet.torch, resnet.compile, resnet.batch_per_gpu, resnet.image_size) == ("2.1.0+cu121", False, 512, 224)
    assert (resnet.rounding, resnet.forward_flops) == (0.005, pytest.approx(8.2e9))
    assert (vit.model, vit.published_model, vit.batch_per_gpu) == ("", "vit_huge", 512)
    text = "n/a"
    assert taken.unparsed == (Unparsed(row=4, column="train_samples_per_sec", text=text, why="is not a number above 0"),)


def test_timms_own_gmacs_are_held_against_the_peak(tmp_path: Path) -> None:
    figures = figure_files.take(write(tmp_path, "benchmark-train-amp-nhwc-pt112-cu113-rtx3090.csv", TIMM)).figures
    (finding,) = audit.check(figures)
    # 9000.1 images/s x 3 x 2 x 160 GMACs; the card's peak with fp32 accumulation is 71 TFLOP/s
    assert (finding.row, finding.level, finding.limit) == (3, "impossible", "71 TFLOP/s") and "8640 TFLOP/s" in finding.reason


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("benchmark-infer-amp-nchw-pt291-cu130-5090-dynamo.csv", ("GeForce RTX 5090", 1, "amp", "nchw", "2.9.1+cu130", True)),
        ("benchmark-infer-amp_bf16-nchw-pt291-cu130-pro6000maxq.csv", ("", 1, "amp-bf16", "nchw", "2.9.1+cu130", False)),
        ("benchmark-infer-fp32-nchw-pt240-cpu-i9_10940x-dynamo.csv", ("", 0, "fp32", "nchw", "2.4.0", True)),
        ("benchmark-infer-amp-nhwc-pt113-cu117-rtx3090.csv", ("GeForce RTX 3090", 1, "amp", "nhwc", "1.13+cu117", False)),
        ("model_benchmark_amp_nchw_rtx3090.csv", ("GeForce RTX 3090", 1, "amp", "nchw", "", None)),
        ("renamed.csv", ("", 1, "", "", "", None)),
    ],
)
def test_each_part_of_timms_file_name_is_read(tmp_path: Path, name: str, parts: tuple[object, ...]) -> None:
    (figure,) = figure_files.take(
        write(tmp_path, name, "model,infer_samples_per_sec,infer_batch_size\nresnet50,2695.53,1024.0\n")
    ).figures
    assert (figure.gpu, figure.gpus, figure.precision, figure.memory_format, figure.torch, figure.compile) == parts
    assert (figure.mode, figure.batch_per_gpu) == ("infer", 1024)


def test_a_column_per_number_of_gpus(tmp_path: Path) -> None:
    text = "framework,gpu,precision,model,batch_size_per_gpu,imgs_1gpu,imgs_2gpu,imgs_8gpu\n"
    text += "tf,RTX 3090,fp16,resnet50,64,1026.83,1828.21,\ntf,RTX 3090,fp16,resnet50,128,1126.66,many,9999.9\n"
    taken = figure_files.take(write(tmp_path, "t.csv", text))
    assert [(f.row, f.column, f.gpus, f.throughput, f.batch_per_gpu) for f in taken.figures] == [
        (2, "imgs_1gpu", 1, 1026.83, 64), (2, "imgs_2gpu", 2, 1828.21, 64),
        (3, "imgs_1gpu", 1, 1126.66, 128), (3, "imgs_8gpu", 8, 9999.9, 128),
    ]  # fmt: skip
    assert taken.unparsed == (Unparsed(row=3, column="imgs_2gpu", text="many", why="is not a number above 0"),)
    (finding,) = [finding for finding in audit.check(taken.figures) if finding.field == "throughput"]
    assert (finding.column, finding.level) == ("imgs_8gpu", "impossible") and "efficiency of 1.109" in finding.reason


def test_counts_and_batches_may_be_written_as_floats_or_stand_in_the_name(tmp_path: Path) -> None:
    text = "gpu,n_gpus,model,throughput,batch_size_per_gpu,global_batch_size\n"
    text += "A100 80GB SXM4,1.0,resnet50,2400.5,1024.0,\n8x A100 80GB SXM4,,resnet50,18000.5,,8192\n"
    text += 'A100 80GB SXM4,2,resnet50,"4,700.5",,\nA100 80GB SXM4,,resnet50,9000.5,,\n'
    figures = figure_files.take(write(tmp_path, "t.csv", text)).figures
    assert [(f.gpus, f.batch_per_gpu, f.throughput) for f in figures] == [
        (1, 1024, 2400.5), (8, 1024, 18000.5), (2, None, 4700.5), (None, None, 9000.5),
    ]  # fmt: skip
    assert {f.gpu for f in figures} == {f.published_gpu for f in figures} == {"A100 80GB SXM4"}


def test_what_cant_be_read_is_listed_and_the_rest_is_kept(tmp_path: Path) -> None:
    text = "gpu,gpus,model,throughput,batch_per_gpu\na,1,b,fast,1\na,1,b,5.5,2.5\na,2+,b,5.5,1\na,1,b,5.5\n"
    text += "8x A100 80GB SXM4,4,b,5.5,1\na,1,b,,1\na,1,b,5.5,1\n"
    taken = figure_files.take(write(tmp_path, "t.csv", text))
    assert [figure.row for figure in taken.figures] == [8]
    assert [str(problem) for problem in taken.unparsed] == [
        'row 2, throughput: "fast" is not a number above 0',
        'row 3, batch_per_gpu: "2.5" is not a whole number of at least 1',
        'row 4, gpus: "2+" is not a whole number of at least 0',
        "row 5: not as many fields as the header",
        'row 6, gpus: "4" contradicts the name, which says 8',
        "row 7: no throughput",
    ]


def test_a_hostile_text_cant_steer_the_terminal(tmp_path: Path) -> None:
    text = "gpu,gpus,model,throughput\na,1,b,\x1b[2J\u202e5\n"
    with pytest.raises(BadInput) as error:
        figure_files.take(write(tmp_path, "t.csv", text))
    assert str(error.value).isprintable()


def test_a_file_without_any_figure_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"t\.csv has no figure that can be read; the first: row 2, throughput"):
        figure_files.take(write(tmp_path, "t.csv", "gpu,gpus,model,throughput\na,1,b,fast\n"))
    with pytest.raises(BadInput, match="has no column model"):
        figure_files.take(write(tmp_path, "benchmark-train-x.csv", "name,train_samples_per_sec\nb,1.5\n"))
    with pytest.raises(BadInput, match="has no column gpu"):
        figure_files.take(write(tmp_path, "counts.csv", "model,imgs_1gpu\nb,1.5\n"))
    with pytest.raises(BadInput, match='two columns "gpu"'):
        figure_files.take(write(tmp_path, "twice.csv", "gpu,gpu,model,throughput\na,a,b,1.5\n"))
    with pytest.raises(BadInput, match="no column throughput") as error:
        figure_files.take(write(tmp_path, "claims.csv", "claim,value,gpu,model\nscale factor,0.9,A100,resnet50\n"))
    assert "docs/audit.md" in error.value.hint
