"""The charts of a report, section by section."""

from torchmatrix.charts import Charts
from torchmatrix.report.view import View

SECTIONS = ("throughput", "scaling", "speedup", "inside")


def charts_of(view: View) -> dict[str, Charts]:
    return dict.fromkeys(SECTIONS, Charts())
