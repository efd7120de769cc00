"""fastText models, whose word vectors are composed of character n-grams."""
