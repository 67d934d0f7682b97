"""That looking changes nothing: scripts whose every bit is compared between plain Python and gradviz."""
