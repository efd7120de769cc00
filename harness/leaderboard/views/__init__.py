"""Views of the leaderboard: comparisons, costs, published results."""
