"""Puts the stand-in for CUDA into every process of the workload, since this folder is on its PYTHONPATH.

STAND_IN holds the script (stand_in_script.py). torch is changed when the workload imports it, not earlier: the workload sets
variables before it does. torchrun itself, which measures nothing, is left alone.
"""

import importlib.abc
import importlib.util
import os
import sys

if "STAND_IN" in os.environ and not any(word.endswith("torchrun.py") for word in sys.orig_argv):
    from stand_in_script import SCRIPT

    if SCRIPT["below"]:
        import stand_in_trace

        stand_in_trace.start()

    class _Change(importlib.abc.MetaPathFinder):
        """Finds torch as usual and installs the stand-in once it has been executed."""

        def find_spec(self, name, path, target=None):
            if name != "torch":
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            execute = spec.loader.exec_module

            def executed(module):
                execute(module)
                import stand_in_api

                stand_in_api.install()

            spec.loader.exec_module = executed
            return spec

    sys.meta_path.insert(0, _Change())
