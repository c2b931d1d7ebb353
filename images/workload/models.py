"""Builds a model, its loss and its random batches from a name in models.json; nothing is downloaded.

Adding a model is one entry there: a torchvision classifier by its own name, or a transformers model by its type,
its head (`QuestionAnswering` or `CausalLM`) and what differs from that type's default configuration.
"""

import json
import os

import torch

from channel import Unsupported

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "models.json")) as _file:
    CATALOG = json.load(_file)
CLASSES = 1000


def library_of(name):
    """ "torchvision" or "transformers"; raises Unsupported for a name that models.json doesn't have."""
    if name not in CATALOG:
        raise Unsupported("model %s is not in models.json" % name)
    return CATALOG[name]["library"]


def build(args, device):
    """The model on `device`, its forward-and-loss function and what was really chosen (for the record).

    The function takes (model, batch) and returns the loss; a batch is what `batches` yields.
    """
    if library_of(args.model) == "torchvision":
        return _build_torchvision(args, device)
    return _build_transformers(args, device)


def batches(args, device, count):
    """`count` random batches, resident on `device`: (images [B, 3, H, W], labels [B]) or token tensors [B, S]."""
    generator = torch.Generator().manual_seed(args.seed + 1000 * args.rank)
    make = _image_batch if library_of(args.model) == "torchvision" else _token_batch
    return [make(args, device, generator) for _ in range(count)]


def parameter_count(model):
    return sum(p.numel() for p in model.parameters())


def gradient_bytes(model):
    """What one all-reduce of all gradients moves."""
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.requires_grad)


def _build_torchvision(args, device):
    import torchvision.models

    model = getattr(torchvision.models, args.model)()
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return model.to(device), _classification_loss, {"attention": None}


def _classification_loss(model, batch):
    images, labels = batch
    return torch.nn.functional.cross_entropy(model(images), labels)


def _image_batch(args, device, generator):
    images = torch.randn(args.batch, 3, args.image_size, args.image_size, generator=generator)
    labels = torch.randint(CLASSES, (args.batch,), generator=generator)
    layout = torch.channels_last if args.channels_last else torch.contiguous_format
    return images.to(device).contiguous(memory_format=layout), labels.to(device)


def _build_transformers(args, device):
    import transformers

    entry = CATALOG[args.model]
    config = transformers.AutoConfig.for_model(entry["type"], **entry["config"])
    if args.sequence_length > config.max_position_embeddings:
        raise Unsupported(
            "sequence_length %d is more than the %d positions of %s"
            % (args.sequence_length, config.max_position_embeddings, args.model)
        )
    factory = getattr(transformers, "AutoModelFor" + entry["head"])
    model = _with_attention(factory, config, args.attention)
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    return model.to(device), _transformers_loss, {"attention": _attention_of(model)}


def _with_attention(factory, config, attention):
    """Ask for the attention implementation by name; a transformers without the choice has eager only."""
    import transformers

    has_choice = hasattr(config, "_attn_implementation") or hasattr(
        transformers.PreTrainedModel, "_autoset_attn_implementation"
    )
    if not has_choice:
        if attention != "eager":
            raise Unsupported("transformers %s knows no attention %r, only eager" % (transformers.__version__, attention))
        return factory.from_config(config)
    try:
        return factory.from_config(config, attn_implementation=attention)
    except (ValueError, ImportError) as error:
        raise Unsupported("attention %r: %s" % (attention, error)) from None


def _attention_of(model):
    return getattr(model.config, "_attn_implementation", "eager")


def _transformers_loss(model, batch):
    return model(**batch).loss


def _token_batch(args, device, generator):
    entry = CATALOG[args.model]
    shape = (args.batch, args.sequence_length)
    vocabulary = entry["config"].get("vocab_size", 50257)
    tokens = torch.randint(vocabulary, shape, generator=generator)
    batch = {"input_ids": tokens, "attention_mask": torch.ones(shape, dtype=torch.long)}
    if entry["head"] == "QuestionAnswering":
        batch["start_positions"] = torch.randint(args.sequence_length, shape[:1], generator=generator)
        batch["end_positions"] = torch.randint(args.sequence_length, shape[:1], generator=generator)
    else:
        batch["labels"] = tokens
    return {key: value.to(device) for key, value in batch.items()}
