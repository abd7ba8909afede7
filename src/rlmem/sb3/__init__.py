"""Everything that imports Stable-Baselines3."""
