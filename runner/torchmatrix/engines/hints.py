"""Hints for known messages of the engines."""

_HINTS = {
    "no space left on device": "free space (docker system df; TORCHMATRIX_CACHE moves virtualenvs to another disk)",
    "could not select device driver": "install the NVIDIA Container Toolkit and restart Docker",
    "unknown runtime specified": "install the NVIDIA Container Toolkit and restart Docker",
    "certificate verify failed": "the image or this machine lacks your proxy's certificate authority",
    "no such image": "it was removed in the meantime; build it again: torchmatrix build",
    "no such host": "check the network, the proxy settings and the name",
}


def with_hint(message: str) -> str:
    """`message`, with a hint if it is a known one."""
    hint = next((hint for sign, hint in _HINTS.items() if sign in message.lower()), None)
    return f"{message}; {hint}" if hint else message
