"""Float32 copies of a model's weights ("master weights", arXiv:1710.03740, section 3.1): the optimizer changes these, and the
model computes with their rounded values.

A change that is too small for bfloat16 then adds up over steps, where a weight in bfloat16 alone would stay as it is.
"""

import torch

import sharded
from channel import Unsupported


class Masters:
    """An optimizer of float32 copies. `make`: makes one of groups of parameters; `of`: the copy of each of the model's."""

    def __init__(self, model, make):
        if hasattr(model, "summon_full_params"):
            raise Unsupported("torch %s shards parameters in a way that leaves no copies of single ones" % torch.__version__)
        self.of = {parameter: parameter.detach().float().requires_grad_() for parameter in model.parameters()}
        groups = [dict(group, params=[self.of[p] for p in group["params"]]) for group in sharded.groups(model)]
        self._optimizer = make(groups)
        self.state, self.defaults = self._optimizer.state, self._optimizer.defaults

    def zero_grad(self, set_to_none=True):
        """Let the model forget its gradients."""
        for parameter in self.of:
            parameter.grad = None

    @torch.no_grad()
    def step(self):
        """Change the copies by the model's gradients, and set the model's weights to their rounded values."""
        changed = {parameter: master for parameter, master in self.of.items() if parameter.grad is not None}
        for parameter, master in changed.items():
            master.grad = parameter.grad.float()
        self._optimizer.step()
        for parameter, master in changed.items():
            parameter.copy_(master)
            master.grad = None

    @torch.no_grad()
    def reset(self):
        """Begin anew from the model's weights."""
        _forget(self.state)
        for parameter, master in self.of.items():
            master.copy_(parameter)


def reset(optimizer):
    """Let an optimizer begin anew, from the model's weights. Its state is set to zero where it is: the next step takes as long
    as others, and does what a first one does.
    """
    optimizer.reset() if isinstance(optimizer, Masters) else _forget(optimizer.state)


def _forget(state):
    with torch.no_grad():
        for values in state.values():
            for name, value in values.items():
                values[name] = value.zero_() if torch.is_tensor(value) else value and 0


def of(optimizer, parameter):
    """Return what the optimizer changes: a parameter's copy in float32, or the parameter itself."""
    return optimizer.of[parameter] if isinstance(optimizer, Masters) else parameter
