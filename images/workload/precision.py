"""Make each precision mean what it says: every setting is set explicitly, in each version of torch.

fp32: IEEE single precision, TF32 off for matmul and for convolutions.
tf32: TF32 on for both (NVIDIA Ampere and newer).
amp: autocast to float16 with a GradScaler when training. amp-bf16: autocast to bfloat16, no scaler.
fp8 and the other names in recipes.py: as amp-bf16, and the products of linear layers are in float8; training only.
half, bf16-weights: the weights and the inputs are float16 or bfloat16; no autocast, no scaler.
bf16-master: as bf16-weights, and the optimizer keeps the weights in float32 (masters.py); training only.
All but tf32 keep TF32 off, so that what stays in float32 is float32. Reductions in half precision stay allowed, as in
stock torch.
"""

import contextlib
import importlib

import torch

import devices
from channel import Unsupported
from recipes import FLOAT8, TRANSFORMER_ENGINE, is_of_transformer_engine

_AUTOCAST = {"amp": torch.float16, "amp-bf16": torch.bfloat16, **dict.fromkeys(FLOAT8, torch.bfloat16)}
_WEIGHTS = {"half": torch.float16, "bf16-weights": torch.bfloat16, "bf16-master": torch.bfloat16}


def product_type(name):
    """Return the type of the operands of products, but for float8 and what a runtime quantizes."""
    return _AUTOCAST.get(name) or _WEIGHTS.get(name) or torch.float32


def set_knobs(name, device):
    """Set TF32 on or off for matmul and convolutions; raise Unsupported if the device can't do `name`."""
    lack = devices.of(device).lack(name)
    if lack:
        raise Unsupported(lack)
    mode = "tf32" if name == "tf32" else "ieee"
    torch.set_float32_matmul_precision("highest")  # also keeps oneDNN from using bfloat16 for float32 products on a CPU
    torch.backends.cuda.matmul.allow_tf32 = mode == "tf32"
    torch.backends.cudnn.allow_tf32 = mode == "tf32"
    if hasattr(torch.backends, "fp32_precision"):  # 2.9 and newer; must agree with the older names, which are still read
        _set_by_operation(mode)
    _set_if_known(torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", True)
    _set_if_known(torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", True)


def _set_by_operation(mode):
    backends = torch.backends
    backends.fp32_precision = "ieee"
    for operation in (backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn):
        operation.fp32_precision = mode
    for operation in (backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn):
        operation.fp32_precision = "ieee"


def _set_if_known(module, name, value):
    """Set a setting that older versions don't have; some of them answer hasattr with an AssertionError."""
    try:
        getattr(module, name)
    except (AttributeError, AssertionError):
        return
    setattr(module, name, value)


def converted(name, thing):
    """Return a module or a tensor in the type in which `name` keeps weights and inputs; unchanged where that is float32."""
    if name not in _WEIGHTS:
        return thing
    tensors = [thing] if torch.is_tensor(thing) else [*thing.parameters(), *thing.buffers()]
    if any(tensor.is_complex() for tensor in tensors):
        raise Unsupported("precision %s keeps all in %s, which has no complex numbers" % (name, _WEIGHTS[name]))
    return in_type(thing, _WEIGHTS[name])


def in_type(thing, dtype):
    """Return a module or a tensor with its real numbers in another type; integers and complex numbers stay as they are."""

    def change(tensor):
        return tensor.to(dtype) if tensor.is_floating_point() else tensor

    return change(thing) if torch.is_tensor(thing) else thing._apply(change)


def autocast(name, device):
    """Return a fresh autocast context for one forward pass; one without effect except for amp, amp-bf16 and float8."""
    if name not in _AUTOCAST:
        return contextlib.nullcontext()
    half = torch.autocast(device_type=devices.of(device).name, dtype=_AUTOCAST[name])
    return _with_transformer_engine(name, half) if is_of_transformer_engine(name) else half


@contextlib.contextmanager
def _with_transformer_engine(name, half):
    """Let Transformer Engine's layers compute in float8 meanwhile; its context was called fp8_autocast before 2.9."""
    engine = importlib.import_module(TRANSFORMER_ENGINE)
    recipes = importlib.import_module("transformer_engine.common.recipe")
    if not hasattr(recipes, FLOAT8[name].name):
        raise Unsupported("this Transformer Engine has no recipe %s" % FLOAT8[name].name)
    recipe = getattr(recipes, FLOAT8[name].name)()
    with half, engine.autocast(recipe=recipe) if hasattr(engine, "autocast") else engine.fp8_autocast(fp8_recipe=recipe):
        yield


def autocast_type(kind):
    """Return the name of the type into which autocast casts on a `kind` of device at this moment; None where it is off."""
    if hasattr(torch, "get_autocast_dtype"):  # 2.4 and newer
        is_on, dtype = torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)
    else:
        on = {"cpu": torch.is_autocast_cpu_enabled, "cuda": torch.is_autocast_enabled}
        dtypes = {"cpu": torch.get_autocast_cpu_dtype, "cuda": torch.get_autocast_gpu_dtype}
        is_on, dtype = on[kind](), dtypes[kind]()
    return str(dtype).replace("torch.", "") if is_on else None


def grad_scaler(name, device):
    """Return the GradScaler of this version of torch, disabled unless `name` is amp (float16)."""
    enabled = name == "amp"
    if hasattr(torch.amp, "GradScaler"):
        return torch.amp.GradScaler(devices.of(device).name, enabled=enabled)
    return torch.cuda.amp.GradScaler(enabled=enabled)
