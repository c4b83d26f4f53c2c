"""Is one evaluation better than another on the same prompts? Read `compare`, then the statistics: `paired` (which
interval decides), `bootstrap`, `mcnemar`.
"""
