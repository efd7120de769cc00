"""Static word vectors: word2vec, GloVe and fastText tables."""
