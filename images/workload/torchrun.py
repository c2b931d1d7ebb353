"""torchrun, which ends as soon as its ranks have: `python torchrun.py FLAGS` is `python -m torch.distributed.run FLAGS` else.

Tearing down an interpreter that has imported torch takes up to a third of the time of the import, in which nothing happens.
"""

import os
import sys

from torch.distributed.run import main

if __name__ == "__main__":
    main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
