"""One file each: a figure of a launch that candidates are compared by, besides their speed."""
