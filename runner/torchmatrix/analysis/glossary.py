"""The definition of every figure; the report prints these beside the figures, docs/definitions.md lists them."""

DEFINITIONS = {
    "throughput": "Items processed by all processes in the timed windows, divided by the wall time of the slowest process. The "
    "median of the launches (with the method aime, the mean).",
    "latency": "Seconds from the inputs on the device until the outputs are there, of one request (a batch) at a time; the "
    "device is synchronised after each. At most 1000 requests or 10 s, after the timed windows. p50, p90, p99: nearest rank "
    "over all requests of a launch; p90 needs 10 requests, p99 needs 100. The median over launches.",
    "end_to_end": "As latency, but from the inputs in the host's memory (pinned for a GPU) until the outputs are in the host's "
    "memory.",
    "interval": "95 % confidence interval of the figure over launches, the figure in its middle: Student's t (n - 1 degrees of "
    "freedom) times the error of the median (with the method aime, of the mean). A lower limit is never below 0. One "
    "launch has no interval.",
    "detectable": "Detectable: the smallest difference from another cell with as many launches and the same scatter "
    "that would be "
    "reported 4 times in 5; at least 1 %, since less is not called faster or slower. In a comparison (could see): by "
    "the scatter of both, corrected for the number of comparisons.",
    "outlier": "A launch far from the others: a modified z-score above 3.5 (Iglewicz and Hoaglin 1993), from five launches on. "
    "It stays in the figure.",
    "left_out": "Launches that are ok, but ran under other conditions than most of their cell (power limit, driver, governor: "
    "docs/method.md has the list). The figure is that of the largest group of alike launches, of the newest one where two are "
    "as large; the others have the outcome unlike.",
    "apart": "In what conditions the launches of a figure differ that don't split it, or which some of them did not record.",
    "cv": "Launch-to-launch standard deviation divided by the mean. Verdict: stable below 1 %, ok below 3 %, else noisy.",
    "method": "steady: warm-up until the step time doesn't drift. cold: each launch starts below a temperature. aime: each "
    "launch starts below 50 °C and takes 50 steps; the mean of 3 launches. sustained: as steady, with a minute of "
    "warm-up and one of measurement at least, after all devices were heated for a minute.",
    "effective_precision": "The precision that matrix products and convolutions really used, probed against float64 in each "
    "launch; mixed: several types. If it is not the requested one, the outcome is numerics.",
    "parity": "In inference, the largest difference of an output from that of eager fp32 with the same weights and inputs, and "
    "the share of rows whose largest output is the same. Weights are random, so that this is no accuracy. Beyond the limits: "
    "numerics.",
    "reference": "The timed step's loss, gradients and change of the parameters are compared with eager fp32 from the same "
    "seed and batch in the first launch of each cell; the others must find what it found. Beyond the tolerances: numerics.",
    "temperature": "That of the hottest device at the end of the timed windows. Power: the mean over the timed windows, all "
    "devices together. The host reads both about once a second. The median over launches, without an interval.",
    "energy": "The difference of the devices' own energy counters between the edges of the timed windows (10 s or longer), "
    "per item; n/a if no counter can be read. Marked ≠ if the power readings disagree by more than 10 %. The median over "
    "launches, without an interval: two energies are not tested.",
    "throttled": "A thermal or hardware slow-down was seen during a timed window; such a launch is repeated once, and the "
    "repetition counts. A power cap is normal in training and does not count as throttling.",
    "drift": "How much longer steps would still have become, by the curve through the step times. Not known: no drift was "
    "seen, or its end would be below half or above twice the step time. The median of the launches.",
    "steady": "Temperatures (of memory too), clocks and power, as the host read them, had no trend in the timed windows: a "
    "line by least squares, more than 3.5 of its standard errors away from flat, that changes a temperature by 2 °C, a clock "
    "by 0.5 % or the power by 3 % over the windows; and after them a GPU's clock was not 0.5 % lower while it was as busy, and "
    "no slow-down was seen. Unknown with fewer than six readings. A figure speaks for the seconds that were run.",
    "clock_change": "The clock at the end of the timed windows over its mean in them, less 1, by that line; n/a: no trend was "
    "seen. What the figure would at most change by if the clock stayed as it was at the end.",
    "stall": "A timed window took more than 1 % and 10 ms longer than its steps: a process waited for a CPU.",
    "MFU": "Model FLOPs utilisation: throughput per device × FLOPs per item ÷ the device's dense peak in this precision "
    "(vendor's data sheet). FLOPs are counted on the eager model, in the cell's first launch (forward and, in training, "
    "backward); every multiplication and addition counts. A stack that can't count takes what another stack counted for the "
    "same model and sizes (flops_from). Unknown GPU: n/a. By the median throughput over launches, without an interval.",
    "S": "Speed-up: T_N / T_1, the throughput on N devices over that on the first of these devices alone, same stack and "
    "workload, batch per device fixed (weak scaling).",
    "E": "Efficiency: S / N.",
    "s": "Marginal scale factor: (S - 1) / (N - 1). Each additional device adds s of one device.",
    "E_star": "E*: T_N over the sum of T_1 of the very devices used, each measured alone; n/a unless all of them were.",
    "ratio_interval": "95 % interval of a ratio of two throughputs, around the ratio: Welch's t on the logarithms of the "
    "launches, times the error of the medians.",
    "impossible": "E above 1.02 is marked if its 95 % interval excludes 1 (of single launches: above 1.10), because no machine "
    "scales better than linearly: look for a wrong baseline. Several marks are corrected for the number of cells (Benjamini "
    "and Hochberg, one-sided, 2.5 %).",
    "S_nodes": "The throughput on several nodes over that of one of them, the same devices on each.",
    "E_inside": "The efficiency of one node's devices: their throughput together over that of one, by their number.",
    "E_between": "The throughput on several nodes over that of one node, same devices on each, by the number of nodes: what "
    "the network between the nodes costs.",
    "E_hetero": "The weakest device alone over the first device alone: what unequal devices cost when all wait for the "
    "slowest. Each launch of the weakest is picked by the other launches, so that noise does not make a device weak.",
    "E_corun": "N independent processes at once over N times the weakest alone: what sharing power, PCIe and CPU costs.",
    "E_ddp": "DDP without all-reduce (no_sync) over independent processes: the overhead of DDP itself.",
    "E_comm": "DDP over DDP without all-reduce: the cost of communication that computation does not hide. E = E_hetero · "
    "E_corun · E_ddp · E_comm.",
    "published_figure": "Each published throughput is set beside our cells of the same model, mode, GPU model and number of "
    "GPUs. They are comparable if framework, precision, compile, batch per GPU, memory format, and image size or sequence "
    "length are known and equal. Otherwise the fields that differ are named, with the published value and ours; what a "
    "source does not state counts as different. None of our precisions is fp32-conv-tf32 (PyTorch's default on Ampere and "
    "newer: TF32 in convolutions only).",
    "reproduced": "Our 95 % interval lies wholly within the published figure ± 5 %, or within the published range (a test of "
    "equivalence). better, worse: ours lies wholly above or below. ambiguous: anything else, and a single launch, which has no "
    "interval.",
    "audit": "Figures that are impossible, suspect or can't be judged: efficiency above 1.02 (in published tables suspect up "
    "to 1.10, as another day, driver or card may explain it; above that, and within one run, impossible); AMP below 1.1 times "
    "fp32 on tensor cores (one GPU, no loader, steps long enough not to wait for the host); more than the GPU's peak; rounding "
    "by more than 1 %; a baseline from another machine, date or driver; unknown memory format, batch or number of GPUs.",
    "trend": "Throughput of one cell over the runs, with the band of their 95 % intervals. A cross on the axis: a run "
    "without a figure, because no launch was ok or (grey) the cell was skipped. A dotted line: the environment (machine, "
    "driver, image, packages) or the workload's code or batch changed.",
    "level": "A vertical line: the level changed, in per cent, median over median. A new level lasts at least 3 runs, "
    "differs by more than 1 %, and would result from scatter alone in 1 of 100 series (seeded binary segmentation with "
    "Student's t on the logarithms, Bonferroni-corrected; outliers clipped). A slow drift shows as a staircase.",
    "level_of_inference": "What an interval is over. Launches: it tells how well these very machines were measured. "
    "Machines: it tells of the GPU model, and takes two machines or more on both sides. A mean over cells"
    " of several runs has no interval.",
    "corrected_verdict": "Faster, slower (FASTER, SLOWER): the 95 % interval of the ratio excludes 1, and the ratio differs "
    "from 1 by more "
    "than 1 %. The same (SAME): the interval lies within 1 ± 2 %. Several verdicts are corrected together (Benjamini "
    "and Hochberg): of the differences reported at most 5 % are expected to be false, of the samenesses at most 2.5 "
    "%. All else: no difference shown (AMBIGUOUS). The intervals themselves are not corrected.",
    "fastest": "Every cell that is not shown to be slower than the best of the k measured is named. A cell is slower if one is "
    "more than 1 % ahead of it with p ≤ α / (k - 1), Welch's t on the logarithms (multiple comparisons with the best: "
    "Gupta 1965, Hsu 1984), or if any pair of the report has that verdict. With a chance of at most α the best is not "
    "named, or one of several equally good ones is named alone. α is 5 % for a single comparison, and corrected for "
    "all that a report compares. A figure that was picked has its interval at 1 - 5 % / k, which covers whichever was "
    "picked. The ratio to the next is in Hsu's interval at 1 - α.",
    "per_gb": "Per GB: throughput over the memory of the devices, in units of 2^30 bytes.",
    "per_joule": "Per joule: 1 over the energy per item, the median over launches. It has no interval of its own.",
    "per_watt": "Per watt: throughput over the mean power in the timed windows, the median over launches; used if the energy "
    "of some cell is unknown. It has no interval of its own. Watts are those of the devices, without the rest of the "
    "machine.",
    "per_price": "Per 1000 of a currency: throughput over the purchase price of the devices in the price list, without the "
    "rest of the machine.",
    "per_rent": "Items per unit of a currency: throughput over the hourly price of the devices in the price list.",
    "speedup": "Throughput over that of the same workload, batch and devices on the baseline stack: the requested one, "
    "otherwise the first in the matrix that ran it.",
    "effect": "What a setting brings: the geometric mean, over all pairs of cells that differ in it only, of the speed with it "
    "over the speed with its usual value (the default; of batches the smallest). The smallest and the largest ratio "
    "stand beside it. In this table a mean over pairs has no interval; of a single pair it is over launches. Pairs "
    "without a figure are counted.",
    "cube_best": "The best combination is the fastest that was measured; its interval covers whichever is picked. Largest gain "
    "first: from the usual settings one setting changes at a time, always the one that gains most, until none gains 1 "
    "% or the gain, corrected for picking (Bonferroni), may be none. Gains of single launches are not tested.",
    "explained": "Analysis of variance of the logarithm of each cell's speed, with sums of squares of type II; p-values are "
    "corrected after Benjamini and Hochberg. Two settings together: what both do beyond what each does alone. In a cube with "
    "gaps shares don't add up to 100 %.",
    "setting": "Throughput of a cell over that of the cell that differs in this setting only: same stack, model, devices, "
    "batch and everything else.",
    "geometric_mean": "Geometric mean: the n-th root of the product of n ratios, unclipped. In a report it has a 95 % "
    "interval over "
    "launches: it speaks for these cells in this run, each cell counted with all its weights (delta method, "
    "Satterthwaite). In a comparison of runs it has none (null): runs differ by more than their launches say. Cells "
    "without a ratio are counted.",
    "weak": "Each device alone over the median device of its model. Weak: below 0.97 of it, beyond the 95 % interval, "
    "corrected for the number of devices and jobs (Benjamini and Hochberg, one-sided, 2.5 %); all others wait for it.",
    "phases": "Medians over the ok launches of a cell, without intervals; launches with a cold compile cache are shown apart. "
    "The first step includes compilation and autotuning. The rest is the engine, the start and end of the process, the proofs "
    "after the windows, and phases that the launch did not record.",
    "code_varies": "Code varies: launches that compiled anew scatter more than launches that ran the code of one compilation, "
    "by a one-sided F test of the variances of the logarithms of throughput, at 5 % over the number of tests. It takes three "
    "launches of either kind.",
    "steps": "All steps of all processes in the timed windows of all ok launches. Thin line: 1st to 99th percentile; bar: "
    "5th to 95th; thick: 25th to 75th; tick: median; dot: the longest. On a GPU between device events, on a CPU by the "
    "clock.",
    "trace": "Readings taken by the host about once a second. Grey: the timed windows. Power from an energy counter is the "
    "mean since the previous reading.",
    "gate": "Ratio: a cell's throughput over the median of the nights before; of latencies the other way round, so that less "
    "than 1 is slower. Slower below: the limit set by the scatter of the cell's own nights (Student's t on the "
    "logarithms; at least 1 %). Slower on two nights in a row is a regression, as is a drift that a sum over the "
    "nights shows (CUSUM). It is reported until it is gone or accepted.",
    "machine": "A machine is known by an identity that its facts record, not by its name: two machines of one name stay two. "
    "Unverified: its facts are older than identities, so it is known by the name of its folder.",
    "relative": "Relative throughput: that of the same workload with the same settings, batch and number of devices on the "
    "baseline GPU. Each figure is of the first set of so many devices that ran.",
    "stack_match": "Stacks are equal (same name, same recipe) or equivalent: the same torch release in another build, such as "
    "CUDA 12.4 beside ROCm 6.2, or one whose recipe isn't known. Equivalent ones are marked ≈.",
    "pooled": "Machines with the same GPU stand together in one figure, the mean of the machines' figures. Where both sides "
    "have two machines or more, the interval is over machines; otherwise it is over the launches of these very machines and "
    "says nothing of another machine with such a GPU.",
    "bus_bandwidth": "What each link carries in a ring, as nccl-tests define it: bytes ÷ time, × 2 (N - 1) / N for an "
    "all-reduce, × (N - 1) / N for an all-gather or reduce-scatter, × 1 for sending to the next device. The median over "
    "launches, without an interval.",
    "link_peak": "The links' peak: what all links of a device to others (NVLink, Infinity Fabric) carry in one direction, "
    "by its data sheet. Switches that add up by themselves (NVLink SHARP) can exceed it. n/a where devices talk over PCIe or a "
    "network.",
}
