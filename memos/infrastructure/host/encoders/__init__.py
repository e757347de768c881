"""Small encoders beside the model: texts to vectors, pairs to scores, messages to tagged parts."""
