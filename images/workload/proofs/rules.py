"""The rules of a proof of work; each returns texts about the problems that it found."""

import math

import torch

import families
import measurements
import sharded
from proofs import agreement
from recipes import FLOAT8, IN_BLOCKS, with_blocks
from world import ONE_MODEL

LOSS = {"fp32": 2e-5, "tf32": 1e-2, "amp": 1e-2, "half": 1e-2, "amp-bf16": 8e-2, "bf16-weights": 8e-2}
LOSS.update({"bf16-master": 8e-2, "int8": 8e-2, "float8": 0.15, "int4": 0.3})
LOSS = {**with_blocks(LOSS), **dict.fromkeys(FLOAT8, 0.15)}
"""Largest relative difference of the loss: several times the effect of rounding in ResNet-50 with batches of 4 (2e-6 between
memory formats, 2e-2 in bfloat16), or more where the noise of this very model and batch is larger."""
ROUGH_LOSS, ROUGH_NORM = 0.3, 10.0
"""Limits for a step whose noise is too large for a close judgement: relative difference of the loss, ratio of the norms.
Larger where rounding the weights alone moves these further: batch norms over a few values amplify it without limit
(efficientnet_b0 with 2 images of 32 pixels: 250 times)."""
AGAIN = {name: 0.1 if name == "fp32" else 0.5 for name in LOSS}
"""Largest relative difference of norms between two runs of the same step: libraries may choose other algorithms, and batch
norms amplify the differences in rounding."""
AT_LEAST = {**dict.fromkeys(LOSS, 0.1), **dict.fromkeys((*FLOAT8, *IN_BLOCKS), 0.5)}
"""Share of the precision's own effect that must show: without it, everything was computed in float32. What training in float8
leaves in bfloat16 showed 0.06 to 0.3 of the effect, and an honest step 0.98."""
SHOWS = 1e-4
"""An effect of a precision that is smaller proves nothing."""
LEARNING_RATE = {"sgd": 1e-3, "adamw": 1e-5, "adamw-fused": 1e-5}
WEIGHT_DECAY, EPSILON = 0.01, 1e-8
"""Defaults of torch.optim.AdamW."""
CHANGE = 1e-3
"""Largest relative difference of the parameters' change, besides the rounding of the parameters themselves."""
ROUNDED_CHANGE = 0.5
"""The same for parameters in half precision, which stay or move by at least one step of their type: some that lie near the
middle are rounded the other way. Without an optimizer it is 1."""
SAMPLE = 4096
"""Numbers of each gradient whose type is looked at."""
EQUAL = 1e-6
"""Relative difference up to which gradients count as equal on all ranks."""


def too_far(args, against, found, allowed):
    """Check the distances of gradients or outputs from what they are held `against`."""
    return [
        "the %s of %s is %.2g away from %s (relative), more than %.2g"
        % (judged(args), name or "the model", found[name], against, allowed[name])
        for name in agreement.too_far(found, allowed)[:3]
    ]


def unshown_precision(args, found, noise):
    """Check that the precision shows: that the step is not as near to eager fp32 as only float32 is."""
    least = AT_LEAST[args.arithmetic] * noise[None]
    if args.arithmetic in ("fp32", "tf32") or not SHOWS < noise[None] < math.inf or found[None] >= least:
        return []
    text = (
        "precision %s was asked for, but the %s is only %.1g away from eager fp32, where eager %s is %.1g: the step "
        "doesn't compute in it"
    )
    return [text % (args.arithmetic, judged(args), found[None], args.arithmetic, noise[None])]


def judged(args):
    """Return the word for what is compared with the reference."""
    return "gradient" if measurements.trains(args) else "output"


LESS = 0.05
"""The largest share of a step's FLOPs that may be missing in eager fp32's count."""
TIMES_LIMIT = 2.0
"""Outputs of another batch may be so many times as far away as those of the one whose noise is known."""


def less_work(world, found, expected):
    """Check that the FLOPs `found` in a whole step as it is timed are no fewer than those `expected`; None: not known."""
    pairs = [pair for pair in world.gather((found, expected)) if None not in pair]
    text = "the timed step computes %.4g FLOPs, eager fp32 %.4g for the same batch: less was done"
    return [text % pair for pair in pairs if pair[0] < (1 - LESS) * pair[1]][:1]


def unlike_windows(away, allowed):
    """Check what the timed steps gave for one of their batches. `away`: by how much of the largest output eager fp32 differs
    from it; None: not known. `allowed`: the limit for the judged batch.
    """
    if away is None or away <= TIMES_LIMIT * allowed:
        return []
    text = "what the windows' steps gave for a batch differs from eager fp32 by %.2g of the largest output, more than %.2g"
    return [text % (away, TIMES_LIMIT * allowed)]


