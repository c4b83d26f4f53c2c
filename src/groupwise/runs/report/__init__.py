"""One HTML page from a run, or from several. Read `page` (the order of a reader's questions), then its sections."""

from groupwise.runs.report.page import report_page, run_page

__all__ = ["report_page", "run_page"]
