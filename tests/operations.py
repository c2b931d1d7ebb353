"""Counts what the listed models compute and writes runner/torchmatrix/matrix/operations.json; run it with a stack's Python.

    STACK/bin/python tests/operations.py [MODEL...]

The stack needs torch 2.1 or newer, torchvision, transformers, timm and diffusers. Nothing is downloaded or computed: the models
are built on the meta device where they can be. Of MODELs the counts are printed, and nothing is written.
"""

import json
import math
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "runner" / "torchmatrix" / "matrix" / "operations.json"
sys.path.insert(0, str(ROOT / "images" / "workload"))
import bench  # noqa: E402
import families  # noqa: E402
from proofs import arithmetic  # noqa: E402

WAYS = ("meta", True), ("meta", False), ("cpu", True)
"""Devices, and whether the mask of attention is given: some models look at it, others make one that they look at."""
LENGTHS = 64, 128
"""Tokens of two passes, which tell what grows with the tokens from what grows with their pairs."""
PER_IMAGE, PER_TOKEN = "image of 224 pixels", "token"


def forward_flops(name, unit):
    """Return the FLOPs of a forward pass, for an image or, at least, for a token: attention's grow with the length."""
    error = None
    for device, is_masked in WAYS if unit == "images" else WAYS[:2]:
        try:
            if unit == "images":
                return _for_pixels(name, device)
            short, long = (_count(name, device, is_masked, length) for length in LENGTHS)
        except Exception as raised:  # of any class: libraries differ in what they look at
            error = raised
        else:
            return (4 * short - long) / (2 * LENGTHS[0])
    raise error


def _for_pixels(name, device):
    """Return the FLOPs for an image of 224 pixels, which must grow with the pixels where it takes any."""
    flops = _count(name, device, True)
    try:
        growth = _count(name, device, True, size=448) / flops
    except Exception:  # of any class: a model of one size
        return flops
    if not 3.6 < growth < 4.6:
        raise ValueError(f"for images of twice the size it needs {growth:.1f} times as many FLOPs")
    return flops


def vocabulary_flops(name):
    """Return the FLOPs of one token's product with the vocabulary, which a pass may need for few tokens, or for none."""
    _, model = _model(name, "meta")
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    return 2 * head.weight.numel() if head is not None else 0


def _model(name, device):
    args = bench.parse(["--model", name, "--mode", "infer", "--batch", "1", "--device", "cpu"])
    with torch.device(device):
        return args, families.build(args, torch.device(device))[0]


def _count(name, device, is_masked, length=128, size=224):
    args, model = _model(name, device)
    args.sequence_length, args.image_size = length, size
    batch = families.draw(args, torch.Generator())
    if not is_masked:
        batch.pop("attention_mask", None)
    watched = arithmetic.Watched()
    with torch.no_grad(), watched:
        families.of(args).forward(model.eval(), {key: tensor.to(device) for key, tensor in batch.items()})
    flops, why = watched.total(False)
    if why:
        raise ValueError(why)
    return flops


def main(names):
    counts = {}
    for library in families.LIBRARIES.values():
        for name, entry in library["models"].items():
            unit = entry.get("unit", library.get("unit"))
            if unit in ("images", "sequences", "tokens") and (not names or name in names):
                try:
                    flops = forward_flops(name, unit)
                except Exception as error:  # of any class: detectors look at values, and libraries differ in what they need
                    print(f"{name}: {str(error).splitlines()[0][:100]}", file=sys.stderr)
                else:
                    per = PER_IMAGE if unit == "images" else PER_TOKEN
                    counts[name] = {"forward": float(f"{math.floor(flops):.5g}"), "per": per}
                    if unit != "images" and (vocabulary := vocabulary_flops(name)):
                        counts[name]["vocabulary"] = float(vocabulary)
    text = json.dumps(counts, indent=1, sort_keys=True) + "\n"
    if names:
        print(text, end="")
    else:
        FILE.write_text(text)


if __name__ == "__main__":
    main(sys.argv[1:])
