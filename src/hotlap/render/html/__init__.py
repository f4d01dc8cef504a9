"""A study as one HTML file that needs nothing else: no network, no server, no hotlap.

:func:`hotlap.render.html.page.page` puts it together out of a :class:`~hotlap.render.material.Material`.
Each chart is one file in ``charts/``: records in, a :class:`~hotlap.render.html.parts.Chart` out, which carries a
Vega-Lite specification and the same figures as a table. What the page looks like stands in ``templates/``.
"""
