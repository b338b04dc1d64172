"""The sections of a page, each in a file of its own: a new one is one file here.

A module of this package is a section. It has ``TITLE``, ``ORDER`` (sections stand in this order)
and ``render(figures)``, which returns the section's content as HTML, or an empty text if the
results say nothing about it. All numbers come from ``figures``, see
:class:`nadi.report.page.figures.Figures`, and all text of a recording passes
:func:`nadi.report.page.figures.text`.
"""
