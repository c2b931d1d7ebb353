"""Checks that the timed windows trained. The model's state is read right after them, before anything is reset.

A step that does less in the windows than in a proof is found here: torch counts the writes into each parameter, a few numbers
of each show whether it changed, the last step's gradients are still there, and all losses are known. No check runs in a timed
window, and no weights are copied but those few.
"""

import collections
import contextlib
import ctypes
import functools
import math
import os
from time import perf_counter, process_time

import torch

import families
import kept
import masters
import measure
import measurements
import sharded
from proofs import deeds, pace, rules, varying, work

AS_LARGE = 0.5
"""A group of parameters that the first step changed must change while its gradient is at least this share of the first one."""
JUMP, LEAST_JUMP = 3.0, 0.02
"""Where the windows begin, the losses of half of the batches don't change by more than this many times the largest change
before, and by more than this share of the largest loss."""
SHOWS = 1e-5
"""A step that must change the loss by more than this, by its gradient and its length, changes it in float32."""
TIMES = 3
"""A number of a step's outputs may differ by so many times what the loss may (rules.STRANGE), relative to the outputs' size."""
LEAST_SECONDS, MORE_CPUS, OF_GLOO = 0.2, 1.25, 1.0
"""From which time on the use of CPUs is judged, how many times as many as threads may be busy (PyTorch's backward pass, its
libraries and the interpreter have some of their own, which wait most of the time), and how many gloo takes besides."""
_RANDOM_PATHS = ("StochasticDepth", "DropPath")
"""Modules that skip whole paths, whose gradients are then zero."""


Watched = collections.namedtuple("Watched", "problems unknown varies seconds numbers")
"""Texts about the problems of all ranks, a text about what can't be known or None, a varying.Varying or None, the pace.Usual of
the timed steps (None without windows), and the numbers that all steps of inference kept of this rank's batches, by their
number (empty where they may differ)."""
NOTHING = Watched([], None, None, None, {})


