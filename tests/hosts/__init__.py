"""gradviz inside the programs that people run it in: notebooks, trainers, accelerators. What is not installed is skipped."""
