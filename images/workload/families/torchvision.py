"""torchvision's models by their torchvision names: classifiers of images or clips, segmentation, detection.

A batch holds images [B, 3, H, W] (clips: [B, 3, FRAMES, H, W]) and targets: a class per item [B], a class per pixel [B, H, W],
or BOXES boxes per image [B, BOXES, 4] (corners in pixels) with their classes [B, BOXES].
"""

import torch
import torchvision

from channel import Unsupported
from families import data, entry_of, tensors_of

CLASSES = {"classification": 1000, "video": 400, "segmentation": 21, "detection": 91}
"""Numbers of classes in ImageNet, Kinetics, Pascal VOC and COCO."""
FRAMES = 16
BOXES = 8


def build(args, device):
    """Build the model; `sized` in models.json: arguments for the images' size. No weights, nor a backbone's, are downloaded."""
    entry = entry_of(args.model)
    package = torchvision.models if _task(args) == "classification" else getattr(torchvision.models, _task(args))
    if not hasattr(package, args.model):
        raise Unsupported("torchvision %s has no %s" % (torchvision.__version__, args.model))
    arguments = {**entry.get("arguments", {}), **dict.fromkeys(entry.get("sized", ()), args.image_size)}
    model = getattr(package, args.model)(**arguments)
    if args.channels_last:
        if _task(args) == "video":
            raise Unsupported("channels_last is for images, and %s processes clips" % args.model)
        model = model.to(memory_format=torch.channels_last)
    return model.to(device), {"attention": None}


def _task(args):
    return entry_of(args.model).get("task", "classification")


def batch(args, generator):
    task = _task(args)
    classes = CLASSES[task]
    if task == "video":
        clips = torch.randn(args.batch, 3, FRAMES, args.image_size, args.image_size, generator=generator)
        return {"images": clips, "labels": data.labels(args, classes, generator)}
    made = {"images": data.images(args, generator)}
    if task == "segmentation":
        return dict(made, maps=data.maps(args, classes, generator))
    if task == "detection":
        return dict(made, **_draw_boxes(args, classes, generator))
    return dict(made, labels=data.labels(args, classes, generator))


def _draw_boxes(args, classes, generator):
    """Draw boxes that begin in the upper left quarter and are a quarter to half as large as the image; class 0: background."""
    corners = torch.rand(args.batch, BOXES, 2, generator=generator) * args.image_size / 2
    sizes = (0.25 + 0.25 * torch.rand(args.batch, BOXES, 2, generator=generator)) * args.image_size
    labels = torch.randint(1, classes, (args.batch, BOXES), generator=generator)
    return {"boxes": torch.cat([corners, corners + sizes], dim=-1), "labels": labels}


def forward(model, batch):
    """Run the model; a detector that trains takes the boxes and returns its losses."""
    if "boxes" not in batch:
        return model(batch["images"])
    images = list(batch["images"])
    if not getattr(model, "training", False):  # a runtime's model may have no such attribute
        return model(images)
    return model(images, [{"boxes": boxes, "labels": labels} for boxes, labels in zip(batch["boxes"], batch["labels"])])


def loss(outputs, batch):
    if "maps" in batch:
        return torch.nn.functional.cross_entropy(outputs["out"], batch["maps"])
    if "boxes" in batch:
        return sum(outputs.values()) if isinstance(outputs, dict) else _mean_output(outputs)
    return torch.nn.functional.cross_entropy(outputs, batch["labels"])


def _mean_output(outputs):
    """Return the mean of the found boxes and scores, which stands for a loss where a detector has none."""
    return torch.cat([tensor.float().flatten() for tensor in tensors_of(outputs)]).mean()


def training_loss(model, batch):
    return loss(forward(model, batch), batch)
