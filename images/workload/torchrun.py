"""torchrun that ends as soon as its ranks have ended; otherwise the same as `python -m torch.distributed.run FLAGS`.

Tearing down an interpreter that has imported torch takes up to a third of the time of the import, in which nothing happens.
Garbage collection takes a seventh of the time of the import (see bench.load).
"""

import gc
import os
import sys

gc.disable()
from torch.distributed.run import main  # noqa: E402

gc.freeze()
gc.enable()

if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
