"""Models of transformers, given by type, head and the differences from that type's default configuration; and, as
transformers.TYPE or transformers.CLASS (with the head that the class is named after), any text model of the library in its
default configuration.

A batch holds the model's inputs by name and the targets of its head. Inputs: tokens [B, S]; images [B, 3, H, W]; sound as
samples [B, 16000 · seconds] or as features [B, mels, frames]; a model with a decoder also takes the decoder's tokens [B, S].
"""

import contextlib
import difflib
import inspect

import torch
import transformers

import extras
import failures
from channel import Unsupported
from families import LIBRARIES, data, depths, entry_of, quiet

_TARGETS = ("start_positions", "end_positions", "labels", "depths")
_IGNORED = -100
"""A target that the loss ignores."""
_MASKED = 0.15
"""Share of the tokens to predict (arXiv:1810.04805, section 3.1)."""
SAMPLES_PER_SECOND = 16000
_CHARACTERS_PER_SECOND = 10
_MELS = 80
_NOT_OF_TOKENS = ("wav2vec2", "wav2vec2-conformer", "perceiver")
"""Types with a head of masked tokens, but other inputs."""
_HEADS = {
    "ForMaskedLM": "MaskedLM",
    "ForCausalLM": "CausalLM",
    "LMHeadModel": "CausalLM",
    "ForConditionalGeneration": "Seq2SeqLM",
    "ForQuestionAnswering": "QuestionAnswering",
    "ForSequenceClassification": "SequenceClassification",
}
"""What the names of classes end with, and their heads."""
_unshifted = set()
"""The models whose head of next tokens takes as labels what follows each token, not the tokens (see _look_at_loss)."""
_WITH_DECODER = ("Seq2SeqLM", "SpeechSeq2Seq")
_IMAGE, _SOUND = ("ImageClassification", "SemanticSegmentation"), ("CTC", "AudioClassification")


def build(args, device):
    entry = _entry(args)
    config = _config_of(args, entry)
    most = getattr(_text_part(config), "max_position_embeddings", None)
    if entry["head"] not in (*_IMAGE, *_SOUND) and 0 < (most or 0) < args.sequence_length:  # XLNet has -1: any
        raise Unsupported("sequence_length %d is more than the %d positions of %s" % (args.sequence_length, most, args.model))
    factory = _factory(entry)
    with _noting_reads(config) if "is_users" in entry else contextlib.nullcontext() as read:
        model = _with_attention(factory, config, args.attention)
    if "is_users" in entry:
        unknown = extras.attempt("whether all keys of the configuration act", lambda: _idle_keys(entry, config, read)) or []
        entry["unknown_keys"] = unknown
        windows = [key for key in unknown if key in _OF_CACHES and args.mode == "generate"]
        if windows:
            raise Unsupported(_WINDOWED % (windows[0], type(config).__name__))
    if args.channels_last:
        model = model.to(memory_format=torch.channels_last)
    model.requires_grad_(True)  # Whisper's table of sines is a parameter that its library freezes
    if entry["head"] == "CausalLM" and ("is_users" in entry or not entry_of(args.model)):
        extras.attempt("whether the loss shifts the labels (taken as so)", lambda: _look_at_loss(args, model))
    return model.to(device), {"attention": _attention_of(model)}


@contextlib.contextmanager
def _noting_reads(config):
    """Yield the set of the attributes of configurations of this type, and of its text's, that are read meanwhile."""
    read, kinds = set(), {type(config), type(_text_part(config))}
    for kind in kinds:

        def note(self, name, get=kind.__getattribute__):
            read.add(name)
            return get(self, name)

        kind.__getattribute__ = note
    try:
        yield read
    finally:
        for kind in kinds:
            del kind.__getattribute__


def _idle_keys(entry, config, read):
    """Return the keys of a user's configuration that its class doesn't know, as a misspelt one, which it keeps silently. Those
    are known, too, that the model's code has `read`, and those without which the configuration has other values.
    """
    text = entry["config"].get("text_config")
    parts = [(entry["config"], config)] + ([(text, config.text_config)] if isinstance(text, dict) else [])
    return [
        key
        for given, part in parts
        for key, value in given.items()
        if value and key not in _known_keys(part) and key not in read and not _changes_others(part, given, key)
    ]


def _changes_others(part, given, key):
    """Check whether a configuration of the type of `part` has other values of other attributes without `key`, which may have
    the default's value, or with a number twice as large.
    """
    value, others = given[key], {name: given[name] for name in given if name != key}
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    made = [type(part)(**values) for values in (given, others, dict(given, **({key: 2 * value} if is_number else {})))]
    one, *rest = ({name: repr(kept) for name, kept in vars(config).items() if name != key} for config in made)
    return any(other != one for other in rest)


