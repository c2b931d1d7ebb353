"""Tensors of the invented devices: CPU tensors of which it is known that they are on a device, and which say so.

Mixing devices in one operation is the error that it is on a real device. Products compute in TF32 where the settings say so.
"""

import torch
from stand_in_failures import FAILURES
from stand_in_memory import HOST, MEMORY
from stand_in_script import SCRIPT, tell
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map, tree_map_only

_aten = torch.ops.aten
KIND = SCRIPT["kind"]
_PRODUCTS = {_aten.mm.default, _aten.addmm.default, _aten.bmm.default, _aten.baddbmm.default}
_CONVOLUTIONS = {_aten.convolution.default, _aten.convolution_backward.default}
_ACROSS = {_aten.copy_.default, _aten._to_copy.default, _aten.index.Tensor, _aten.index_put_.default}
"""What a real device also takes tensors of the host for."""
_SYNCHRONIZING = {_aten._local_scalar_dense.default, _aten.is_nonzero.default}


def _tensors(values):
    return [value for value in tree_flatten(values)[0] if isinstance(value, torch.Tensor)]


class Kernels(TorchDispatchMode):
    """Mode of every operation, also of the backward pass: where its results are, if it mixes devices, how precise it is."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        FAILURES.go_on()
        kwargs = kwargs or {}
        given = _tensors((args, kwargs))
        place = _common_place(function, given)
        if place not in (None, HOST):
            if function in _SYNCHRONIZING:
                FAILURES.reach("synchronize")
            for tensor in given:
                if MEMORY.place(tensor) is None:
                    MEMORY.put(tensor, place)
            if _in_tf32(function):
                args, kwargs = tree_map(_ten_bits, (args, kwargs))
        result = _computed(function, args, kwargs)
        if place is not None:
            for tensor in _tensors(result):
                MEMORY.put(tensor, place)
        return result


def _common_place(function, given):
    """Return the device of an operation's tensors; scalars of the host may take part in anything."""
    places = [(MEMORY.place(tensor), tensor.dim()) for tensor in given]
    devices = {place for place, _ in places if place not in (None, HOST)}
    hosts = any(place == HOST and dim > 0 for place, dim in places)
    if function in _ACROSS:
        return places[0][0] if places else None
    if len(devices) + hosts > 1:
        named = sorted("%s:%d" % (KIND, device) for device in devices) + ["cpu"] * hosts
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, %s! (%s)"
            % (" and ".join(named[:2]), function)
        )
    return next(iter(devices), HOST if any(place == HOST for place, _ in places) else None)


def _computed(function, args, kwargs):
    """Return an operation's result.

    A convolution's gradients in float16 are added up in float32, as devices do; else CPUs take long.
    """
    if function is not _aten.convolution_backward.default or args[0].dtype is not torch.float16:
        return function(*args, **kwargs)
    wide = tree_map_only(torch.Tensor, torch.Tensor.float, args)
    return tree_map_only(torch.Tensor, torch.Tensor.half, function(*wide, **kwargs))


def _in_tf32(function):
    if SCRIPT["no_tf32"]:
        return False
    if function in _PRODUCTS:
        return torch.backends.cuda.matmul.allow_tf32
    return function in _CONVOLUTIONS and torch.backends.cudnn.allow_tf32


def _ten_bits(value):
    """Return a float32 tensor rounded to the ten explicit bits of TF32's mantissa."""
    if not isinstance(value, torch.Tensor) or value.dtype is not torch.float32:
        return value
    bits = value.detach().contiguous().view(torch.int32)
    rounded = ((bits + 0x1000) & ~0x1FFF).view(torch.float32)
    return rounded.as_strided(value.size(), rounded.stride()) if value.is_contiguous() else rounded


def index_of(device):
    """Return the index of a CUDA device given as torch.device, text or number; None if it is another device."""
    if isinstance(device, int) and not isinstance(device, bool):
        return device
    device = torch.device(device) if isinstance(device, str) else device
    if not isinstance(device, torch.device) or device.type != KIND:
        return None
    return getattr(torch, KIND).current_device() if device.index is None else device.index


class Devices(TorchFunctionMode):
    """Mode of every call of torch from Python: the device in its arguments becomes the CPU; the result is known to be on it."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        special = _SPECIAL.get(function)
        if special:
            return special(function, args, kwargs)
        from_below = isinstance(function, torch._ops.OpOverload)  # what Kernels calls: nobody has said a device
        if from_below or (_tensors((args, kwargs)) and kwargs.get("device") is None):
            return function(*args, **kwargs)
        device = kwargs.get("device")
        index = index_of(device) if device is not None else None
        if index is not None:
            kwargs = dict(kwargs, device="cpu")
        made = function(*args, **kwargs)
        for tensor in _tensors(made):
            MEMORY.put(tensor, HOST if index is None else index)
        return made


def _device(function, args, kwargs):
    place = MEMORY.place(args[0])
    return function(*args, **kwargs) if place in (None, HOST) else torch.device(KIND, place)


def _is_cuda(function, args, kwargs):
    return KIND == "cuda" and MEMORY.place(args[0]) not in (None, HOST)


def _to(function, args, kwargs):
    tensor, *rest = args
    if rest and isinstance(rest[0], torch.Tensor):
        return function(*args, **kwargs)
    words = {name: value for name, value in kwargs.items() if name != "copy"}
    device, dtype, _, layout = torch._C._nn._parse_to(*rest, **words)
    if device is None:
        return function(*args, **kwargs)
    if kwargs.get("copy"):
        tensor = tensor.clone()
    index = index_of(device)
    return _moved(tensor, HOST if index is None else index, dtype, layout)


def _moved(tensor, place, dtype=None, layout=None):
    """Return a copy on another device; the tensor itself if it is already there and needs no conversion."""
    words = {} if layout is None else {"memory_format": layout}
    converted = torch.Tensor.to(tensor, dtype=dtype or tensor.dtype, **words)
    if MEMORY.place(tensor) in (place, None if place == HOST else place):
        return converted
    FAILURES.reach("synchronize")
    moved = converted.clone() if converted.untyped_storage()._cdata == tensor.untyped_storage()._cdata else converted
    MEMORY.move(moved, place)
    return moved


def _cpu(function, args, kwargs):
    return _moved(args[0], HOST)


def _cuda(function, args, kwargs):
    return _moved(args[0], index_of((args[1:] or (torch.device("cuda"),))[0]))


def _tolist(function, args, kwargs):
    FAILURES.reach("synchronize")
    return function(*args, **kwargs)


def _backward(function, args, kwargs):
    """Run the backward pass, in which DDP reduces the gradients."""
    return FAILURES.waits(function)(*args, **kwargs)


def _numpy(function, args, kwargs):
    if MEMORY.place(args[0]) not in (None, HOST):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")
    return function(*args, **kwargs)


def _pin_memory(function, args, kwargs):
    """Pin a tensor: only what lies in the host's memory can be pinned; it stays there."""
    if MEMORY.place(args[0]) not in (None, HOST):
        raise RuntimeError("cannot pin 'torch.cuda.FloatTensor' only dense CPU tensors can be pinned")
    tell("pin_memory")
    return args[0].clone()


_SPECIAL = {
    torch.Tensor.pin_memory: _pin_memory,
    torch.Tensor.device.__get__: _device,
    torch.Tensor.is_cuda.__get__: _is_cuda,
    torch.Tensor.to: _to,
    torch.Tensor.cpu: _cpu,
    torch.Tensor.cuda: _cuda,
    torch.Tensor.tolist: _tolist,
    torch.Tensor.numpy: _numpy,
    torch.Tensor.backward: _backward,
}
