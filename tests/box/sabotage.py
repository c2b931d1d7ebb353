"""Ways to break the box's work without breaking the box: functions that each patch one of its modules before it runs.

tests/sabotaged.py lists the launches that run them. Only the path that is timed is broken, as a wrong runtime, wrapper or
setting would break it.
"""

import contextlib
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "images" / "workload"))


def no_backward():
    import torch

    torch.Tensor.backward = lambda self, *args, **kwargs: None


def constant_loss():
    _replace_training_loss(lambda real, model, batch: real(model, batch) * 0 + 7.0)


def no_optimizer():
    import torch

    for kind in (torch.optim.SGD, torch.optim.AdamW):
        kind.step = lambda self, closure=None: None


def half_a_batch():
    _replace_training_loss(lambda real, model, batch: real(model, {k: v[: len(v) // 2] for k, v in batch.items()}))


def no_all_reduce():
    """The ranks train side by side, each alone."""
    from world import World

    World.distribute = lambda self, args, model: model


def unsynchronized_shards():
    """FSDP keeps each rank's own gradients apart, and the optimizer has none to use."""
    import sharded

    real = sharded.shard

    def shard(model, device):
        done = real(model, device)
        done.set_requires_gradient_sync(False)
        return done

    sharded.shard = shard


def dropped_gradient_sync():
    """DDP's hook returns the rank's own gradients."""
    import torch

    from world import World

    real = World.distribute

    def distribute(self, args, model):
        wrapped = real(self, args, model)

        def keep(state, bucket):
            future = torch.futures.Future()
            future.set_result(bucket.buffer())
            return future

        if wrapped is not model:
            wrapped.register_comm_hook(None, keep)
        return wrapped

    World.distribute = distribute


def frozen_weights():
    """All but the last two parameters are frozen, also in the reference."""
    import families

    real = families.of

    def of(model):
        family = real(model)
        build = getattr(family, "honest_build", family.build)

        def frozen(args, device):
            made, chosen = build(args, device)
            for parameter in list(made.parameters())[:-2]:
                parameter.requires_grad_(False)
            return made, chosen

        family.honest_build, family.build = build, frozen
        return family

    families.of = of


def wrong_batch_size():
    import families

    real = families.batches
    families.batches = lambda args, device: [{k: v[:-1] for k, v in batch.items()} for batch in real(args, device)]


def loss_of_one_rank():
    """Only rank 0 learns from its batch; the gradients of the others are zero."""
    import os

    if os.environ.get("RANK", "0") != "0":
        _replace_training_loss(lambda real, model, batch: real(model, batch) * 1e-20)


def no_autocast():
    """Of the timed step alone: the probe of the precision finds nothing."""
    import measure
    import precision

    class Without:
        def __getattr__(self, name):
            return getattr(precision, name)

        def autocast(self, *args):
            return contextlib.nullcontext()

    measure.precision = Without()


def stale_outputs():
    """The compiled model returns what it first computed."""
    import torch

    class Stale(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.inner, self.kept = model, []

        def forward(self, *args, **words):
            outputs = self.inner(*args, **words)
            self.kept = self.kept or [_detached(outputs)]
            return _with_values(outputs, self.kept[0])

    torch.compile = lambda model: Stale(model).train(model.training)


def _detached(outputs):
    import torch

    if torch.is_tensor(outputs):
        return outputs.detach()
    return {name: one.detach() for name, one in outputs.items() if torch.is_tensor(one)}


def _with_values(outputs, values):
    """The gradients of `outputs`, the values of `values`."""
    import torch

    if torch.is_tensor(outputs):
        return outputs + (values - outputs).detach()
    for name, value in values.items():
        outputs[name] = outputs[name] + (value - outputs[name]).detach()
    return outputs


def stale_graph():
    """An exported graph gives what it first gave."""
    from runtimes.exporting import Exported

    real = Exported.__call__

    def call(self, *positional, **named):
        if not hasattr(self, "kept"):
            self.kept = real(self, *positional, **named)
        return self.kept

    Exported.__call__ = call


def graph_of_other_weights():
    """The exported model isn't the one of the seed; the probe's modules, of one weight, are."""
    _change_exported(lambda weight: weight * 1.001)


def rounded_graph():
    """The exported model, but not the probe's modules, has weights of bfloat16."""
    _change_exported(lambda weight: weight.bfloat16().float())


def _change_exported(change):
    from runtimes.exporting import Export

    real = Export.__init__

    def init(self, model, example):
        weights = list(model.parameters())
        for weight in weights if len(weights) > 1 else ():
            weight.data = change(weight.data)
        real(self, model, example)

    Export.__init__ = init


def weights_in_float32():
    """The timed model keeps its weights in float32; the probe's modules don't."""
    import precision

    real = precision.converted
    precision.converted = lambda name, thing: thing if _is_model(thing) or _is_batch(thing) else real(name, thing)


def _is_model(thing):
    return hasattr(thing, "parameters") and len(list(thing.parameters())) > 1


def _is_batch(thing):
    """A batch of images; what the probe is given has other sizes."""
    return hasattr(thing, "dim") and thing.dim() == 4 and thing.shape[1] == 3


def nothing_quantized():
    """torchao leaves the model as it is, but not the probe's one layer."""
    import torchao.quantization

    real = torchao.quantization.quantize_
    torchao.quantization.quantize_ = lambda model, config: None if _is_model(model) else real(model, config)


def _replace_training_loss(loss):
    import families

    real = families.of

    def of(model):
        family = real(model)
        honest = getattr(family, "honest_loss", family.training_loss)
        family.honest_loss, family.training_loss = honest, lambda net, batch: loss(honest, net, batch)
        return family

    families.of = of
