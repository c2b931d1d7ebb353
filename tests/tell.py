"""Reports how many tests ran, why others did not, and what failed, from JUnit files.

python tests/tell.py FILE...: those of repeated tests are named *-alone.xml. Exit code 1 if a test failed in its last try.
python tests/tell.py --count-failed FILE: the number of failed tests alone; 1000 if there is no such file.
"""

import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

WIDTH = 300
"""Characters of a failure's message that are shown: an assertion about a page may be as long as the page."""


def main(words: list[str]) -> int:
    if words[0] == "--count-failed":
        path = Path(words[1])
        print(len(_failures(_cases(path))) if path.exists() else 1000)
        return 0
    return _tell([Path(word) for word in words])


def _tell(paths: list[Path]) -> int:
    first = [case for path in paths if not path.stem.endswith("-alone") for case in _cases(path)]
    alone = [case for path in paths if path.stem.endswith("-alone") for case in _cases(path)]
    skipped = Counter(skip.get("message", "") for case in first for skip in case.iter("skipped"))
    seconds = sum(float(case.get("time", 0)) for case in first)
    print(f"tests: {len(first) - skipped.total()} ran in {seconds:.0f} s of all workers, {skipped.total()} were skipped")
    by_folder: Counter[str] = Counter()
    for case in first:
        by_folder[_folder(case)] += float(case.get("time", 0))
    if len(by_folder) > 1:
        print("  " + ", ".join(f"{folder} {spent:.0f} s" for folder, spent in by_folder.most_common()))
    for reason, count in skipped.most_common():
        print(f"  {count} skipped: {reason}")
    failed, repeated, still = _failures(first), {_name(case) for case in alone}, _failures(alone)
    for name, message in failed.items():
        held = name in repeated and name not in still
        print(f"  {'failed once, passed when repeated alone' if held else 'FAILED'}: {name}: {message}")
    return int(any(name in still or name not in repeated for name in failed))


def _cases(path: Path) -> list[ElementTree.Element]:
    return list(ElementTree.parse(path).iter("testcase"))


def _name(case: ElementTree.Element) -> str:
    return f"{case.get('classname')}::{case.get('name')}"[:WIDTH]


def _folder(case: ElementTree.Element) -> str:
    """Return the folder of a test, such as facts."""
    return (case.get("classname") or "").removeprefix("tests.").partition(".")[0]


def _failures(cases: list[ElementTree.Element]) -> dict[str, str]:
    """Return the message of each test that failed or broke, on one line."""
    problems = {_name(case): problem for case in cases for tag in ("failure", "error") for problem in case.iter(tag)}
    return {name: " ".join((problem.get("message") or "").split())[:WIDTH] for name, problem in problems.items()}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
