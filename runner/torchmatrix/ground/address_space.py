"""Is there room in this process's address space (`ulimit -v`)? Libraries that find none hang, or abort the whole process."""

import mmap
import os

LEAST_BYTES = 2**30
BYTES_PER_CPU = 32 * 2**20


def require_for_start() -> None:
    """Room for the numerical libraries, whose OpenBLAS gives each CPU a thread and tries for ever to allocate their buffers.

    It is reserved in one piece and given back. Raises MemoryError.
    """
    size = LEAST_BYTES + BYTES_PER_CPU * (os.cpu_count() or 1)
    try:
        mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=0).close()
    except OSError:
        raise MemoryError(f"torchmatrix needs {size / 2**30:.3g} GiB of address space (not of RAM)") from None
