#!/bin/sh
# CodeCarbon, by which optimum-benchmark 0.6.0 measures energy, reports joules where no sensor can be read, and most of them are a
# constant for memory: eight seconds of sleep take as much as eight seconds of work.
#
# Seen with codecarbon 3.3.2 and Python 3.11 on a virtual machine of two x86-64 cores with 24 GB, without RAPL and GPU: asleep 166 J
# (160 of memory, 6 of the CPU), busy on one core 169 J (156 and 14). Memory counts 5 W for each of the DIMMs that its size suggests,
# used or not: 20 W from 17 to 64 GB, so a container's share of a large machine costs what the whole machine has. The CPU counts a table's,
# or 4 W a core's, share by load; in the busy run 1.6 W. Nothing beside energy_consumed, nor beside the cpu, ram, gpu and total that
# optimum-benchmark writes from it, tells an assumption from a reading: a line of the log at level info does, and optimum-benchmark sets
# that to "warning". Energy per item of two such files compares durations.
# Here the CPU's watts are forced to 8, as it took them there, so that other machines show the same. Exits with 1 if any of that has changed.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check codecarbon==3.3.2
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-deps optimum-benchmark==0.6.0
cat >"$folder/try.py" <<'PYTHON'
import time
from importlib.util import find_spec
from pathlib import Path

from codecarbon import OfflineEmissionsTracker

SECONDS = 8


def busy(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10_000))


seen = {}
for what, work in (("asleep", time.sleep), ("busy", busy)):
    tracker = OfflineEmissionsTracker(
        country_iso_code="DEU", save_to_file=False, log_level="error", measure_power_secs=1, force_mode_cpu_load=True,
        force_cpu_power=8, gpu_ids=[], allow_multiple_runs=True,
    )
    tracker.start()
    work(SECONDS)
    tracker.stop()
    seen[what] = tracker.final_emissions_data
    parts = {name: round(3.6e6 * getattr(seen[what], f"{name}_energy"), 1) for name in ("cpu", "ram", "gpu")}
    print(f"{what}: {3.6e6 * seen[what].energy_consumed:.0f} J, of them {parts}; memory {seen[what].ram_power:g} W")

asleep, worked = seen["asleep"], seen["busy"]
assert asleep.ram_power == worked.ram_power >= 5 and asleep.gpu_energy == worked.gpu_energy == 0
assert asleep.ram_energy > 0.5 * asleep.energy_consumed
assert 0.7 < worked.energy_consumed / asleep.energy_consumed < 1.5
fields = {name for name in vars(worked) if "estimat" in name or "method" in name or "source" in name or "assum" in name}
assert not fields, fields  # nothing beside the joules says how they came about
tracker = Path(find_spec("optimum_benchmark").submodule_search_locations[0], "trackers", "energy.py").read_text()
assert "EmissionsTracker(" in tracker
PYTHON
"$folder/venv/bin/python" "$folder/try.py" || { echo "what CodeCarbon counts without a reading has changed" >&2; exit 1; }
