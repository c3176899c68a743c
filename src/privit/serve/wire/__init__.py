"""The wire: frames, TLS, who may speak, and the tunnel that carries the engine's messages."""