def _known_keys(config):
    kind = type(config)
    names = {*dir(kind), *getattr(kind, "attribute_map", {}), *inspect.signature(kind.__init__).parameters}
    for made in (kind, transformers.GenerationConfig):
        with contextlib.suppress(Exception):  # of any class: some can't be made without values
            names.update(vars(made()))
    return names.union(_OF_NO_SIZE, _OF_ROTATION if "rope_parameters" in names else ())


_OF_CACHES = ("attention_chunk_size", "layer_types", "sliding_window")
_WINDOWED = (
    "the configuration's %s is no key of %s, so attention sees all tokens, but transformers' caches obey it and forget some: "
    "with a cache the outputs are others than without. Remove the key"
)
_OF_NO_SIZE = (
    "architectures", "auto_map", "finetuning_task", "gradient_checkpointing", "output_past", "_name_or_path",
    "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    "task_specific_params", "torch_dtype", "transformers_version", "n_ctx", "model_type", "dtype", "use_cache",
    "bos_token_id", "eos_token_id", "pad_token_id",
)  # fmt: skip
"""Keys that no figure depends on."""
_OF_ROTATION = ("partial_rotary_factor", "rope_scaling", "rope_theta", "rotary_emb_base", "rotary_pct")
"""Keys of older releases that transformers 5 turns into rope_parameters."""


def _text_part(config):
    """Return the part of a configuration that is about tokens: of a model for images, too, one inside of it.

    Older releases of transformers have no get_text_config.
    """
    return getattr(config, "get_text_config", lambda: getattr(config, "text_config", config))()


