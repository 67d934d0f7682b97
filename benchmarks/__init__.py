"""Measurements beside other tools, and of single parts of gradviz: see README.md in this folder."""
