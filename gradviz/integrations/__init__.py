"""Callbacks for training frameworks. Each module imports its framework, which is no dependency of gradviz."""