def _look_at_loss(args, model):
    """See whether the model's own loss shifts the labels. Raises Unsupported if it isn't the logits' cross entropy, needs more
    than tokens, or the model sees later tokens: in generation, and where is_decoder says that it was not meant to predict.

    What a token sees is found by another last token: the logits before it must stay as they are.
    """
    count = _vocabulary(model.config)
    tokens = (count // 2 + torch.arange(8))[None] % count
    other = torch.cat([tokens[:, :-1], tokens[:, -2:-1]], dim=1)
    was_training = model.training
    with torch.random.fork_rng(devices=[]), torch.no_grad(), quiet(model.eval()):
        output, changed = (_with_loss(args, model, some) for some in (tokens, other))
    model.train(was_training)
    logits, loss = output.logits.float(), float(output.loss)
    moved = (logits - changed.logits.float())[:, :-1].abs().max()
    is_causal = float(moved) <= _SEES * float(logits.abs().max())
    is_encoder = getattr(model.config, "is_decoder", None) is False
    if not is_causal and (is_encoder or args.mode == "generate"):
        why = ": is_decoder is false" if is_encoder else ""
        raise Unsupported("%s sees later tokens%s, so it is no model of the next one" % (args.model, why))
    shifted, plain = _cross_entropy(logits[0, :-1], tokens[0, 1:]), _cross_entropy(logits[0], tokens[0])
    distances = [abs(loss - float(own)) for own in (shifted, plain)]
    if min(distances) > _SEES * abs(loss):
        raise Unsupported("%s has a loss of its own, not the cross entropy of its logits" % args.model)
    (_unshifted.add if distances[1] < distances[0] else _unshifted.discard)(args.model)


def _with_loss(args, model, tokens):
    try:
        return model(input_ids=tokens, labels=tokens)
    except Exception as error:
        if args.mode == "train" and model(input_ids=tokens) is not None:  # which fails as well where it isn't the loss
            text = "%s has no loss of tokens alone: %s" % (args.model, failures.describe(error))
            raise Unsupported(text) from error
        raise


_SEES = 1e-5
"""The largest relative difference that rounding makes in float32. An untrained encoder's tokens may move others by 1e-4."""


def load(args):
    _class_of(_entry(args))


def _class_of(entry):
    """Return the class of the library that `build` makes."""
    return _factory(entry)._model_mapping[type(transformers.AutoConfig.for_model(entry["type"]))]


def _factory(entry):
    return getattr(transformers, "AutoModelFor" + entry["head"])


def _entry(args):
    """Return the entry in models.json; for a model that is not listed, the library's facts about its type."""
    name = args.model[len(LIBRARIES["transformers"]["any"]) :]
    return entry_of(args.model) or (_entry_of_class(name) if name[:1].isupper() else _default_entry(name))


def _entry_of_class(name):
    """Return the entry of a class of text models, such as BertForMaskedLM."""
    head = next((head for ending, head in _HEADS.items() if name.endswith(ending)), None)
    found = getattr(transformers, name, None) if head else None
    config = getattr(found, "config_class", None)
    entry = {"type": getattr(config, "model_type", ""), "head": head, "config": {}}
    if config is None or type(config()) not in _factory(entry)._model_mapping or _class_of(entry) is not found:
        raise Unsupported("transformers %s has no class of text models %s" % (transformers.__version__, name))
    entry["config"]["vocab_size"] = config().vocab_size
    if head == "SequenceClassification":
        entry["config"]["pad_token_id"] = 0  # a decoder looks for each sequence's last token
    return entry


def _default_entry(model_type):
    """Return the entry of a text model: the head is that of a decoder's tokens, else of masked ones, else of the next one."""
    _require_type(model_type)
    config = transformers.AutoConfig.for_model(model_type)
    heads = ("Seq2SeqLM",) if getattr(config, "is_encoder_decoder", False) else ("MaskedLM", "CausalLM")
    head = next((head for head in heads if type(config) in getattr(transformers, "AutoModelFor" + head)._model_mapping), None)
    if head is None or not isinstance(getattr(config, "vocab_size", None), int) or model_type in _NOT_OF_TOKENS:
        raise Unsupported("%s is not a text model that transformers %s trains" % (model_type, transformers.__version__))
    return {"type": model_type, "head": head, "config": {"vocab_size": config.vocab_size}}


def _require_type(model_type):
    if model_type not in transformers.CONFIG_MAPPING:
        near = ", ".join(difflib.get_close_matches(model_type, transformers.CONFIG_MAPPING.keys(), n=3)) or "none is near"
        raise Unsupported("transformers %s has no type %s (%s)" % (transformers.__version__, model_type, near))


def _config_of(args, entry):
    _require_type(entry["type"])
    return transformers.AutoConfig.for_model(entry["type"], **_configuration(args, entry))


def _configuration(args, entry):
    """Return the configuration, with the values that depend on the size of the inputs."""
    sized = {name: factor * args.audio_seconds for name, factor in entry.get("sized_by_seconds", {}).items()}
    if entry["head"] in _IMAGE:
        sized["image_size"] = args.image_size
    return {**entry["config"], **sized}


def batch(args, generator):
    entry = _entry(args)
    head, config = entry["head"], entry["config"]
    if head in _IMAGE:
        targets = data.labels if head == "ImageClassification" else data.maps
        return {"pixel_values": data.images(args, generator), "labels": targets(args, config["num_labels"], generator)}
    if head in _SOUND:
        samples = torch.randn(args.batch, SAMPLES_PER_SECOND * args.audio_seconds, generator=generator)
        return {"input_values": samples, "labels": _sound_labels(args, config, head, generator)}
    if head == "SpeechSeq2Seq":
        frames = entry["frames_per_second"] * args.audio_seconds
        made = {"input_features": torch.randn(args.batch, _MELS, frames, generator=generator)}
    else:
        made = {"input_ids": _tokens(args, entry, generator)}
        if args.mode == "generate":
            return dict(made, depths=depths(args).expand(args.batch, -1).contiguous())
        if "attention_mask" in inspect.signature(_class_of(entry).forward).parameters:  # not in FNet's
            made["attention_mask"] = torch.ones_like(made["input_ids"])
    if head in _WITH_DECODER:
        return dict(made, decoder_input_ids=_tokens(args, entry, generator), labels=_tokens(args, entry, generator))
    return dict(made, **_text_targets(args, entry, made["input_ids"], generator))


def _tokens(args, entry, generator):
    shape = (args.batch, args.sequence_length + (args.output_length if args.mode == "generate" else 0))
    return torch.randint(_vocabulary(_config_of(args, entry)), shape, generator=generator)


def _vocabulary(config):
    return _text_part(config).vocab_size


def _sound_labels(args, config, head, generator):
    """Draw a text for CTC (0 is its blank), else a class."""
    if head == "AudioClassification":
        return data.labels(args, config["num_labels"], generator)
    return torch.randint(1, 32, (args.batch, _CHARACTERS_PER_SECOND * args.audio_seconds), generator=generator)


def _text_targets(args, entry, tokens, generator):
    if entry["head"] == "QuestionAnswering":
        positions = [torch.randint(args.sequence_length, (args.batch,), generator=generator) for _ in range(2)]
        return dict(zip(("start_positions", "end_positions"), positions))
    if entry["head"] == "SequenceClassification":
        return {"labels": data.labels(args, entry["config"].get("num_labels", 2), generator)}
    if entry["head"] == "MaskedLM":
        kept = torch.rand(tokens.shape, generator=generator) > _MASKED
        kept[:, 0] = False  # one in each sequence at least
        return {"labels": tokens.masked_fill(kept, _IGNORED)}
    if args.model in _unshifted:
        return {"labels": torch.nn.functional.pad(tokens[:, 1:], (0, 1), value=_IGNORED)}
    return {"labels": tokens}


def forward(model, batch):
    """Run the model without the targets, so that it computes no loss."""
    if "depths" in batch:
        return _without_cache(model, batch["input_ids"][:, :-1], batch["depths"][0])
    return model(**{name: tensor for name, tensor in batch.items() if name not in _TARGETS})


def _without_cache(model, tokens, kept):
    """Return the logits of a generation at the positions `kept`, from one pass over all its tokens but the last."""
    first = int(kept[0])
    positions = torch.arange(first, tokens.shape[1], device=tokens.device)
    logits = model(input_ids=tokens, logits_to_keep=positions).logits
    return logits[:, kept - (first if logits.shape[1] == len(positions) else 0)]  # some models give all, whatever is asked for


def static_cache(model, length):
    """Return a KV cache of a fixed length. Raises Unsupported where the library has none, or attention leaves tokens out."""
    config = getattr(model, "_orig_mod", model).config
    kept = next((getattr(_text_part(config), name, None) for name in _SPARSE if hasattr(_text_part(config), name)), None)
    if isinstance(kept, int) and 0 < kept < length:
        text = "attention keeps the best %d of %d tokens: with random weights these are chosen by rounding"
        raise Unsupported(text % (kept, length))
    try:
        return transformers.StaticCache(config=config, max_cache_len=length)
    except Exception as error:  # of any class: the library looks up the kinds of layers that it knows
        text = "transformers %s has no static cache that fits here (%s)"
        raise Unsupported(text % (transformers.__version__, failures.describe(error))) from None


_SPARSE = ("index_topk", "keep_window_size")
"""What configurations call the number of tokens that attention keeps of all."""


def loss(outputs, batch):
    """Compute the loss as the library's own heads do; of a generation, of the tokens after the kept outputs."""
    if "depths" in batch:
        return _cross_entropy(outputs.flatten(0, 1), batch["input_ids"][:, batch["depths"][0] + 1].flatten())
    if "start_positions" in batch:
        start = _cross_entropy(outputs.start_logits, batch["start_positions"])
        return (start + _cross_entropy(outputs.end_logits, batch["end_positions"])) / 2
    logits, labels = outputs.logits, batch["labels"]
    if logits.dim() == 4:  # of pixels, at a lower resolution
        logits = torch.nn.functional.interpolate(logits, size=labels.shape[-2:], mode="bilinear", align_corners=False)
        return _cross_entropy(logits, labels)
    if logits.dim() == 2:
        return _cross_entropy(logits, labels)
    if "input_values" in batch:
        return _ctc_loss(logits, labels)
    if "decoder_input_ids" in batch or (labels == _IGNORED).any():
        return _cross_entropy(logits.flatten(0, 1), labels.flatten())
    return _cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())  # each token from those before it


