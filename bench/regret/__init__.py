"""How much speed the search leaves on the table: its plan against a grid over the same levers."""
