"""Any classifier of timm, as timm.NAME, with random weights: a batch is images [B, 3, H, W] and labels [B]."""

import difflib

import timm
import torch

from channel import Unsupported
from families import LIBRARIES, data

CLASSES = 1000


def build(args, device):
    name = args.model[len(LIBRARIES["timm"]["any"]) :]
    if not timm.is_model(name):
        near = ", ".join(difflib.get_close_matches(name, timm.list_models(), n=3)) or "none is near"
        raise Unsupported("timm %s has no model %s (%s)" % (timm.__version__, name, near))
    model = _create_model(name, args.image_size)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return model.to(device), {"attention": None}


def _create_model(name, image_size):
    """Create the model; one for a fixed size of images is made for the requested size, if possible."""
    config = timm.models.get_pretrained_cfg(name)
    sized = {"img_size": image_size} if config is not None and config.fixed_input_size else {}
    try:
        return timm.create_model(name, pretrained=False, num_classes=CLASSES, **sized)
    except (AssertionError, TypeError, ValueError) as error:
        raise Unsupported("%s can't be made for images of %d pixels: %s" % (name, image_size, error)) from None


def batch(args, generator):
    return {"images": data.images(args, generator), "labels": data.labels(args, CLASSES, generator)}


def forward(model, batch):
    return model(batch["images"])


def loss(outputs, batch):
    return torch.nn.functional.cross_entropy(outputs, batch["labels"])


def training_loss(model, batch):
    return loss(forward(model, batch), batch)
