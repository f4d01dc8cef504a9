"""Latency against open-loop load of a served model, before and after `hotlap infer`."""
