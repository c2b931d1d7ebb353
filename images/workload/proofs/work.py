"""The proof of work (docs/method.md): the timed callable, with its weights set back, against eager float32 on the same batch.

A user's own model gets one that is drawn after everything timed, by a seed that nothing else knows.

It judges the loss, the gradients by group of parameters (in inference the outputs), the parameters' change, the ranks' shared
values, and whether the callable still does what it did in its first step. It runs after everything timed.
"""

import collections
import gc
import math
import random

import torch

import extras
import failures
import families
import measure
import measurements
import roofline
from proofs import agreement, arithmetic, deeds, drawing, operations, pace, parity, rules
from proofs.reference import Reference, fresh
from proofs.varying import SLIGHT, mean_of_steps
from world import ONE_MODEL

BATCH = 1
"""Index of the judged batch, not the first: a callable that returns its first result is found."""
FULL, FINGERPRINT, NONE = "full", "fingerprint", "none"


def prove(args, world, timed, first, clock, watched):
    """Return the record of a full proof, with texts of `problems`; `error` says why where no reference can be had.

    `timed`: the "model" and "step" that were timed; emptied, since the reference needs the memory. `first`: the fingerprints of
    the first step by rank. `clock`: calls an action as a phase with a name. `watched`: what windows.Watch saw.
    """
    record = {"proof": FULL, "problems": [], "agrees": None, "error": None, "fingerprint": deeds.of_ranks(first)}
    fresh_model = clock("proof-model", lambda: fresh(args))
    names, draws = drawing.look(args, fresh_model)
    drawing.mark(timed["model"], names)
    is_noisy = _is_noisy(args, fresh_model)
    varying = watched.varies
    usual = None if varying and varying.deviation > SLIGHT else watched.seconds
    done = clock("proof-steps", lambda: _run_steps(args, world, timed, fresh_model, is_noisy, usual))
    kept, seed = Windows(timed["step"].kept, watched.numbers), done.pop("seed")
    record["problems"] += done.pop("pace")
    record["problems"] += clock("proof-ranks", lambda: _judge_without_reference(args, world, fresh_model, done, first))
    timed.clear()
    _free_memory(world)
    try:
        expected = clock("proof-reference", lambda: _compute_expected(args, world, fresh_model, is_noisy, varying, seed, kept))
        problem = _DRAWS if draws else None
    except Exception as error:  # the figure has been measured; a float32 model that doesn't fit is reported, not raised
        if failures.kind_of(error) != "oom":
            raise
        expected, problem = {"flops": None}, failures.describe(error)
    scope = "forward and backward" if measurements.trains(args) else "forward"
    record.update(expected.pop("counted", {}), flops_scope=scope, quiet=is_noisy)
    record.update(formula_flops_per_item=_by_formula(args, fresh_model, record.get("flops_per_item")))
    record["problems"] += rules.less_work(world, done.pop("flops"), None if varying else expected.pop("flops"))
    record["error"] = next((p for p in world.gather(problem) if p), None)
    if record["error"] is None:
        clock("proof-judgement", lambda: _judge(args, world, fresh_model, done, expected, record))
    if record["error"] is None and record["problems"]:  # the cause may be the model itself
        record["problems"][:0] = rules.of_all_ranks(world, rules.repeats(*expected["reference"].twice()))
    if record["error"] is None or record["problems"]:
        record["agrees"] = not record["problems"]
    return record


Windows = collections.namedtuple("Windows", "kept numbers")
"""What the timed steps kept, for those to be asked of another's outputs: a kept.Kept, and the numbers by batch."""


_DRAWS = "it draws random numbers that can't be turned off for a comparison, and what is compiled draws others than eager code"


FITS = 0.05
"""The largest relative difference of FLOPs by formula from those of a step's operations."""


def _by_formula(args, model, counted):
    """Return the FLOPs of an item by formula, None where there is none. It doesn't know models of which parts have no backward
    pass (HRM's first loops, XLNet's positions); of experts it counts what a token needs, whatever the library computes.
    """
    formula = extras.attempt("FLOPs by formula", lambda: roofline.flops_per_item(args, families.of(args), model))
    has_experts = any(families.EXPERTS in name for name, _ in model.named_parameters())
    if not (formula and counted and measurements.trains(args)) or has_experts or abs(formula / counted - 1) <= FITS:
        return formula
    extras.note("FLOPs by formula", "%.2f times those of a step's operations: it doesn't know this model" % (formula / counted))
    return None


