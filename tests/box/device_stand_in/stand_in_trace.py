"""Trace of the workload's executed lines: each is written down when it is first reached, so that even an abort loses none."""

import os
import sys

from stand_in_script import SCRIPT


def start():
    below, places = SCRIPT["below"] + os.sep, set()
    path = os.path.join(SCRIPT["folder"], "lines-%d.txt" % os.getpid())
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def enter(frame, event, argument):
        if not frame.f_code.co_filename.startswith(below):
            return None
        line(frame, "line", None)
        return line

    def line(frame, event, argument):
        place = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and place not in places:
            places.add(place)
            os.write(file, ("%s:%d\n" % (os.path.relpath(place[0], SCRIPT["below"]), place[1])).encode())
        return line

    sys.settrace(enter)
