"""torchvision's classifiers, by their torchvision names: a batch is images [B, 3, H, W] and labels [B]."""

import torch
import torchvision

CLASSES = 1000


def build(args, device):
    model = getattr(torchvision.models, args.model)()
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return model.to(device), {"attention": None}


def batch(args, generator):
    images = torch.randn(args.batch, 3, args.image_size, args.image_size, generator=generator)
    labels = torch.randint(CLASSES, (args.batch,), generator=generator)
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    return {"images": images.contiguous(memory_format=layout), "labels": labels}


def forward(model, batch):
    return model(batch["images"])


def loss(outputs, batch):
    return torch.nn.functional.cross_entropy(outputs, batch["labels"])


def training_loss(model, batch):
    return loss(forward(model, batch), batch)
