"""The settings of torch that decide what a step computes, or how fast: read before and after what is timed, and in a step."""

import os

import torch

import devices
import precision
from channel import Unsupported

_DECIDED = ("float32_matmul_precision", "fp32_precision", "autocast")
"""Settings that the matrix decides on every kind of device."""


def read():
    """Return the value of each setting by its name; None where this torch lacks the setting, or can't report it."""
    return {name: _read_or_none(get) for name, get in _SETTINGS.items()}


def differences(before, now):
    """Return (before, now) of each setting that differs, by its name."""
    return {name: _narrow(before[name], now[name]) for name in before if name in now and before[name] != now[name]}


def _narrow(before, now):
    """Keep only the places that differ, of a setting that has a value for each place."""
    if not isinstance(before, dict) or not isinstance(now, dict):
        return before, now
    differ = [place for place in before if before[place] != now.get(place)]
    return {place: before[place] for place in differ}, {place: now.get(place) for place in differ}


def refuse(changed, device):
    """Raise Unsupported if a setting has `changed` (differences) that the matrix decides: a figure would have a wrong name."""
    wrong = [
        "%s from %s to %s" % (name, *changed[name]) for name in (*_DECIDED, *devices.of(device).decided) if name in changed
    ]
    if wrong:
        text = "the model's code, or a library that it uses, changes %s, which the matrix decides: leave it out there"
        raise Unsupported(text % " and ".join(wrong))


def in_words(changed):
    """Describe each setting that has `changed` (differences) on a line."""
    return ["%s: %s, then %s" % (name, *pair) for name, pair in sorted(changed.items())]


def _read_or_none(get):
    try:
        return get()
    except (AttributeError, AssertionError, RuntimeError):  # RuntimeError: from 2.9 on, where old and new names contradict
        return None


def _fp32_precision():
    """Return fp32_precision by backend and operation, in torch 2.9 and newer; where it is "none", the level above counts."""
    backends = torch.backends
    places = {"all": backends, "cuda.matmul": backends.cuda.matmul}
    for name in ("cudnn", "mkldnn"):
        places.update({"%s.%s" % (name, layer): getattr(getattr(backends, name), layer) for layer in ("conv", "rnn")})
    places["mkldnn.matmul"] = backends.mkldnn.matmul
    return {name: place.fp32_precision for name, place in places.items()}


def _autocast():
    return {kind: precision.autocast_type(kind) for kind in ("cpu", "cuda")}


_SETTINGS = {
    "threads": torch.get_num_threads,
    "cpus": lambda: sorted(os.sched_getaffinity(0)),
    "default_dtype": lambda: str(torch.get_default_dtype()).replace("torch.", ""),
    "matmul_allow_tf32": lambda: torch.backends.cuda.matmul.allow_tf32,
    "cudnn_allow_tf32": lambda: torch.backends.cudnn.allow_tf32,
    "float32_matmul_precision": lambda: torch.get_float32_matmul_precision(),
    "fp32_precision": _fp32_precision,
    "fp16_reduced_precision_reduction": lambda: torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction,
    "bf16_reduced_precision_reduction": lambda: torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction,
    "autocast": _autocast,
    "cudnn_benchmark": lambda: torch.backends.cudnn.benchmark,
    "cudnn_deterministic": lambda: torch.backends.cudnn.deterministic,
    "cudnn_enabled": lambda: torch.backends.cudnn.enabled,
    "mkldnn_enabled": lambda: torch.backends.mkldnn.enabled,
    "deterministic_algorithms": torch.are_deterministic_algorithms_enabled,
    "anomaly_detection": torch.is_anomaly_enabled,
    "flash_attention": lambda: torch.backends.cuda.flash_sdp_enabled(),
    "memory_efficient_attention": lambda: torch.backends.cuda.mem_efficient_sdp_enabled(),
    "math_attention": lambda: torch.backends.cuda.math_sdp_enabled(),
}
