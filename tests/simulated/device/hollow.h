// Large work of which only the time matters, where a scenario says so (`hollow_bytes`): it is put on the timeline and not
// computed. What it gives is zeros, which memory that nobody wrote to holds already.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include "aliases.h"
#include "work.h"

namespace simulated {

// Whether work on so many bytes is left undone.
bool is_hollow(double bytes);

// Leaves results of the right form on the stack, made without computing them. False, with nothing changed, where the form
// depends on values or nobody says what it is.
bool give_hollow(const c10::OperatorHandle& op, Stack* stack, size_t begin, int device);

}  // namespace simulated
