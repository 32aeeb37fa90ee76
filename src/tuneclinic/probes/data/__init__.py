"""Data sets as a trainer would take them in: rows of any usual layout, what is wrong with them, and figures over the whole set."""
