"""The engine: protocols, compiling, and SPU runtimes in this process or in one of their own."""
