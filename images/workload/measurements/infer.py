"""Inference: windows of the forward pass, then requests (requests.py)."""

import torch

import families
import kept
import measure
import precision
from measurements import requests

MODE = {
    "trains": False,
    "windows": True,
    "timed": "forward",
    "noun": "inference",
    "verb": "runs inference",
}


def make_step(args, world, family, model, batches):
    """Make the Step of inference, the forward pass alone. The loss is computed from the last step's outputs, when no clock
    runs.
    """
    grad_mode = {"none": torch.enable_grad, "no_grad": torch.no_grad, "inference_mode": torch.inference_mode}[args.grad]
    last, numbers = {}, kept.Kept()

    def forward(batch):
        with grad_mode(), precision.autocast(args.precision, world.device):
            return families.infer(family, model, batch)

    def run(index):
        last.clear()  # frees the previous outputs first, so that there is never memory for two
        batch = batches[index % len(batches)]
        outputs = forward(batch)
        numbers.keep(index % len(batches), outputs)
        last.update(outputs=outputs, batch=batch)

    def serve(batch):
        outputs = forward({name: tensor.to(world.device, non_blocking=True) for name, tensor in batch.items()})
        return [tensor.detach().cpu() for tensor in families.tensors_of(outputs)]

    def losses():
        with torch.no_grad():
            return [float(family.loss(last["outputs"], last["batch"]))]

    return measure.Step(run, losses, run, lambda: None, None, None, lambda: last["outputs"], serve, batches, numbers)


def streams(args, world, step, pace, new):
    """Return the lines of the requests."""
    return requests.serve(args, world, step, pace, new)
