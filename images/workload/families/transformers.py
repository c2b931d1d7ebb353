"""Models of transformers, given by type, head and the differences from that type's default configuration.

A batch holds the model's inputs by name: token tensors [B, S], and the targets of its head.
"""

import torch
import transformers

from channel import Unsupported
from families import LIBRARIES

_MODELS = LIBRARIES["transformers"]["models"]
_USUAL_VOCABULARY = 50257
_TARGETS = ("start_positions", "end_positions", "labels")


def build(args, device):
    entry = _MODELS[args.model]
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
    return model.to(device), {"attention": _attention_of(model)}


def batch(args, generator):
    entry = _MODELS[args.model]
    shape = (args.batch, args.sequence_length)
    tokens = torch.randint(entry["config"].get("vocab_size", _USUAL_VOCABULARY), shape, generator=generator)
    made = {"input_ids": tokens, "attention_mask": torch.ones(shape, dtype=torch.long)}
    if entry["head"] == "QuestionAnswering":
        made["start_positions"] = torch.randint(args.sequence_length, shape[:1], generator=generator)
        made["end_positions"] = torch.randint(args.sequence_length, shape[:1], generator=generator)
    else:
        made["labels"] = tokens
    return made


def forward(model, batch):
    """Without the targets, so that the model computes no loss."""
    return model(**{name: tensor for name, tensor in batch.items() if name not in _TARGETS})


def loss(outputs, batch):
    """As the library's own heads compute it."""
    if "labels" in batch:  # each token is predicted from those before it
        return _cross_entropy(outputs.logits[:, :-1].flatten(0, 1), batch["labels"][:, 1:].flatten())
    start = _cross_entropy(outputs.start_logits, batch["start_positions"])
    return (start + _cross_entropy(outputs.end_logits, batch["end_positions"])) / 2


def training_loss(model, batch):
    return model(**batch).loss


def _cross_entropy(logits, targets):
    return torch.nn.functional.cross_entropy(logits.float(), targets)


def _with_attention(factory, config, attention):
    """Ask for the attention implementation by name; a transformers without the choice has eager only."""
    has_choice = hasattr(config, "_attn_implementation") or hasattr(
        transformers.PreTrainedModel, "_autoset_attn_implementation"
    )
    if not has_choice:
        if attention != "eager":
            raise Unsupported("transformers %s has no attention %r, only eager" % (transformers.__version__, attention))
        return factory.from_config(config)
    try:
        return factory.from_config(config, attn_implementation=attention)
    except (ValueError, ImportError) as error:
        raise Unsupported("attention %r: %s" % (attention, error)) from None


def _attention_of(model):
    return getattr(model.config, "_attn_implementation", "eager")
