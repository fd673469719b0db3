# SPDX-License-Identifier: Apache-2.0
"""What to raise where something that is optional is not installed."""


def torch(who: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """The error of a module that imports torch, with what to do about it."""
    if error.name != "torch":
        return error
    text = f"{who} needs torch, which is not installed: pip install torch"
    return ModuleNotFoundError(text, name="torch")
