"""CPU slots: alike wherever the machine lets them be; as they always were on plain machines."""

from collections import Counter
from dataclasses import replace

import pytest

from torchmatrix.machine.cpu import CoreGroup
from torchmatrix.machine.host import Host
from torchmatrix.matrix import matrix_file
from torchmatrix.planning.fit import Prerequisites
from torchmatrix.planning.plan import cut_slots, make_plan

Groups = tuple[CoreGroup, ...]


def socket(number: int, *cores: int, node: int | None = None, kind: int = 0) -> CoreGroup:
    return CoreGroup(cores=cores, socket=number, node=number if node is None else node, kind=kind)


def all_of(groups: Groups) -> tuple[int, ...]:
    return tuple(sorted(core for group in groups for core in group.cores))


def listed(*ranges: tuple[int, int]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(range(first, last + 1)) for first, last in ranges)


ONE = (socket(0, *range(16)),)
TWO = (socket(0, *range(8)), socket(1, *range(8, 16)))
ODD = (socket(0, *range(7)), socket(1, *range(7, 14)))
EVEN_AND_ODD = (socket(0, *range(0, 16, 2)), socket(1, *range(1, 16, 2)))  # as some boards number them
HYBRID = (socket(0, *range(0, 16, 2)), socket(0, *range(16, 32), kind=1))  # 8P with two threads each, 16E with one
MASKED = (socket(0, *range(6)), socket(1, 8, 9))
OFFLINE = (socket(0, 0, 1, 3, 4, 7), socket(1, 8, 9, 10, 12, 15))
NPS4 = tuple(socket(0, *range(4 * node, 4 * node + 4), node=node) for node in range(4))
TWO_OF_EACH = (socket(0, 0, 1), socket(0, 2, 3, kind=1))
THREE_TIERS = (socket(0, 7), socket(0, 4, 5, 6, kind=1), socket(0, 0, 1, 2, 3, kind=2))


@pytest.mark.parametrize(
    ("groups", "count", "slots"),
    [
        (ONE, 1, listed((0, 15))),
        (ONE, 3, listed((0, 4), (5, 9), (10, 14))),
        (TWO, 1, listed((0, 15))),
        (TWO, 2, listed((0, 7), (8, 15))),
        (TWO, 4, listed((0, 3), (4, 7), (8, 11), (12, 15))),
        (TWO, 3, listed((0, 3), (4, 7), (8, 11))),  # not 5 each, of which the second has cores of both sockets
        (ODD, 2, listed((0, 6), (7, 13))),
        (ODD, 4, listed((0, 2), (3, 5), (7, 9), (10, 12))),
        (EVEN_AND_ODD, 1, listed((0, 15))),
        (EVEN_AND_ODD, 2, (tuple(range(0, 16, 2)), tuple(range(1, 16, 2)))),
        (HYBRID, 1, (all_of(HYBRID),)),
        (HYBRID, 2, ((0, 2, 4, 6), (8, 10, 12, 14))),
        (HYBRID, 8, tuple((core,) for core in range(0, 16, 2))),
        (HYBRID, 16, tuple((core,) for core in range(16, 32))),  # there are too few performance cores
        (MASKED, 2, listed((0, 2), (3, 5))),
        (OFFLINE, 2, ((0, 1, 3, 4, 7), (8, 9, 10, 12, 15))),
        (OFFLINE, 3, ((0, 1), (3, 4), (8, 9))),
        (NPS4, 2, listed((0, 7), (8, 15))),  # of whole nodes
        (NPS4, 3, listed((0, 3), (4, 7), (8, 11))),
        (THREE_TIERS, 2, ((4,), (5,))),
        (THREE_TIERS, 4, ((0,), (1,), (2,), (3,))),
    ],
)
def test_slots_are_cut_along_the_topology(groups: Groups, count: int, slots: tuple[tuple[int, ...], ...]) -> None:
    cut = cut_slots(all_of(groups), groups, count)
    assert (cut.slots, cut.unlike, cut.size) == (slots, "", len(slots[0]))


@pytest.mark.parametrize("groups", [ONE, TWO, ODD, EVEN_AND_ODD, HYBRID, MASKED, OFFLINE, NPS4, TWO_OF_EACH, THREE_TIERS])
def test_slots_share_no_core_have_one_size_and_say_where_they_are_unlike(groups: Groups) -> None:
    cores = all_of(groups)
    kinds = {core: group.kind for group in groups for core in group.cores}
    for count in range(1, len(cores) + 1):
        cut = cut_slots(cores, groups, count)
        used = [core for slot in cut.slots for core in slot]
        assert len(cut.slots) == count and len(used) == len(set(used)) == count * cut.size and set(used) <= set(cores)
        shapes = {frozenset(Counter(kinds[core] for core in slot).items()) for slot in cut.slots}
        assert (len(shapes) > 1) is bool(cut.unlike), (count, cut)
        if not cut.unlike and count > 1 and len({group.kind for group in groups}) == 1 and groups is not NPS4:
            assert all(any(set(slot) <= set(group.cores) for group in groups) for slot in cut.slots)


@pytest.mark.parametrize("size", range(1, 33))
def test_a_plain_machine_is_cut_as_ever(size: int) -> None:
    cores = tuple(range(0, 2 * size, 2))
    for groups in ((socket(0, *cores),), ()):
        for count in range(1, size + 1):
            share = size // count
            assert cut_slots(cores, groups, count).slots == tuple(cores[i * share : (i + 1) * share] for i in range(count))


def test_where_slots_can_t_be_alike_plan_and_sets_of_several_say_so(cpu_host: Host) -> None:
    text = '[cpus]\ncounts = [1, 4]\n[[stack]]\ntorch = "2.5.1"\ncpu = true\n'
    text += '[[workload]]\ndevice = "cpu"\nmodel = "resnet18"\nbatch = 1\n'
    host = replace(cpu_host, core_groups=TWO_OF_EACH)
    plan = make_plan(matrix_file.parse(text), host, Prerequisites(containers=True))
    unlike = {cell.gpus.label: cell.gpus.unlike for cell in plan.cells}
    assert unlike == {"cpu0": "", "cpu0+1+2+3": plan.notes[0]}
    assert plan.notes == ("CPU slots are unlike devices: cores of other types than slot 0 has are in slot 2, 3",)
    assert make_plan(matrix_file.parse(text), cpu_host, Prerequisites(containers=True)).notes == ()
