"""Data rot: copies of other people's data are forgotten on purpose, within a budget."""
