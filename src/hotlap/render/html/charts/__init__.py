"""The charts of a page, one file each. Each says None where what it would show was not measured."""
