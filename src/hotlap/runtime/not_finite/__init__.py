"""Finding the first number of a training run that is NaN or infinite.

:mod:`.watch` checks in every step what must be finite whatever the script does: the loss that a backward starts from,
the gradients that an update really uses, the weights after it. At the first that is not, the run is over.

That says in which step, not why. So the same steps are run once more, in :mod:`.checked_steps`, and :mod:`.check`
stands below every operation of torch: :mod:`.operations` says what an operation reads and writes, :mod:`.ranges` what
its tensors hold, and :mod:`.descent` remembers for every tensor that is not finite where that came from. An infinity
that a mask puts there and a softmax takes away again is in no tensor's descent any more when the loss is looked at, and
so it is not blamed. :mod:`.whereabouts` knows the step, the phase, the layer and the line.
"""
