"""Ways to break the workload's work without breaking the workload: functions that each patch one of its modules before it runs.

tests/support/sabotaged.py lists the launches that run them. Only the path that is timed is broken, as a wrong runtime, wrapper
or setting would break it.
"""

import contextlib
import os
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

    for optimizer in (torch.optim.SGD, torch.optim.AdamW):
        optimizer.step = lambda self, closure=None: None


def no_masters():
    """Let the optimizer change the weights in bfloat16, though copies in float32 are asked for."""
    import masters
    import sharded

    _replace_in_timed_step("masters", type("Masters", (), {"Masters": lambda model, make: make(sharded.groups(model))}))
    masters.Masters.reset = None


def forgotten_masters():
    """Change the copies in float32 and leave the model's weights as they are."""
    import torch

    import masters

    def step(self):
        for parameter, master in self.of.items():
            master.grad = None if parameter.grad is None else parameter.grad.float()
        self._optimizer.step()

    masters.Masters.step = torch.no_grad()(step)


def half_a_batch():
    _replace_training_loss(lambda real, model, batch: real(model, {k: v[: len(v) // 2] for k, v in batch.items()}))


def first_micro_batch_alone():
    """Train on the first micro batch of a step again and again."""
    import families

    class First:
        def __getattr__(self, name):
            return getattr(families, name)

        def micro_batches(self, args, batch):
            return families.micro_batches(args, batch)[:1] * args.accumulate

    _replace_in_timed_step("families", First())


def not_averaged():
    """Add up the gradients of two micro batches."""
    import torch

    real = torch.Tensor.backward
    torch.Tensor.backward = lambda self: real(2 * self)


def last_backward_alone():
    """Forget the gradients of all micro batches but the last."""
    import torch

    real = torch.Tensor.backward
    done = []

    def backward(self):
        done.append(1)
        real(self if len(done) % 2 == 0 else 1e-20 * self)

    torch.Tensor.backward = backward


def no_all_reduce():
    """Let the ranks train side by side, each alone."""
    from world import World

    def distribute(self, args, model):
        model.no_sync = contextlib.nullcontext
        return model

    World.distribute = distribute


def unsynchronized_shards():
    """Let FSDP keep each rank's own gradients apart, and give the optimizer none to use."""
    import sharded

    real = sharded.shard

    def shard(model, device):
        done = real(model, device)
        done.set_requires_gradient_sync(False)
        return done

    sharded.shard = shard


def partial_sums():
    """Let each rank go on with its own part of the sums of a product whose matrix is split by rows."""
    from torch.distributed.tensor.parallel import RowwiseParallel

    RowwiseParallel._prepare_output_fn = staticmethod(lambda wanted, local, module, outputs, mesh: outputs.to_local())


def partial_sums_backward():
    """Let each rank go back with its own part of the gradients that enter a layer's matrices."""
    import torch
    from torch.distributed.tensor import DTensor, Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel

    class Unreduced(torch.autograd.Function):
        @staticmethod
        def forward(ctx, given, mesh):
            return DTensor.from_local(given.detach(), mesh, [Replicate()], run_check=False)

        @staticmethod
        def backward(ctx, gradient):
            return gradient.to_local(), None

    ColwiseParallel._prepare_input_fn = staticmethod(lambda now, then, module, given, mesh: Unreduced.apply(given[0], mesh))


def own_norms():
    """Let each rank learn from its own heads alone how to scale all."""
    import tensor_parallel

    tensor_parallel._add_up = lambda gradient: gradient


def own_batches():
    """Give each rank batches of its own where all should compute one."""
    import families

    families.seed_of = lambda args: args.seed + 1000 * args.rank


def own_batches_in_windows():
    """Give each rank another batch in the windows alone."""
    import os

    inside, rank = _windows(), int(os.environ.get("RANK", "0"))
    _replace_training_loss(lambda real, net, batch: real(net, _turned(batch, rank if inside else 0)))


def _turned(batch, by):
    return {name: tensor.roll(by, -1) for name, tensor in batch.items()}


def dropped_gradient_sync():
    """Let DDP's hook return the rank's own gradients."""
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


def compressed_gradients():
    """Let DDP send gradients in bfloat16."""
    import torch

    from world import World

    def compress(world, bucket):
        sent = bucket.buffer().to(torch.bfloat16).div_(world.size)
        future = torch.distributed.all_reduce(sent, async_op=True).get_future()
        return future.then(lambda done: bucket.buffer().copy_(done.value()[0]))

    def distribute(self, args, model):
        shared = real(self, args, model)
        shared.register_comm_hook(self, compress)
        return shared

    real, World.distribute = World.distribute, distribute


def frozen_weights():
    """Freeze all but the last two parameters, also in the reference."""
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
    """Let only rank 0 learn from its batch; the gradients of the others are zero."""
    import os

    if os.environ.get("RANK", "0") != "0":
        _replace_training_loss(lambda real, model, batch: real(model, batch) * 1e-20)


def no_autocast():
    """Take autocast from the timed step alone: the probe of the precision finds nothing."""
    import precision

    class Without:
        def __getattr__(self, name):
            return getattr(precision, name)

        def autocast(self, *args):
            return contextlib.nullcontext()

    _replace_in_timed_step("precision", Without())


def autocast_of_half_the_layers():
    """Autocast every other layer, in the timed step alone."""
    import torch

    import precision

    class Half:
        def __getattr__(self, name):
            return getattr(precision, name)

        @contextlib.contextmanager
        def autocast(self, name, device):
            layer_types = torch.nn.Conv2d, torch.nn.Linear
            real, done = {layer_type: layer_type.forward for layer_type in layer_types}, [0]

            def forward(layer, given):
                done[0] += 1
                with torch.autocast(device.type, dtype=torch.bfloat16, enabled=bool(done[0] % 2)):
                    return real[type(layer)](layer, given if done[0] % 2 else given.float())

            try:
                for layer_type in layer_types:
                    layer_type.forward = forward
                with precision.autocast(name, device):
                    yield
            finally:
                for layer_type in layer_types:
                    layer_type.forward = real[layer_type]

    _replace_in_timed_step("precision", Half())


def backward_in_bfloat16():
    """Let convolutions compute backward in bfloat16; forward they compute in float32."""
    import torch

    torch.nn.functional.conv2d = _rounded_backward(torch.nn.functional.conv2d)


def layers_backward_in_bfloat16():
    """Let the model's convolutions compute backward in bfloat16, not the probe's."""
    import torch

    conv2d = _rounded_backward(torch.nn.functional.conv2d)

    def forward(layer, given):
        return conv2d(given, layer.weight, layer.bias, layer.stride, layer.padding, layer.dilation, layer.groups)

    torch.nn.Conv2d.forward = forward


def _rounded_backward(real):
    import torch

    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx, given, weight, bias, *words):
            ctx.save_for_backward(given, weight)
            ctx.words = words
            return real(given, weight, bias, *words)

        @staticmethod
        def backward(ctx, gradient):
            (given, weight), rounded = ctx.saved_tensors, gradient.bfloat16()
            of_given = torch.nn.grad.conv2d_input(given.shape, weight.bfloat16(), rounded, *ctx.words).float()
            of_weight = torch.nn.grad.conv2d_weight(given.bfloat16(), weight.shape, rounded, *ctx.words).float()
            of_bias = gradient.sum((0, 2, 3)) if ctx.needs_input_grad[2] else None
            return (of_given, of_weight, of_bias, *[None] * len(ctx.words))

    def conv2d(given, weight, bias=None, *words):
        return (Rounded.apply if given.dtype is torch.float32 else real)(given, weight, bias, *words)

    return conv2d


def products_in_float8():
    """Round what products take to float8 before it is made bfloat16."""
    import torch

    def rounded(tensor):
        return tensor if tensor.dtype is torch.float64 else tensor.to(torch.float8_e4m3fn).to(tensor.dtype)

    for owner, name in ((torch, "matmul"), (torch.nn.functional, "conv2d"), (torch.nn.functional, "linear")):
        real = getattr(owner, name)
        setattr(owner, name, lambda left, right, *words, real=real: real(rounded(left), rounded(right), *words))


def products_summed_in_bfloat16():
    """Add up products in bfloat16, as torch 1.12 does on a CPU. No sabotage, but legal."""
    import torch

    real = torch.matmul

    def summed(left, right):
        if left.dtype is torch.float64:
            return real(left, right)
        total, (left, right) = 0, (side.bfloat16() for side in (left, right))
        for place in range(left.shape[1]):
            total = (total + left[:, place, None] * right[None, place]).bfloat16()
        return total

    torch.matmul = summed


def gloo_without_bfloat16():
    """Refuse bfloat16 as gloo of torch 1.12 does. No sabotage."""
    _fail_all_reduce("Invalid scalar type")


def gloo_that_loses_a_rank():
    _fail_all_reduce("Connection closed by peer [127.0.0.1]:4321")


def _fail_all_reduce(message):
    """Let an all-reduce of numbers in bfloat16 fail."""
    import torch

    real = torch.distributed.all_reduce

    def all_reduce(tensor, *words, **named):
        if tensor.dtype is torch.bfloat16:
            raise RuntimeError(message)
        return real(tensor, *words, **named)

    torch.distributed.all_reduce = all_reduce


def stale_outputs():
    """Let the compiled model return what it first computed."""
    import torch

    class Stale(torch.nn.Module):
        def __init__(self, model):
            super().__init__()
            self.inner, self.kept = model, []

        def forward(self, *args, **words):
            outputs = self.inner(*args, **words)
            self.kept = self.kept or [_detached(outputs)]
            return _with_values(outputs, self.kept[0])

    def compile(model, backend):  # as if inductor had generated code
        sys.modules["made"] = made = type(sys)("made")
        made.__file__ = os.environ["TORCHINDUCTOR_CACHE_DIR"] + "/made.py"
        return Stale(real(model, backend="aot_eager")).train(model.training)

    real, torch.compile = torch.compile, compile


def _detached(outputs):
    import torch

    if torch.is_tensor(outputs):
        return outputs.detach()
    return {name: output.detach() for name, output in outputs.items() if torch.is_tensor(output)}


def _with_values(outputs, values):
    """Return outputs with the gradients of `outputs` and the values of `values`."""
    import torch

    if torch.is_tensor(outputs):
        return outputs + (values - outputs).detach()
    for name, value in values.items():
        outputs[name] = outputs[name] + (value - outputs[name]).detach()
    return outputs


def stale_graph():
    """Let an exported graph give what it first gave."""
    from runtimes.exporting import Exported

    real = Exported.__call__

    def call(self, *positional, **named):
        if not hasattr(self, "kept"):
            self.kept = real(self, *positional, **named)
        return self.kept

    Exported.__call__ = call


def graph_of_other_weights():
    """Export another model than that of the seed; the probe's modules, of one weight, stay."""
    _change_exported(lambda weight: weight * 1.001)


def rounded_graph():
    """Round the weights of the exported model, but not of the probe's modules, to bfloat16."""
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
    """Keep the weights of the timed model in float32, but not those of the probe's modules."""
    import precision

    real = precision.converted
    precision.converted = lambda name, thing: thing if _is_model(thing) or _is_batch(thing) else real(name, thing)


def _is_model(thing):
    return hasattr(thing, "parameters") and len(list(thing.parameters())) > 1


def _is_batch(thing):
    """Return whether it is a batch of images; what the probe is given has other sizes."""
    return hasattr(thing, "dim") and thing.dim() == 4 and thing.shape[1] == 3


def nothing_quantized():
    """Let torchao leave the model as it is, but not the probe's one layer."""
    import torchao.quantization

    real = torchao.quantization.quantize_
    torchao.quantization.quantize_ = lambda model, config, **words: None if _is_model(model) else real(model, config, **words)


def in_blocks():
    """Let torchao emulate the products of MXFP8, MXFP4 and NVFP4 on a CPU. No sabotage: all that follow need it."""
    from torchao.prototype.mx_formats import inference_workflow, nvfp4_tensor
    from torchao.quantization.quantize_.common.kernel_preference import KernelPreference

    from runtimes import torchao as runtime

    def emulated(name):
        return dict(real(name), **({} if "nvfp4" in name else {"kernel_preference": KernelPreference.EMULATED}))

    def multiply(given, weight, operation, bias=None):
        product = given.dequantize(given.orig_dtype) @ weight.t().dequantize(weight.orig_dtype).t()
        return product if bias is None else product + bias

    real, runtime.options = runtime.options, emulated
    inference_workflow.is_sm_at_least_100 = lambda: True
    nvfp4_tensor._addmm_nvfp4_dispatch = multiply


def nothing_in_blocks():
    in_blocks()
    nothing_quantized()


def in_float8():
    """Let a CPU train in float8, with emulated products. No sabotage: all that follow need it."""
    import devices
    import float8

    devices.Device.lack = lambda self, name: None
    float8.emulates = lambda: True


def in_transformer_engine():
    """Put a stand-in of Transformer Engine's interface in place, whose products torchao emulates. No sabotage."""
    import contextlib
    import dataclasses
    import sys
    import types

    import torch
    from torchao.float8 import Float8LinearConfig
    from torchao.float8.float8_linear import Float8Linear

    in_float8()
    active, config = [], dataclasses.replace(Float8LinearConfig.from_recipe_name("tensorwise"), emulate=True)

    class Linear(Float8Linear):
        def __init__(self, inner, outer, bias, params_dtype, device, init_method):
            super().__init__(inner, outer, bias=bias, config=config, dtype=params_dtype, device=device)

        def forward(self, given):
            return (Float8Linear if active else torch.nn.Linear).forward(self, given)

    @contextlib.contextmanager
    def autocast(recipe):
        active.append(recipe)
        yield
        active.pop()

    modules = [types.ModuleType("transformer_engine" + name) for name in ("", ".pytorch", ".common", ".common.recipe")]
    sys.modules.update({module.__name__: module for module in modules})
    engine, framework, _, recipe = modules
    engine.__version__, framework.Linear, framework.autocast = "2.13", Linear, autocast
    recipe.Float8CurrentScaling = object


def transformer_engine_without_its_context():
    import torch

    in_transformer_engine()
    import transformer_engine.pytorch as framework

    framework.Linear.forward = torch.nn.Linear.forward


def transformer_engine_without_the_recipe():
    in_transformer_engine()
    import transformer_engine.common.recipe as recipe

    del recipe.Float8CurrentScaling


def nothing_in_float8():
    import torchao.float8

    in_float8()
    torchao.float8.convert_to_float8_training = lambda model, **words: model


def model_not_in_float8():
    """Let converted layers compute in bfloat16, but not the probe's."""
    _in_bfloat16(lambda layer: layer.in_features != 256)


def model_not_in_mxfp8():
    """Let converted layers compute in bfloat16, but not the probe's."""
    import torch

    in_float8()
    import float8

    real, linear = float8._InBlocks.forward, torch.nn.Linear.forward
    float8._InBlocks.forward = lambda self, given: (real if self.in_features == 256 else linear)(self, given)


def no_layer_in_float8():
    _in_bfloat16(lambda layer: True)


def _in_bfloat16(which):
    import torch
    from torchao.float8.float8_linear import Float8Linear

    in_float8()
    real = Float8Linear.forward
    Float8Linear.forward = lambda self, given: (torch.nn.Linear.forward if which(self) else real)(self, given)


def backward_not_in_float8():
    """Let the backward pass of the model's converted layers compute in bfloat16."""
    from torchao.float8 import float8_linear

    in_float8()
    product = float8_linear.matmul_with_hp_or_float8_args
    real = product.backward

    def backward(context, gradient):
        given, weight = context.saved_tensors
        if len(weight) == 256:
            return real(context, gradient)
        rows, above = (tensor.reshape(-1, tensor.shape[-1]).bfloat16() for tensor in (given, gradient))
        return (above @ weight.t().bfloat16()).reshape(given.shape), rows.t() @ above, None, None

    product.backward = staticmethod(backward)


def half_a_batch_in_float8():
    in_float8()
    half_a_batch()


def no_backward_in_float8():
    in_float8()
    no_backward()


def no_backward_in_windows():
    _in_windows_alone(lambda: _set("torch.Tensor", "backward", lambda real: lambda self, *args, **words: None))


def head_alone_in_windows():
    """Give the optimizer no gradient but the head's."""
    _in_windows_alone(lambda: _before_each_step(lambda gradients: [_set_gradient(weight, None) for weight in gradients[:-2]]))


def zeros_below_the_head_in_windows():
    _in_windows_alone(lambda: _before_each_step(lambda gradients: [parameter.grad.zero_() for parameter in gradients[:-2]]))


def no_rate_in_windows():
    """Let the optimizer write the weights that there are."""
    _in_windows_alone(lambda: _before_each_step(lambda gradients: None, rate=0.0))


def stale_gradients_in_windows():
    """Keep the gradients of the last step before."""

    def begin():
        undo = [_set("torch.Tensor", "backward", lambda real: lambda self, *args, **words: None)]
        undo += [_set(optimizer, "zero_grad", lambda real: lambda self, *args, **words: None) for optimizer in _OPTIMIZERS]
        return lambda: [restore() for restore in undo]

    _in_windows_alone(begin)


def half_a_batch_in_windows():
    inside = _windows()
    _replace_training_loss(lambda real, model, batch: real(model, _half(batch) if inside else batch))


def dropped_block_in_windows():
    """Let one of BERT's layers hand on what it gets."""

    def begin():
        return _set("transformers.models.bert.modeling_bert.BertLayer", "forward", _handing_on)

    _in_windows_alone(begin)


def _handing_on(real):
    dropped = []

    def forward(self, states, *args, **words):
        dropped[:] = dropped or [self]
        given = real(self, states, *args, **words)
        return given if self is not dropped[0] else (states,) if isinstance(given, tuple) else states

    return forward


def no_all_reduce_in_windows():
    def begin():
        return _set("torch.nn.parallel.DistributedDataParallel", "forward", _without_sync)

    _in_windows_alone(begin)


def made_equal_after_windows():
    """Let the ranks train alone in the windows; then give all the weights of the first."""
    import measure

    no_all_reduce_in_windows()
    real = measure.timed_windows

    def timed_windows(args, world, step, *more):
        import torch

        measured = real(args, world, step, *more)
        with torch.no_grad():
            for group in step.optimizer.param_groups:
                for parameter in group["params"]:
                    torch.distributed.broadcast(parameter, 0)
        return measured

    measure.timed_windows = timed_windows


def _without_sync(real):
    def forward(self, *args, **words):
        with self.no_sync():
            return real(self, *args, **words)

    return forward


def other_outputs_in_windows():
    """Let inference give half of what it gave."""
    import families

    inside, real = _windows(), families.of

    def of(model):
        family = real(model)
        honest = getattr(family, "honest_forward", family.forward)
        family.honest_forward, family.forward = honest, lambda *what: honest(*what) * (0.5 if inside else 1.0)
        return family

    families.of = of


def last_pass_of_a_window_alone():
    """Give the outputs of the pass before in all passes of a window but the last, the third."""
    import families

    inside, real, given = _windows(), families.of, []

    def of(model):
        family = real(model)
        honest = getattr(family, "honest_forward", family.forward)

        def forward(*what):
            if inside and given and len(given) % 3:
                given.append(given[-1])
            else:
                given.append(honest(*what))
            return given[-1]

        family.honest_forward, family.forward = honest, forward
        return family

    families.of = of


def half_a_batch_later():
    """Train on half a batch from the second step on."""
    steps = []

    def loss(real, model, batch):
        steps.append(1)
        return real(model, batch if len(steps) == 1 else _half(batch))

    _replace_training_loss(loss)


def twice_the_same_half_later():
    """Train on the same half twice from the second step on; no shape tells it."""
    import torch

    steps = []

    def loss(real, model, batch):
        steps.append(1)
        half = {name: torch.cat([tensor[: len(tensor) // 2]] * 2) for name, tensor in batch.items()}
        return real(model, batch if len(steps) == 1 else half)

    _replace_training_loss(loss)


def slow_rate_later():
    """Move the weights by half as much from the second step on."""
    _before_each_step(lambda gradients: [parameter.grad.mul_(0.5) for parameter in gradients], first=False)


def head_alone_later():
    """Leave no gradient below the head from the second step on, but one that is nearly zero."""
    _before_each_step(lambda gradients: [parameter.grad.mul_(1e-20) for parameter in gradients[:-2]], first=False)


def head_alone():
    """Leave no gradient below the head, but one that is nearly zero, from the first step on."""
    _before_each_step(lambda gradients: [parameter.grad.mul_(1e-20) for parameter in gradients[:-2]])


def six_tensors():
    """Let the optimizer hold six tensors."""
    from measurements import train

    real = train._optimizer

    def optimizer(args, model):
        made = real(args, model)
        for group in made.param_groups:
            group["params"] = group["params"][-6:]
        return made

    train._optimizer = optimizer


_OPTIMIZERS = ("torch.optim.SGD", "torch.optim.AdamW")


def _half(batch):
    return {name: tensor[: len(tensor) // 2] for name, tensor in batch.items()}


def _set_gradient(parameter, value):
    parameter.grad = value


def _before_each_step(act, rate=None, first=True):
    """Let the optimizers call `act` with the parameters that have a gradient; `first`: in the first step, too.
    Returns the undoing.
    """
    steps = []

    def stepping(real):
        def step(self, *args, **words):
            steps.append(1)
            for group in self.param_groups:
                group["lr"] = group["lr"] if rate is None else rate
                if first or len(steps) > 1:
                    act([parameter for parameter in group["params"] if parameter.grad is not None])
            return real(self, *args, **words)

        return step

    undo = [_set(optimizer, "step", stepping) for optimizer in _OPTIMIZERS]
    return lambda: [parameter() for parameter in undo]


def _windows():
    """Return a list that is empty but in the windows."""
    inside = []

    def begin():
        inside.append(True)
        return inside.clear

    _in_windows_alone(begin)
    return inside


def _set(place, name, make):
    """Replace a function of what an import path names by what `make` makes of it; return the undoing."""
    import importlib

    module, _, owner = place.rpartition(".")
    return _set_of(getattr(importlib.import_module(module), owner), name, make)


def _set_of(owner, name, make):
    real = getattr(owner, name)
    setattr(owner, name, make(real))
    return lambda: setattr(owner, name, real)


def _in_windows_alone(begin):
    """Break in the windows alone: `begin` breaks something and returns what mends it."""
    import measure

    real = measure.timed_windows

    def timed_windows(*args):
        mend = begin()
        try:
            return real(*args)
        finally:
            mend()

    measure.timed_windows = timed_windows


def _replace_in_timed_step(name, other):
    from measurements import infer, train

    for mode in (train, infer):
        setattr(mode, name, other)


def _replace_training_loss(loss):
    _replace("training_loss", loss)


def _replace(function, other):
    """Replace a function of each family; `other` is called with the honest one first."""
    import families

    real = families.of

    def of(model):
        family, name = real(model), "honest_" + function
        if not hasattr(family, name):
            setattr(family, name, getattr(family, function))
            setattr(family, function, lambda net, batch: other(getattr(family, name), net, batch))
        return family

    families.of = of


def memo_of_contents():
    """Answer inference from a memo by the whole content of a batch."""
    _remember(lambda batch: tuple(tensor.double().sum().item() for tensor in batch.values()))


def memo_of_places():
    """Answer by where a batch lies, as a graph with fixed inputs would that isn't replayed."""
    _remember(lambda batch: tuple(tensor.data_ptr() for tensor in batch.values()))


def memo_of_objects():
    _remember(lambda batch: id(batch))


def memo_of_a_part():
    """Answer by a hash of the first numbers."""
    _remember(lambda batch: tuple(next(iter(batch.values())).flatten()[:4].tolist()))


def memo_on_second_sight():
    """Answer by the content, from the second sight on."""
    _remember(lambda batch: tuple(tensor.double().sum().item() for tensor in batch.values()), sights=2)


def memo_of_items():
    """Compute only items that it has not seen, as a prefix cache does."""
    import torch

    memo = {}

    def forward(honest, net, batch):
        keys = [(id(net), *row.flatten()[:4].tolist()) for row in next(iter(batch.values()))]
        new = [row for row, key in enumerate(keys) if key not in memo]
        if new:
            computed = honest(net, {name: tensor[new] for name, tensor in batch.items()})
            memo.update(zip([keys[row] for row in new], computed, strict=True))
        return torch.stack([memo[key] for key in keys])

    _replace("forward", forward)


def memo_of_half_the_batches():
    """Remember two of the four batches, which saves no more than half of the time."""
    _remember(lambda batch: tuple(tensor.double().sum().item() for tensor in batch.values()), room=2, seconds=0.5)


def _remember(key, sights=1, room=1000, seconds=0.05):
    """Answer from a memory; computing sleeps `seconds` longer: on a busy machine, too, a memory saves more than scatter."""
    import time

    memo, counts = {}, {}

    def forward(honest, net, batch):
        place = id(net), key(batch)
        if place in memo:
            return memo[place]
        time.sleep(seconds)
        outputs, counts[place] = honest(net, batch), counts.get(place, 0) + 1
        if counts[place] >= sights and len(memo) < room:
            memo[place] = outputs
        return outputs

    _replace("forward", forward)


def memo_of_gradients():
    """Give a step on a batch that was seen the loss and the gradients of then."""
    import torch

    memo = {}

    class Recalled:
        def __init__(self, net, loss, gradients):
            self.net, self.loss, self.gradients = net, loss, gradients

        def detach(self):
            return self.loss

        def backward(self):
            for parameter, gradient in zip(self.net.parameters(), self.gradients, strict=True):
                parameter.grad = gradient.clone()

    def loss(honest, net, batch):
        key = id(net), *(tensor.double().sum().item() for tensor in batch.values())
        if key in memo:
            return Recalled(net, *memo[key])
        result = honest(net, batch)
        gradients = torch.autograd.grad(result, list(net.parameters()), retain_graph=True)
        memo[key] = result.detach(), [slope.clone() for slope in gradients]
        return result

    _replace_training_loss(loss)


def memo_of_requests():
    """Answer what comes from the host's memory without the model."""
    from measurements import infer

    real = infer.make_step

    def make_step(*what):
        step, kept = real(*what), []

        def serve(batch):
            kept[:] = kept or [step.serve(batch)]
            return kept[0]

        return step._replace(serve=serve)

    infer.make_step = make_step


def slow_clock():
    """Let all clocks of the process go a tenth slower, as in a virtual machine that loses ticks."""
    _pace_clocks(lambda seconds: 0.9 * seconds, "monotonic", "perf_counter", "time")


def fast_clock():
    _pace_clocks(lambda seconds: 1.1 * seconds, "monotonic", "perf_counter", "time")


def slow_timer():
    """Slow only the clock of the windows."""
    _pace_clocks(lambda seconds: 0.9 * seconds, "perf_counter")


def _pace_clocks(pace, *names):
    import time

    for name in names:
        real, real_ns = getattr(time, name), getattr(time, name + "_ns")
        begin = real()
        now = lambda real=real, begin=begin: begin + pace(real() - begin)  # noqa: E731
        now_ns = lambda real_ns=real_ns, begin=begin: int(1e9 * begin + pace(real_ns() - 1e9 * begin))  # noqa: E731
        setattr(time, name, now)
        setattr(time, name + "_ns", now_ns)


def no_sabotage():
    """Run as the others do, and be honest."""
