"""Generation: a prompt is read at once (prefill), then come tokens one after the other (decode), with a static KV cache.

A step is a batch of requests: `sequence_length` tokens of prompt, `output_length` tokens of output. The token that a step of
decode reads was drawn beforehand, so that the work does not depend on rounding; what would have been chosen (the largest logit)
is computed all the same, and the next step waits for it. The logits of some outputs are the step's outputs, which are compared
with a forward pass of the whole sequence without a cache.
"""

import math
from statistics import fmean
from time import monotonic, perf_counter_ns

import torch

import extras
import failures
import families
import kept
import measure
import measurements
import observation
import precision
import roofline
from channel import Numerics, Unsupported

MODE = {
    "trains": False,
    "windows": True,
    "timed": "prefill, decode",
    "noun": "generation",
    "verb": "generates",
}
PREFILL, DECODE = "prefill", "decode"
OBSERVED = 16
"""Steps of decode whose reading of weights is observed."""
LEAST = 3
"""Requests that are timed piece by piece however long they take, if as many are asked for."""


def make_step(args, world, family, model, batches):
    """Make the Step of generation: a whole request of the batch."""
    if args.output_length < 2:
        raise Unsupported("output_length is %d: generation has a prompt and at least two tokens" % args.output_length)
    generator, last, chosen = _Generator(args, world, family, model), {}, kept.Chosen()

    def run(index):
        last.clear()
        batch = batches[index % len(batches)]
        with torch.no_grad():
            pieces = generator.request(batch)
        if len(pieces) != args.output_length:
            raise Numerics("a generation ended after %d of %d tokens" % (len(pieces), args.output_length))
        chosen.keep(index % len(batches), generator.chosen)
        last.update(outputs=torch.stack([logits for logits in pieces if logits is not None], dim=1), batch=batch)

    def losses():
        with torch.no_grad():
            return [float(family.loss(last["outputs"], last["batch"]))]

    return measure.Step(run, losses, run, lambda: None, None, None, lambda: last["outputs"], generator, batches, chosen)


class _Generator:
    """The model with its cache, which all requests use; called, it serves a request."""

    def __init__(self, args, world, family, model):
        self._args, self._world, self._model = args, world, model
        self._cache = family.static_cache(model, args.sequence_length + args.output_length)
        self._is_tried, self.chosen = False, []
        self._depths = set(families.depths(args).tolist())

    def __call__(self, batch):
        return self.pieces(batch)

    def request(self, batch):
        """Return the logits of each piece. Raises Unsupported if the model can't do the first request with this cache."""
        try:
            pieces = [logits for _, logits in self.pieces(batch)]
        except Exception as error:  # of any class: models of the library differ in how they refuse a cache
            if self._is_tried or failures.kind_of(error) != "crashed":
                raise
            prompt = batch["input_ids"][:, : self._args.sequence_length]
            self._model(input_ids=prompt, use_cache=False)  # raises if the cache isn't the cause
            raise Unsupported("no static cache fits the model: %s" % failures.describe(error)) from error
        if not self._is_tried and not any(any(roofline.kept(layer)) for layer in self._cache.layers):
            raise Unsupported("no static cache fits the model: its forward pass keeps nothing there")
        self._is_tried = True
        return pieces

    def pieces(self, batch):
        """Yield each piece of a request when its work is submitted: its phase, and its logits [B, V] where they are kept."""
        prompt, tokens = self._args.sequence_length, batch["input_ids"]
        self._cache.reset()
        self.chosen = []
        logits = self._forward(tokens[:, :prompt], 0)
        yield PREFILL, logits if prompt - 1 in self._depths else None
        for position in range(prompt, prompt + self._args.output_length - 1):
            chosen = logits.argmax(-1)
            self.chosen.append(chosen)
            logits = self._forward((tokens[:, position] + (chosen - chosen))[:, None], position)
            yield DECODE, logits if position in self._depths else None

    def _forward(self, tokens, begin):
        """Return the logits of the last of `tokens`, which stand at the positions from `begin` on."""
        return self._outputs(self._model, tokens, begin).logits[:, -1]

    def _outputs(self, model, tokens, begin):
        positions = torch.arange(begin, begin + tokens.shape[1], device=tokens.device)
        with precision.autocast(self._args.precision, self._world.device):
            return model(
                input_ids=tokens, past_key_values=self._cache, cache_position=positions, use_cache=True, logits_to_keep=1
            )

    def type_of_products(self):
        """Return the type of the products' operands; of a quantized model that of what is not."""
        return next(p for p in self._model.parameters() if p.dim() == 1 or not hasattr(p, "__tensor_flatten__")).dtype

    def narrow_types(self):
        """Return the types in which the cache keeps numbers with fewer bits than the products' operands have."""
        bits, kept_in = torch.finfo(self.type_of_products()).bits, set()
        for layer in self._cache.layers:
            kept_in.update(str(part.dtype)[6:] for part, _ in roofline.kept(layer) if torch.finfo(part.dtype).bits < bits)
        return sorted(kept_in)

    def least_work(self, batch):
        """Return the least that a step of decode reads, as bytes of weights and of the cache, and the FLOPs of a prefill; None
        for what can't be had. Weights and experts are seen in a part of a request of the model in eager mode.
        """
        plain, prompt = getattr(self._model, "_orig_mod", self._model), self._args.sequence_length
        weights, share = extras.attempt("bytes of weights", lambda: self._reads(plain, batch).least()) or (None, None)
        layers, positions = self._cache.layers, range(prompt, prompt + self._args.output_length - 1)
        work = extras.attempt("FLOPs of a prefill", lambda: observation.work_of(plain))
        return {
            "expert_share": share,
            "weight_bytes": weights,
            "cache_bytes": extras.attempt("bytes of the cache", lambda: roofline.cached(layers, positions)),
            "prefill_flops": work and roofline.prefill_flops(self._args, work, roofline.windows_of(self._cache)),
        }

    def _reads(self, plain, batch):
        reads, prompt, tokens = observation.Reads(plain), self._args.sequence_length, batch["input_ids"]
        self._cache.reset()
        with torch.no_grad():
            self._outputs(plain, tokens[:, :prompt], 0)
            for position in range(prompt, prompt + min(OBSERVED, self._args.output_length - 1)):
                with reads:
                    self._outputs(plain, tokens[:, position : position + 1], position)
        return reads


