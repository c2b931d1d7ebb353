"""SciPy's special functions.

`import scipy.special` also loads its Array API support, which takes 0.3 s and 20 MB, more than all the rest that most commands
load. The functions themselves are in a module of their own, which is loaded alone where SciPy still has it.
"""

import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import scipy

_PACKAGE, _FUNCTIONS = "scipy.special", "_ufuncs"
_NAMES = ("bdtrc", "fdtrc", "gammaincc", "gammaln", "ndtr", "ndtri", "stdtr", "stdtrit", "_zeta")


def _functions() -> Any:
    """Return the module with the functions; scipy.special itself if it is loaded, or has them elsewhere."""
    if _PACKAGE not in sys.modules:
        bare = ModuleType(_PACKAGE)
        bare.__path__ = [str(Path(scipy.__file__).parent / "special")]
        sys.modules[_PACKAGE] = bare
        try:
            functions = import_module(f"{_PACKAGE}.{_FUNCTIONS}")
            if all(hasattr(functions, name) for name in _NAMES):
                return functions
        except ImportError:
            pass
        finally:
            del sys.modules[_PACKAGE]
    return import_module(_PACKAGE)


_special = _functions()
bdtrc, fdtrc, gammaincc, gammaln, ndtr, ndtri, stdtr, stdtrit = (getattr(_special, name) for name in _NAMES[:-1])


def polygamma(order: int, x: float) -> float:
    """Return the first or second derivative of the digamma function, by Hurwitz' zeta function."""
    if hasattr(_special, "_zeta"):
        return float((1.0, -2.0)[order - 1] * _special._zeta(order + 1.0, x))
    return float(_special.polygamma(order, x))
