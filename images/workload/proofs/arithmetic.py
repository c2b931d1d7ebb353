"""The types that the timed model computes in, those of its weights and of its products' operands, against the requested ones.

The probe (effective_precision.py) measures what a product of a given type really computes in; this module finds the types. A
dispatch mode of torch sees them in one more timed step, in eager mode and after the windows, and in a call of the model alone.
It needs torch 1.13; in older versions the types are unknown and only the weights are judged. Numbers are counted, not products,
since small products don't matter.
"""

import contextlib
import functools
import re

import torch

import checkpointing
import extras
import failures
import families
import measurements
import precision
import settings
import sharded
from proofs import operations
from recipes import FLOAT8, is_of_transformer_engine

try:
    from torch.utils._python_dispatch import TorchDispatchMode as Mode
except ImportError:
    Mode = object
CAN_WATCH = hasattr(Mode, "__enter__")

FEW = 2
"""Number of items of the batch that suffice."""
MATTERS = 0.01
"""Share of the numbers below which a type isn't reported."""
_REAL = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}
_PRODUCT_TYPES = {"fp32": "float32", "tf32": "float32", "amp": "float16", "half": "float16"}
_PRODUCT_TYPES.update(dict.fromkeys(FLOAT8, "float8"))
_WEIGHT_TYPES = {"half": "float16", "bf16-weights": "bfloat16", "bf16-master": "bfloat16"}


def look(args, world, family, begun):
    """Return the timed model's types, with the count of numbers of each, and the Watched of its step."""
    watched, alone, unknown = _watch_passes(args, world, family, begun)
    return {
        "parameters": _count_types(begun.plain.parameters()),
        "buffers": _count_types(begun.plain.buffers()),
        "outputs": alone.outputs,
        "products": None if unknown else watched.products,
        "backward": None if unknown or not measurements.trains(args) else watched.backward,
        "alone": None if unknown else alone.products,
        "apart_from_attention": None
        if unknown
        else {"step": watched.apart_from_attention, "alone": alone.apart_from_attention},
        "autocast": alone.autocast,
        "attention": None if unknown else watched.attention_kinds(begun.attention),
        "flops": None if unknown or not watched.is_step else watched.flops,
        "unknown": unknown,
    }, watched


def problem(args, types):
    """Return why the types don't meet what `args` ask for, or None."""
    products, backward = (_shares(types[name] or {}) for name in ("products", "backward"))
    step, alone = (_shares((types["apart_from_attention"] or {}).get(name, {})) for name in ("step", "alone"))
    if _is_unlike(args, step, alone):
        return _PRODUCTS_DIFFER % (args.precision, _describe_shares(step), _describe_shares(alone))
    for what, counts, expected in _types_to_judge(args, types):
        shares = _shares(counts)
        if shares and expected not in shares:
            return _WRONG_TYPE % (args.precision, what, _describe_shares(shares))
    if len(products) == 1 and len(backward) > 1 and not args.model_file:
        return _BACKWARD_DIFFERS % (args.precision, _describe_shares(backward), _describe_shares(products))
    return None


def _is_unlike(args, step, alone):
    """Check whether the shares of types in a step aren't those of the model called alone. Of a generation only new types count:
    a recurrent layer takes other products for a token than for a prompt.
    """
    if args.mode == "generate" and alone:
        return bool(step.keys() - alone.keys())
    return _largest_difference(step, alone) > _SHARE_TOLERANCE


def _largest_difference(first, second):
    """Return the largest difference between the shares of one type."""
    return max((abs(first.get(name, 0) - second.get(name, 0)) for name in {**first, **second}), default=0)


_SHARE_TOLERANCE = 0.05
"""Largest allowed difference of a type's share in the step and in the model called alone: a loss may have its own products."""
_PRODUCTS_DIFFER = (
    "precision %s was requested, and the products of the timed step are %s, but those of the same model called alone are %s: "
    "the step doesn't compute as asked"
)
_BACKWARD_DIFFERS = (
    "precision %s was requested, but the products of the timed backward pass are %s, those of the forward pass %s"
)
_WRONG_TYPE = (
    "precision %s was requested, but the model's %s are %s: ask for a precision in which it computes, or leave its "
    "types to the matrix"
)


