"""What each fungus leaves behind: arrivals and readers simulated, the fungi themselves are the real ones."""