def _is_noisy(args, model):
    """Check whether the step as it is timed is too noisy to be judged closely."""
    rounds_much = args.precision != "fp32" and families.has_batch_norm(model)
    return model.training and (rounds_much or families.has_dropout(model))


def glance(args, world, timed, first, clock, _watched):
    """Run a quick check, one more step after the windows, where a launch of the cell was proven.

    The host compares the fingerprint of the first step, and all losses, with those of that launch.
    """
    problems = clock("proof-glance", lambda: _look_again(args, world, timed))
    fingerprint = deeds.of_ranks(first)
    return {"proof": FINGERPRINT, "problems": problems, "agrees": not problems, "error": None, "fingerprint": fingerprint}


def _look_again(args, world, timed):
    mark = deeds.Fingerprint(timed["step"], timed["model"])
    measure.run_steps(world, timed["step"], 1, BATCH)
    loss = timed["step"].losses()[-1]
    fingerprint = mark.read(loss)
    dead = rules.alive(args, fingerprint, timed["model"].parameters())
    return rules.of_all_ranks(world, dead) + rules.shared_norm(args, world, fingerprint)


def _free_memory(world):
    gc.collect()
    world.kind.release()


def _run_steps(args, world, timed, fresh_model, is_noisy, seconds):
    """Run the timed callable: "again" (its first step), "timed" on the batch of a "seed" and, where that is too noisy to be
    judged, "quiet". "pace": texts about a "timed" one that takes longer than `seconds`, None for a step that varies. "flops":
    of that step of a user's own model; None: not known.
    """
    model, step = timed["model"], timed["step"]
    is_training = measurements.trains(args)
    here = args, world, model, step, fresh_model
    if is_training:
        deeds.restore(model, fresh_model)
    mark, look = deeds.Fingerprint(step, model), deeds.training if is_training else deeds.inference
    done = {"again": mark.read(look(*here, 0)[0].loss)}

    def prove():
        seed = _place_batch(args, world, step.batches)
        deed, taken = look(*here, BATCH)
        return (deed, seed), taken

    seen = 0 if args.model_file else BATCH
    (done["timed"], done["seed"]), done["pace"] = pace.proven(world, step, seen, prove, seconds)
    _place_batch(args, world, step.batches, done["seed"])
    done["flops"] = arithmetic.flops_of(args, model, lambda: look(*here, BATCH)) if args.model_file else None
    if is_noisy:
        deeds.restore(model, fresh_model)
        with families.quiet(model):
            _forget_graphs(args)
            done["quiet"], _ = look(*here, BATCH)
    return done


def _place_batch(args, world, batches, seed=None):
    """Put the batch of `seed` (None: one that is drawn now, the same on all ranks) at BATCH for a user's own model, in place of
    another, so that it needs no more memory. Return the seed; None where the timed batch stays.
    """
    if not args.model_file:
        return None
    if seed is None:
        seed = world.gather(random.SystemRandom().randrange(2**62))[0]
    batches[BATCH:] = [None, *batches[BATCH + 1 :]]
    batches[BATCH] = families.batch_of(args, world.device, seed)
    return seed


def _forget_graphs(args):
    """Reset torch.compile: old versions compile a model's settings into its graph without a guard."""
    if args.compile:
        torch._dynamo.reset()


def _compute_expected(args, world, fresh_model, is_noisy, varying, seed, kept):
    """Return the answers of eager float32 for the judged step ("exact"), of the precision alone ("rounded"), and if that step
    isn't the timed one, those for the timed one, from the weights and from rounded ones ("rough"). "seen": how far the numbers
    that the timed steps of inference `kept` of one of their batches, drawn now, are from eager float32's.
    """
    reference = Reference(args, world, fresh_model, BATCH, seed)
    index = random.SystemRandom().choice(sorted(kept.numbers)) if kept.numbers and not is_noisy else None
    seen = None if index is None else reference.away(index, kept.kept, kept.numbers[index])
    rough = None
    if not is_noisy:
        (exact, *counted), rounded = reference.counted_answer(), reference.rounded()
    else:
        kept = [tensor.detach().cpu().clone() for tensor in deeds.state(reference.model)]
        with families.quiet(reference.model):
            (exact, *counted), rounded = reference.counted_answer(), reference.rounded()
        from_rounded = reference.answer()
        deeds.set_state(reference.model, kept)
        rough = (reference.answer(), from_rounded)
    return {
        "exact": exact,
        "rounded": rounded,
        "rough": rough,
        "counted": _counted(args, varying, *counted),
        "flops": counted[0],
        "seen": seen,
        "reference": reference,
    }


