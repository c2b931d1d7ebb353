"""The fault bench: breaks the tool in many ways and checks after each that nothing was lost. `make faults` runs it.

A *kind* of fault (kinds.py) is tried in *attempts*. Each attempt is one process with a random generator of its own, made from
the seed, the kind and the attempt's number, so that a single attempt can be repeated: `--seed N --only 'KIND#NUMBER'`.

`interruptions`, `machine` and `engines` break the tool while it works, each attempt in an empty folder (workplace.py); then
checks.py looks at the facts and at what is left over. A module in `borders/` gives bad input to one border of the tool, without
end: `cases(random)` yields calls, each of which tries one input and raises AssertionError if the border didn't hold.
"""
