"""Configuration files from `bench/peers/`: `@name@` is replaced; an unknown or forgotten name is an error."""

import os
import re

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "peers")


def render(name, folder, values):
    """Writes the template `name` with `values` into `folder`; returns the path of the file."""
    content = text(name, values)
    path = os.path.join(folder, os.path.basename(name))
    with open(path, "w", encoding="utf-8") as file:
        file.write(content)
    return path


def text(name, values):
    """The template `name` with `values`."""
    with open(os.path.join(FOLDER, name), encoding="utf-8") as file:
        return re.sub(r"@([a-z_0-9]+)@", lambda match: str(values[match.group(1)]), file.read())
