"""Batches that a DataLoader reads from a data set on disk: JPEGs that are decoded and augmented, or tokens that are mapped.

The data set is generated once for each stack and workload, from a fixed seed, into the folder that is kept from launch to
launch. A Feed puts each batch where the step finds a synthetic one: the same tensors with other content, so that nothing else
of a launch changes. Each item carries its number and a mark of what was decoded, which are checked after the windows.
"""

import json
import os
import random
import shutil
import time

import torch
import torch.utils.data

import cache
import families
import measurements
import sharing
from channel import Numerics, Unsupported

ITEMS, TOKENS = 1000, 1 << 24
"""Images, and tokens, of a data set: 110 MB and 34 MB."""
SIZES = (
    *(((500, 375), 45), ((375, 500), 17), ((500, 333), 12), ((333, 500), 6), ((300, 225), 6)),
    *(((640, 480), 5), ((200, 200), 4), ((400, 300), 3), ((1024, 768), 2)),
)
"""Width and height of images and their shares in percent: 459 x 393 on average, as ImageNet's (469 x 387; 108 kB a file,
https://image-net.org: 138 GB of 1,281,167 images)."""
QUALITY, NOISE = 92, 20
"""Of JPEG, and the standard deviation of the noise on smooth colours, with which files are as large as ImageNet's."""
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
"""Of ImageNet's colours (torchvision's references/classification)."""
STRIDE, LEVELS = 16, 3.0
"""Every so many pixels count for the mark of an image, which may differ by so many levels of 255 between two decoders."""
WAITING = 0.02
"""A loader that is waited for in more of the windows' time limits the throughput."""


def feed(args, world, begun):
    """Return the Feed of a launch whose data is on disk. Raises Unsupported."""
    if not measurements.trains(args):
        raise Unsupported("data disk is for training")
    if args.parallel in families.ONE_BATCH:
        raise Unsupported("data disk gives each rank a batch of its own, and with parallel %s all have one" % args.parallel)
    return Feed(args, world, begun.batches)


class Feed:
    """Loads batches into `batches`, which the steps take in turn. `wrap` makes steps that load; after `close`, and before, the
    batches are the synthetic ones."""

    def __init__(self, args, world, batches):
        self._args, self._world, self._batches = args, world, batches
        self._kept = [{name: tensor.cpu().clone() for name, tensor in batch.items()} for batch in batches]
        kind = _kind_of(batches[0])
        self._folder, self._place = _folder(args, world, kind, batches[0])
        self._data = kind(self._folder, args, batches[0])
        _settle(args, self._data)
        self._own = range(world.rank, len(self._data), world.size)
        self._loader = torch.utils.data.DataLoader(
            self._data, batch_size=families.batch_of_step(args), sampler=_Epochs(self._own, args.seed), drop_last=True,
            num_workers=args.workers, pin_memory=args.pin_memory and world.kind.is_gpu, collate_fn=_collated,
            **({"prefetch_factor": args.prefetch, "persistent_workers": True} if args.workers else {})
        )  # fmt: skip
        self._batch_of = iter(self._loader)
        sharing.HELPERS.update(worker.pid for worker in getattr(self._batch_of, "_workers", ()))
        self._taken, self._waits = [], []

    def wrap(self, step):
        """Return `step` with a `run` that loads its batch first."""

        def run(index):
            self._load(self._batches[index % len(self._batches)])
            step.run(index)

        return step._replace(run=run)

    def _load(self, batch):
        begin = time.perf_counter()
        loaded, numbers, marks, read, worked = next(self._batch_of)
        self._waits.append(time.perf_counter() - begin)
        self._taken.append((numbers.tolist(), marks.tolist(), read, worked))  # each tensor of a worker holds an open file
        for name, tensor in loaded.items():
            batch[name].copy_(tensor, non_blocking=True)

    def close(self, timed):
        """End the loader, give the batches their synthetic content, and return the facts of the `timed` windows. Raises
        Numerics if an item wasn't read once in each epoch, or wasn't decoded."""
        self._world.synchronize()
        sharing.HELPERS.clear()
        del self._batch_of, self._loader
        for batch, kept in zip(self._batches, self._kept):
            for name, tensor in kept.items():
                batch[name].copy_(tensor)
        problems = [text for text in self._world.gather(self._problem()) if text]
        if problems:
            raise Numerics(problems[0])
        steps = sum(len(ranks[0]["step_seconds"]) for ranks in timed)
        last = self._taken[-steps:] if steps else []
        own = {
            "wait_seconds": sum(self._waits[-steps:]) if steps else 0.0,
            "read_seconds": sum(read for *_, read, _ in last),
            "work_seconds": sum(worked for *_, worked in last),
        }
        ranks = self._world.gather(own)
        facts = {name: [rank[name] for rank in ranks] for name in own}
        return dict(
            facts, kind=self._data.KIND, items=len(self._data), bytes=self._data.bytes, place=self._place,
            epochs=sum(len(numbers) for numbers, *_ in self._taken) / max(1, len(self._own)),
            window_seconds=sum(max(rank["seconds"] for rank in ranks) for ranks in timed),
        )  # fmt: skip

    def _problem(self):
        """Return what shows that an item wasn't read once in each epoch, or that its content is another one, or None."""
        numbers = [number for taken, *_ in self._taken for number in taken]
        size = len(self._own)
        for begin in range(0, len(numbers), size):
            epoch = numbers[begin : begin + size]
            if len(set(epoch)) < len(epoch) or not set(epoch) <= set(self._own):
                return "the loader gave an item twice in an epoch, or one that isn't this rank's"
        for taken, marks, *_ in self._taken:
            for number, mark in zip(taken, marks):
                if not abs(mark - self._data.mark(number)) <= self._data.MOST:
                    return "item %d of the data set was not read as it was written" % number
        return None


