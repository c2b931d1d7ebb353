"""This machine: what it is (host.py, host_gpus.py, topology.py) and how it fares while it measures (telemetry/).

In: nothing but the machine itself. Out: a Host, and readings of temperature, clocks, power and energy.
Open first: host.py.
"""
