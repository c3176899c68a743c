"""Rendering: a document as a page, as Markdown and as files."""
