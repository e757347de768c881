"""Small encoders beside the model: embedding, reranking, tagging."""
