"""What a built model computes and reads, seen in small passes of it: nothing is concluded from names or configurations."""

import collections
import functools
import math

import torch

import families
from proofs import arithmetic, operations

LENGTHS = (16, 64, 256)
"""Tokens of the shortest of three passes; more where a layer works on chunks of tokens, which are filled up."""
_EXACT = 0.01
"""The largest relative error of the third pass by what the first two tell."""
_LOOKUPS = ("embedding", "index", "index_select", "gather", "take")
HEAD = "head"


class Work:
    """The FLOPs of a forward pass of one sequence, by part: of each layer that has a number, of the head, and of all else."""

    def __init__(self, parts):
        self._parts = parts

    def flops(self, tokens, logits, pairs):
        """Return the FLOPs for so many `tokens` and `logits`; ``pairs(layer)``: pairs of tokens that attention there needs."""
        total = 0.0
        for part, (linear, square) in self._parts.items():
            total += linear * (logits if part == HEAD else tokens) + square * pairs(part)
        return total


def work_of(model):
    """Return the Work of a language model. Raises ValueError where it grows neither with the tokens nor with their pairs."""
    config = getattr(model.config, "get_text_config", lambda: model.config)()
    most = getattr(config, "max_position_embeddings", None) or math.inf
    fits = [length for length in LENGTHS if 3 * length <= most] or [int(most) // 3]
    for length in fits:
        passes = [flops_by_part(model, times * length) for times in (1, 2, 3)]
        parts = {part: _fit(length, *(found.get(part, 0) for found in passes)) for part in passes[-1]}
        if None not in parts.values():
            return Work(parts)
    part = next(part for part, fit in parts.items() if fit is None)
    raise ValueError("the work of part %s grows neither with the tokens nor with their pairs" % part)


def _fit(length, once, twice, thrice):
    """Return (linear, square) such that linear · tokens + square · tokens² is what three passes computed; else None."""
    linear, square = (4 * once - twice) / (2 * length), (twice - 2 * once) / (2 * length**2)
    expected = 3 * length * linear + 9 * length**2 * square
    is_right = min(linear, square) >= -_EXACT * once / length and abs(expected - thrice) <= _EXACT * thrice
    return (max(linear, 0.0), max(square, 0.0)) if is_right else None


def flops_by_part(model, length):
    """Return the FLOPs of a forward pass of one sequence, by part (see Work)."""
    watched, parts, stack = arithmetic.Watched(), collections.Counter(), ["others"]
    watched.weigh = functools.partial(_weigh, parts, stack)
    head, hooks = model.get_output_embeddings(), []
    for module in model.modules():
        number = getattr(module, "layer_idx", None)
        part = HEAD if module is head else number if isinstance(number, int) else None
        if part is not None:
            hooks.append(module.register_forward_pre_hook(functools.partial(_enter, stack, part)))
            hooks.append(module.register_forward_hook(functools.partial(_leave, stack)))
    try:
        tokens = torch.zeros((1, length), dtype=torch.long, device=next(model.parameters()).device)
        with torch.no_grad(), families.quiet(model), watched:
            model(input_ids=tokens, use_cache=False)
    finally:
        for hook in hooks:
            hook.remove()
    return parts


def _enter(stack, part, *_called):
    stack.append(part)


def _leave(stack, *_called):
    stack.pop()


def _weigh(parts, stack, name, namespace, given, result, _tensors):
    flops = operations.count(name, namespace, given, result)
    if flops is None:
        raise ValueError("no formula for %s" % name)
    if flops:
        parts[stack[-1]] += flops


class Reads(arithmetic.Mode):
    """A mode that sees which bytes of a model's weights the operations read, step by step, of which each enters the mode: of a
    table the rows looked up, of experts those that get a token.
    """

    def __init__(self, model):
        super().__init__()
        self._names = {_storage(leaf): name for name, p in model.named_parameters() for leaf in _leaves(p)}
        self._sizes = collections.Counter()
        for leaf in {_storage(leaf): leaf for p in model.parameters() for leaf in _leaves(p)}.values():
            self._sizes[_storage(leaf)] = leaf.numel() * leaf.element_size()
        self._steps = []

    def __enter__(self):
        self._steps.append((collections.defaultdict(set), collections.Counter()))
        return super().__enter__()

    def see(self, name, given, results):
        """Note what an operation on these plain tensors reads; one whose result is a view, or empty, reads nothing."""
        made, is_empty = {_storage(leaf) for leaf in results}, not any(leaf.numel() for leaf in results)
        for leaf in given:
            storage = _storage(leaf)
            if storage in self._sizes and storage not in made and not is_empty:
                self._note(name, leaf, storage, given)

    def _note(self, name, leaf, storage, given):
        ranges, looked_up = self._steps[-1]
        size, offset = leaf.element_size(), leaf.storage_offset()
        indices = [tensor for tensor in given if not tensor.is_floating_point() and tensor is not leaf]
        if name in _LOOKUPS and indices:
            looked_up[storage] += len(indices[0].unique()) * leaf.numel() // len(leaf) * size
        elif "grouped_mm" in name and leaf.dim() == 3 and indices:
            ends = indices[-1].tolist()
            each = leaf.stride(0)
            used = [number for number, (end, begin) in enumerate(zip(ends, [0, *ends])) if end > begin]
            ranges[storage].update((size * (offset + number * each), size * (offset + (number + 1) * each)) for number in used)
        elif leaf.numel():
            span = 1 + sum((length - 1) * step for length, step in zip(leaf.shape, leaf.stride()))
            ranges[storage].add((size * offset, size * (offset + span)))

    def least(self):
        """Return the bytes of weights that a step reads, the mean over the steps, and the share of the experts that it touches:
        of all weights of which some steps read a part only; None without any.
        """
        read = [self._read(*step) for step in self._steps]
        whole = {name for name, size in self._sizes.items() if all(step.get(name, 0) >= size for step in read)}
        looked_up = {name for _, counts in self._steps for name in counts}
        routed = {
            storage
            for storage in self._sizes
            if storage not in whole | looked_up
            if families.EXPERTS in self._names[storage] or any(step.get(storage) for step in read)
        }
        touched = sum(step.get(storage, 0) for step in read for storage in routed) / len(read)
        share = touched / sum(self._sizes[storage] for storage in routed) if routed else None
        return sum(sum(step.values()) for step in read) / len(read), share

    def _read(self, ranges, looked_up):
        """Return the bytes read of each weight."""
        read = {storage: _union(spans) for storage, spans in ranges.items()}
        for storage, count in looked_up.items():
            read[storage] = min(self._sizes[storage], read.get(storage, 0) + count)
        return read


def _dispatch(reads, func, types, args=(), kwargs=None):
    result = func(*args, **(kwargs or {}))
    reads.see(getattr(func, "__name__", "").partition(".")[0], _tensors(args), _tensors((result,)))
    return result


Reads.__torch_dispatch__ = _dispatch
"""Set after the class: see arithmetic.Watched."""


def _union(spans):
    """Return the length of the union of (begin, end)."""
    total, reached = 0, -1
    for begin, end in sorted(spans):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _storage(leaf):
    return leaf.untyped_storage()._cdata


def _leaves(tensor):
    """Return the plain tensors of a tensor: of a quantized one its parts."""
    if hasattr(tensor, "__tensor_flatten__"):
        return [leaf for name in tensor.__tensor_flatten__()[0] for leaf in _leaves(getattr(tensor, name))]
    return [tensor]


def _tensors(values):
    """Return the plain tensors among arguments, in lists, too."""
    found = []
    for value in values:
        if torch.is_tensor(value):
            found += _leaves(value)
        elif isinstance(value, (list, tuple)):
            found += _tensors(value)
    return found
