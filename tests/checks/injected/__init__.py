"""Faults that are put into correct programs, to count which ones `check` finds."""