def remark(facts):
    """Return a sentence on what the loader cost, or None if it kept up."""
    share = max(facts["wait_seconds"]) / facts["window_seconds"] if facts["window_seconds"] else 0.0
    read, worked = sum(facts["read_seconds"]), sum(facts["work_seconds"])
    busy = read / (read + worked) if read + worked else 0.0
    if share <= WAITING:
        return None
    why = "storage" if busy > 0.5 else "decoding and augmenting" if facts["kind"] == "images" else "copying"
    return _LIMITS % (100 * share, why, 100 * busy)


_LIMITS = (
    "the loader limits the throughput: %.0f %% of the windows' time was spent waiting for it, and %s took most of its time "
    "(reading %.0f %%)"
)


class _Epochs(torch.utils.data.Sampler):
    """Yields a rank's items without end, all of them once in each epoch, each time in another order."""

    def __init__(self, items, seed):
        self._items, self._seed = items, seed

    def __iter__(self):
        chance = random.Random(self._seed)
        while True:
            yield from chance.sample(list(self._items), len(self._items))

    def __len__(self):
        return len(self._items)


def _collated(items):
    """Return a batch by name, the items' numbers and marks, and the seconds that reading and the rest took."""
    names = items[0][0]
    batch = {name: torch.stack([item[0][name] for item in items]) for name in names}
    numbers, marks, reads, works = zip(*(item[1:] for item in items))
    return batch, torch.tensor(numbers), torch.tensor(marks, dtype=torch.float64), sum(reads), sum(works)


def _kind_of(batch):
    """Return the class of data sets that gives such batches. Raises Unsupported."""
    images = batch.get(_name_of_images(batch))
    if images is not None and images.dim() == 4 and images.shape[1] == 3 and batch.get("labels", images).dim() == 1:
        return Images
    if "input_ids" in batch and batch["input_ids"].dim() == 2:
        return Tokens
    raise Unsupported("data disk is for classifiers of images and for models of text")


def _name_of_images(batch):
    return "pixel_values" if "pixel_values" in batch else "images"  # transformers' name, and ours


def _folder(args, world, kind, batch):
    """Return the folder of the data set, which the first launch writes, and "kept" or "temporary"."""
    here = int(os.environ.get("LOCAL_RANK", "0"))
    parent, place = cache.data_folder(args, makes=here == 0)
    folder = os.path.join(world.gather(parent)[world.rank - here], kind.KIND)  # of the first rank on this node
    if here == 0 and not os.path.exists(os.path.join(folder, _INDEX)):
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        index = kind.write(folder, batch)
        for name in os.listdir(folder):  # what is still to be written to the disk can't be dropped from memory
            with open(os.path.join(folder, name), "rb") as file:
                os.fsync(file.fileno())
        with open(os.path.join(folder, _INDEX), "w", encoding="utf-8") as file:
            json.dump(index, file)
    world.barrier()
    return folder, place


_INDEX = "index.json"


def _settle(args, data):
    """Bring the page cache into the state that was asked for; raise Unsupported where it can't be."""
    paths = [os.path.join(data.folder, name) for name in sorted(os.listdir(data.folder))]
    if args.page_cache == "warm":
        for path in paths:
            with open(path, "rb") as file:
                while file.read(1 << 20):
                    pass
    elif data.KIND != Images.KIND or not hasattr(os, "posix_fadvise"):
        raise Unsupported("page_cache cold is for images, on Linux")
    elif _filesystem(data.folder) in ("tmpfs", "ramfs"):
        raise Unsupported("page_cache cold needs a disk, and the data set lies in memory (%s)" % data.folder)


