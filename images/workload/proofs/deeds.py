"""What the timed callable does, seen from outside: from known weights, on a known batch, with a known seed.

Nothing of the step is rebuilt or replaced: the weights are set, the optimizer forgets, the step runs, and what it left behind
is read: its loss, the gradients in the parameters and the parameters themselves.
"""

import collections
import math
import re

import torch

import chance
import families
import sharded
from channel import Numerics
from proofs import agreement

Deed = collections.namedtuple("Deed", "loss gradients idle before weights")
"""Of one training step: the loss, and on the CPU each parameter's gradient (zeros without one), whether it had none, its value
before and after."""
SCALER_TRIES = 20
"""GradScaler halves its scale and skips the step until the gradients fit into float16."""


def restore(model, fresh):
    """Give `model` the parameters and all else of `fresh`, another instance of the same model that has done nothing yet."""
    set_state(model, state(fresh))
    chance.restore(model, chance.states(fresh))


def restore_all_but_parameters(model, fresh):
    """The same where the weights have not changed, or are a runtime's own. What a runtime exported has nothing to set back."""
    if isinstance(model, torch.nn.Module):
        set_buffers(model, list(fresh.buffers()))
        chance.restore(model, chance.states(fresh))


def state(model):
    """Parameters and buffers, in order."""
    return [*model.parameters(), *model.buffers()]


def set_state(model, values):
    """Give `model` what another instance of it had as its `state`."""
    parameters = list(model.parameters())
    given = {id(parameter): value for parameter, value in zip(parameters, values)}
    with torch.no_grad():
        sharded.of_each(model, lambda parameter: sharded.fill(parameter, given[id(parameter)]))
    set_buffers(model, values[len(parameters) :])


def set_buffers(model, values):
    """The same of its buffers. Raises Numerics where steps have made other ones."""
    buffers = list(model.buffers())
    if [buffer.shape for buffer in buffers] != [buffer.shape for buffer in values]:
        raise Numerics(_OTHER_BUFFERS)
    with torch.inference_mode():  # a forward pass in this mode may have replaced them
        for buffer, value in zip(buffers, values):
            sharded.fill(buffer, value)


_OTHER_BUFFERS = (
    "this model can't be proven, since it can't be set back to its beginning: its steps add buffers or change their shape. "
    "Register all of them in __init__, each as large as it gets"
)


def training(args, model, step, fresh, index):
    """One timed step on batch `index` from the weights of `fresh`, as the optimizer's first."""
    for _ in range(SCALER_TRIES):
        restore(model, fresh)
        step.optimizer.state.clear()
        chance.seed(args.seed)
        scale = step.scaler.get_scale()
        step.run(index)
        loss = step.losses()[-1]
        if step.scaler.get_scale() >= scale:  # it is lowered by a skipped step
            break
    pairs = zip(model.parameters(), fresh.parameters())
    before = [families.numbers_of(fresh_parameter.detach().to(parameter.dtype)) for parameter, fresh_parameter in pairs]
    traces = sharded.of_each(model, _read_parameter, gradients=True)
    return Deed(loss, [trace[0] for trace in traces], [trace[1] for trace in traces], before, [trace[2] for trace in traces])


def _read_parameter(parameter):
    raw, value = _gradient(parameter), _copy_to_cpu(parameter)
    gradient = torch.zeros(value.shape) if raw is None else _copy_to_cpu(raw).float()
    return gradient, raw is None, value


def _gradient(parameter):
    """FSDP's first version shows one for frozen parameters, too."""
    return parameter.grad if parameter.requires_grad else None


def _copy_to_cpu(tensor):
    """All of its numbers, on the CPU."""
    return families.numbers_of(sharded.whole(tensor.detach()).cpu()).clone()


def inference(args, model, step, fresh, index):
    """The loss and the outputs (a list of CPU tensors) of one timed step on batch `index`, with the state of `fresh`."""
    restore_all_but_parameters(model, fresh)
    chance.seed(args.seed)
    step.run(index)
    loss = step.losses()[-1]
    return loss, tensors_of(step.outputs())


def tensors_of(outputs):
    """What families.tensors_of finds, on the CPU, in float32."""
    return [tensor.detach().cpu().float() for tensor in families.tensors_of(outputs)]


class Fingerprint:
    """A cheap look at one step, or at several: the loss; in training the norms of the gradients and of what the parameters
    changed by, of all and of each group; in inference the norm of the outputs. Made before the steps; `read` after them.
    """

    def __init__(self, step, model):
        self._step, self._model = step, model
        self._samples, self._versions = (_sample_all(model), versions(model)) if step.optimizer else (None, None)

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
        """Their norms, of all and of each group; empty if GradScaler skipped the step."""
        norms = gradient_norms(self._model)
        if self._step.scaler.is_enabled() and not math.isfinite(sum(norms)):
            return {}
        return _group_norms("gradient_norm", norms, agreement.groups(names_of(self._model)))

    def growth(self):
        """By how much the version of each parameter has grown: torch counts what writes into it."""
        return [now - then for now, then in zip(versions(self._model), self._versions)]


SAMPLE = 4096
"""So many numbers of a parameter, evenly spread, show how it changes; no copy of all weights is kept."""
_WRAPPERS = re.compile(r"^module\.|_orig_mod\.|_fsdp_wrapped_module\.")
"""What DDP, torch.compile and FSDP's first version add to the names of parameters."""


def names_of(model):
    """Of the parameters, in order, as the model itself calls them."""
    return [_WRAPPERS.sub("", name) for name, _ in model.named_parameters()]


def versions(model):
    """How often each parameter was written into, as torch counts it; 0 where FSDP's first version shows parts of others."""
    if hasattr(model, "summon_full_params"):
        return [0 for _ in model.parameters()]
    return [parameter._version for parameter in model.parameters()]


def samples(model):
    """SAMPLE numbers of each parameter, on the CPU, one after the other; with FSDP of the whole ones, on every rank."""
    return torch.cat(_sample_all(model))


def _sample_all(model):
    parts = sharded.of_each(model, _sample)
    return torch.cat(parts).cpu().split([len(part) for part in parts])


def _sample(parameter):
    numbers = families.numbers_of(sharded.whole(parameter.detach())).flatten()
    return numbers[:: -(-len(numbers) // SAMPLE) or 1].to(torch.float32, copy=True)


def gradient_norms(model):
    """Of each parameter; 0 where it has none."""
    norms = sharded.of_each(model, _gradient_norm, gradients=True)
    values = iter(torch.stack([norm for norm in norms if norm is not None] or [torch.zeros(())]).tolist())
    return [0.0 if norm is None else next(values) for norm in norms]


def _group_norms(name, norms, labels):
    """Of all together as `name`, and of each group."""
    squares = dict.fromkeys(labels, 0.0)
    for norm, label in zip(norms, labels):
        squares[label] += norm**2
    group_norms = {"%s of %s" % (name, label): math.sqrt(square) for label, square in squares.items()}
    return dict({name: math.sqrt(sum(squares.values()))}, **group_norms)


def _gradient_norm(parameter):
    gradient = _gradient(parameter)
    return None if gradient is None else sharded.whole(families.numbers_of(gradient.detach()).float().norm())


def _total_norm(norms):
    """Of all together, from the norm of each."""
    return float(torch.stack(norms).double().norm()) if norms else 0.0


def of_ranks(found):
    """The fingerprint of a launch: means over the ranks' own, of what all have."""
    names = [name for name in found[0] if all(name in fingerprint for fingerprint in found)]
    return {name: math.fsum(fingerprint[name] for fingerprint in found) / len(found) for name in names}