def losses(args, world, measured, exact, rounded):
    """Return the record of the losses of all ranks, with the `problems`."""
    ranks = world.gather((measured, exact, rounded))
    differences = [_deviation(m, e) for m, e, _ in ranks]
    allowed = max(LOSS[args.arithmetic], max(agreement.TIMES_NOISE[args.arithmetic] * _deviation(r, e) for _, e, r in ranks))
    allowed = min(allowed, ROUGH_LOSS)
    problems = []
    if not differences[world.rank] <= allowed:
        text = "the loss differs from that of eager fp32 by %.1e (relative), more than %.1e"
        problems.append(text % (differences[world.rank], allowed))
    return {
        "losses": [[exact] for _, exact, _ in ranks],
        "measured": [[measured] for measured, _, _ in ranks],
        "differences": [max(differences)],
        "tolerances": [allowed],
        "problems": problems,
    }


def _deviation(value, expected):
    difference = abs(value - expected) / max(abs(expected), 1e-6)
    return difference if math.isfinite(difference) else 1e9


def sizes(args, batches):
    """Check that every tensor of the steps' batches has the requested number of items."""
    asked, pairs = families.batch_of_step(args), (pair for batch in batches for pair in batch.items())
    wrong = dict.fromkeys("%s has %d items" % (name, len(tensor)) for name, tensor in pairs if len(tensor) != asked)
    return ["a batch of %d was asked for, but %s" % (asked, " and ".join(wrong))] if wrong else []


def repeats(loss, again):
    """Check whether eager fp32 gives the same loss for the same step, begun twice from the same state."""
    if _deviation(loss, again) <= LOSS["fp32"]:
        return []
    text = (
        "this model can't be proven: the same step from the same weights, buffers, inputs and seeds gives the loss %.6g, then "
        "%.6g. What it keeps from step to step must be in a buffer (register_buffer), and what it draws must come from a "
        "default generator of torch, random or numpy, or from one that is an attribute of a module"
    )
    return [text % (loss, again)]


def frozen(args, model):
    """Check that every parameter of a library's model trains; a user's own model may freeze some."""
    names = [name for name, parameter in model.named_parameters() if not parameter.requires_grad and not args.model_file]
    return ["%d parameters are frozen, such as %s" % (len(names), names[0])] if names else []


def rough(deed, expected, labels, draw):
    """Check the step as it was timed, where dropout or rounding makes it too noisy for a close judgement.

    `expected`: the answers of eager fp32, from the weights and from rounded ones. `draw`: gives its losses with other random
    numbers, which compiled code draws; None where it draws the same.
    """
    if expected is None:
        return []
    (loss, gradients), (noisy_loss, noisy) = expected
    timed, exact, noisy = (agreement.squares(tensors, labels) for tensors in (deed.gradients, gradients, noisy))
    ratio, noise = _norm_ratio(timed, exact), _norm_ratio(noisy, exact)
    most = ROUGH_NORM * max(noise, 1 / max(noise, 1e-30))
    problems = ["the timed step computes no gradient of %s" % label for label in timed if timed[label] == 0 < exact[label]][:3]
    if not 1 / most <= ratio <= most:
        problems.append("the gradient of the timed step is %.2g times as large as in eager fp32" % ratio)
    most = max(ROUGH_LOSS, agreement.TIMES_NOISE["amp"] * _deviation(noisy_loss, loss))
    if _deviation(deed.loss, loss) > most and not (draw and is_such_a_draw(deed.loss, [loss, *draw()])):
        problems.append("the loss of the timed step is %.4g, but %.4g in eager fp32" % (deed.loss, loss))
    return problems


def is_such_a_draw(loss, losses):
    """Check whether `loss` is no farther from `losses`, which differ by chance, than these are from each other."""
    width = max(losses) - min(losses)
    return min(losses) - width <= loss <= max(losses) + width


def _norm_ratio(measured, reference):
    """Return the ratio of the norms of all groups together, from their squares."""
    return math.sqrt(sum(measured.values()) / max(sum(reference.values()), 1e-30))


