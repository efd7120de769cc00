"""Turn records into the rows and tables of the leaderboard."""
