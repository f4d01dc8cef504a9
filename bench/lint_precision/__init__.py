"""How often the lint rules are right: every hit in other people's code labelled by reading it, and what was planted."""
