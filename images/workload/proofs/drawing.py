"""Modules that draw random numbers in their own code, such as functional dropout: what is compiled draws others than eager."""

import contextlib

import torch

import chance
import extras
import families
from proofs import arithmetic, deeds, reference


def look(args, fresh):
    """Return the names of the modules of `fresh`, an unused model, that draw by themselves, and whether any draws when all that
    `families.quiet` knows is quiet. Only a user's own model does, and it matters only where another runtime draws.
    """
    if not args.model_file or (args.runtime == "eager" and not args.compile) or not arithmetic.CAN_WATCH:
        return [], False
    return extras.attempt("which modules draw random numbers", lambda: _look(args, fresh)) or ([], False)


def _look(args, fresh):
    if not _pass(args, fresh):
        return [], False
    named = {name: module for name, module in fresh.named_modules() if module in families.DRAWING}
    try:
        with families.quiet(fresh):
            draws = _pass(args, fresh)
    except Exception:  # of any class: in evaluation some of a user's modules give what no loss takes
        families.DRAWING.difference_update(named.values())
        return [], True
    return [*named], draws


def mark(model, names):
    """Let `families.quiet` know the modules of these names in `model`, which wrappers may have renamed."""
    for name, module in model.named_modules() if isinstance(model, torch.nn.Module) else ():  # not what is exported
        if name in names or deeds.WRAPPERS.sub("", name + ".")[:-1] in names:
            families.DRAWING.add(module)


def _pass(args, model):
    """Return whether a forward pass of a few items and their loss draw; add the modules that do to families.DRAWING."""
    arguments, family = reference.arguments(args), families.of(args)
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    batch = {name: tensor[: arithmetic.FEW] for name, tensor in families.batches(arguments, device)[0].items()}
    kept, states = deeds.copied_buffers(model), chance.states(model)
    drawing = _Drawing()
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), drawing.of(model):
            family.loss(family.forward(model, batch), batch)
    finally:
        deeds.set_buffers(model, kept)
        chance.restore(model, states)
    return drawing.draws


class _Drawing(arithmetic.Mode):
    def __init__(self):
        super().__init__()
        self.draws, self._stack = False, []

    @contextlib.contextmanager
    def of(self, model):
        """Watch the passes of `model` and its modules."""
        hooks = []
        for module in model.modules():
            hooks.append(module.register_forward_pre_hook(self._enter))
            hooks.append(module.register_forward_hook(self._leave))
        try:
            with self:
                yield
        finally:
            for hook in hooks:
                hook.remove()

    def _enter(self, module, _inputs):
        self._stack.append(module)

    def _leave(self, _module, _inputs, _outputs):
        self._stack.pop()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if _draws(func):
            self.draws = True
            families.DRAWING.update(self._stack[-1:])
        return func(*args, **(kwargs or {}))


def _draws(func):
    """Check for an operation whose result depends on a generator of torch; before 2.0 none says so."""
    seeded = getattr(getattr(torch, "Tag", None), "nondeterministic_seeded", None)
    return seeded is not None and seeded in getattr(func, "tags", ())
