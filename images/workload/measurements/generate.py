"""Generation: a prompt is read at once (prefill), then come tokens one after the other (decode), with a static KV cache.

A step is a batch of requests: `sequence_length` tokens of prompt, `output_length` tokens of output. The token that a step of
decode reads was drawn beforehand, so that the work does not depend on rounding; what would have been chosen (the largest logit)
is computed all the same, and the next step waits for it. The logits of some outputs are the step's outputs, which are compared
with a forward pass of the whole sequence without a cache.
"""

import math
import time

import torch

import families
import measure
import measurements
import precision
from channel import Numerics, Unsupported

MODE = {
    "trains": False,
    "windows": True,
    "timed": "prefill, decode",
    "noun": "generation",
    "verbs": ("generates with", "generate with"),
}
PREFILL, DECODE = "prefill", "decode"
LEAST = 3
"""Requests that are timed piece by piece however long they take, if as many are asked for."""


def make_step(args, world, family, model, batches):
    """Make the Step of generation: a whole request of the batch."""
    if args.output_length < 2:
        raise Unsupported("output_length is %d: generation has a prompt and at least two tokens" % args.output_length)
    generator, last = _Generator(args, world, family, model), {}

    def run(index):
        last.clear()
        batch = batches[index % len(batches)]
        with torch.no_grad():
            pieces = [logits for _, logits in generator.pieces(batch)]
        if len(pieces) != args.output_length:
            raise Numerics("a generation ended after %d of %d tokens" % (len(pieces), args.output_length))
        last.update(outputs=torch.stack([logits for logits in pieces if logits is not None], dim=1), batch=batch)

    def losses():
        with torch.no_grad():
            return [float(family.loss(last["outputs"], last["batch"]))]

    return measure.Step(run, losses, run, lambda: None, None, None, lambda: last["outputs"], generator.pieces, batches)


class _Generator:
    """The model with its cache, which all requests use."""

    def __init__(self, args, world, family, model):
        self._args, self._world, self._model = args, world, model
        self._cache = family.static_cache(model, args.sequence_length + args.output_length)
        self._depths = set(families.depths(args).tolist())

    def pieces(self, batch):
        """Yield each piece of a request when its work is submitted: its phase, and its logits [B, V] where they are kept."""
        prompt, tokens = self._args.sequence_length, batch["input_ids"]
        self._cache.reset()
        logits = self._forward(tokens[:, :prompt], 0)
        yield PREFILL, logits if prompt - 1 in self._depths else None
        for position in range(prompt, prompt + self._args.output_length - 1):
            chosen = logits.argmax(-1)
            logits = self._forward((tokens[:, position] + (chosen - chosen))[:, None], position)
            yield DECODE, logits if position in self._depths else None

    def _forward(self, tokens, begin):
        """Return the logits of the last of `tokens`, which stand at the positions from `begin` on."""
        positions = torch.arange(begin, begin + tokens.shape[1], device=tokens.device)
        with precision.autocast(self._args.precision, self._world.device):
            outputs = self._model(
                input_ids=tokens, past_key_values=self._cache, cache_position=positions, use_cache=True, logits_to_keep=1
            )
        return outputs.logits[:, -1]


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
        start = time.monotonic()
        for request in range(count):
            batch = step.batches[next(inputs)]
            world.synchronize()
            begin = time.perf_counter_ns()
            for phase, _ in step.serve(batch):
                world.synchronize()
                end = time.perf_counter_ns()
                for field, value in (("items", items[phase]), ("seconds", (end - begin) / 1e9), ("requests", request)):
                    phases[phase][field].append(value)
                begin = end
        edges = start, time.monotonic()
    return [line for name, rows in phases.items() for line in measurements.stream(world, name, "tokens", rows, edges)]
