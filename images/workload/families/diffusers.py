"""UNets of diffusers, which predict the noise in images: a batch is noisy images [B, C, H, W], time steps [B] and the noise.

UNets of latent diffusion take images that an encoder has made smaller, with C = 4, and a text as features [B, T, F].
"""

import diffusers
import torch

from channel import Unsupported
from families import entry_of

_TIMES = 1000
"""Time steps of the noise schedule (arXiv:2006.11239, section 4)."""
_TOKENS = 77
"""Tokens of a text (arXiv:2112.10752, by CLIP)."""


def build(args, device):
    entry = entry_of(args.model)
    size, least = _size(args), _least_size(entry)
    if args.image_size % least:
        raise Unsupported("%s takes images of a multiple of %d pixels, not %d" % (args.model, least, args.image_size))
    model = getattr(diffusers, entry["class"])(sample_size=size, **entry["config"])
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return model.to(device), {"attention": None}


def _least_size(entry):
    """Return the divisor of the image's sides: each level halves them; the conditional UNet takes others, too."""
    levels = len(entry["config"]["block_out_channels"])
    return entry["smaller"] if "smaller" in entry else 2 ** (levels - 1)


def _size(args):
    """Return the pixels per side of the UNet's input."""
    return args.image_size // entry_of(args.model).get("smaller", 1)


def batch(args, generator):
    config = entry_of(args.model)["config"]
    shape = (args.batch, config["in_channels"], _size(args), _size(args))
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    made = {name: torch.randn(shape, generator=generator).contiguous(memory_format=layout) for name in ("noisy", "noise")}
    made["times"] = torch.randint(_TIMES, (args.batch,), generator=generator)
    if "cross_attention_dim" in config:
        made["text"] = torch.randn(args.batch, _TOKENS, config["cross_attention_dim"], generator=generator)
    return made


def forward(model, batch):
    text = (batch["text"],) if "text" in batch else ()
    return model(batch["noisy"], batch["times"], *text, return_dict=False)[0]


def loss(outputs, batch):
    """Compute the simplified objective (arXiv:2006.11239, equation 14)."""
    return torch.nn.functional.mse_loss(outputs.float(), batch["noise"].float())


def training_loss(model, batch):
    return loss(forward(model, batch), batch)