def _ctc_loss(logits, labels):
    """Sum the negative log likelihoods of the items' texts, as Wav2Vec2ForCTC does; 0 is the blank."""
    likely = torch.nn.functional.log_softmax(logits, dim=-1, dtype=torch.float32).transpose(0, 1)
    frame_counts = torch.full((len(labels),), logits.shape[1], dtype=torch.long)
    text_lengths = torch.full((len(labels),), labels.shape[1], dtype=torch.long)
    return torch.nn.functional.ctc_loss(likely, labels, frame_counts, text_lengths, reduction="sum")


def training_loss(model, batch):
    return model(**batch).loss


def _cross_entropy(logits, targets):
    return torch.nn.functional.cross_entropy(logits.float(), targets)


def _with_attention(factory, config, attention):
    """Ask for the attention implementation by name; a transformers without the choice has eager only, which is "auto" then."""
    has_choice = hasattr(config, "_attn_implementation") or hasattr(
        transformers.PreTrainedModel, "_autoset_attn_implementation"
    )
    if not has_choice:
        if attention == "sdpa":
            raise Unsupported("transformers %s has no attention %r, only eager" % (transformers.__version__, attention))
        return factory.from_config(config)
    try:
        return factory.from_config(config, **({} if attention == "auto" else {"attn_implementation": attention}))
    except (ValueError, ImportError) as error:
        what = "attention %r" % attention if "attention" in str(error) or "attn" in str(error) else "the library can't build it"
        raise Unsupported("%s: %s" % (what, error)) from None


def _attention_of(model):
    return getattr(model.config, "_attn_implementation", "eager")
