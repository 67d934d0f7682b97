"""Nothing of the corpus looks for a network: models of Hugging Face have random weights."""

from __future__ import annotations

import os

os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", HF_HUB_DISABLE_TELEMETRY="1")
