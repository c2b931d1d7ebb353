"""The definition of every figure; the report prints these beside the figures, docs/definitions.md lists them."""

DEFINITIONS = {
    "throughput": "Items that all processes did in the timed windows, over the wall time of the slowest process. The median "
    "of the launches (method aime: the mean).",
    "core_group": "On a machine without GPUs the cores are shared out into equal groups, and one process is pinned to each: a "
    "group stands for a device. With as many groups as cores a group is one core.",
    "latency": "Seconds from the inputs on the device to the outputs, for one request (a batch) at a time; the device is "
    "synchronised after each. At most 1000 requests or 10 s, after the timed windows. p50, p90, p99: nearest rank over the "
    "requests of a launch; p90 needs 10 requests, p99 needs 100. The median of the launches.",
    "end_to_end": "As latency, but from the inputs in host memory (pinned for a GPU) to the outputs in host memory.",
    "interval": "95 % confidence interval over launches, centred on the figure: Student's t times the error of the median "
    "(method aime: of the mean). The scatter is that of the cell's launches and, from three cells on, of all cells of the run "
    "(docs/method.md). Never below 0. One launch has no interval.",
    "detectable": "Detectable: the smallest difference from another cell, with as many launches and the same scatter, that "
    "would be reported 4 times in 5. At least 1 %: less is never called faster or slower. In a comparison (could see): by the "
    "scatter of both, corrected for the number of comparisons.",
    "levels": "Launches in two levels: a clearer gap between the slower and the faster ones than scatter alone leaves in 1 of "
    "20 runs (all cells together; at least two launches in each level). Libraries that choose their algorithm anew in each "
    "launch do that, and memory that lies elsewhere. All stay in the figure, which is the median.",
    "outlier": "A launch far from the others: modified z-score above 3.5 (Iglewicz and Hoaglin 1993), from five launches on. "
    "It stays in the figure.",
    "left_out": "Ok launches under other conditions than most of their cell (power limit, driver, governor: the list is in "
    "docs/method-launch.md). The figure is that of the largest group of alike launches, of two equal ones the newest; the "
    "others have the outcome unlike.",
    "apart": "Conditions in which the launches of a figure differ without splitting it, or which some of them did not record.",
    "cv": "Standard deviation of the launches over their mean. Stable below 1 %, ok below 3 %, else noisy.",
    "method": "steady: warm-up until the step time stops drifting. cold: each launch starts below a temperature. aime: each "
    "launch starts below 50 °C and takes 50 steps; the mean of 3 launches. sustained: as steady, with at least a minute of "
    "warm-up and one of measurement, after all devices were heated for a minute.",
    "effective_precision": "The precision that matrix products and convolutions really used, probed against float64 in each "
    "launch; mixed: several types. If it is not the requested one, the outcome is numerics.",
    "parity": "Inference: the largest difference of an output from that of eager fp32 with the same weights and inputs, and "
    "the share of rows with the same largest output. Weights are random: this is no accuracy. Beyond the limits: numerics.",
    "reference": "In each cell's first launch the timed step's loss, gradients and parameter change are compared with eager "
    "fp32 from the same seed and batch; the other launches must find the same. Beyond the tolerances: numerics.",
    "temperature": "Of the hottest device at the end of the timed windows. Power: the mean over the timed windows, all "
    "devices together. The host reads both about once a second. The median of the launches, without an interval.",
    "energy": "Energy per item, from the devices' own counters at the edges of the timed windows (10 s or longer); not known "
    "without a counter. Marked ≠ if the power readings disagree by more than 10 %. The median of the launches, with its "
    "interval. Energies are not tested.",
    "throttled": "A thermal or hardware slow-down in a timed window. The launch is made once more at the end of its "
    "round, and the repetition counts. A power cap is normal in training and is not throttling.",
    "disturbed": "Other programs used its GPUs, or its threads waited for CPUs that others used in 3 % or more of the time in "
    "which they could run, in the timed windows. The launch is made once more at the end of its round, and the repetition "
    "counts, whichever is faster. Not known where the kernel doesn't count this. What neighbours do to caches and memory shows "
    "in no counter.",
    "drift": "How much longer steps would still have become, by a curve through the step times. Not known: no drift was seen, "
    "or the curve ends below half or above twice the step time. The median of the launches.",
    "steady": "No trend of temperature (also of memory), clock or power in the timed windows, as the host read them. A trend "
    "is a line by least squares, more than 3.5 standard errors from flat, that changes a temperature by 2 °C, a clock by 0.5 "
    "% or the power by 3 %. Nor was a GPU's clock 0.5 % lower after the windows while as busy, or a slow-down seen. Unknown "
    "with fewer than six readings. A figure speaks for the seconds that were run.",
    "clock_change": "The clock at the end of the timed windows over its mean in them, less 1, by the line of its trend; none "
    "without a trend. The figure would change by at most this if the clock stayed as it ended.",
    "stall": "A timed window took more than 1 % and 10 ms longer than its steps: a process waited for a CPU.",
    "MFU": "Model FLOPs utilisation: throughput per device × FLOPs per item ÷ the device's dense peak in this precision (data "
    "sheet). FLOPs are counted on the eager model in the cell's first launch (forward and, in training, backward); each "
    "multiplication and addition in a product counts, by the tool's own formulas, which no version of torch changes. A "
    "stack that can't count (torch 1.12) takes another's count for the same model and sizes (flops_from). Where a model "
    "computes in several types, the peak is the harmonic mean of theirs, weighted with the FLOPs of each type in a step. Not "
    "known for an unknown GPU, or without a type's peak. By the median throughput of the launches, whose interval is its own.",
    "S": "Speed-up: T_N / T_1, the throughput on N devices over that of the first of them alone; same stack, workload and "
    "batch per device (weak scaling). With tensor parallelism (tp) all N devices compute that one batch (strong scaling).",
    "E": "Efficiency: S / N.",
    "s": "Marginal scale factor: (S - 1) / (N - 1). Each additional device adds s of one device.",
    "E_star": "E*: T_N over the sum of T_1 of the very devices used; not known unless each was measured alone.",
    "ratio_interval": "95 % interval of a ratio of two throughputs, around the ratio: Welch's t on the logarithms of the "
    "launches, times the error of the medians.",
    "impossible": "E above 1.02 with a 95 % interval that excludes 1 (of single launches: above 1.10). No machine scales "
    "better than linearly: look for a wrong baseline. Corrected for the number of cells (Benjamini and Hochberg, one-sided, "
    "2.5 %).",
    "S_nodes": "The throughput on several nodes over that of one of them, the same devices on each.",
    "E_inside": "One node's efficiency: the throughput of its devices together over that of one, divided by their number.",
    "E_between": "The throughput on several nodes over that of one, same devices on each, divided by the number of nodes: "
    "what the network between nodes costs.",
    "E_hetero": "The weakest device alone over the first alone: what unequal devices cost when all wait for the slowest. Each "
    "launch of the weakest is picked by the other launches, so that noise makes no device weak.",
    "E_corun": "N independent processes at once over N times the weakest alone: what sharing power, PCIe and CPU costs.",
    "E_ddp": "DDP without all-reduce (no_sync) over independent processes: the overhead of DDP itself.",
    "E_comm": "DDP over DDP without all-reduce: communication that computation does not hide. E = E_hetero · E_corun · E_ddp "
    "· E_comm.",
    "published_figure": "Each published throughput stands beside our cells of the same model, mode, GPU model and number of "
    "GPUs. They are comparable if framework, precision, compile, batch per GPU, memory format, and image size or sequence "
    "length are known and equal. Otherwise the fields that differ are named with both values; what a source does not state "
    "counts as different. None of our precisions is fp32-conv-tf32 (PyTorch's default on Ampere and newer: TF32 in "
    "convolutions only).",
    "reproduced": "Our 95 % interval lies wholly within the published figure ± 5 %, or within the published range (a test "
    "of equivalence). better, worse: wholly above or below. ambiguous: anything else, and a single launch, which has no "
    "interval.",
    "audit": "Figures that are impossible, suspect or can't be judged: efficiency above 1.02 (in published tables suspect up "
    "to 1.10: another day, driver or card may explain it; above that, and within one run, impossible); AMP below 1.1 times "
    "fp32 on tensor cores (one GPU, no loader, steps long enough not to wait for the host); more than the GPU's peak; "
    "rounding by more than 1 %; a baseline from another machine, date or driver; unknown memory format, batch or number of "
    "GPUs.",
    "trend": "Throughput of one cell over the runs, with their 95 % intervals as a band. A cross on the axis: a run without a "
    "figure, because no launch was ok or (grey) the cell was skipped. A dotted line: the environment (machine, driver, image, "
    "packages) or the workload's code or batch changed.",
    "level": "A vertical line: the level changed, in per cent, geometric mean over geometric mean. A new level lasts at "
    "least 3 runs, differs "
    "by more than 1 %, and would come from scatter alone in 1 of 100 series (seeded binary segmentation with Student's t on "
    "the logarithms, Bonferroni-corrected; outliers clipped). A slow drift shows as a staircase.",
    "level_of_inference": "What an interval is over. Launches: how well these very machines were measured. Machines: it "
    "speaks for the GPU model, and takes two machines or more on both sides.",
    "corrected_verdict": "Faster, slower (FASTER, SLOWER): the 95 % interval of the ratio excludes 1, and the ratio differs "
    "from 1 by more than 1 %. The same (SAME): the interval lies within 1 ± 2 %. All else: no difference shown "
    "(AMBIGUOUS). Verdicts are corrected together (Benjamini and Hochberg): at most 5 % of the differences reported are "
    "expected to be false, and at most 2.5 % of the samenesses. The intervals of single pairs are not corrected.",
    "fastest": "Every cell not shown to be slower than the best of the k measured is named. A cell is slower if one is more "
    "than 1 % ahead of it with p ≤ α / (k - 1), Welch's t on the logarithms (multiple comparisons with the best: Gupta 1965, "
    "Hsu 1984), or if any pair of the report has that verdict. With a chance of at most α the best is not named, or one of "
    "several equally good ones is named alone. α is 5 % for a single comparison, and corrected for all that a report "
    "compares. The interval of a figure that was picked is at 1 - 5 % / k: it allows for the picking. The ratio to the next "
    "has Hsu's interval at 1 - α.",
    "per_gb": "Per GB: throughput over the memory of the devices, in units of 2^30 bytes.",
    "per_joule": "Per joule: 1 over the energy per item, the median of the launches, with its interval.",
    "per_watt": "Per watt: throughput over the mean power in the timed windows, the median of the launches, without an "
    "interval; used if some cell's energy is unknown. Watts of the devices, without the rest of the machine.",
    "per_price": "Per 1000 of a currency: throughput over the devices' purchase price in the price list, without the rest of "
    "the machine.",
    "cost": "What an item costs by the price list: price of the devices per hour over items per hour, and energy per item "
    "times the price of electricity, where the list has one. The price per hour is the rent, or (purchase + the card's share "
    "of the server) over the hours of use. The median of the launches, with its interval, to which prices add nothing.",
    "speedup": "Throughput over that of the same workload, batch and devices on the baseline stack: the requested one, or the "
    "first in the matrix that ran it.",
    "effect": "What a setting brings: the speed with it over the speed with its usual value (the default; of batches the "
    "smallest), as the geometric mean of all pairs of cells that differ in nothing else. The smallest and the largest ratio "
    "stand beside it. In this table a mean of pairs has no interval; of a single pair it is over launches. Pairs without a "
    "figure are counted.",
    "cube_best": "The best combination is the fastest that was measured; its interval allows for the picking. Largest gain "
    "first: from the usual settings one setting changes at a time, always the one that gains most, until none gains 1 % or "
    "the gain, corrected for picking (Bonferroni), may be none. Gains of single launches are not tested. "
    "Intervals here allow for the picking alone, those of the charts for all comparisons of the page.",
    "explained": "Analysis of variance of the logarithm of each cell's speed, with sums of squares of type II; p-values "
    "corrected by Benjamini and Hochberg. Two settings together: what both do beyond what each does alone. With gaps in the "
    "cube shares don't add up to 100 %.",
    "setting": "Throughput over that of the cell that differs in this setting only.",
    "geometric_mean": "The n-th root of the product of n ratios, unclipped. In a report's Settings, and of GPUs on the page "
    "of machines, its 95 % interval is over launches: it speaks for these cells in these runs, each counted with all its "
    "weights (delta method, Satterthwaite). In compare and in exported tables it has none (null): runs differ by more than "
    "their launches say. Cells without a ratio are counted.",
    "weak": "Each device alone over the median device of its model. Weak: below 0.97, beyond the 95 % interval, corrected for "
    "the number of devices and jobs (Benjamini and Hochberg, one-sided, 2.5 %). All others wait for it.",
    "phases": "Medians of a cell's ok launches, without intervals; launches with a cold compile cache are shown apart. The "
    "first step includes compilation and autotuning. The rest: the engine, the start and end of the process, the proofs after "
    "the windows, and phases that the launch did not record.",
    "code_varies": "Code varies: launches that compiled anew scatter more than launches that ran the code of one compilation "
    "(one-sided F test of the variances of log throughput, at 5 % over the number of tests). It takes three launches of "
    "either kind.",
    "steps": "All steps of all processes in the timed windows of all ok launches. Thin line: 1st to 99th percentile; bar: 5th "
    "to 95th; thick: 25th to 75th; tick: median; dot: the longest. Timed by device events on a GPU, by the clock on a CPU.",
    "trace": "Readings by the host about once a second. Grey: the timed windows. Power from an energy counter is the mean "
    "since the previous reading.",
    "gate": "Ratio: a cell's throughput over the median of the nights before; of latencies the inverse, so that less than 1 "
    "is slower. Slower below: the limit set by the scatter of the nights, the cell's own and that of all cells, and by how "
    "much a night resembles the next (Student's t on the logarithms; at least 1 %). A regression: slower on two nights in a "
    "row (three where single nights are often slow), on several of the last ten, or a drift shown by a sum over the "
    "nights (CUSUM). It is reported until it is gone or accepted.",
    "machine": "A machine is known by an identity among its facts, not by its name: two machines of one name stay two. "
    "Unverified: its facts are older than identities; it is known by its folder's name.",
    "relative": "Throughput over that of the same workload, settings, batch and number of devices on the baseline GPU. Each "
    "figure is of the first set of so many devices that ran.",
    "stack_match": "Equal: same name, same recipe. Equivalent (≈): the same torch release in another build, such as CUDA 12.4 "
    "and ROCm 6.2, or one whose recipe isn't known.",
    "pooled": "Machines with the same GPU share one figure, the mean of theirs. With two machines or more on both sides the "
    "interval is over machines; otherwise over the launches of these very machines, and says nothing of another machine with "
    "such a GPU.",
    "bus_bandwidth": "What each link carries in a ring, as nccl-tests define it: bytes ÷ time, × 2 (N - 1) / N for an "
    "all-reduce, × (N - 1) / N for an all-gather or reduce-scatter, × 1 for sending to the next device. The median of the "
    "launches, without an interval.",
    "link_peak": "What all links of a device to others (NVLink, Infinity Fabric) carry in one direction, by its data sheet. "
    "Switches that add up by themselves (NVLink SHARP) can exceed it. Not known where devices talk over PCIe or a network.",
}
