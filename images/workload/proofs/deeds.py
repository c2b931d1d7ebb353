"""Observed steps: the timed callable, run from known weights, on a known batch, with a known seed.

Nothing of the step is rebuilt or replaced: the weights are set, the optimizer's state is cleared, the step runs, and its loss,
the gradients in the parameters and the parameters themselves are read.
"""

import collections
import functools
import math
import re

import torch

import chance
import families
import masters
import measure
import sharded
from channel import Numerics
from proofs import agreement

Deed = collections.namedtuple("Deed", "loss gradients idle before weights")
"""The result of one training step: the loss, and on the CPU each parameter's gradient (zeros without one), whether it had none,
its value before and after."""
Answer = collections.namedtuple("Answer", "loss outputs")
"""The result of one step of inference: the loss, and the outputs (a list of CPU tensors)."""
SCALER_TRIES = 20
"""Most steps to try: GradScaler halves its scale and skips the step until the gradients fit into float16."""


def restore(model, fresh):
    """Copy the parameters, buffers and generators of `fresh`, an unused instance of the same model, to `model`."""
    set_state(model, state(fresh))
    chance.restore(model, chance.states(fresh))


def restore_all_but_parameters(model, fresh):
    """Copy all but the weights, unchanged or a runtime's, from `fresh` to `model`; what is exported has nothing to reset."""
    if isinstance(model, torch.nn.Module):
        set_buffers(model, buffers_of(fresh))
        chance.restore(model, chance.states(fresh))


def state(model):
    """Return parameters and buffers, in order."""
    return [*model.parameters(), *buffers_of(model)]


def buffers_of(model):
    """Return the buffers of all modules, in order; one that several share as often: another type gives each one of its own."""
    every = [buffer for module in model.modules() for buffer in module._buffers.values()]
    return [buffer for buffer in every if buffer is not None]


def copied_buffers(model):
    """Return copies of the buffers, for set_buffers."""
    return [buffer.detach().clone() for buffer in buffers_of(model)]


def set_state(model, values):
    """Set `model` to the `state` of another instance."""
    parameters = list(model.parameters())
    given = {id(parameter): value for parameter, value in zip(parameters, values)}
    with torch.no_grad():
        sharded.of_each(model, lambda parameter: sharded.fill(parameter, given[id(parameter)]))
    set_buffers(model, values[len(parameters) :])


def set_buffers(model, values):
    """Set the buffers of `model`; raise Numerics where steps have changed their number or shapes."""
    buffers = buffers_of(model)
    if [buffer.shape for buffer in buffers] != [buffer.shape for buffer in values]:
        raise Numerics(_OTHER_BUFFERS)
    with torch.inference_mode():  # a forward pass in this mode may have replaced them
        for buffer, value in zip(buffers, values):
            sharded.fill(buffer, value)


_OTHER_BUFFERS = (
    "this model can't be proven, since it can't be set back to its beginning: its steps add buffers or change their shape. "
    "Register all of them in __init__, each as large as it gets"
)


def run(args, world, model, step, fresh, index):
    """Run one timed step on batch `index` from the state of `fresh`; return its loss and its seconds. In training it begins
    with the weights of `fresh`, and is the optimizer's first.
    """
    for _ in range(SCALER_TRIES):
        if step.optimizer is None:
            restore_all_but_parameters(model, fresh)
        else:
            restore(model, fresh)
            masters.reset(step.optimizer)
        chance.seed(args.seed)
        scale = step.scaler.get_scale() if step.scaler else 0.0
        with measure.no_garbage_collection(collect=False):
            record = measure.run_steps(world, step, 1, index)
        loss = step.losses()[-1]
        if not step.scaler or step.scaler.get_scale() >= scale:  # it is lowered by a skipped step
            break
    return loss, record["seconds"]


def training(args, world, model, step, fresh, index):
    """Run a step of training as `run` does; return its Deed and its seconds."""
    loss, seconds = run(args, world, model, step, fresh, index)
    pairs = zip(model.parameters(), fresh.parameters())
    before = [families.numbers_of(fresh_parameter.detach().to(parameter.dtype)) for parameter, fresh_parameter in pairs]
    traces = sharded.of_each(model, functools.partial(_read_parameter, step.optimizer), gradients=True)
    gradients, idle, weights = ([trace[part] for trace in traces] for part in range(3))
    return Deed(loss, gradients, idle, before, weights), seconds


def _read_parameter(optimizer, parameter):
    """Return gradient, whether there is none, and value: of a copy in float32 what agrees with the parameter, rounded."""
    raw, value, master = _gradient(parameter), _copy_to_cpu(parameter), masters.of(optimizer, parameter)
    if master is not parameter:
        kept = _copy_to_cpu(master)
        value = torch.where(kept.to(value.dtype) == value, kept, value.float())
    gradient = torch.zeros(value.shape) if raw is None else _copy_to_cpu(raw).float()
    return gradient, raw is None, value


def _gradient(parameter):
    """Return the gradient of a parameter that trains; FSDP's first version shows one for frozen parameters, too."""
    return parameter.grad if parameter.requires_grad else None


