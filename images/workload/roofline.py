"""The roofline of a generation: what the device does at most, measured in the same launch, and the least that a step must read.

Williams, Waterman and Patterson, "Roofline", CACM 52(4), 2009; copy and triad are those of STREAM (McCalpin, 1995).
"""

import functools
import time

import torch

import families
import measurements

REPEATS, MOST_SECONDS = 20, 0.5
"""A roof is the best of so many runs; fewer if they take longer."""
_ALPHA = 3.0


def bandwidth(world, size):
    """Return the most bytes/s of the device's memory by kind, for arrays that are `size` bytes together.

    copy: a = b; triad: a = b + 3 c; read: the dot product of b and c. The bytes count that these read and write, not those that
    a cache adds to them.
    """
    memory = torch.ones(max(size // 4, 12), device=world.device)
    half, third = len(memory) // 2, len(memory) // 3
    halves, thirds = memory.split(half)[:2], memory.split(third)[:3]
    actions = {
        "copy": lambda: halves[0].copy_(halves[1]),
        "triad": lambda: torch.add(thirds[0], thirds[1], alpha=_ALPHA, out=thirds[2]),
        "read": lambda: torch.dot(*halves),
    }
    return {kind: 4 * len(memory) / _least_seconds(world, action) for kind, action in actions.items()}


def product_rate(world, dtype, most):
    """Return the most FLOP/s of a product of square matrices of `dtype`; a matrix and the result take `most` bytes at most."""
    matrix = torch.ones(1, 1, dtype=dtype, device=world.device)
    size = min(world.kind.product_size, max(64, int((most / 2 / matrix.element_size()) ** 0.5) // 64 * 64))
    matrix = matrix.repeat(size, size)
    return 2 * size**3 / _least_seconds(world, lambda: matrix @ matrix)


def _least_seconds(world, action):
    """Return the seconds of the fastest run of `action` on the device."""
    action()
    least, end = float("inf"), time.monotonic() + MOST_SECONDS
    for _ in range(REPEATS):
        begin = world.kind.mark()
        action()
        stop = world.kind.mark()
        world.synchronize()
        least = min(least, world.kind.seconds(begin, stop))
        if time.monotonic() > end:
            break
    return max(least, 1e-9)


def bytes_of(tensor):
    """Return the bytes that a tensor has in memory; of a quantized one, those of its parts."""
    if hasattr(tensor, "__tensor_flatten__"):
        return sum(bytes_of(getattr(tensor, name)) for name in tensor.__tensor_flatten__()[0])
    return tensor.numel() * tensor.element_size()


def weights(model, batch, touched):
    """Return the bytes of weights that a step of decode must read at least, `touched` of the experts' (a share from 0 to 1).

    A table that is only looked up gives one row for each of `batch` tokens; one that also makes the logits is read as a whole.
    """
    tables, total = _only_looked_up(model), 0.0
    for name, parameter in model.named_parameters():
        share = batch / len(parameter) if id(parameter) in tables else touched if families.EXPERTS in name else 1
        total += share * bytes_of(parameter)
    return total


def _only_looked_up(model):
    """Return the ids of the weights of embeddings that no other module uses."""
    tables, others = set(), set()
    for module in model.modules():
        weight = getattr(module, "weight", None)
        (tables if isinstance(module, torch.nn.Embedding) else others).add(id(weight))
    return tables - others


def forward_flops(args, model, tokens, logits, pairs):
    """Return the FLOPs of a forward pass by formula: 2 for each weight in a product and each token, and the attention's.

    These are 4 · layers · width of the heads for each of `pairs` of tokens (arXiv:2204.02311, appendix B, forward pass alone).
    Of experts those count that a token is sent to, of the head those of the `logits` that are computed. All for one sequence.
    """
    tables, head, config = _only_looked_up(model), model.get_output_embeddings().weight, model.config
    matrices = [(name, p) for name, p in model.named_parameters() if p.dim() > 1 and id(p) not in tables and p is not head]
    active = config.num_experts_per_tok / _experts(config) if _experts(config) else 1
    per_token = sum(p.numel() * (active if families.EXPERTS in name else 1) for name, p in matrices)
    width = config.num_attention_heads * (getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)
    return 2 * (tokens * per_token + logits * head.numel()) + 4 * config.num_hidden_layers * width * pairs


def _experts(config):
    """Return how many experts a layer has; 0 if it has none."""
    return getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None) or 0


def prefill_flops(args, model):
    """Return the least FLOPs that a batch of prompts needs: each token sees those before it, and the last has logits."""
    length = args.sequence_length
    return args.batch * forward_flops(args, model, length, 1, length * (length + 1) / 2)


def flops_per_item(args, model):
    """Return the FLOPs of an item by formula, as `forward_flops`; None for a model that is not measured in tokens.

    Training has three times those of the forward pass, and attention counts for all pairs of tokens, as in PaLM's formula
    6 N + 12 · layers · width · length (arXiv:2204.02311, appendix B), whose N here leaves out tables that are only looked up.
    """
    if families.facts_of(args).get("unit") != "tokens":
        return None
    if args.mode == "generate":
        whole = args.sequence_length + args.output_length - 1
        return forward_flops(args, model, whole, args.output_length, whole * (whole + 1) / 2) / args.output_length
    length = args.sequence_length
    return (3 if measurements.trains(args) else 1) * forward_flops(args, model, length, length, length**2) / length


def cached(layers, positions):
    """Return the bytes of the KV cache that a step reads, the mean over `positions`: that of each token and of all before it.

    `layers`: the keys and values of each layer, [B, heads, length, width]; a sliding window's length is less than the depth.
    """
    total = 0.0
    for pair in layers:
        for tensor in pair:
            depth = sum(min(position + 1, tensor.shape[2]) for position in positions) / len(positions)
            total += bytes_of(tensor) / tensor.shape[2] * depth
    return total


class Routes:
    """The share of the experts that calls of the model touch, seen by hooks on its routers, call by call."""

    def __init__(self, model):
        self.touched, self._hooks = [], []
        for layer in model.modules():
            router = getattr(layer, "gate", None) or getattr(layer, "router", None)
            if router is not None and getattr(layer, "experts", None) is not None:
                chosen = getattr(layer, "top_k", None) or getattr(router, "top_k", None)
                self._hooks.append(router.register_forward_hook(functools.partial(self._see, chosen)))

    def __bool__(self):
        return bool(self._hooks)

    def drop(self):
        for hook in self._hooks:
            hook.remove()

    def _see(self, chosen, _module, _inputs, outputs):
        """Note a call of a router. It returns the logits [tokens, experts], of which the `chosen` largest count, or, in a tuple
        with other tensors, the numbers of the experts.
        """
        parts = outputs if isinstance(outputs, tuple) else (outputs,)
        experts = max(part.shape[-1] for part in parts if part.is_floating_point())
        numbers = next((part for part in parts if not part.is_floating_point()), None)
        if numbers is None:
            numbers = parts[0].topk(chosen, dim=-1).indices
        self.touched.append(len(numbers.unique()) / experts)
