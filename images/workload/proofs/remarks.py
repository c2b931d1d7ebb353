"""Texts about what is legal, but must be known of a figure: on parameters, inputs, modes, memory format and loss.

Most of them can only concern a user's file: inputs, loss and frozen parameters are examined only there.
"""

import torch

import chance
import devices
import families
import measurements
from proofs import varying
from proofs.arithmetic import MATTERS, type_of_products

ITEMS = 4
"""Number of items of the batch that are exchanged one by one."""
MANY = 0.1
"""Share of the images' numbers from which their memory format is reported."""


def found(args, family, begun, watched, varies):
    """Return all remarks. `watched`: the Watched of a timed step, from arithmetic.look; `varies`: a Varying or None."""
    is_own = args.model_file != ""
    texts = (
        (varying.remarks(varies) or _without_gradient(args, begun))
        + _in_another_mode(args, begun.plain)
        + _dropout(args, begun.plain, watched)
    )
    facts = families.facts_of(args)
    texts += _memory_format(args, watched) + _attention(args, begun, watched) + _without_kernels(args) + _cache(begun.step)
    texts += _left_by_torchao(begun.plain)
    texts += [_EVEN] if "active_parameters" in facts else []
    texts += ["the configuration names weights in %s, which are not made" % facts["weights"]] if facts.get("weights") else []
    texts += [_UNKNOWN_KEYS % ", ".join(facts["unknown_keys"][:_MOST_KEYS])] if facts.get("unknown_keys") else []
    return texts + (_frozen(args, begun.plain) + _inputs(args, begun.batches) + _ignored(args, family, begun) if is_own else [])


_UNKNOWN_KEYS = "the configuration has keys that its class in transformers does not know, and the model may ignore: %s"
_MOST_KEYS = 8
_EVEN = "the weights are random, so the routers spread the tokens evenly over the experts, which trained ones do not"


def _cache(step):
    """Report keys and values that are kept in fewer bits than the precision's name tells."""
    types = getattr(step.serve, "narrow_types", list)()
    return ["the cache keeps numbers in %s, with fewer bits than the weights" % " and ".join(types)] if types else []


def _without_gradient(args, begun):
    """Report parameters that train, but had no gradient in the step that was watched, nor ever before."""
    if not measurements.trains(args) or args.parallel == "fsdp":
        return []
    model, written = begun.plain, begun.mark.growth()
    trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    grown = {name for (name, _), times in zip(model.named_parameters(), written) if times and args.model_file}
    idle = {name: parameter for name, parameter in trained.items() if parameter.grad is None and name not in grown}
    if len(idle) == len(trained):  # the step that was watched has failed
        return []
    unrouted = {name: parameter for name, parameter in idle.items() if families.may_be_left_out(args, name)}
    others = {name: parameter for name, parameter in idle.items() if name not in unrouted}
    return _share_text(model, unrouted, "got no token of their router in the last step, and so no gradient") + _share_text(
        model, others, "get no gradient, although they train: their part of the backward pass does not run"
    )


def _frozen(args, model):
    if not measurements.trains(args):
        return []
    frozen = {name: parameter for name, parameter in model.named_parameters() if not parameter.requires_grad}
    return _share_text(model, frozen, "are frozen: their part of the backward pass does not run")


def _share_text(model, parameters, what):
    """Return a text with the share of `parameters` (by name) in all; nothing where they hold few of the numbers."""
    share = sum(parameter.numel() for parameter in parameters.values()) / max(1, families.parameter_count(model))
    if share < MATTERS:
        return []
    return ["%.0f %% of the parameters, such as %s, %s" % (100 * share, next(iter(parameters)), what)]


def _in_another_mode(args, model):
    """Report modules that act differently in training and are in the wrong mode after all steps."""
    should_train = measurements.in_training_mode(args)
    names = [
        name or "(model)"
        for name, module in model.named_modules()
        if families.acts_in_training(module) and module.training != should_train
    ]
    if not names:
        return []
    return ["%d modules, such as %s, are in %s mode" % (len(names), names[0], "evaluation" if should_train else "training")]


def _dropout(args, model, watched):
    """Report dropout by functions, which no module's mode shows."""
    if not watched.products:
        return []
    dropouts = [name for name, module in model.named_modules() if families.is_dropout(module) and module.training]
    if not measurements.in_training_mode(args) and watched.draws and not dropouts:
        return ["random numbers are drawn as by dropout, although this is inference"]
    if args.model_file and measurements.trains(args) and dropouts and not watched.draws:
        return ["no dropout acts in a step, although the model has %s" % dropouts[0]]
    return []