def mixed(args, types):
    """Return a text such as "mixed: float32 75 %, bfloat16 25 %"; None where only one type matters."""
    for what, counts, _ in _types_to_judge(args, types):
        shares = _shares(counts)
        if len(shares) > 1:
            return "mixed: %s%s" % ("" if what == "products" else what + " ", _describe_shares(shares))
    return None


def type_of_products(precision):
    """Return the name of the type that products are asked for in."""
    return _PRODUCT_TYPES.get(precision, "bfloat16")


def _types_to_judge(args, types):
    """Return rows of (what, numbers by type, requested type); none for a quantized model, whose types the probe judges."""
    if args.quantized:
        return []
    expected = type_of_products(args.precision)
    products = [("products", types["products"] or {}, expected), ("backward products", types["backward"] or {}, expected)]
    return [*products, ("weights", types["parameters"], _WEIGHT_TYPES.get(args.precision, "float32"))]


def _shares(counts):
    whole = sum(counts.values())
    return {name: count / whole for name, count in counts.items() if count >= MATTERS * whole} if whole else {}


def _describe_shares(shares):
    if len(shares) < 2:
        return next(iter(shares), "none")
    return ", ".join("%s %.0f %%" % (name, 100 * share) for name, share in sorted(shares.items(), key=lambda item: -item[1]))


def _watch_passes(args, world, family, begun):
    """Watch a timed step, and the model called alone, with a few items; with all where the model takes no fewer, and a user's
    own, which could tell them by their number.

    Return both Watched and the reason why nothing could be seen, or None.
    """
    reason = None
    for items in (args.batch, FEW) if args.model_file else (FEW, args.batch):
        few = {name: tensor[: items * args.accumulate] for name, tensor in begun.batches[0].items()}
        step, alone = Watched(), Watched()
        try:
            with torch.no_grad(), precision.autocast(args.precision, world.device):
                alone.autocast = precision.autocast_type(world.kind.name)
                alone.see(functools.partial(_call_model, args, family, begun.plain, families.micro_batches(args, few)[0]))
            sharded.rest(begun.plain)
            if args.runtime != "eager":
                return alone, alone, WHY_UNKNOWN
            _see_step(begun, step, few)
            is_unseen = is_of_transformer_engine(args.precision)
            return step, alone, "torch doesn't see Transformer Engine's products" if is_unseen else WHY_UNKNOWN
        except Exception as error:  # of any class: the figure has been measured, and its types are unknown
            reason = failures.describe(error)
    return Watched(), Watched(), reason


WHY_UNKNOWN = None if CAN_WATCH else "torch %s has no dispatch modes" % torch.__version__


def _call_model(args, family, model, batch):
    """Return the model's outputs; in training compute the loss too, which may have its own products or need the whole batch."""
    outputs = []
    hook = model.register_forward_hook(lambda *called: outputs.append(called[-1]))
    try:
        if measurements.trains(args):
            family.training_loss(model, batch)
        else:
            families.infer(family, model, batch)
    finally:
        hook.remove()
    return outputs


def _see_step(begun, watched, batch):
    """Run the timed step on `batch`, with the model that torch.compile wraps."""
    begun.batches.append(batch)
    try:
        with _without_compile(begun.model), checkpointing.counting() as again:
            watched.see(functools.partial(begun.step.run, len(begun.batches) - 1))
        watched.recomputed, watched.is_step = len(again), True
    finally:
        begun.batches.pop()
    begun.step.losses()


def flops_of(args, model, action):
    """Return the FLOPs of a step, which `action` runs with `model`, in eager mode; None where they aren't known."""
    if not CAN_WATCH or args.runtime != "eager":
        return None
    watched = Watched()

    def watch():
        with _without_compile(model), watched:
            action()
        return watched.total(measurements.trains(args))[0]

    return extras.attempt("the FLOPs of the step that is proven", watch)


@contextlib.contextmanager
def _without_compile(model):
    """Let a model that torch.compile has wrapped run as the one that it wraps."""
    if not hasattr(model, "_orig_mod"):
        yield
        return
    attributes = vars(model)
    before = attributes.get("forward")
    attributes["forward"] = model._orig_mod.__call__
    try:
        yield
    finally:
        attributes.pop("forward")
        if before:
            attributes["forward"] = before


