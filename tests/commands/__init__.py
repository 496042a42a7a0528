"""The program as it is typed: its commands, its help, its messages."""
