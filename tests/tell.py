"""Reports how many tests ran and why others did not, from JUnit files: python tests/tell.py FILE..."""

import sys
from collections import Counter
from xml.etree import ElementTree


def main(paths: list[str]) -> None:
    cases = [case for path in paths for case in ElementTree.parse(path).iter("testcase")]
    skipped = Counter(skip.get("message", "") for case in cases for skip in case.iter("skipped"))
    seconds = sum(float(case.get("time", 0)) for case in cases)
    print(f"tests: {len(cases) - skipped.total()} ran in {seconds:.0f} s of all workers, {skipped.total()} were skipped")
    for reason, count in skipped.most_common():
        print(f"  {count} skipped: {reason}")


if __name__ == "__main__":
    main(sys.argv[1:])
