"""Host models: timm's, Hugging Face's, fresh ones, read into a spec and canonical weights."""
