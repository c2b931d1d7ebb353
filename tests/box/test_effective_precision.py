"""The workload's own judgement, on recorded values: effective precision, out of memory in every library's words."""

import pytest

import channel
import failures
from proofs import effective_precision

RECORDED = {
    "fp32": {"matmul": (2.41e-7, "float32"), "convolution": (2.19e-7, "float32")},
    "winograd": {"matmul": (2.41e-7, "float32"), "convolution": (6.0e-6, "float32")},
    "tf32 override": {"matmul": (2.9e-4, "float32"), "convolution": (2.9e-4, "float32")},
    "convolutions only": {"matmul": (2.41e-7, "float32"), "convolution": (2.9e-4, "float32")},
    "bf16 inside float32": {"matmul": (2.3e-3, "float32"), "convolution": (2.19e-7, "float32")},
    "fp16": {"matmul": (3.4e-4, "float16"), "convolution": (3.4e-4, "float16")},
    "bf16": {"matmul": (2.87e-3, "bfloat16"), "convolution": (2.87e-3, "bfloat16")},
    "garbage": {"matmul": (0.7, "float32"), "convolution": (float("nan"), "float32")},
}
"""Relative errors against float64 and result types: measured on a CPU (fp32, bf16), else what rounding to n bits gives."""


@pytest.mark.parametrize(
    ("requested", "recorded", "message"),
    [
        ("fp32", "fp32", None),
        ("fp32", "winograd", None),
        ("fp32", "tf32 override", "convolution computes in tf32 and matmul computes in tf32"),
        ("fp32", "convolutions only", "convolution computes in tf32"),
        ("fp32", "bf16 inside float32", "matmul computes in bf16"),
        ("fp32", "garbage", "convolution computes in wrong and matmul computes in wrong"),
        ("tf32", "tf32 override", None),
        ("tf32", "fp32", "matmul computes in fp32"),
        ("amp", "fp16", None),
        ("amp", "fp32", "matmul computes in fp32"),
        ("amp", "bf16", "matmul computes in bf16"),
        ("amp-bf16", "bf16", None),
        ("amp-bf16", "fp16", "matmul computes in fp16"),
        ("half", "fp16", None),
        ("half", "fp32", "matmul computes in fp32"),
        ("bf16-weights", "bf16", None),
        ("bf16-weights", "bf16 inside float32", "convolution computes in fp32"),
    ],
)
def test_a_setting_that_computes_in_less_than_it_says_is_caught(requested: str, recorded: str, message: str | None) -> None:
    effective = {name: effective_precision.effective(*value) for name, value in RECORDED[recorded].items()}
    problem = effective_precision.problem(requested, effective)
    assert (problem is None) if message is None else (message in problem and f"precision {requested} was requested" in problem)


def test_cudnn_may_choose_a_convolution_more_precise_than_tf32() -> None:
    assert effective_precision.problem("tf32", {"matmul": "tf32", "convolution": "fp32"}) is None


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 79.15 GiB total capacity)"),  # torch 1.12
        RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 63.98 GiB"),
        type("OutOfMemoryError", (RuntimeError,), {})("CUDA out of memory."),  # torch 1.13 and newer
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
        RuntimeError("HIP error: hipErrorOutOfMemory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:114] . DefaultCPUAllocator: can't allocate memory: you tried to allocate"),
        RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 1099511627776 bytes."),
        RuntimeError("NCCL error: unhandled cuda error. Cuda failure 2 'out of memory'"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
        RuntimeError("miopenStatusAllocFailed"),
        OSError(12, "Cannot allocate memory"),
    ],
)
def test_out_of_memory_is_recognised_in_every_librarys_words(error: Exception) -> None:
    assert failures.kind_of(error) == "oom"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("CUDA error: device-side assert triggered"), "crashed"),
        (RuntimeError("Expected all tensors to be on the same device"), "crashed"),
        (channel.Unsupported("no compile"), "unsupported"),
        (RuntimeError("\"slow_conv2d_cpu\" not implemented for 'Half'"), "unsupported"),
        (NotImplementedError("\"addmm_impl_cpu_\" not implemented for 'Half'"), "unsupported"),
        (NotImplementedError("\"embedding\" not implemented for 'Int'"), "crashed"),
        (channel.Numerics("loss"), "numerics"),
    ],
)
def test_other_failures_are_not_out_of_memory(error: Exception, kind: str) -> None:
    assert failures.kind_of(error) == kind
