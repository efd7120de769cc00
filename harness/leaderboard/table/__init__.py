"""From records to the rows of the leaderboard."""