def change(args, deed):
    """Check that the parameters change as in the optimizer's first step with the gradients that the timed step left behind."""
    keeps_masters = args.precision == "bf16-master"  # what changes is in float32 then, and is to be seen so
    difference = size = allowed = 0.0
    for gradient, idle, now, then in zip(deed.gradients, deed.idle, deed.weights, deed.before):
        for slope, found, weights in agreement.in_pieces(gradient, now, then):
            weights = weights.double()
            right = weights.clone() if idle else _first_change(args.optimizer, slope.double(), weights).add_(weights)
            right = right if keeps_masters else right.to(now.dtype).double()
            difference += agreement.square(right - found.double())
            size += agreement.square(right - weights)
            allowed += (4 * agreement.ROUNDING["fp32"]) ** 2 * agreement.square(weights)
    share = ROUNDED_CHANGE if _rounds_changes(args, deed.weights) else CHANGE
    if math.sqrt(difference) <= share * math.sqrt(size) + math.sqrt(allowed) and size > 0:
        return []
    text = "the timed step's change of the parameters is %.2g away from %s's (relative)"
    return [text % (math.sqrt(difference / size) if size > 0 else math.inf, args.optimizer)]


def _first_change(optimizer, gradient, weights):
    """Return the first step of SGD with momentum and AdamW (arXiv:1711.05101, algorithm 2) from an empty state."""
    rate = LEARNING_RATE[optimizer]
    if optimizer == "sgd":
        return gradient * -rate
    return (gradient / (gradient.abs() + EPSILON)).add_(weights, alpha=WEIGHT_DECAY).mul_(-rate)


def same_fingerprint(args, found, known, when):
    """Compare `found` and `known`, the fingerprints (deeds.Fingerprint) of the same step at two times."""
    return [
        "the %s of the timed step is %.6g, but was %.6g %s" % (name.replace("_", " "), found[name], known[name], when)
        for name in found
        if name in known and not _norm_difference(found, known, name) <= _allowed_difference(args, name)
    ]


def _norm_difference(now, before, name):
    """Return the relative difference; a group's norm counts as at least a share of that of all."""
    least = agreement.NEGLIGIBLE * before.get(name.partition(" of ")[0], 0.0)
    difference = abs(now[name] - before[name]) / max(abs(before[name]), least, 1e-30)
    return difference if math.isfinite(difference) else math.inf


def _allowed_difference(args, name):
    if name == "loss":
        return max(LOSS[args.arithmetic], 1e-4)
    most = AGAIN[args.arithmetic]
    return min(agreement.OF_A_GROUP * most, agreement.MOST_OF_A_GROUP) if " of " in name else most


def _rounds_changes(args, weights):
    """Check whether what an optimizer changes is rounded to 16 bits, so that a small change of a weight may be none."""
    return args.precision != "bf16-master" and any(weight.dtype in (torch.float16, torch.bfloat16) for weight in weights)


def alive(args, found, weights):
    """Check that in a step after the windows every rank still computes something finite that isn't zero.

    A group may stay as it is: of a user's own model, whose batch may give a group no part in a step; and where all of its
    changes are rounded away, which AdamW makes smaller as gradients shrink.
    """
    rounds = _rounds_changes(args, weights)
    return [
        "the %s of a step after the windows is %g" % (name.replace("_", " "), value)
        for name, value in found.items()
        if name != "loss" and not 0 < value < math.inf
        if not (value == 0 and " of " in name and (args.model_file or (rounds and name.startswith("update_norm"))))
    ]


def sharing(args, world, deed):
    """Check that ranks that train one model have equal gradients and parameters, and that others have different gradients."""
    if world.size == 1:
        return []
    gradients, weights = (_digests(world, tensors) for tensors in (deed.gradients, deed.weights))
    if args.parallel in ONE_MODEL:
        wrong = [name for name, ranks in (("gradients", gradients), ("parameters", weights)) if not _are_equal(ranks)]
        return ["the ranks' %s differ after a step: they were not all-reduced" % name for name in wrong]
    if _are_equal(gradients):
        return ["the ranks' gradients are equal, although %s was asked for" % args.parallel]
    return []


ABOVE_PRODUCTS, OF_FEWER_BITS = 4.0, 4.0
"""A step needs no more FLOP/s than so many times what products of matrices reach in the same launch: convolutions by Winograd's
or the Fourier transform multiply less than their definition, by up to about four times. Types of 8 and 4 bits are faster."""


def speed(args, flops_per_item, seconds_per_step, ranks, roof):
    """Check that none of so many devices computes faster than its peak for dense matrices in the precision asked for, nor far
    above its `roof`: the FLOP/s of products, measured in this launch (None: not known).
    """
    flops = flops_per_item or args.proven.get("flops_per_item")
    if not flops:
        return []
    rate = flops * families.items_per_step(args, ranks) / ranks / seconds_per_step
    most = (roof or math.inf) * ABOVE_PRODUCTS * (OF_FEWER_BITS if args.quantized or args.precision in FLOAT8 else 1.0)
    text = "%.3g FLOP/s in the timed windows are %.2f times the peak of the device"
    if args.peak_flops and rate > args.peak_flops:
        return [text % (rate, rate / args.peak_flops)]
    return [_ABOVE_PRODUCTS % (rate, rate / roof)] if rate > most else []


