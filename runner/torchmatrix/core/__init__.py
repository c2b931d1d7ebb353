"""The base of all packages: errors and exit codes, the project's own files, the site's settings, TOML checks, file writing.

Nothing here knows of benchmarks. Open first: errors.py.
"""

__version__ = "0.1.0"