def _counted(args, varying, flops, why, forward):
    """Return the fields of a step's FLOPs, and who counted them; a remark says why they aren't known.

    A torch that shows no operations counts nothing: another stack may lend it its count.
    """
    if not arithmetic.CAN_WATCH:
        return {"flops_per_item": None}
    flops = mean_of_steps(varying, flops, forward, families.items_of(args))
    if flops is None:
        extras.note("FLOPs", why)
    return {"flops_per_item": None if flops is None else flops / families.items_of(args), "flops_counter": operations.COUNTER}


def _judge(args, world, fresh_model, done, expected, record):
    """Fill `record` with the comparison, its tolerances and the problems."""
    deed = done.get("quiet", done["timed"])
    (loss, exact), (rounded_loss, rounded) = expected["exact"], expected["rounded"]
    if measurements.trains(args):
        labels = agreement.groups([name for name, _ in fresh_model.named_parameters()])
        measured, exact, rounded = deed.gradients, _mean_over_ranks(args, world, exact), _mean_over_ranks(args, world, rounded)
    else:
        labels, measured = ["outputs"] * len(exact), deed.outputs
    noise = agreement.distances(rounded, exact, labels)
    distances, tolerances = (
        agreement.distances(measured, exact, labels),
        agreement.tolerances(args.arithmetic, noise, measurements.trains(args) and families.has_rectifiers(fresh_model)),
    )
    problems = rules.too_far(args, "eager fp32", distances, tolerances)
    if not measurements.trains(args):
        figures, allowed = parity.figures(measured, exact), parity.limits(args.arithmetic, parity.figures(rounded, exact))
        record["parity"] = dict(figures, **allowed)
        problems += parity.problems(args.arithmetic, figures, allowed, "eager fp32")
        problems += rules.unlike_windows(expected["seen"], allowed["relative_allowed"])
    if problems and args.arithmetic != "fp32" and agreement.COARSE < noise[None] < math.inf:  # the precision alone goes far
        own = "eager " + args.arithmetic
        problems = rules.too_far(args, own, agreement.distances(measured, rounded, labels), tolerances)
        if not measurements.trains(args):
            problems += parity.problems(args.arithmetic, parity.figures(measured, rounded), allowed, own)
        record["coarse"] = _COARSE % (rules.judged(args), noise[None], args.arithmetic)
    problems += rules.unshown_precision(args, distances, noise)
    losses = rules.losses(args, world, deed.loss, loss, rounded_loss)
    problems += losses.pop("problems")
    if measurements.trains(args):
        draw = None if args.runtime == "eager" and not args.compile else expected["reference"].losses_of_other_draws
        problems += rules.rough(done["timed"], expected["rough"], labels, draw)
        problems += rules.compressed(world, deed, rounded) if args.parallel in ONE_MODEL else []
    record.update(losses, groups=_group_records(distances, tolerances, noise, agreement.squares(measured, labels)))
    record["problems"] += rules.of_all_ranks(world, problems)


_COARSE = (
    "whether the step is right in float32: its precision alone moves the %ss by %.2g (relative), so that they were held "
    "against eager %s"
)


def _mean_over_ranks(args, world, tensors):
    return world.mean(tensors) if args.parallel in ONE_MODEL else tensors


def _group_records(distances, tolerances, noise, squares):
    return [
        {
            "name": "all" if label is None else label,
            "norm": (sum(squares.values()) if label is None else squares[label]) ** 0.5,
            "distance": distances[label],
            "tolerance": tolerances[label],
            "noise": noise[label],
        }
        for label in distances
    ]


def _judge_without_reference(args, world, fresh_model, done, first):
    """Check what needs no reference: the optimizer's rule, the ranks' shared values, and the first step once more."""
    problems = rules.same_fingerprint(args, done["again"], first[world.rank], "in the first step of the launch")
    if not measurements.trains(args):
        return rules.of_all_ranks(world, problems)
    problems += rules.change(args, done["timed"]) + rules.frozen(args, fresh_model)
    return rules.of_all_ranks(world, problems) + rules.sharing(args, world, done["timed"])
