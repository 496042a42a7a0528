"""Laws about the pages: what they show runs, what they name exists."""
