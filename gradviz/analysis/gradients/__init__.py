"""Analyses that need real gradients: they call backward functions one by one, so they alone of the analyses import torch."""
