"""The proof of work (docs/method.md): the timed callable, with its weights set back, against eager float32 on the same batch.

Judged are the loss, the gradients by group of parameters (in inference the outputs), the change of the parameters, what the
ranks share, and whether the callable still does what it did in its first step. Runs after everything timed.
"""

import gc

import torch

import failures
import families
from proofs import agreement, deeds, parity, rules
from proofs.reference import Reference, fresh
from world import ONE_MODEL

BATCH = 1
"""Not the first one: a callable that returns what it once computed is found out."""
FULL, FINGERPRINT, NONE = "full", "fingerprint", "none"


def prove(args, world, timed, first, clock):
    """The record of a full proof, with its `problems` in words; raises nothing where the reference can't be had, but says why.

    `timed`: the "model" and "step" that were timed; emptied, since the reference needs the room. `first`: the fingerprints of
    the first step by rank. `clock`: calls an action as a phase with a name.
    """
    record = {"proof": FULL, "problems": [], "agrees": None, "error": None, "fingerprint": deeds.of_ranks(first)}
    known = clock("proof-model", lambda: fresh(args))
    loud = _is_loud(args, known)
    done = clock("proof-steps", lambda: _do(args, world, timed, known, loud))
    record["problems"] += clock("proof-ranks", lambda: _own_problems(args, world, known, done, first))
    timed.clear()
    _free(world)
    try:
        expected = clock("proof-reference", lambda: _expect(args, world, known, loud))
        problem = None
    except Exception as error:  # the figure has been measured; that a float32 model has no room is reported, not raised
        if failures.kind_of(error) != "oom":
            raise
        expected, problem = {}, failures.describe(error)
    record.update(flops_per_item=expected.get("flops_per_item"), flops_scope=_SCOPE[args.mode], quiet=loud)
    record["error"] = next((p for p in world.gather(problem) if p), None)
    if record["error"] is None:
        clock("proof-judgement", lambda: _judge(args, world, known, done, expected, record))
    if record["error"] is None and record["problems"]:  # the cause may be the model itself
        record["problems"][:0] = rules.of_all_ranks(world, rules.repeats(*expected["reference"].twice()))
    if record["error"] is None or record["problems"]:
        record["agrees"] = not record["problems"]
    return record


_SCOPE = {"train": "forward and backward", "infer": "forward"}


def _is_loud(args, model):
    """Whether the step as it is timed is too noisy to be judged closely."""
    rounds_much = args.precision != "fp32" and families.has_batch_norm(model)
    return model.training and (rounds_much or families.has_dropout(model))


def glance(args, world, timed, first, clock):
    """Where a launch of the cell was proven: one more step after the windows. The host holds the fingerprint of the first step,
    and all losses, against those of that launch.
    """
    problems = clock("proof-glance", lambda: _look_again(args, world, timed))
    fingerprint = deeds.of_ranks(first)
    return {"proof": FINGERPRINT, "problems": problems, "agrees": not problems, "error": None, "fingerprint": fingerprint}


def _look_again(args, world, timed):
    mark = deeds.Fingerprint(timed["step"], timed["model"])
    timed["step"].run(BATCH)
    loss = timed["step"].losses()[-1]
    own = mark.read(loss)
    return rules.of_all_ranks(world, rules.alive(own)) + rules.shared_norm(args, world, own)


def _free(world):
    gc.collect()
    world.kind.release()


def _do(args, world, timed, known, loud):
    """What the timed callable does: "again" (its first step), "timed" and, where that is too noisy to be judged, "quiet"."""
    model, step = timed["model"], timed["step"]
    if args.mode == "infer":
        return _infer(args, model, step, known, loud)
    deeds.restore(model, known)
    mark = deeds.Fingerprint(step, model)
    first = deeds.training(args, model, step, known, 0)
    done = {"again": mark.read(first.loss), "timed": deeds.training(args, model, step, known, BATCH)}
    if loud:
        with families.quiet(model):
            _forget_graphs(args)
            done["quiet"] = deeds.training(args, model, step, known, BATCH)
    return done


