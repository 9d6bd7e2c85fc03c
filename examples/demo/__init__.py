"""The slothmail story, played by real nodes and a real pipeline."""