_ABOVE_PRODUCTS = (
    "%.3g FLOP/s in the timed windows are %.1f times what this device reaches in products of matrices: the work was not done"
)


def shared_norm(args, world, own):
    """Check that the gradients' norm is equal on all ranks that train one model."""
    norms = world.gather(own.get("gradient_norm"))
    if args.parallel not in ONE_MODEL or None in norms or max(norms) - min(norms) <= EQUAL * max(norms):
        return []
    return ["the norms of the ranks' gradients differ after the windows: %s" % ", ".join("%.7g" % norm for norm in norms)]


def compressed(world, deed, expected):
    """Check that gradients in float32 were averaged in float32. Where all numbers of a step's fit into 16 bits, and those that
    are `expected` don't, the ranks have sent fewer bits to each other.
    """
    if world.size == 1:
        return []
    pairs = [(g, e) for g, e, before in zip(deed.gradients, expected, deed.before) if before.dtype is torch.float32]
    sent, right = ([_some(pair[side]) for pair in pairs] for side in (0, 1))
    if sum(map(len, sent)) < SENT:
        return []
    types = [dtype for dtype in (torch.bfloat16, torch.float16) if _all_fit(sent, dtype) and not _all_fit(right, dtype)]
    return [_COMPRESSED % str(types[0])[6:]] if types else []


SENT = 100
"""The least count of gradients, not zero, by which their type is told."""
_COMPRESSED = "the ranks' averaged gradients are all %s, where eager's are not: they were compressed on their way"


def _some(tensor):
    numbers = tensor.flatten()[:SAMPLE]
    return numbers[numbers != 0]


def _all_fit(tensors, dtype):
    return all(bool((numbers.to(dtype).to(numbers.dtype) == numbers).all()) for numbers in tensors)


def same_weights(world, numbers):
    """Check that all ranks that train one model have the same weights; `numbers`: some of each parameter."""
    text = "the ranks' parameters differ after the windows: they were not trained as one model"
    return [] if world.size == 1 or _are_equal(_digests(world, [numbers])) else [text]


STRANGE = {"fp32": 1e-4, "tf32": 2e-3, "amp": 2e-3, "half": 2e-3, "amp-bf16": 1e-2, "bf16-weights": 1e-2}
STRANGE.update({"bf16-master": 1e-2, "int8": 1e-2, "float8": 2e-2, "int4": 5e-2})
STRANGE = {**with_blocks(STRANGE), **dict.fromkeys(FLOAT8, 2e-2)}
"""Largest relative difference of two losses of one batch."""


def shares(args, world, begun, blocks):
    """Check that ranks that are to share a model have only a part of it each, and the same batches and losses if theirs is one.

    `blocks`: all of the warm-up and the windows, as measure.window gives them.
    """
    if world.size == 1 or args.parallel not in (*families.ONE_BATCH, "fsdp"):
        return []
    texts = [] if sharded.is_split(begun.model) else ["each rank has the whole model, which was to be split"]
    if args.parallel == "fsdp":
        return texts
    numbers = [tensor.cpu() for batch in begun.batches for tensor in batch.values()]
    texts += [] if _are_equal(_digests(world, numbers)) else ["the ranks' batches differ, which were to be one"]
    steps = [step for ranks in blocks for step in zip(*(rank["losses"] for rank in ranks))]
    worst = max((max(_deviation(loss, step[0]) for loss in step) for step in steps), default=0.0)
    differ = "the ranks' losses differ by up to %.1e (relative), though their batch is one" % worst
    return texts + ([] if worst <= STRANGE[args.arithmetic] else [differ])


def of_all_ranks(world, problems):
    """Return the problems of all ranks, each with its rank where there are several."""
    ranks = world.gather(problems)
    return ["rank %d: %s" % (rank, text) if world.size > 1 else text for rank, texts in enumerate(ranks) for text in texts]


def _digests(world, tensors):
    """Return two numbers of each rank that tell sets of tensors apart."""
    flat = [tensor.double().flatten() for tensor in tensors]
    waves = (float(torch.dot(vector, torch.cos(torch.arange(len(vector), dtype=torch.float64)))) for vector in flat)
    return world.gather((math.sqrt(sum(float(vector.norm()) ** 2 for vector in flat)), sum(waves)))


def _are_equal(ranks):
    (norm, wave), others = ranks[0], ranks[1:]
    return all(max(abs(n - norm), abs(w - wave)) <= EQUAL * max(norm, 1e-30) for n, w in others)