def streams(args, world, step, pace, new):
    """Return the lines of the phases: requests on new batches, of which each piece is timed alone."""
    phases = {name: {"items": [], "seconds": [], "requests": []} for name in (PREFILL, DECODE)}
    items = {PREFILL: args.batch * args.sequence_length, DECODE: args.batch}
    count = min(args.requests, max(LEAST, math.ceil(args.request_seconds / pace)))
    if not count:
        return []
    inputs = new.on_device()
    with torch.no_grad(), measure.no_garbage_collection():
        world.barrier()
        start = monotonic()
        for request in range(count):
            batch = step.batches[next(inputs)]
            world.synchronize()
            begin = perf_counter_ns()
            for phase, _ in step.serve(batch):
                world.synchronize()
                end = perf_counter_ns()
                for field, value in (("items", items[phase]), ("seconds", (end - begin) / 1e9), ("requests", request)):
                    phases[phase][field].append(value)
                begin = end
        edges = start, monotonic()
        roof = extras.attempt("the roof", lambda: _roof(args, world, step, pace, phases[DECODE]["seconds"]))
        roofs = world.gather(roof)
    lines = [line for name, rows in phases.items() for line in measurements.stream(world, name, "tokens", rows, edges)]
    return lines + [("roof", dict(fields, rank=rank)) for rank, fields in enumerate(roofs) if fields]


ABOVE = 1.25
"""A step that reads faster than the roof by more than this has not read its weights; a machine may be busier for a while."""


def _roof(args, world, step, pace, seconds):
    """Measure what the device does at most; return that and what steps need at least. Raise Numerics if they had more.

    `pace`: the seconds of a whole request in the windows; `seconds`: of the steps of decode that were timed alone.
    """
    least = step.serve.least_work(step.batches[0])
    known, free = [least[name] for name in ("weight_bytes", "cache_bytes")], world.kind.free_bytes()
    size = None if None in known else sum(known)
    most = world.kind.array_bytes if free is None else min(world.kind.array_bytes, free // 2)
    roofs, near = roofline.bandwidth(world, most), roofline.bandwidth(world, min(most, int(size or most)))
    limit = max(*roofs.values(), *near.values())
    for what, time_ in (("a step of decode", fmean(seconds)), ("the windows", pace / args.output_length)):
        if size and size / time_ > ABOVE * limit:
            raise Numerics(_ABOVE_ROOF % (what, size / time_ / 1e9, size / 1e6, limit / 1e9))
    dtype = step.serve.type_of_products()
    return dict(
        least,
        product_type=str(dtype).replace("torch.", ""),
        product_flops_per_second=roofline.product_rate(world, dtype, most),
        limit_bytes_per_second=limit,
        array_bytes=most,
        **{kind + "_bytes_per_second": rate for kind, rate in roofs.items()},
    )


_ABOVE_ROOF = (
    "%s would read %.0f GB/s, as each token takes %.1f MB of weights and cache, and this device reads %.0f GB/s at most: "
    "the work was not done"
)