class Watched(Mode if CAN_WATCH else object):
    """Counts of the numbers that products take, by type, forward and backward, and the settings at each product.

    `apart_from_attention`: those of `products` that no scaled_dot_product_attention of torch's takes. Which kernel computes it
    depends on a call's shapes and mask, and where none does, torch 2.5 and newer compute 16 bits in float32.

    Also the FLOPs by type (`flops`), the names of operations that can't be counted (`uncounted`) and of those whose insides are
    not seen (`unseen`: flex_attention, cond and others that take functions), whether anything draws as dropout does (`draws`),
    the count of numbers of convolutions' images by whether they are channels last (`laid`), and how many blocks were computed
    again in the backward pass (`recomputed`; None: not known).
    """

    supports_higher_order_operators = True

    def __init__(self):
        super().__init__()
        self.products, self.backward, self.outputs, self.settings, self.autocast = {}, {}, [], [], None
        self.apart_from_attention, self._in_attention = {}, False
        self.draws, self.laid, self.recomputed = False, {True: 0, False: 0}, None
        self.kernels, self.attentions, self.is_step = {}, 0, False
        self._flops, self._sees_backward, self.uncounted, self.unseen, self.forward_flops = {}, False, set(), set(), 0

    def __enter__(self):
        for operator in getattr(torch._ops, "_higher_order_ops", {}).values():  # older ones refuse a mode that they don't know
            with contextlib.suppress(AssertionError, AttributeError, NotImplementedError):
                operator.py_impl(Watched)(functools.partial(_pass, operator))
        return super().__enter__()

    def see(self, action):
        if CAN_WATCH:
            with self, self._counting_attentions():
                outputs = action()
        else:
            outputs = action()
        self.outputs = sorted({_type_name(tensor.dtype) for tensor in families.tensors_of(outputs)})

    @contextlib.contextmanager
    def _counting_attentions(self):
        """Count the calls of scaled_dot_product_attention: one of which no kernel is seen has computed by plain products."""
        functional, name = torch.nn.functional, "scaled_dot_product_attention"
        real = getattr(functional, name, None)
        is_of_torch = real is getattr(torch._C._nn, name, None)

        def counted(*given, **named):
            self.attentions += 1
            self._in_attention = is_of_torch
            try:
                return real(*given, **named)
            finally:
                self._in_attention = False

        if real:
            setattr(functional, name, counted)
        try:
            yield
        finally:
            if real:
                setattr(functional, name, real)

    def attention_kinds(self, asked):
        """Return the kinds of attention that a step in eager mode ran, in order; None where they aren't known.

        `asked`: the implementation that the library was asked for, "sdpa" or "eager"; None: it has no choice.
        """
        kinds = sorted(self.kernels)
        if not self.is_step:
            return None
        if self.attentions > sum(self.kernels.values()):
            kinds.append("math")
        return kinds or (["eager"] if asked == "eager" else None)

    def note(self, name, tensors):
        """Count the `tensors` that the product `name` takes."""
        counts = self.backward if _is_backward() else self.products
        matrices = [tensor for tensor in tensors if tensor.dim() > 1]
        whole = sum(tensor.numel() for tensor in matrices if tensor.dtype in (torch.int8, torch.uint8))
        for type_name, count in [*_count_types(matrices).items(), *([("int8", whole)] if whole else [])]:
            _add(counts, type_name, count)
            if counts is self.products and not self._in_attention:
                _add(self.apart_from_attention, type_name, count)
        if "conv" in name and counts is self.products and tensors[0].dim() == 4:
            is_last = tensors[0].is_contiguous(memory_format=torch.channels_last)
            if is_last != tensors[0].is_contiguous():  # one channel or pixel is both
                self.laid[is_last] += tensors[0].numel()
        now = {name: value for name, value in settings.read().items() if name != "autocast"}  # autocast is on in a step
        if now not in self.settings:
            self.settings.append(now)

    def note_packed(self, name, tensors):
        """Count what a product of torch's quantized modules takes, whose weights are packed in no tensor."""
        kind = "float16" if name.endswith("fp16") else "int8"
        count = sum(tensor.numel() for tensor in tensors if tensor.dim() > 1)
        _add(self.products, kind, count)
        _add(self.apart_from_attention, kind, count)

    def weigh(self, name, namespace, given, result, tensors):
        """Add the FLOPs of an operation to those of its type; one that can't be counted makes them unknown."""
        is_backward = _is_backward()
        self._sees_backward = self._sees_backward or is_backward
        flops = operations.count(name, namespace, given, result)
        if flops is None:
            self.uncounted.add(name)
        elif flops:
            type_name = next(iter(_count_types(sorted(tensors, key=lambda tensor: tensor.dim() < 2))), "others")
            self._flops[type_name] = self._flops.get(type_name, 0) + flops
            self.forward_flops += 0 if is_backward else flops

    @property
    def flops(self):
        """Return the FLOPs of all operations by type; None where those of one can't be counted."""
        return None if self.uncounted else self._flops

    def total(self, with_backward):
        """Return the FLOPs of all operations, and None; or None and why they aren't known."""
        if self.uncounted:
            return None, "no formula for %s" % ", ".join(sorted(self.uncounted))
        if with_backward and not self._sees_backward:
            return None, "this torch doesn't show the backward pass"
        return sum(self._flops.values()), None


