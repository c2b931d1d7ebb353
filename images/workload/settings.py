"""The settings of torch that decide what a step computes, or how fast: read before and after what is timed, and in a step."""

import torch

import devices
import precision
from channel import Unsupported

_DECIDED = ("float32_matmul_precision", "fp32_precision", "autocast")
"""What the matrix decides on every kind of device."""


def read():
    """Each by its name; None where this torch has none such, or doesn't tell."""
    return {name: _or_none(get) for name, get in _SETTINGS.items()}


def differences(own, now):
    """By name, what differs: (own, now)."""
    return {name: _narrowed(own[name], now[name]) for name in own if name in now and own[name] != now[name]}


def _narrowed(own, now):
    """Of settings by place, only those that differ."""
    if not isinstance(own, dict) or not isinstance(now, dict):
        return own, now
    differ = [place for place in own if own[place] != now.get(place)]
    return {place: own[place] for place in differ}, {place: now.get(place) for place in differ}


def refuse(changed, device):
    """Raise Unsupported if a setting has `changed` (differences) that the matrix decides: a figure would have a wrong name."""
    wrong = [
        "%s from %s to %s" % (name, *changed[name]) for name in (*_DECIDED, *devices.of(device).decided) if name in changed
    ]
    if wrong:
        text = "the model's code, or a library that it uses, changes %s, which the matrix decides: leave it out there"
        raise Unsupported(text % " and ".join(wrong))


def in_words(changed):
    """One line for each."""
    return ["%s: %s, then %s" % (name, *pair) for name, pair in sorted(changed.items())]


def _or_none(get):
    try:
        return get()
    except (AttributeError, AssertionError, RuntimeError):  # RuntimeError: from 2.9 on, where old and new names contradict
        return None


def _fp32_precision():
    """By backend and operation, as torch 2.9 and newer have it; of "none", what stands above counts."""
    backends = torch.backends
    places = {"all": backends, "cuda.matmul": backends.cuda.matmul}
    for name in ("cudnn", "mkldnn"):
        places.update({"%s.%s" % (name, kind): getattr(getattr(backends, name), kind) for kind in ("conv", "rnn")})
    places["mkldnn.matmul"] = backends.mkldnn.matmul
    return {name: place.fp32_precision for name, place in places.items()}


def _autocast():
    return {kind: precision.autocast_type(kind) for kind in ("cpu", "cuda")}


_SETTINGS = {
    "threads": torch.get_num_threads,
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