def _filesystem(path):
    """Return the type of the file system that holds `path`, as /proc/mounts says; "" if it doesn't."""
    best, kind = "", ""
    with open("/proc/mounts", encoding="utf-8", errors="replace") as file:
        for line in file:
            _, point, name, *_ = line.split(" ")
            inside = os.path.realpath(path).startswith(point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, kind = point, name
    return kind


class Images(torch.utils.data.Dataset):
    """JPEGs, decoded by torchvision or Pillow, cropped at random, turned round at random, and normalized."""

    KIND, MOST = "images", LEVELS

    def __init__(self, folder, args, batch):
        self.folder, self._cold, self._pillow = folder, args.page_cache == "cold", args.decoder == "pillow"
        self._index = _read_index(folder)
        self.bytes = sum(self._index["bytes"])
        self._augment, self._name = _augment(args.image_size, self._pillow), _name_of_images(batch)

    def __len__(self):
        return len(self._index["marks"])

    def mark(self, number):
        return self._index["marks"][number]

    @staticmethod
    def write(folder, batch):
        """Write the files; return their sizes and marks."""
        import torchvision

        chance, generator = random.Random(0), torch.Generator().manual_seed(0)
        sizes, shares = zip(*SIZES)
        marks, written = [], []
        for number in range(ITEMS):
            ((width, height),) = chance.choices(sizes, shares)
            smooth = torch.rand(1, 3, 8, 8, generator=generator)
            colours = torch.nn.functional.interpolate(smooth, (height, width), mode="bilinear", align_corners=False)[0]
            noise = torch.randn(3, height, width, generator=generator)
            image = (255 * colours + NOISE * noise).clamp(0, 255).to(torch.uint8)
            data = torchvision.io.encode_jpeg(image, QUALITY)
            with open(os.path.join(folder, "%06d.jpg" % number), "wb") as file:
                file.write(data.numpy().tobytes())
            marks.append(_mean(torchvision.io.decode_jpeg(data)))
            written.append(data.numel())
        return {"marks": marks, "bytes": written}

    def __getitem__(self, number):
        begin = time.perf_counter()
        data = _content(os.path.join(self.folder, "%06d.jpg" % number), self._cold)
        read = time.perf_counter()
        image = _by_pillow(data) if self._pillow else _by_torchvision(data)
        mark = _mean_of_pillow(image) if self._pillow else _mean(image)
        item = {self._name: self._augment(image), "labels": torch.tensor(number % 1000)}
        return item, number, mark, read - begin, time.perf_counter() - read


def _content(path, cold):
    """Read a file, from the disk itself where `cold`."""
    with open(path, "rb", buffering=0) as file:
        if cold:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        return file.read()


def _by_torchvision(data):
    import torchvision

    return torchvision.io.decode_jpeg(torch.frombuffer(bytearray(data), dtype=torch.uint8))


def _by_pillow(data):
    import io

    from PIL import Image

    return Image.open(io.BytesIO(data)).convert("RGB")


def _mean_of_pillow(image):
    import numpy

    return float(numpy.asarray(image)[::STRIDE, ::STRIDE].mean())


def _mean(image):
    return float(image[:, ::STRIDE, ::STRIDE].double().mean())


def _augment(size, pillow):
    """Return torchvision's usual augmentation: the transforms of version 2 where it has them."""
    from torchvision import transforms

    try:
        from torchvision.transforms import v2
    except ImportError:
        to_tensor = transforms.ToTensor() if pillow else transforms.ConvertImageDtype(torch.float32)
        first, last, made = [], [to_tensor], transforms
    else:
        first, last, made = [v2.ToImage()] if pillow else [], [v2.ToDtype(torch.float32, scale=True)], v2
    crop = made.RandomResizedCrop(size, antialias=True) if made is not transforms else made.RandomResizedCrop(size)
    return made.Compose([*first, crop, made.RandomHorizontalFlip(), *last, made.Normalize(MEAN, DEVIATION)])


def _draw_tokens():
    import numpy

    return numpy.random.default_rng(0).integers(0, 1 << 16, TOKENS, dtype=numpy.uint16)


class Tokens(torch.utils.data.Dataset):
    """Sequences of tokens of two bytes each, in one file that is mapped into memory."""

    KIND, MOST = "tokens", 0.0

    def __init__(self, folder, args, batch):
        self.folder, self._length = folder, batch["input_ids"].shape[1]
        self.bytes, self._vocabulary = 2 * TOKENS, int(batch["input_ids"].max()) + 1
        self._shifts = torch.equal(batch.get("labels", torch.zeros(0)).cpu(), batch["input_ids"].cpu())
        self._map = self._drawn = None

    def __len__(self):
        return TOKENS // self._length

    @staticmethod
    def write(folder, batch):
        """Write the file; return nothing that must be known of it."""
        _draw_tokens().tofile(os.path.join(folder, "tokens.bin"))
        return {}

    def _sequence(self, number):
        import numpy

        if self._map is None:  # each worker maps the file itself
            self._map = numpy.memmap(os.path.join(self.folder, "tokens.bin"), dtype=numpy.uint16, mode="r")
        return self._map[number * self._length : (number + 1) * self._length]

    def mark(self, number):
        """Return the sum of a sequence as it was drawn, whatever the file holds."""
        if self._drawn is None:
            self._drawn = _draw_tokens()
        return float(self._drawn[number * self._length : (number + 1) * self._length].astype("int64").sum())

    def __getitem__(self, number):
        begin = time.perf_counter()
        raw = self._sequence(number).astype("int64")
        read = time.perf_counter()
        tokens = torch.from_numpy(raw % self._vocabulary)
        item = {"input_ids": tokens, **({"labels": tokens} if self._shifts else {})}
        return item, number, float(raw.sum()), read - begin, time.perf_counter() - read


def _read_index(folder):
    with open(os.path.join(folder, _INDEX), encoding="utf-8") as file:
        return json.load(file)
