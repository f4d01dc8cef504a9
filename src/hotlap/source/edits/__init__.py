"""Edit Python source and keep its formatting: edits are records, queued and applied together."""