def _add(counts, name, count):
    counts[name] = counts.get(name, 0) + count


def _pass(operator, watched, *args, **kwargs):
    """Let an operator run that takes functions: it runs with the mode off, so what it computes isn't seen."""
    watched.unseen.add(str(operator))
    watched.uncounted.add(str(operator))
    return operator(*args, **kwargs)


def _is_backward():
    if hasattr(torch._C, "_current_graph_task_id"):  # 2.1 and newer
        return torch._C._current_graph_task_id() != -1
    return not torch.is_grad_enabled()


def _dispatch(watched, func, types, args=(), kwargs=None):
    kwargs = kwargs or {}
    if not hasattr(func, "overloadpacket"):
        return _pass(func, watched, *args, **kwargs)
    namespace, _, name = func._schema.name.partition("::")
    if torch.is_inference_mode_enabled():  # what is made of other operations is seen there as one
        with watched:
            result = func.decompose(*args, **kwargs)
        if result is not NotImplemented:
            return result
    tensors = [argument for argument in (*args, *kwargs.values()) if torch.is_tensor(argument)]
    if operations.is_product(name):
        watched.note(name, tensors)
    elif namespace == "quantized" and _PACKED.match(name):
        watched.note_packed(name, tensors)
    watched.draws = watched.draws or name in _DROPOUT_OPERATIONS
    kind = _ATTENTION_KERNELS.get(name)
    if kind:
        watched.kernels[kind] = watched.kernels.get(kind, 0) + 1
    result = func(*args, **kwargs)
    watched.weigh(name, namespace, args, result, tensors)
    return result


_PACKED = re.compile("linear|conv|lstm|gru|rnn|mat")
"""The beginnings of the products among torch's quantized operations."""
_DROPOUT_OPERATIONS = ("bernoulli", "bernoulli_", "native_dropout", "_fused_dropout")
"""torch's names of the operations of dropout."""
_ATTENTION_KERNELS = {
    "_scaled_dot_product_flash_attention": "flash",
    "_scaled_dot_product_flash_attention_for_cpu": "flash",
    "_scaled_dot_product_efficient_attention": "memory-efficient",
    "_scaled_dot_product_cudnn_attention": "cuDNN",
    "_scaled_dot_product_fused_attention_overrideable": "fused",
}
"""The kernels that torch chooses from for scaled_dot_product_attention, by the names of their operations."""
Watched.__torch_dispatch__ = _dispatch
"""Set after the class: for a method in the class body, torch 2.7 and newer import their compiler, which takes seconds."""


def _count_types(tensors):
    """Count the real numbers of each type, without whole numbers."""
    counts = {}
    for tensor in tensors:
        if tensor.is_floating_point() or tensor.is_complex():
            name = _type_name(_kept_in(tensor)).partition("_")[0]
            counts[_REAL.get(name, name)] = counts.get(_REAL.get(name, name), 0) + tensor.numel() * (1 + tensor.is_complex())
    return counts


def _kept_in(tensor):
    """Return the type of a tensor. torchao's name the one that they were rounded from: look at what they hold."""
    if hasattr(tensor, "_data"):
        return tensor._data.dtype
    inner = getattr(tensor, "qdata", tensor).dtype
    return inner if "float8" in str(inner) else tensor.dtype


def _type_name(dtype):
    return str(dtype).replace("torch.", "")
