"""ELMo: character-based bidirectional language models (Peters et al. 2018)."""
