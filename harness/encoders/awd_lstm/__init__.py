"""AWD-LSTM language models (ULMFiT; Howard & Ruder 2018)."""
