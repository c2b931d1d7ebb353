"""Describe this machine (host.py, host_gpus.py, topology.py) and how it behaves during a launch (telemetry/).

In: nothing but the machine itself. Out: a Host, and readings of temperature, clocks, power and energy.
Open first: host.py.
"""
