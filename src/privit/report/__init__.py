"""What runs show: fronts, tables and figures, on one page that needs nothing but a browser."""

from privit.report.render.write import write_report as write_report