def _infer(args, model, step, known, loud):
    mark = deeds.Fingerprint(step, model)
    done = {"again": mark.read(deeds.inference(args, model, step, known, 0)[0])}
    done["timed"] = deeds.inference(args, model, step, known, BATCH)
    if loud:
        deeds.restore(model, known)
        with families.quiet(model):
            _forget_graphs(args)
            done["quiet"] = deeds.inference(args, model, step, known, BATCH)
    return done


def _forget_graphs(args):
    """Old versions compile a model's settings into its graph without a guard."""
    if args.compile:
        torch._dynamo.reset()


def _expect(args, world, known, loud):
    """What eager float32 gives for the judged step, how far the precision alone moves that, and what the timed step gives;
    of the latter, also what it gives from weights that were rounded.
    """
    reference = Reference(args, world, known, BATCH)
    rough = None
    if not loud:
        (exact, flops), rounded = reference.counted_answer(), reference.rounded()
    else:
        kept = [one.detach().cpu().clone() for one in deeds.state(reference.model)]
        with families.quiet(reference.model):
            (exact, flops), rounded = reference.counted_answer(), reference.rounded()
        from_rounded = reference.answer()
        deeds.set_state(reference.model, kept)
        rough = (reference.answer(), from_rounded)
    each = None if flops is None else flops / args.batch
    return {"exact": exact, "rounded": rounded, "rough": rough, "flops_per_item": each, "reference": reference}


def _judge(args, world, known, done, expected, record):
    """Fill `record` with the comparison, its tolerances and what is wrong."""
    deed = done.get("quiet", done["timed"])
    (loss, exact), (rounded_loss, rounded) = expected["exact"], expected["rounded"]
    if args.mode == "train":
        labels = agreement.groups([name for name, _ in known.named_parameters()])
        own, exact, rounded = deed.gradients, _shared(args, world, exact), _shared(args, world, rounded)
    else:
        labels, own = ["outputs"] * len(exact), deed[1]
    noise = agreement.distances(rounded, exact, labels)
    found, allowed = (
        agreement.distances(own, exact, labels),
        agreement.tolerances(args.arithmetic, noise, args.mode == "train" and families.has_rectifiers(known)),
    )
    problems = rules.far_gradients(args, found, allowed, noise)
    losses = rules.losses(args, world, deed[0], loss, rounded_loss)
    problems += losses.pop("problems") + rules.batch(args, expected["reference"].batch)
    if args.mode == "train":
        problems += rules.rough(done["timed"], expected["rough"], labels)
    else:
        problems += _compare_outputs(args, own, exact, rounded, record)
    record.update(losses, groups=_by_group(found, allowed, noise, agreement.squares(own, labels)))
    record["problems"] += rules.of_all_ranks(world, problems)


def _compare_outputs(args, own, exact, rounded, record):
    """Put the figures of the outputs into `record`; returns what is wrong."""
    found, allowed = parity.figures(own, exact), parity.limits(args.arithmetic, parity.figures(rounded, exact))
    record["parity"] = dict(found, **allowed)
    return parity.problems(args.arithmetic, found, allowed)


def _shared(args, world, tensors):
    return world.mean(tensors) if args.parallel in ONE_MODEL else tensors


def _by_group(found, allowed, noise, size):
    return [
        {
            "name": "all" if label is None else label,
            "norm": (sum(size.values()) if label is None else size[label]) ** 0.5,
            "distance": found[label],
            "tolerance": allowed[label],
            "noise": noise[label],
        }
        for label in found
    ]


def _own_problems(args, world, known, done, first):
    """What needs no reference: the optimizer's rule, what the ranks share, and the first step once more."""
    problems = rules.same_fingerprint(args, done["again"], first[world.rank], "in the first step of the launch")
    if args.mode == "infer":
        return rules.of_all_ranks(world, problems)
    problems += rules.change(args, done["timed"]) + rules.frozen(args, known)
    return rules.of_all_ranks(world, problems) + rules.sharing(args, world, done["timed"])
