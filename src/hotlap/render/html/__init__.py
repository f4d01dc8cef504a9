"""A study as one self-contained HTML file: without network, server or hotlap.

:func:`hotlap.render.html.page.page` puts it together out of a :class:`~hotlap.render.material.Material`.
Each chart is one file in ``charts/``: records in, a :class:`~hotlap.render.html.parts.Chart` out, which carries a
Vega-Lite specification and the same figures as a table. The layout of the page is in ``templates/``.
"""