def _left_by_torchao(model):
    """Report a share of a quantized model that isn't: experts and convolutions are in no linear layer."""
    share = getattr(model, "facts", {}).get("quantized_share", 1.0)
    return [_NOT_QUANTIZED % (100 * (1 - share))] if share < 1 - _FEW else []


_FEW = 0.02
_NOT_QUANTIZED = (
    "torchao left %.0f %% of the numbers in products as they were: it takes linear layers, no experts or convolutions"
)


def _attention(args, begun, watched):
    if args.attention != "sdpa" or watched.attention_kinds(begun.attention) != ["math"]:
        return []
    return ["attention sdpa was asked for, and torch chose none of its kernels: it computes by plain products"]


def _without_kernels(args):
    """Report products in 16 bits for which this device has no kernels, so that torch's own loop runs."""
    name = type_of_products(args.precision)
    has_kernels = args.runtime != "eager" or devices.of_kind(args.device)(0).has_kernels(name)
    return [] if has_kernels else [_SLOW % name]


_SLOW = "oneDNN has no kernels for %s on this CPU: products take far longer than in float32"


def _memory_format(args, watched):
    last, whole = watched.laid[True], sum(watched.laid.values())
    share = (whole - last if args.channels_last else last if args.model_file else 0) / max(1, whole)
    if share < MANY:
        return []
    begin = "%.0f %% of what convolutions take is %schannels last, " % (100 * share, "not " if args.channels_last else "")
    return [begin + ("which was asked for" if args.channels_last else "which was not asked for")]


def _inputs(args, batches):
    """Report items that are equal in all inputs, and inputs of zeros."""
    rows, zeros, numbers = [], 0, 0
    for batch in batches:
        inputs = [tensor for name, tensor in batch.items() if name.partition(".")[0] == "inputs" and not tensor.is_complex()]
        rows += sum(map(_item_sums, inputs)).tolist() if inputs else []
        zeros += sum(tensor.numel() for tensor in inputs if tensor.is_floating_point() and not tensor.any())
        numbers += sum(tensor.numel() for tensor in inputs if tensor.is_floating_point())
    texts = ["the inputs are zeros"] if 2 * zeros > numbers > 0 else []
    different = len(set(rows))
    if len(rows) > 1 and 2 * different <= len(rows):
        texts.append("of the %d items of all batches only %d are different" % (len(rows), different))
    return texts


def _item_sums(tensor):
    """Return a number for each item, equal for equal items."""
    flat = tensor.reshape(len(tensor), -1).double()
    return flat @ torch.cos(torch.arange(flat.shape[1], dtype=torch.float64, device=flat.device))


def _ignored(args, family, begun):
    """Report items on which the loss (in inference, the outputs) doesn't depend: exchange each for those of other batches."""
    if len(begun.batches) < 2 or args.batch < 2:
        return []
    what = "loss" if measurements.trains(args) else "output"
    for items in sorted({min(ITEMS, args.batch), args.batch}):
        first, *others = ({name: tensor[:items] for name, tensor in batch.items()} for batch in begun.batches)
        try:
            with families.quiet(begun.plain), torch.no_grad():
                expected = _result(args, family, begun.plain, first)

                def moves(row, expected=expected, first=first, others=others):
                    return any(_result(args, family, begun.plain, _exchange(first, other, row)) != expected for other in others)

                idle = [row for row in range(items) if not moves(row)]
        except Exception:  # a model may take a whole batch alone
            continue
        return ["the %s does not depend on %d of %d items" % (what, len(idle), items)] if 2 * len(idle) >= items else []
    return ["it could not be seen whether the %s depends on all items" % what]


def _exchange(batch, other, row):
    mixed = {name: tensor.clone() for name, tensor in batch.items()}
    for name, tensor in mixed.items():
        tensor[row] = other[name][row]
    return mixed


def _result(args, family, model, batch):
    chance.seed(args.seed)
    if measurements.trains(args):
        return float(family.loss(family.forward(model, batch), batch))
    return tuple(float(tensor.double().sum()) for tensor in families.tensors_of(families.infer(family, model, batch)))
