"""The sections of a report, one file each: on a terminal, in Markdown and on a page."""
