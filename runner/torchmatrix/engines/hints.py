"""Hints for known messages of the engines."""

_DESCRIBE = "sudo nvidia-ctk cdi generate --device-name-strategy=uuid --output=/etc/cdi/nvidia.yaml"
_HINTS = {
    "no space left on device": "free space (docker system df; TORCHMATRIX_CACHE moves virtualenvs to another disk)",
    "could not select device driver": "install the NVIDIA Container Toolkit and restart Docker",
    "unknown runtime specified": "install the NVIDIA Container Toolkit and restart Docker",
    "unresolvable cdi devices": f"describe the GPUs: {_DESCRIBE}",
    "certificate verify failed": "the image or this machine lacks your proxy's certificate authority",
    "no such image": "it was removed in the meantime; build it again: torchmatrix build",
    "no such host": "check the network, the proxy settings and the name",
}


def with_hint(message: str) -> str:
    """`message`, with a hint if it is a known one."""
    hint = next((hint for sign, hint in _HINTS.items() if sign in message.lower()), None)
    return f"{message}; {hint}" if hint else message
