"""What is legal, but must be known of a figure, in words: of parameters, inputs, modes, memory format and loss.

Most of it can only be a mistake in a file of the user's: inputs, loss and frozen parameters are looked at there alone.
"""

import torch

import chance
import families
from proofs.arithmetic import MATTERS

ITEMS = 4
"""Of the batch, which are exchanged one by one."""
MANY = 0.1
"""Share of the images' numbers from which on their memory format is told."""


def found(args, family, begun, watched):
    """All of them. `watched`: what arithmetic.look saw of a timed step."""
    own = args.model_file != ""
    texts = _without_gradient(args, begun.plain) + _in_another_mode(args, begun.plain) + _drawing(args, begun.plain, watched)
    texts += _laid(args, watched)
    return texts + (_frozen(args, begun.plain) + _inputs(args, begun.batches) + _ignored(args, family, begun) if own else [])


def _without_gradient(args, model):
    if args.mode == "infer" or args.parallel == "fsdp":
        return []
    trained = {name: one for name, one in model.named_parameters() if one.requires_grad}
    idle = {name: one for name, one in trained.items() if one.grad is None}
    if len(idle) == len(trained):  # the step that was looked at has failed
        return []
    return _told(model, idle, "get no gradient, although they train: their part of the backward pass does not run")


def _frozen(args, model):
    frozen = {name: one for name, one in model.named_parameters() if not one.requires_grad}
    return _told(model, frozen, "are frozen: their part of the backward pass does not run") if args.mode == "train" else []


def _told(model, some, what):
    """That `some` of its parameters, by name, are not as others; nothing where they hold few of the numbers."""
    share = sum(one.numel() for one in some.values()) / max(1, families.parameter_count(model))
    if share < MATTERS:
        return []
    return ["%.0f %% of the parameters, such as %s, %s" % (100 * share, next(iter(some)), what)]


def _in_another_mode(args, model):
    """Modules that act otherwise in training, after all steps."""
    asked = args.mode == "train" or not args.eval
    other = [
        name or "(model)" for name, one in model.named_modules() if families.acts_in_training(one) and one.training != asked
    ]
    if not other:
        return []
    return ["%d modules, such as %s, are in %s mode" % (len(other), other[0], "evaluation" if asked else "training")]


def _drawing(args, model, watched):
    """Dropout as functions, which no module's mode tells."""
    if not watched.products:
        return []
    dropouts = [name for name, one in model.named_modules() if families.is_dropout(one) and one.training]
    if args.mode == "infer" and args.eval and watched.draws and not dropouts:
        return ["random numbers are drawn as by dropout, although this is inference"]
    if args.model_file and args.mode == "train" and dropouts and not watched.draws:
        return ["no dropout acts in a step, although the model has %s" % dropouts[0]]
    return []


def _laid(args, watched):
    last, whole = watched.laid[True], sum(watched.laid.values())
    share = (whole - last if args.channels_last else last if args.model_file else 0) / max(1, whole)
    if share < MANY:
        return []
    told = "%.0f %% of what convolutions take is %schannels last, " % (100 * share, "not " if args.channels_last else "")
    return [told + ("which was asked for" if args.channels_last else "which was not asked for")]


def _inputs(args, batches):
    """Items that are alike in all inputs, and inputs of zeros."""
    rows, zeros, numbers = [], 0, 0
    for batch in batches:
        inputs = [tensor for name, tensor in batch.items() if name.partition(".")[0] == "inputs" and not tensor.is_complex()]
        rows += sum(map(_sums, inputs)).tolist() if inputs else []
        zeros += sum(tensor.numel() for tensor in inputs if tensor.is_floating_point() and not tensor.any())
        numbers += sum(tensor.numel() for tensor in inputs if tensor.is_floating_point())
    texts = ["the inputs are zeros"] if 2 * zeros > numbers > 0 else []
    different = len(set(rows))
    if len(rows) > 1 and 2 * different <= len(rows):
        texts.append("of the %d items of all batches only %d are different" % (len(rows), different))
    return texts


def _sums(tensor):
    """A number for each item, equal where items are."""
    flat = tensor.reshape(len(tensor), -1).double()
    return flat @ torch.cos(torch.arange(flat.shape[1], dtype=torch.float64, device=flat.device))


def _ignored(args, family, begun):
    """Items on which the loss (in inference, the outputs) doesn't depend: each is exchanged for those of other batches."""
    if len(begun.batches) < 2 or args.batch < 2:
        return []
    what = "loss" if args.mode == "train" else "output"
    for items in sorted({min(ITEMS, args.batch), args.batch}):
        first, *others = ({name: tensor[:items] for name, tensor in batch.items()} for batch in begun.batches)
        try:
            with families.quiet(begun.plain), torch.no_grad():
                known = _number(args, family, begun.plain, first)

                def moves(row, known=known, first=first, others=others):
                    return any(_number(args, family, begun.plain, _exchanged(first, one, row)) != known for one in others)

                idle = [row for row in range(items) if not moves(row)]
        except Exception:  # a model may take a whole batch alone
            continue
        return ["the %s does not depend on %d of %d items" % (what, len(idle), items)] if 2 * len(idle) >= items else []
    return ["it could not be seen whether the %s depends on all items" % what]


def _exchanged(batch, other, row):
    found = {name: tensor.clone() for name, tensor in batch.items()}
    for name, tensor in found.items():
        tensor[row] = other[name][row]
    return found


def _number(args, family, model, batch):
    chance.seed(args.seed)
    outputs = family.forward(model, batch)
    if args.mode == "train":
        return float(family.loss(outputs, batch))
    return tuple(float(tensor.double().sum()) for tensor in families.tensors_of(outputs))
