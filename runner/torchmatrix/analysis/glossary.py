"""What every figure means, in words; the report prints these beside the figures."""

DEFINITIONS = {
    "throughput": "Items processed by all processes in the timed windows, divided by the wall time of the slowest process; "
    "the median over launches (the mean by the method aime).",
    "interval": "95 % confidence interval of the mean over launches (Student's t, n - 1 degrees of freedom). One launch has "
    "no interval: n/a.",
    "cv": "Launch-to-launch standard deviation divided by the mean. Verdict: stable below 1 %, ok below 3 %, else noisy.",
    "method": "steady: warm-up until the step time is flat. cold: each launch begins below a temperature. aime: from below "
    "50 °C, 50 steps, mean of 3 launches.",
    "effective_precision": "What matrix products and convolutions really computed in, probed against float64 in each launch. "
    "A setting that computes in less than it says has the outcome numerics.",
    "reference": "The first losses of each launch are compared with those of eager fp32 from the same seed; beyond the "
    "tolerance of the precision the outcome is numerics.",
    "temperature": "At the end of the timed windows, the hottest device; power: the mean over the timed windows, all devices "
    "together. Read by the host about once a second.",
    "energy": "The devices' own energy counters between the edges of the timed windows (10 s or longer), per item; n/a where "
    "no counter can be read. Marked ≠ where the power readings disagree by more than 10 %.",
    "throttled": "A thermal or hardware slow-down was seen during a timed window; such a launch is repeated once, and the "
    "repetition counts. A power cap is normal in training and is no throttling.",
    "MFU": "Model FLOPs utilisation: throughput per device × FLOPs per item ÷ the device's dense peak in this precision "
    "(vendor's data sheet). FLOPs are counted on the eager model; every multiplication and addition counts. Unknown GPU: n/a.",
    "S": "Speed-up: T_N / T_1, the throughput on N devices over that on the first of these devices alone, same stack and "
    "workload, batch per device fixed (weak scaling).",
    "E": "Efficiency: S / N.",
    "s": "Marginal scale factor: (S - 1) / (N - 1). Each additional device adds s of one device.",
    "E_star": "E*: T_N over the sum of T_1 of the very devices used, each measured alone; n/a unless all of them were.",
    "ratio_interval": "95 % interval of a ratio of two throughputs: Welch's t on the logarithms of the launches.",
    "impossible": "E above 1.02 is marked: no machine scales better than linearly; look for a wrong baseline.",
    "E_hetero": "The weakest device alone over the first one: what unequal devices cost when all wait for the slowest.",
    "E_corun": "N independent processes at once over N times the weakest alone: what sharing power, PCIe and CPU costs.",
    "E_ddp": "DDP without all-reduce (no_sync) over independent processes: what DDP's own bookkeeping costs.",
    "E_comm": "DDP over DDP without all-reduce: what communication costs that computation does not hide. "
    "E = E_hetero · E_corun · E_ddp · E_comm.",
    "published_figure": "Beside each published throughput stand our cells of its model, mode, GPU model and number of GPUs. "
    "They are comparable if framework, precision, compile, batch per GPU, memory format, and image size or sequence length are "
    "known and the same; else the fields that differ are named, with the published value and ours. What a source does not say "
    "differs. fp32-conv-tf32 (PyTorch's default on Ampere and newer: TF32 in convolutions only) is none of our precisions.",
    "reproduced": "Our 95 % interval (without one, the figure itself) meets the published figure ± 5 %, or published range. "
    "better, worse: ours lies wholly above or below. ambiguous: ours reaches beyond both ends.",
    "audit": "What can't be, or can't be judged: efficiency above 1.02; AMP below 1.1 times fp32 on tensor cores (one GPU, no "
    "loader, steps long enough not to wait for the host); more than the GPU's peak; rounding by more than 1 %; a baseline from "
    "another machine, date or driver; unknown memory format or batch per GPU.",
    "trend": "Throughput of one cell over the runs, with the band of their 95 % intervals. A cross on the axis: a run without "
    "a figure, since no launch was ok, or (grey) the cell was skipped. A dotted line: the environment (machine, driver, image, "
    "packages) or the workload's code or batch changed.",
    "level": "A vertical line: the level changed, in per cent, median over median. A new level lasts 3 runs at least, differs "
    "by more than 1 %, and would come from scatter alone in 1 of 100 series (seeded binary segmentation with Student's t on "
    "the logarithms, Bonferroni-corrected; outliers drawn in). A slow drift comes out as a staircase.",
    "per_joule": "Per joule: 1 over the energy per item, the median over launches. It has no interval of its own.",
    "per_watt": "Per watt: throughput over the mean power in the timed windows, the median over launches, as no energy is "
    "known of some cell. It has no interval of its own; watts are those of the devices, without the rest of the machine.",
    "per_price": "Per 1000 of a currency: throughput over what the devices cost to buy, as the price list has it, without the "
    "rest of the machine.",
    "per_rent": "Items per unit of a currency: throughput over what the devices cost by the hour, as the price list has it.",
    "speedup": "Throughput over that of the same workload, batch and devices on the baseline stack: the one that was asked "
    "for, else the first in the matrix that ran it.",
    "setting": "Throughput of a cell over that of the cell which differs in this one setting only: same stack, model, "
    "devices, batch and all else.",
    "geometric_mean": "Geometric mean: the n-th root of the product of n ratios, nothing clipped. Its 95 % interval, "
    "of three ratios or more, is Student's t over the logarithms of these ratios: how much the ratio differs from cell to "
    "cell. Cells without a ratio are counted.",
    "weak": "Each device alone over the median device of its model. Weak: below 0.97 of it, beyond the 95 % interval; the "
    "others wait for it.",
    "phases": "Medians over the ok launches of a cell, launches with a cold compile cache apart. The first step holds "
    "compilation and autotuning; the rest is the engine, the process's start and end, the proofs after the windows, and "
    "phases that the launch does not tell.",
    "steps": "All steps of all processes in the timed windows of all ok launches. Thin line: 1st to 99th percentile; bar: "
    "5th to 95th; thick: 25th to 75th; tick: median; dot: the longest. On a GPU between device events, on a CPU by the "
    "clock.",
    "trace": "Readings of the host, about one a second. Grey: the timed windows. Power from an energy counter is the mean "
    "since the reading before.",
    "gate": "Ratio: a cell's throughput over the median of the nights before. Slower below: the limit that the scatter of the "
    "cell's own nights sets (Student's t on the logarithms; at least 1 %). Slower on two nights in a row is a regression.",
    "bus_bandwidth": "Bytes of an all-reduce ÷ its time × 2 (N - 1) / N: what each link carries in a ring.",
}