class Watch:
    """The state of `begun` (phases.Begun) after `steps` of warm-up; `end` compares it with the state after the windows."""

    def __init__(self, args, world, begun, steps):
        self._args, self._world, self._begun, self._steps = args, world, begun, steps
        self._clocks = cpu_seconds(), perf_counter()
        if measurements.trains(args):
            done = steps + 1 if begun.step.taken() is None else begun.step.taken()
            self._rates = [growth // max(done, 1) for growth in begun.mark.growth()]
            self._taken_before, self._mark = begun.step.taken(), deeds.Fingerprint(begun.step, begun.model)
            self._gradients_before, self._seen = self._mark.gradients(), self._seen_writes()
            self._normed, self._generator = self._count_normed(), torch.get_rng_state()

    def end(self, before, timed):
        """Return the Watched of the `timed` windows and the blocks `before` them, as measure.window gives them."""
        blocks, seconds = before + timed, pace.usual(self._args, before + timed, timed, work.BATCH)
        numbers, losses = _losses_in_order(blocks, self._world.rank)
        sizes = rules.sizes(self._args, self._begun.batches)
        if not measurements.trains(self._args):
            problems, unknown, known = self._check_equal_numbers()
            problems = sizes + self._check_cpus() + self._check_equal_losses(numbers, losses) + problems
            return Watched(rules.of_all_ranks(self._world, problems), unknown, None, seconds, known)
        now, steps = self._mark.read(0.0), len(losses) - self._steps
        begun, family = self._begun, families.of(self._args)
        varies = varying.look(self._args, family, begun.plain, begun.batches[0])
        problems = sizes + self._check_cpus() + self._check_fused(steps) + self._check_optimizer_holds()
        problems += [] if varies else self._check_writes(steps)
        problems += [] if varies or self._args.data == "disk" else self._check_jump(losses)  # else each step has other data
        if "gradient_norm" in now and "gradient_norm" in self._gradients_before:  # GradScaler skipped neither last step
            problems += self._check_values(now) + self._check_gradients(now, steps) + self._check_repeated_losses(now, losses)
        problems = rules.of_all_ranks(self._world, problems) + rules.shared_norm(self._args, self._world, now)
        if self._args.parallel in ("ddp", "tp"):
            problems += rules.same_weights(self._world, deeds.samples(self._begun.model))
        problems += rules.shares(self._args, self._world, self._begun, blocks)
        problems += rules.of_all_ranks(self._world, self._check_mode(steps))
        unknown = varying.UNKNOWN if varies else None if any(self._rates) else _UNKNOWN
        return Watched(problems, next(filter(None, self._world.gather(unknown)), None), varies, seconds, {})

    def _check_cpus(self):
        """Check that the process and its children ran on no more CPUs at a time, on the mean, than it has threads: a model may
        start its own.
        """
        busy, wall = cpu_seconds() - self._clocks[0], perf_counter() - self._clocks[1]
        given = self._begun.settings["threads"] + (self._args.workers if self._args.data == "disk" else 0)
        most = MORE_CPUS * given + (OF_GLOO if self._world.size > 1 else 0)
        if self._args.device != "cpu" or wall < LEAST_SECONDS or busy <= most * wall:
            return []
        return [_MORE_CPUS % (busy / wall, given)]

    def _seen_writes(self):
        """Return how many writes into each parameter that trains torch has seen itself: of a fused optimizer none."""
        optimizer = self._begun.step.optimizer
        trained = (parameter for parameter in self._begun.model.parameters() if parameter.grad is not None)
        return [masters.of(optimizer, parameter)._version for parameter in trained]

    def _check_fused(self, steps):
        grown = [now - then for then, now in zip(self._seen, self._seen_writes())]
        if self._args.optimizer != "adamw-fused" or not grown or not steps or min(grown) < steps:
            return []
        return ["adamw-fused was asked for, but the optimizer writes into the parameters by other kernels"]

    def _count_normed(self):
        """Return how many batches each batch norm of a library's model has counted, which it does in training mode only."""
        norms = [] if self._args.model_file else self._begun.plain.modules()
        counts = (getattr(module, "num_batches_tracked", None) for module in norms)
        return [int(count) for count in counts if count is not None]

    def _check_mode(self, steps):
        """Check that batch norms counted each step of a library's model and, on a CPU, that its dropout drew random numbers."""
        missing = steps - min((now - then for then, now in zip(self._normed, self._count_normed())), default=steps)
        problems = [_NOT_NORMED % (missing, steps)] if missing > 0 else []
        draws = not self._args.model_file and self._args.device == "cpu" and families.has_dropout(self._begun.plain)
        draws = draws and not (self._args.data == "disk" and self._args.workers == 0)  # which draws in this process, too
        is_idle = draws and steps and torch.equal(self._generator, torch.get_rng_state())
        return problems + ([_NO_DROPOUT] if is_idle else [])

    def _check_optimizer_holds(self):
        """Check that each parameter with a gradient is written into, as others are. (A sharded one among them: torch counts
        no writes into these where its optimizer treats many at once.)
        """
        names, growth = deeds.names_of(self._begun.model), self._begun.mark.growth()
        kinds = [sharded.is_sharded(parameter) for parameter in self._begun.model.parameters()]
        counted = {kind for kind, grown in zip(kinds, growth) if grown}
        if all(growth) or not counted:
            return []
        norms = deeds.gradient_norms(self._begun.model)
        rows = zip(names, growth, norms, kinds)
        return _list_names(
            "the optimizer never changed %s", [n for n, grown, norm, kind in rows if grown == 0 < norm and kind in counted]
        )

    def _check_writes(self, steps):
        """Check that the optimizer wrote into each parameter as often per step as in the warm-up.

        A user's own model may leave parts out at random, and so may a router its experts.
        """
        if self._taken_before is not None:
            steps = self._begun.step.taken() - self._taken_before
        least = steps / 2 if self._args.model_file else steps
        named = zip(deeds.names_of(self._begun.model), self._rates, self._mark.growth())
        rare = [name for name, rate, growth in named if growth < rate * least]
        return _list_names(_UNWRITTEN % steps, [name for name in rare if not families.may_be_left_out(self._args, name)])

    def _check_values(self, now):
        """Check that groups that the first step changed still change, and that those with a gradient still have one."""
        first = self._begun.first[self._world.rank]
        groups = [name.partition(" of ")[2] for name in first if name.startswith("update_norm of ")]
        then, left = ({group: fingerprint["gradient_norm of " + group] for group in groups} for fingerprint in (first, now))
        unchanged = [g for g in groups if now["update_norm of " + g] == 0 < first["update_norm of " + g]]
        problems = _list_names("the windows did not change %s", [g for g in unchanged if left[g] >= AS_LARGE * then[g] > 0])
        if self._args.model_file or any(type(module).__name__ in _RANDOM_PATHS for module in self._begun.model.modules()):
            return problems
        return problems + _list_names(
            "the windows' last step gave no gradient to %s", [g for g in groups if left[g] == 0 < then[g]]
        )

    def _check_gradients(self, now, steps):
        """Check that another batch, or other weights, give another gradient."""
        names = [name for name, norm in self._gradients_before.items() if name.startswith("gradient_norm of ") and norm > 0]
        same = [name.partition(" of ")[2] for name in names if now[name] == self._gradients_before[name]]
        is_other = steps % self._args.batches or now["update_norm"]
        if not is_other or (self._args.model_file and len(same) < len(names)):
            return []
        return _list_names("after the windows, the gradients of %s are those from before them", same)

    def _check_repeated_losses(self, now, losses):
        """Check that training changes the loss of a batch, if the gradient and the weights' change are large enough to show."""
        first, windows = self._begun.first[self._world.rank], losses[self._steps :]
        rows = [windows[batch :: self._args.batches] for batch in range(self._args.batches)]
        if len(windows) < 2 * self._args.batches or any(len(set(row)) > 1 for row in rows) or all(map(_is_coarse, windows)):
            return []
        shrunk = min(1.0, now["gradient_norm"] / max(first.get("gradient_norm", 0.0), 1e-30))
        if now["gradient_norm"] * first.get("update_norm", 0.0) * shrunk <= SHOWS * max(map(abs, windows)):
            return []
        return ["in the windows, each batch has the same loss again and again, such as %.6g: nothing is learned" % windows[0]]

    def _check_jump(self, losses):
        """Check that the losses do not jump where the windows begin: the steps before and in them are alike."""
        turn, begin = self._args.batches, self._steps
        changes = [abs(now - then) for then, now in zip(losses, losses[turn:])]
        if begin < 2 * turn or len(changes) < begin:
            return []
        jump, before = sorted(changes[begin - turn : begin])[turn // 2], max(changes[: begin - turn])
        return [_JUMPED % (jump, before)] if jump > max(JUMP * before, LEAST_JUMP * max(map(abs, losses))) else []

    def _check_equal_losses(self, numbers, losses):
        """Check that a library's model has the same loss for the same batch in every step."""
        if self._args.model_file or not self._args.eval:
            return []
        first_losses = {}
        for number, loss in zip(numbers, losses):
            then = first_losses.setdefault(number % self._args.batches, loss)
            if not abs(loss - then) <= rules.STRANGE[self._args.arithmetic] * max(abs(then), 1e-6):
                return ["the loss of a batch is %.6g in step %d, but was %.6g in a step before" % (loss, number, then)]
        return []

    def _check_equal_numbers(self):
        """Check that every step gave the same numbers for the same batch. Return problems, what can't be known (that, where two
        steps that follow each other now don't, or steps change what the model keeps), and the numbers of each batch.
        """
        begun, step = self._begun, self._begun.step
        if step.kept is None:
            return [], None, {}
        steps, buffers = step.kept.take(), deeds.copied_buffers(begun.plain)
        for _ in range(2):
            measure.run_steps(self._world, step, 1, 0)
        keeps = not all(map(torch.equal, buffers, deeds.buffers_of(begun.plain)))
        tensors = kept.tensors_of(step.outputs())
        sizes = [float(families.numbers_of(tensor).float().square().mean().sqrt()) for tensor in tensors]
        first, second = (numbers for _, numbers in step.kept.take())
        if not tensors:
            return [], _WHOLE_NUMBERS, {}
        given = {tensor.data_ptr() for tensor in (*begun.plain.parameters(), *begun.batches[0].values())}
        if all(tensor.data_ptr() in given for tensor in tensors):
            return [_NOTHING_COMPUTED], None, {}
        differ = functools.partial(step.kept.differ, sizes=sizes, most=TIMES * rules.STRANGE[self._args.arithmetic])
        if differ(first, second) is not None:
            return [], _BY_STATE if keeps else _BY_CHANCE, {}
        known = {}
        for count, (index, numbers) in enumerate(steps):
            then = known.setdefault(index, numbers)
            pair = differ(then, numbers)
            if pair is not None:
                return ([], _BY_STATE, {}) if keeps else ([step.kept.UNLIKE % (count, *pair)], None, {})
        return [], None, known if type(step.kept) is kept.Kept else {}  # tokens are compared by other means


def keep_orphans():
    """Let processes below this one stay below it if their parent ends (PR_SET_CHILD_SUBREAPER of prctl(2)): their CPU time is
    this one's.
    """
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)


def cpu_seconds():
    """Return the CPU seconds of this process and of all below it, as far as the kernel shows them: /proc/PID/stat (proc(5))."""
    seconds, known = {}, {}
    for entry in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if entry.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open("/proc/%s/stat" % entry, "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                known[int(entry)], seconds[int(entry)] = int(fields[1]), (int(fields[11]) + int(fields[12])) / _TICKS
    family = {os.getpid()}
    while True:
        more = {process for process, parent in known.items() if parent in family} - family
        if not more:
            return process_time() + sum(seconds[process] for process in family - {os.getpid()})
        family |= more


_TICKS = os.sysconf("SC_CLK_TCK")
_MORE_CPUS = (
    "in the windows the process kept %.1f CPUs busy, and was given %d: the model starts threads or processes of its own"
)
_NOT_NORMED = "in %d of %d steps since the warm-up batch norms did not compute as in training"
_NO_DROPOUT = "the windows drew no random number, although the model has dropout"
_UNWRITTEN = "in the %d steps since the warm-up, the optimizer did not always change %%s"
_UNKNOWN = "whether every step of the windows changed the parameters: torch counts no writes into them"
_NOTHING_COMPUTED = (
    "all tensors that a step gives are inputs or weights of the model: it computes nothing, or only when it is read"
)
_WHOLE_NUMBERS = "whether every step of the windows computed its outputs: they are whole numbers"
_BY_CHANCE = "whether every step of the windows computed its outputs: two steps on one batch give other ones each time"
_BY_STATE = "whether every step of the windows computed its outputs: they depend on buffers that each step changes"
_JUMPED = "where the windows begin, the losses of the same batches jump by %.2g; before, they changed by at most %.2g"


def _losses_in_order(blocks, rank):
    """Return the numbers of the steps whose losses are known, and these losses, of one rank in order."""
    numbers, losses, count = [], [], 0
    for ranks in sorted(blocks, key=lambda ranks: ranks[0]["start_monotonic_seconds"]):
        count += len(ranks[rank]["step_seconds"])
        numbers += range(count - len(ranks[rank]["losses"]), count)
        losses += ranks[rank]["losses"]
    return numbers, losses


def _is_coarse(loss):
    """Check whether float16 or bfloat16 can hold `loss`: then it may repeat though the weights change."""
    return (math.frexp(loss)[0] * 2.0**11).is_integer()


def _list_names(text, names):
    """Return `text` with the first few of `names`; nothing if there are none."""
    return [text % (", ".join(names[:3]) + (" and %d more" % (len(names) - 3) if len(names) > 3 else ""))] if names else []
