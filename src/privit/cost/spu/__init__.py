"""SPU: bytes, rounds and seconds predicted from a measured table."""
