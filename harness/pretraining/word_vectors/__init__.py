"""Training of word2vec, fastText and GloVe vectors."""
