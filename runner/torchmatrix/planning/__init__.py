"""Matrix x machine -> Plan: which cells will run, which won't and why, how long it may take. Pure: no files, no processes.

In: a Matrix, a Host, what there is to run with (fit.Prerequisites). Out: a Plan of ordered cells and skips with reason and fix.
Open first: plan.py; the reasons are in fit.py (stacks, workloads, disk) and fit_gpu.py (drivers, architectures, memory).
"""
