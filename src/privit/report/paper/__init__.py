"""The paper's own numbers."""