def _copy_to_cpu(tensor):
    """Copy all numbers of `tensor` to the CPU."""
    return families.numbers_of(sharded.whole(tensor.detach()).cpu()).clone()


def inference(args, world, model, step, fresh, index):
    """Run a step of inference as `run` does; return its Answer and its seconds."""
    loss, seconds = run(args, world, model, step, fresh, index)
    return Answer(loss, tensors_of(step.outputs())), seconds


def tensors_of(outputs):
    """Return the tensors that families.tensors_of finds, on the CPU, in float32."""
    return [tensor.detach().cpu().float() for tensor in families.tensors_of(outputs)]


class Fingerprint:
    """A cheap record of one step or several: the loss; in training the norms of the gradients and of the parameters' changes,
    of all and of each group; in inference the norm of the outputs. Create it before the steps and `read` it after them.
    """

    def __init__(self, step, model):
        self._step, self._model = step, model
        self._samples, self._versions = (_sample_all(model), writes(model, step.optimizer)) if step.optimizer else (None, None)

    def read(self, loss):
        if self._samples is None:
            return {"loss": loss, "output_norm": _total_norm([output.norm() for output in tensors_of(self._step.outputs())])}
        gradients = self.gradients()
        if not gradients:
            return {"loss": loss}
        changes = [float((now - then).norm()) for now, then in zip(_sample_all(self._model), self._samples)]
        return dict(
            {"loss": loss}, **gradients, **_group_norms("update_norm", changes, agreement.groups(names_of(self._model)))
        )

    def gradients(self):
        """Return the norms of the gradients, of all and of each group; empty if GradScaler skipped the step."""
        norms = gradient_norms(self._model)
        if self._step.scaler.is_enabled() and not math.isfinite(sum(norms)):
            return {}
        return _group_norms("gradient_norm", norms, agreement.groups(names_of(self._model)))

    def growth(self):
        """Return how many writes into each parameter were counted meanwhile."""
        return [now - then for now, then in zip(writes(self._model, self._step.optimizer), self._versions)]


SAMPLE = 4096
"""Count of evenly spread numbers of a parameter that show its change; no copy of all weights is kept."""
WRAPPERS = re.compile(r"^module\.|_orig_mod\.|_fsdp_wrapped_module\.")
"""The parts that DDP, torch.compile and FSDP's first version add to the names of parameters."""


def names_of(model):
    """Return the names of the parameters, in order, as the model itself calls them."""
    return [WRAPPERS.sub("", name) for name, _ in model.named_parameters()]


def writes(model, optimizer):
    """Return the count of writes into each parameter, and its copy if it has one, by torch; 0 where FSDP's first version shows
    parts of others.

    torch doesn't see those of fused kernels: for them it is the count of steps that the optimizer keeps with each parameter.
    """
    if hasattr(model, "summon_full_params"):
        return [0 for _ in model.parameters()]
    changed = [masters.of(optimizer, parameter) for parameter in model.parameters()]
    if optimizer.defaults.get("fused"):
        return [int(optimizer.state[p]["step"]) if p in optimizer.state else 0 for p in changed]
    return [p._version + (0 if p is parameter else parameter._version) for p, parameter in zip(changed, model.parameters())]


def samples(model):
    """Return SAMPLE numbers of each parameter on the CPU, concatenated; with FSDP of the whole parameters, on every rank."""
    return torch.cat(_sample_all(model))


def _sample_all(model):
    parts = sharded.of_each(model, _sample)
    return torch.cat(parts).cpu().split([len(part) for part in parts])


def _sample(parameter):
    numbers = families.numbers_of(sharded.whole(parameter.detach())).flatten()
    return numbers[:: -(-len(numbers) // SAMPLE) or 1].to(torch.float32, copy=True)


def gradient_norms(model):
    """Return the norm of each parameter's gradient; 0 where it has none."""
    norms = sharded.of_each(model, _gradient_norm, gradients=True)
    values = iter(torch.stack([norm for norm in norms if norm is not None] or [torch.zeros(())]).tolist())
    return [0.0 if norm is None else next(values) for norm in norms]


def _group_norms(name, norms, labels):
    """Return the norm of all together as `name`, and that of each group."""
    squares = dict.fromkeys(labels, 0.0)
    for norm, label in zip(norms, labels):
        squares[label] += norm**2
    group_norms = {"%s of %s" % (name, label): math.sqrt(square) for label, square in squares.items()}
    return dict({name: math.sqrt(sum(squares.values()))}, **group_norms)


def _gradient_norm(parameter):
    gradient = _gradient(parameter)
    return None if gradient is None else sharded.whole(families.numbers_of(gradient.detach()).float().norm())


def _total_norm(norms):
    """Return the norm of all together, from the norm of each."""
    return float(torch.stack(norms).double().norm()) if norms else 0.0


def of_ranks(found):
    """Return the fingerprint of a launch: the mean over the ranks of each figure that all ranks have."""
    names = [name for name in found[0] if all(name in fingerprint for fingerprint in found)]
    return {name: math.fsum(fingerprint[name] for fingerprint in found) / len(found) for name in names}
