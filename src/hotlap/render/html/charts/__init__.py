"""The charts of a page, one file each; None if a chart's data was not measured."""
