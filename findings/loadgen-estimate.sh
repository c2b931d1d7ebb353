#!/bin/sh
# mlcommons-loadgen 6.0.17: the percentile at the top of mlperf_log_summary.txt isn't early stopping's estimate of it further down; and a
# run with every latency within its bound is INVALID for too few queries, while "Min queries satisfied" says Yes.
#
# Seen with Python 3.11 and a system that sleeps 1 ms a query. MultiStream, 662 queries, one of them of 100 ms: VALID; at the top "99.0th
# percentile latency (ns)" is 1834640 (1423824 in another run), the estimate 100185107, which is the maximum: of 662 queries it discards 0.
# The detail log has this number as early_stopping_latency_ms, though it's in nanoseconds. Server, 300 queries of 4 ms at most, a bound of
# 1 s, min_query_count 300: INVALID; performance constraints, min duration and min queries are "Yes", early stopping is "NO" (159 more
# queries needed), and result_invalid_reason is "".
# So one bad query in 662 doesn't move the first figure of a summary and sets the other one: they were 55 to 82 times apart. A script
# that takes one in one run and the other in the next, or early_stopping_latency_ms as milliseconds, is far off; and the three constraints
# and the reason don't tell that a run is invalid: "Result is" does.
# Exits with 1 if any of that has changed. Takes 100 MB below TMPDIR.
set -eu
folder=$(mktemp -d)
trap 'rm -r "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check mlcommons-loadgen==6.0.17
cat >"$folder/run.py" <<'PYTHON'
import queue
import sys
import threading
import time

import mlperf_loadgen as loadgen

scenario, folder, queries = sys.argv[1], sys.argv[2], int(sys.argv[3])
waiting = queue.Queue()


def answer():
    for number in range(queries):
        one = waiting.get()
        time.sleep(0.1 if scenario == "MultiStream" and number == 100 else 0.001)
        loadgen.QuerySamplesComplete([loadgen.QuerySampleResponse(one.id, 0, 0)])


def take(samples):
    for one in samples:
        waiting.put(one)


settings, output, log = loadgen.TestSettings(), loadgen.LogOutputSettings(), loadgen.LogSettings()
settings.scenario, settings.mode = getattr(loadgen.TestScenario, scenario), loadgen.TestMode.PerformanceOnly
settings.multi_stream_samples_per_query, settings.multi_stream_expected_latency_ns = 1, 1000000
settings.server_target_qps, settings.server_target_latency_ns = 100, 10**9
settings.min_duration_ms, settings.min_query_count, settings.max_query_count = 100, queries, queries
output.outdir, output.copy_summary_to_stdout, log.enable_trace = folder, False, False
log.log_output = output
system, library = loadgen.ConstructSUT(take, lambda: None), loadgen.ConstructQSL(64, 64, lambda _: None, lambda _: None)
thread = threading.Thread(target=answer)
thread.start()
loadgen.StartTestWithLogSettings(system, library, settings, log, "")
thread.join()
loadgen.DestroyQSL(library)
loadgen.DestroySUT(system)
PYTHON
cat >"$folder/look.py" <<'PYTHON'
import json
import re
import sys
from pathlib import Path


def read(name):
    summary = Path(sys.argv[1], name, "mlperf_log_summary.txt").read_text()
    lines = Path(sys.argv[1], name, "mlperf_log_detail.txt").read_text().splitlines()
    detail = [json.loads(line[len(":::MLLOG ") :]) for line in lines if line.startswith(":::MLLOG ")]
    return summary, {entry["key"]: entry["value"] for entry in detail}


def find(pattern, text):
    return re.search(pattern, text, re.MULTILINE).group(1)


summary, detail = read("MultiStream")
first, estimate = int(find(r"^99\.0.*: (\d+)$", summary)), int(find(r"99\.0th percentile estimate: (\d+)$", summary))
largest, milliseconds = detail["result_max_latency_ns"], detail["early_stopping_latency_ms"]
print("MultiStream, %d queries: %s" % (detail["result_query_count"], detail["result_validity"]))
print("  99.0th percentile latency (ns) at the top %d, estimate %d, maximum %d" % (first, estimate, largest))
print("  early_stopping_latency_ms", milliseconds)
right = detail["result_validity"] == "VALID" and detail["result_query_count"] == 662
right = right and estimate == largest == milliseconds >= 10**8 and first < estimate / 2
summary, detail = read("Server")
over, reason = detail["result_overlatency_query_count"], detail["result_invalid_reason"]
print("Server, %d queries, %d over the bound: %s" % (detail["result_query_count"], over, detail["result_validity"]))
satisfied, more = re.findall(r"^  (.*?) satisfied ?: (.*)$", summary, re.MULTILINE), find(r"at least (\d+) more", summary)
print("  " + ", ".join("%s: %s" % line for line in satisfied))
print("  result_invalid_reason %r, more queries needed %s" % (reason, more))
answers = {"Performance constraints": "Yes", "Min duration": "Yes", "Min queries": "Yes", "Early stopping": "NO"}
right = right and dict(satisfied) == answers
sys.exit(not (right and (detail["result_validity"], over, reason, more) == ("INVALID", 0, "", "159")))
PYTHON
for run in "MultiStream 662" "Server 300"; do
    name=${run% *}
    mkdir "$folder/$name"
    "$folder/venv/bin/python" "$folder/run.py" "$name" "$folder/$name" "${run#* }"
done
python3 "$folder/look.py" "$folder"
echo "as seen: the estimate is the maximum, the percentile at the top is far below, and 300 good queries are INVALID"
