"""Random inputs and targets on the CPU, drawn from a generator, as several families need them."""

import torch


def images(args, generator):
    """Draw images [B, 3, H, W], in the requested memory format."""
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    tensor = torch.randn(args.batch, 3, args.image_size, args.image_size, generator=generator)
    return tensor.contiguous(memory_format=layout)


def labels(args, classes, generator):
    """Draw one class per item: [B]."""
    return torch.randint(classes, (args.batch,), generator=generator)


def maps(args, classes, generator):
    """Draw one class per pixel: [B, H, W]."""
    return torch.randint(classes, (args.batch, args.image_size, args.image_size), generator=generator)
