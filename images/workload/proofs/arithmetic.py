"""What the model that was timed computes in: the types of its weights and of what its products take, beside what was asked.

The probe (effective_precision.py) tells what a product of a given type really computes in; this tells the types. One more
forward pass of the model, in eager mode and after the windows, shows them to a dispatch mode of torch (1.13 and newer; before,
they are unknown, and the weights alone are judged). Numbers are counted, not products: a small one is no matter.
"""

import re

import settings
import sharded
import torch

import failures
import families
import precision
from proofs.effective_precision import QUANTIZED

try:
    from torch.utils._python_dispatch import TorchDispatchMode as _Mode
except ImportError:
    _Mode = object
_CAN_WATCH = hasattr(_Mode, "__enter__")

FEW = 2
"""Items of the batch that suffice."""
MATTERS = 0.01
"""A type that fewer of the numbers have isn't told."""
_PRODUCT = re.compile(
    r"_*(mm|addmm|bmm|baddbmm|addbmm|mv|addmv|dot|vdot|matmul|linear|bilinear|trilinear|int_mm|scaled_mm|addmm_activation"
    r"|\w*convolution\w*|conv\w*\dd|scaled_dot_product\w*|\w*attention\w*|\w*rnn\w*|\w*lstm\w*|\w*gru\w*|weight_int\w+_mm"
    r"|transformer_encoder_layer_fwd)"
)
"""torch's names of operations that multiply and add up."""
_PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_COMPUTES = {"fp32": "float32", "tf32": "float32", "amp": "float16", "half": "float16"}
_KEEPS = {"half": "float16", "bf16-weights": "bfloat16"}


def look(args, world, family, model, batch):
    """The types of `model`, by name and by how many numbers have them, and `settings`: all that a product of it ran under."""
    watched, unknown = _forward(args, world, family, model, batch)
    return {
        "parameters": _counted(model.parameters()),
        "buffers": _counted(model.buffers()),
        "outputs": watched.outputs,
        "products": None if unknown else watched.products,
        "autocast": watched.autocast,
        "unknown": unknown,
    }, watched.settings


def problem(args, types):
    """Why the types don't meet what `args` ask for, or None."""
    for what, counts, expected in _judged(args, types):
        shares = _shares(counts)
        if shares and expected not in shares:
            return _OTHER % (args.precision, what, _in_words(shares))
    return None


_OTHER = (
    "precision %s was requested, but the model's %s are %s: ask for a precision in which it computes, or leave its "
    "types to the matrix"
)


def mixed(args, types):
    """Such as "mixed: float32 75 %, bfloat16 25 %"; None where one type is all that matters."""
    for what, counts, _ in _judged(args, types):
        shares = _shares(counts)
        if len(shares) > 1:
            return "mixed: %s%s" % ("" if what == "products" else what + " ", _in_words(shares))
    return None


def _judged(args, types):
    """(what, numbers by type, the type asked for). What is quantized has types of its own, which the probe judges."""
    if args.arithmetic in QUANTIZED:
        return []
    found = [("products", types["products"] or {}, _COMPUTES.get(args.precision, "bfloat16"))]
    return [*found, ("weights", types["parameters"], _KEEPS.get(args.precision, "float32"))]


def _shares(counts):
    whole = sum(counts.values())
    return {name: count / whole for name, count in counts.items() if count >= MATTERS * whole} if whole else {}


def _in_words(shares):
    if len(shares) == 1:
        return next(iter(shares))
    return ", ".join("%s %.0f %%" % (name, 100 * share) for name, share in sorted(shares.items(), key=lambda one: -one[1]))


def _forward(args, world, family, model, batch):
    """One pass of a few items; of all of them where the model takes no fewer. What was seen, and why nothing could be."""
    watched, reason = _Watched(), None
    for items in (FEW, args.batch):
        few = {name: tensor[:items] for name, tensor in batch.items()}
        try:
            with torch.no_grad(), precision.autocast(args.precision, world.device):
                watched.autocast = precision.autocast_type(world.device.type)
                watched.see(family, model, few)
            return watched, None if _CAN_WATCH else "torch %s has no dispatch modes" % torch.__version__
        except Exception as error:  # whatever it is: the figure has been measured, and its types are unknown
            watched, reason = _Watched(), failures.describe(error)
    return watched, reason


class _Watched(_Mode if _CAN_WATCH else object):
    """Counts the numbers that products take, by type, and reads the settings at each."""

    def __init__(self):
        super().__init__()
        self.products, self.outputs, self.settings, self.autocast = {}, [], [], None

    def see(self, family, model, batch):
        if _CAN_WATCH:
            with self:
                outputs = family.forward(model, batch)
        else:
            outputs = family.forward(model, batch)
        sharded.rest(model)
        self.outputs = sorted({_name(tensor.dtype) for tensor in families.tensors_of(outputs)})

    def note(self, tensors):
        """That a product takes these."""
        for name, count in _counted(one for one in tensors if torch.is_tensor(one) and one.dim() > 1).items():
            self.products[name] = self.products.get(name, 0) + count
        now = {name: value for name, value in settings.read().items() if name != "autocast"}  # it is on in a step
        if now not in self.settings:
            self.settings.append(now)


def _dispatch(watched, func, types, args=(), kwargs=None):
    if _PRODUCT.fullmatch(func.overloadpacket.__name__):
        watched.note([*args, *(kwargs or {}).values()])
    return func(*args, **(kwargs or {}))


_Watched.__torch_dispatch__ = _dispatch
"""Set from outside: torch 2.7 and newer import their compiler, for seconds, for one that a class has from the beginning."""


def _counted(tensors):
    """How many real numbers have which type; whole numbers don't count."""
    found = {}
    for tensor in tensors:
        if tensor.is_floating_point() or tensor.is_complex():
            name = _name(tensor.dtype)
            found[_PARTS.get(name, name)] = found.get(_PARTS.get(name, name), 0) + tensor.numel() * (1 + tensor.is_complex())
    return found


def _name(dtype):
    return str(dtype).replace("torch.", "")
