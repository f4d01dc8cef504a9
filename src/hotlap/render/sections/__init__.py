"""One file each: a part of a report, on a terminal, in Markdown and on a page."""
