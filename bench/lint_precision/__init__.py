"""How often the lint rules are right: hits in published code, labelled by reading it, and planted mistakes."""
