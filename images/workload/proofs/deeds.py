"""What the timed callable does, seen from outside: from known weights, on a known batch, with a known seed.

Nothing of the step is rebuilt or replaced: the weights are set, the optimizer forgets, the step runs, and what it left behind
is read: its loss, the gradients in the parameters and the parameters themselves.
"""

import collections
import math

import chance
import sharded
import torch

import families
from channel import Numerics

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
    given = {id(own): other for own, other in zip(parameters, values)}
    with torch.no_grad():
        sharded.of_each(model, lambda own: sharded.fill(own, given[id(own)]))
    set_buffers(model, values[len(parameters) :])


def set_buffers(model, values):
    """The same of its buffers. Raises Numerics where steps have made other ones."""
    own = list(model.buffers())
    if [one.shape for one in own] != [one.shape for one in values]:
        raise Numerics(_OTHER_BUFFERS)
    with torch.inference_mode():  # a forward pass in this mode may have replaced them
        for one, value in zip(own, values):
            sharded.fill(one, value)


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
    before = [families.numbers_of(other.detach().to(own.dtype)) for own, other in pairs]
    left = sharded.of_each(model, _left_by_a_step, gradients=True)
    return Deed(loss, [one[0] for one in left], [one[1] for one in left], before, [one[2] for one in left])


def _left_by_a_step(parameter):
    found, kept = _gradient(parameter), _copied(parameter)
    gradient = torch.zeros(kept.shape) if found is None else _copied(found).float()
    return gradient, found is None, kept


def _gradient(parameter):
    """FSDP's first version shows one for frozen parameters, too."""
    return parameter.grad if parameter.requires_grad else None


def _copied(tensor):
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
    return [one.detach().cpu().float() for one in families.tensors_of(outputs)]


def _watched(model):
    """The last matrix that trains. (A bias may have no gradient: softmax ignores what is added to all its inputs.)"""
    trained = [pair for pair in zip(model.parameters(), sharded.of_each(model, torch.Tensor.dim)) if pair[0].requires_grad]
    return ([pair for pair in trained if pair[1] > 1] or trained)[-1][0]


class Fingerprint:
    """A cheap look at one step: its loss; in training the norms of all gradients and of the last matrix's change, in inference
    that of the outputs. Made before the step; `read` after it.
    """

    def __init__(self, step, model):
        self._step, self._model = step, model
        self._matrix = _watched(model) if step.optimizer else None
        self._before = self._copied_matrix() if step.optimizer else None

    def read(self, loss):
        if self._before is None:
            return {"loss": loss, "output_norm": _norm([one.norm() for one in tensors_of(self._step.outputs())])}
        norms = sharded.of_each(self._model, _gradient_norm, gradients=True)
        found = _norm([norm for norm in norms if norm is not None])
        if self._step.scaler.is_enabled() and not math.isfinite(found):
            return {"loss": loss}  # GradScaler skipped the step
        change = self._copied_matrix() - self._before
        return {"loss": loss, "gradient_norm": found, "change_norm": _norm([change.float().norm()])}

    def _copied_matrix(self):
        copies = sharded.of_each(self._model, lambda one: _copied(one) if one is self._matrix else None)
        return next(copy for copy in copies if copy is not None)


def _gradient_norm(parameter):
    found = _gradient(parameter)
    return None if found is None else sharded.whole(families.numbers_of(found.detach()).float().norm())


def _norm(norms):
    """Of all together, from the norm of each."""
    return float(torch.stack(norms).double().norm()) if norms else 0.0


def of_ranks(found):
    """The fingerprint of a launch: means over the ranks' own, of what all have."""
    names = [name for name in found[0] if all(name in one for one in found)]
    return {name: math.fsum(one[name] for one in found) / len(found) for name in names}
