"""Charts of a comparison. Every chart takes its container's width and stands alone when saved.

`evenly.report.chart_sections` puts them on the page, `evenly.report.page.CONTENTS` orders its
sections, and `evenly.api.plots` offers charts in Python.
"""
