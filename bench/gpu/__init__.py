"""What hotlap gains on an accelerator: naive scripts against tuned ones, and what measuring costs there."""
