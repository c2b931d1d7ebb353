"""One module per border. Each has `def cases(random: Random) -> Iterator[Callable[[], None]]`, which never ends.

A call tries one bad input and raises AssertionError if the border didn't hold; whatever else it raises is a defect, too. The
bench finds the modules by itself; those whose names begin with `_` are helpers.
"""
