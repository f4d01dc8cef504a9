"""Which lines of hotlap run only with an accelerator, and whether tests ran them."""
